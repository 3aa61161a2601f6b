// The digest of a nest: XXH3-128 over a canonical text in which isl objects are sorted lists of normalised constraints over
// dimension positions, so that neither isl's printer nor the order of its pieces matters.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/local_space.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_json.h"
#include "poly/nest/scalar_json.h"

namespace nestor {
namespace {

/// A sum as text: terms sorted by what they multiply.
class Sum {
 public:
  void add(const isl::val& factor, const std::string& what) {
    if (isl_val_is_zero(factor.get()) != isl_bool_true) terms_.emplace_back(what, factor);
  }
  std::string str() {
    std::sort(terms_.begin(), terms_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::string text;
    for (const auto& [what, factor] : terms_) {
      text += fmt::format("{}/{}*{};", isl_val_get_num_si(factor.get()), isl_val_get_den_si(factor.get()), what);
    }
    return text;
  }

 private:
  std::vector<std::pair<std::string, isl::val>> terms_;
};

std::string aff_text(const isl::aff& function);

std::string div_text(const isl::aff& function, int position) {
  return "floor(" + aff_text(isl::manage(isl_aff_get_div(function.get(), position))) + ")";
}

std::string aff_text(const isl::aff& function) {
  Sum sum;
  isl_local_space* local = isl_aff_get_domain_local_space(function.get());
  const int params = static_cast<int>(isl_aff_dim(function.get(), isl_dim_param));
  for (int k = 0; k < params; ++k) {
    const char* name = isl_local_space_get_dim_name(local, isl_dim_param, static_cast<unsigned>(k));
    sum.add(isl::manage(isl_aff_get_coefficient_val(function.get(), isl_dim_param, k)), std::string("p.") + name);
  }
  isl_local_space_free(local);
  const int dims = static_cast<int>(isl_aff_dim(function.get(), isl_dim_in));
  for (int k = 0; k < dims; ++k) {
    sum.add(isl::manage(isl_aff_get_coefficient_val(function.get(), isl_dim_in, k)), fmt::format("d{}", k));
  }
  const int divs = static_cast<int>(isl_aff_dim(function.get(), isl_dim_div));
  for (int k = 0; k < divs; ++k) {
    const isl::val factor = isl::manage(isl_aff_get_coefficient_val(function.get(), isl_dim_div, k));
    if (isl_val_is_zero(factor.get()) != isl_bool_true) sum.add(factor, div_text(function, k));
  }
  sum.add(isl::manage(isl_aff_get_constant_val(function.get())), "1");
  return sum.str();
}

/// A constraint as text; an equality's sign is normalised. Constraints that only define a div are covered by its text.
std::string constraint_text(isl_constraint* constraint) {
  const bool equality = isl_constraint_is_equality(constraint) == isl_bool_true;
  const isl::aff function = isl::manage(isl_constraint_get_aff(constraint));
  const std::string text = aff_text(function);
  if (!equality) return text + ">=0";
  return std::min(text, aff_text(function.neg())) + "=0";
}

isl_stat add_constraint(isl_constraint* constraint, void* user) {
  auto& texts = *static_cast<std::vector<std::string>*>(user);
  if (isl_constraint_is_div_constraint(constraint) != isl_bool_true) texts.push_back(constraint_text(constraint));
  isl_constraint_free(constraint);
  return isl_stat_ok;
}

std::string canonical(const isl::set& set) {
  isl_set* plain = isl_set_reset_tuple_id(isl_set_flatten(set.copy()));
  plain = isl_set_coalesce(isl_set_remove_redundancies(isl_set_detect_equalities(isl_set_compute_divs(plain))));
  plain = isl_set_remove_redundancies(plain);
  std::vector<std::string> pieces;
  isl::manage(plain).foreach_basic_set([&](const isl::basic_set& piece) {
    std::vector<std::string> constraints;
    isl_basic_set_foreach_constraint(piece.get(), add_constraint, &constraints);
    std::sort(constraints.begin(), constraints.end());
    pieces.push_back(fmt::format("{}", fmt::join(constraints, " ")));
  });
  std::sort(pieces.begin(), pieces.end());
  return fmt::format("{{{}}}", fmt::join(pieces, "|"));
}

std::string canonical(const isl::map& map) {
  return fmt::format("{}->{}{}", map.domain_tuple_dim(), map.range_tuple_dim(), canonical(map.wrap()));
}

std::string canonical(const isl::pw_aff& function) { return canonical(isl::manage(isl_map_from_pw_aff(function.copy()))); }

std::string canonical_extent(const isl::pw_aff& extent) {
  return canonical(isl::manage(isl_set_from_pw_aff(over_params(extent).release())));
}

std::string canonical(const Access& access) { return access.tensor + canonical(access.relation); }

std::string canonical(const Statement& statement) {
  std::string text = fmt::format("S {} {} {} {}\n", statement.name, statement.dims.size(), statement.group,
                                 statement.reduction ? to_string(*statement.reduction) : "set");
  text += canonical(statement.domain) + "\n" + canonical(statement.write) + "\n";
  for (const Access& read : statement.reads) text += "R " + canonical(read) + "\n";
  for (const isl::pw_aff& index : statement.indices) text += "I " + canonical(index) + "\n";
  return text + scalar_expr_to_json(statement.value).dump() + "\n";
}

/// Defaults are left out: they say what to try, not what is computed.
std::string canonical(const Nest& nest) {
  std::string text = fmt::format("nest {} {} {} {}\n", kNestFormat, nest.op, nest.variant, nest.tolerance);
  for (const SizeParam& size : nest.sizes) {
    text += fmt::format("N {} {} {} {}\n", size.name, size.min, size.max ? fmt::format("{}", *size.max) : "-", size.specialized);
  }
  for (const ScalarParam& scalar : nest.scalars) {
    text += fmt::format("C {} {}", scalar.name, to_string(scalar.type));
    if (!std::isinf(scalar.minimum)) text += fmt::format(" min {}", scalar.minimum);
    if (!std::isinf(scalar.maximum)) text += fmt::format(" max {}", scalar.maximum);
    text += '\n';
  }
  text += canonical(nest.context) + "\n";
  for (const Tensor& tensor : nest.tensors) {
    text += fmt::format("T {} {} {}", tensor.name, to_string(tensor.type), to_string(tensor.role));
    for (const isl::pw_aff& extent : tensor.shape) text += " " + canonical_extent(extent);
    if (tensor.tolerance) text += fmt::format(" within {}", *tensor.tolerance);
    text += "\n";
  }
  for (const Statement& statement : nest.statements) text += canonical(statement);
  return text;
}

}  // namespace

std::string digest(const Nest& nest) {
  std::string text;
  with_isl_budget("the digest of " + nest.op, [&] { text = canonical(nest); });
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace nestor
