// Chains of products: the ops of a loop that depend on each other, apart from those that do not. Two maps of scores with a softmax each
// are two chains, whatever else they share: one computes while the other one's products run.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"

#include <vector>

namespace nestor::nvptx {

/// Ops by number, in the program's order.
struct Chain {
  std::vector<int> leads;  ///< products with both operands in shared memory, before any other op of the chain
  std::vector<int> rest;
  std::vector<int> late;  ///< products that run beside the next ops of other chains
};

/// The chains of a loop's ops: two ops are of one chain if they touch a tile that one of them writes, or both belong with a third.
/// Throws UserError where there are fewer than two, or one has no leading or no late product.
std::vector<Chain> chains_of(const TensorPlan& plan, const std::vector<int>& ops);

/// The ops of `early` with those last that touch what the products of `late` write, as far as the others allow: the products end under the
/// cover of the others.
std::vector<int> late_readers_last(const TensorPlan& plan, const std::vector<int>& early, const std::vector<int>& late);

}  // namespace nestor::nvptx
