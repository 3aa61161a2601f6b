// HalfProducts: sums of products of two 16-bit tensors.
#pragma once

#include "poly/nest/nest.h"

#include <cstddef>
#include <optional>
#include <utility>

namespace nestor {

/// Ordinals of the two different reads of 16 bits whose products, in f32, the statement adds up; nullopt: it is something else.
std::optional<std::pair<std::size_t, std::size_t>> half_products(const Statement& statement);

}  // namespace nestor
