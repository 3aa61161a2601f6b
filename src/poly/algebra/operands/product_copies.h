// Copies of products, and of what is made of them, for statements behind others that read the same.
#pragma once

#include "poly/nest/nest.h"

#include <functional>
#include <set>
#include <string>

namespace nestor {

/// Is the tensor a sum of products of two 16-bit tensors, with nothing else added to it?
bool is_product_sum(const Nest& nest, const std::string& tensor);

/// The nest with copies of `tensors`, and of the statements that write them, at `position`. Those for which `takes` holds read the copies.
Nest with_copies(const Nest& nest, const std::set<std::string>& tensors, const std::function<bool(const Statement&)>& takes,
                 std::size_t position);

}  // namespace nestor
