// Functions without their domain.
#include "poly/isl/whole_function.h"

#include <isl/aff.h>

#include "poly/isl/isl_tools.h"

#include <isl/aff.h>
#include <isl/set.h>

namespace nestor {

std::optional<isl::multi_aff> whole_function(const isl::map& relation) {
  if (!relation.is_single_valued()) return std::nullopt;
  const isl::pw_multi_aff function = isl::manage(isl_pw_multi_aff_from_map(relation.copy()));
  std::optional<isl::multi_aff> found;
  if (isl_pw_multi_aff_n_piece(function.get()) != 1) return found;
  const auto take = [](isl_set* domain, isl_multi_aff* piece, void* user) {
    isl_set_free(domain);
    *static_cast<std::optional<isl::multi_aff>*>(user) = isl::manage(piece);
    return isl_stat_ok;
  };
  isl_pw_multi_aff_foreach_piece(function.get(), take, &found);
  return found;
}

std::vector<isl::pw_aff> functions_on(const isl::map& relation, const isl::set& domain) {
  std::vector<isl::pw_aff> functions = functions_of(relation);
  for (isl::pw_aff& function : functions) function = isl::manage(isl_pw_aff_gist(function.copy(), domain.copy()));
  return functions;
}

}  // namespace nestor
