// Sums of a few terms, written as one value.
#pragma once

#include "poly/nest/nest.h"

#include <optional>
#include <string>

namespace nestor {

/// The nest with one definition of a temporary in place of its start and a sum of a few terms: the same operations in the same order.
/// Nothing where `sum` is no such sum: how many terms it has hangs on a size or an element, or it is no sum of f32.
std::optional<Nest> with_sum_as_value(const Nest& nest, const std::string& sum);

}  // namespace nestor
