// Coverage of outputs by isl, strides, scalars.
#include "autotune/trial/argument_facts.h"

#include "poly/isl/context.h"
#include "support/error.h"
#include "support/scalar_range.h"
#include "support/words/nearest_word.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor {

bool writes_every_element(const Nest& nest, const Tensor& tensor, const Sizes& sizes) {
  return isl_guarded("the elements that are written", [&] {
    isl_set* missing = nullptr;
    for (const Statement& statement : nest.statements) {
      if (statement.write.tensor != tensor.name) continue;
      isl_map* write = isl_map_intersect_domain(statement.write.relation.copy(), statement.domain.copy());
      isl_set* written = isl_map_range(write);
      if (!missing) {
        missing = isl_set_universe(isl_set_get_space(written));
        const auto shape = shape_at(tensor, sizes);
        for (std::size_t k = 0; k < shape.size(); ++k) {
          missing = isl_set_lower_bound_si(missing, isl_dim_set, k, 0);
          missing = isl_set_upper_bound_si(missing, isl_dim_set, k, static_cast<int>(shape[k] - 1));
        }
        for (const auto& [name, value] : sizes) {
          const int position = isl_set_find_dim_by_name(missing, isl_dim_param, name.c_str());
          if (position >= 0) missing = isl_set_fix_si(missing, isl_dim_param, position, static_cast<int>(value));
        }
      }
      missing = isl_set_subtract(missing, written);
    }
    const bool covered = missing && isl_set_is_empty(missing) == isl_bool_true;
    isl_set_free(missing);
    return covered;
  });
}

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t k = strides.size(); k-- > 1;) strides[k - 1] = strides[k] * shape[k];
  return strides;
}

void check_scalars(const Nest& nest, const std::map<std::string, double>& scalars) {
  for (const auto& [name, value] : scalars) {
    const auto known = std::find_if(nest.scalars.begin(), nest.scalars.end(),
                                    [&, &name = name](const ScalarParam& p) { return p.name == name; });
    if (known == nest.scalars.end()) {
      std::vector<std::string> names;
      for (const ScalarParam& scalar : nest.scalars) names.push_back(scalar.name);
      user_error("{} has no scalar argument '{}'{}", nest.op, name, did_you_mean(name, names));
    }
    if (!in_range(value, *known)) user_error("scalar {} of {} is {}; it must be {}", name, nest.op, value, range_text(*known));
  }
}

std::vector<double> scalar_values(const LaunchRecipe& recipe, const std::map<std::string, double>& given) {
  std::vector<double> values;
  for (const ScalarSpec& scalar : recipe.scalars) {
    const auto found = given.find(scalar.name);
    values.push_back(found == given.end() ? scalar.default_value : found->second);
  }
  return values;
}

}  // namespace nestor
