// Sums over memory that few elements of a tile need: those where a condition over the tile holds.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"

namespace nestor::nvptx {

/// The form of an op t[r, c] += condition ? term : 0 (or the other way round), summed over one dim k. The condition reads a tile and is free of
/// k; terms read memory alone. `k` receives the dim. nullopt: it has another form.
std::optional<SeldomSum> seldom_sum(const TileOp& op, const std::vector<Buffer>& buffers, int& k);

}  // namespace nestor::nvptx
