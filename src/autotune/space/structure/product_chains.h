// Chains of products: what one product leads to is multiplied by the next, row by row, as the weights of attention are.
#pragma once

#include "autotune/space/structure/nest_structure.h"
#include "poly/nest/nest.h"

#include <vector>

namespace nestor {

/// Consecutive loop groups: a chain of products, or what stands before, between and behind chains.
struct ProductStage {
  std::vector<int> loop_groups;
  bool chain = false;
};

/// Loop groups in textual order, cut around chains of products: first the one that keeps most elements from memory, then others beside it.
/// Queries, keys and values that are products themselves are stages before attention, and a product of its result is one behind it.
/// Without a chain, products whose columns are reduced to values of rows are parted so from other products: in one kernel they keep what they
/// multiply from memory. Without either they are one stage.
std::vector<ProductStage> product_stages(const Nest& nest, const NestStructure& structure, const std::vector<int>& loop_groups);

/// Is what the loop groups make of sums of few elements (guards of products) stored, and read again among them? One kernel has it in registers
/// or in memory, not in both.
bool reads_stored_sums(const Nest& nest, const NestStructure& structure, const std::vector<int>& loop_groups);

}  // namespace nestor
