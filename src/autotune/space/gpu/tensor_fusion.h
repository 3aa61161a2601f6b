// Tensor fusion: which statements share a kernel so that its products get tensor cores.
#pragma once

#include "autotune/space/gpu/axes/tensor_axes.h"
#include "autotune/space/space_limits.h"
#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/rule_variants.h"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace nestor {

/// How far statements are fused so that products get tensor cores: as far as they can be, unless a preparation is in the way or tiles do
/// not fit; at last a kernel for each product.
Fusion fusion_for_tensor_cores(RuleVariants& variants, const RuleVariant& variant, const GpuLimits& limits);

/// tensor_axes() of a fusion group that `variants` has given for the variant, worked out once. The result lives as long as they do.
const std::optional<TensorAxes>& tensor_axes_of(RuleVariants& variants, const RuleVariant& variant, const FusionGroup& group,
                                                int sm);

/// Axes of the heaviest fusion group after the rules, fused as for tensor cores.
std::optional<TensorAxes> tensor_axes_after(RuleVariants& variants, const std::set<std::string>& rules, const GpuLimits& limits);

/// Do products of the heaviest group fit tensor cores, and those of no other group start apart?
bool has_place(RuleVariants& variants, const RuleVariant& variant, Fusion fusion, const GpuLimits& limits);

/// Points of the statements for which `counts` holds, in groups that no tensor cores take.
double points_on_lanes(RuleVariants& variants, const RuleVariant& variant, Fusion fusion, const GpuLimits& limits,
                       const std::function<bool(const Statement&)>& counts = multiplies_matrices);

/// Elements of temporaries that a kernel writes and others read, once for each of these.
double points_between_kernels(RuleVariants& variants, const RuleVariant& variant, Fusion fusion);

}  // namespace nestor
