// What measuring needs to know about a nest's arguments, on every device.
#pragma once

#include "poly/nest/nest.h"
#include "support/launch_recipe.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// True when the statements of the nest write every element of `tensor`.
bool writes_every_element(const Nest& nest, const Tensor& tensor, const Sizes& sizes);

/// Strides of dense row-major data, in elements.
std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& shape);

/// Throws UserError when `scalars` names one that the nest does not have, or gives one a value out of its range.
void check_scalars(const Nest& nest, const std::map<std::string, double>& scalars);

/// Scalars that `given` lacks take their default.
std::vector<double> scalar_values(const LaunchRecipe& recipe, const std::map<std::string, double>& given);

}  // namespace nestor
