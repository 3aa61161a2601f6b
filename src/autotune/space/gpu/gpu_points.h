// GPU points: the candidates for a GPU that are tried first.
#pragma once

#include "autotune/space/gpu/gpu_steps.h"
#include "autotune/space/space.h"
#include "autotune/space/structure/rule_variants.h"

#include <set>
#include <string>
#include <vector>

namespace nestor {

/// What the points are chosen from.
struct GpuPointSource {
  RuleVariants& variants;
  const GpuLimits& limits;
  const std::vector<Parameter>& parameters;                ///< of the space
  const std::vector<std::string>& rules;                   ///< all that match the nest
  const std::set<std::string>& usual_rules;                ///< those of `rules` that pay off almost everywhere
  const std::vector<std::set<std::string>>& tensor_rules;  ///< choices for candidates on tensor cores, the best guess first
  const std::vector<int>& split_axes;                      ///< along which reductions can be cut into parts
  int columns = -1;  ///< axis of the columns of sums of products whose terms are streamed, as the usual rules number it; -1: none
};

/// Coordinates by name, best guess first: products on tensor cores where there are any; blocks that run over a part of the points
/// each where sums over many work tiles have such parts; else first without composites, whose single pass is for rows that do not fit.
std::vector<NamedValues> likely_gpu_values(const GpuPointSource& source);

/// Does the GPU have the tensor core instructions that tensor_steps() are for?
bool has_tensor_cores(const GpuLimits& limits);

}  // namespace nestor
