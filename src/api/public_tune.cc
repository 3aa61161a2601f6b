// nestor/tune.h for handles of nests.
#include "api/public_nest.h"
#include "autotune/tune_api.h"
#include "support/error.h"

namespace nestor_api {

nestor::TuneReport tune(const Nest& nest, const nestor::Sizes& sizes, const nestor::TuneOptions& options) {
  nestor::TuneOptions all = options;
  for (const auto& [name, value] : sizes) {
    const auto [place, added] = all.sizes.emplace(name, value);
    if (!added && place->second != value) {
      nestor::user_error("size {} is {} among the sizes and {} in the options: name it once", name, value, place->second);
    }
  }
  return nestor::tune_nest(Internals::nest_of(nest), all);
}

}  // namespace nestor_api
