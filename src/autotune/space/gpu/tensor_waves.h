// Tensor waves: tiles of sums of products whose blocks fill all multiprocessors about equally.
#pragma once

#include "autotune/space/gpu/axes/tensor_axes.h"
#include "autotune/space/gpu/tensor_steps.h"
#include "autotune/space/space_limits.h"

#include <cstdint>
#include <vector>

namespace nestor {

/// Cycles that a streamed sum of products takes by a simple model: waves of blocks, each as long as its products, or as what it copies from
/// the L2 cache, with a round of barriers for each tile; where parts of the sum are added up behind them, that as well. `parts`: of the sum.
double modelled_cycles(const TensorAxes& axes, const TensorChoice& choice, std::int64_t parts, const GpuLimits& limits);

/// Into how many parts the work of so many blocks is cut so that each multiprocessor has `rounds` of them: 1 where more than half of them
/// have one, or where a part would be less than a few of the `tiles` that are streamed.
std::int64_t useful_parts(std::int64_t blocks, int rounds, std::int64_t tiles, const GpuLimits& limits);

/// Of tiles that fit, and whose results leave in whole lines, those with the shortest time by the model, best first; none where there are
/// many waves of the largest tiles, whose last one matters little.
std::vector<TensorChoice> choices_in_few_waves(const TensorAxes& axes, const GpuLimits& limits);

}  // namespace nestor
