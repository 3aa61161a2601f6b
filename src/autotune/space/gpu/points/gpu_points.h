// GPU points: the candidates for a GPU that are tried first.
#pragma once

#include "autotune/space/gpu/points/point_source.h"

#include <vector>

namespace nestor {

/// Coordinates by name, best guess first: products on tensor cores where there are any; blocks that run over a part of the points
/// each where sums over many work tiles have such parts; else first without composites, whose single pass is for rows that do not
/// fit.
std::vector<NamedValues> likely_gpu_values(const GpuPointSource& source);

/// Does the GPU have the tensor core instructions that tensor_steps() are for?
bool has_tensor_cores(const GpuLimits& limits);

}  // namespace nestor
