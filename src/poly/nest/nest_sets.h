// A nest's sets and relations: boxes of tensors, the sizes that it allows, the original order of instances, and what a change of them keeps.
#pragma once

#include <isl/cpp.h>

#include <cstdint>
#include <optional>
#include <string>

#include "poly/nest/nest.h"

namespace nestor {

/// { Tensor[index] : 0 <= index < shape }.
isl::set tensor_box(const Tensor& tensor);

/// The nest's context with the minima and maxima of its sizes.
isl::set full_context(const Nest& nest);

/// full_context() without maxima that no tile reaches: whole dims of up to 2^28 elements are not taken for tiles of that extent.
isl::set shape_context(const Nest& nest);

/// Has the size, a function of the params, one value for all sizes that the nest is defined for?
bool has_one_value(const Nest& nest, const isl::pw_aff& size);

/// The value of a size that has one.
std::optional<std::int64_t> known_value(const Nest& nest, const isl::pw_aff& size);

/// { Source[x] -> Sink[y] : Source[x] runs before Sink[y] in the original order }.
isl::map original_order(const Nest& nest, const std::string& source, const std::string& sink);

/// validate() for a nest that was made of a well-formed one: statements that have stayed as they were there are not checked again, and outputs
/// have the elements written that they had there, and no others.
void validate_changes(const Nest& valid, const Nest& nest);

}  // namespace nestor
