// Where stages are given back: in the middle of a tile's exponentials.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"

#include <vector>

namespace nestor::nvptx {

/// Moves the releases in front of the first tile of exponentials in `events` into their middle. That is soon enough for the copies, and
/// keeps ptxas from moving the wait for late products, which comes behind, in front of the exponentials that should cover them.
void release_early(const TensorPlan& plan, std::vector<EventNode>& events);

/// The same for events of a chain that takes turns with others: so many of the exponentials come first as have to cover the others'
/// products, and the releases stand within their sum if there is one, since ptxas orders exponentials as it likes, but not what is added
/// up.
void release_chain_early(const TensorPlan& plan, std::vector<EventNode>& events);

}  // namespace nestor::nvptx
