// When the leading value of an online composite may be any reference value instead of the exact extremum.
#pragma once

#include <optional>
#include <string>

#include "poly/algebra/analysis/online_plan.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/nest.h"

namespace nestor {

/// How fast terms fall while the leading value grows: they scale as exp(-rate m), in natural units whatever their base. The largest
/// rate of the plan's mediators and followers; nullopt when these are multiples of different scalars.
std::optional<Monomial> common_rate(const OnlinePlan& plan);

/// Empty if no result changes when every leading value m is replaced by some m + d and, with it, every accumulator r of the plan by
/// exp(-rate d) r: quotients of accumulators, or m plus the logarithm of one. Otherwise what changes. Then m may be any number for which
/// terms are finite and accumulators are not 0.
std::string objection_to_free_reference(const Nest& nest, const OnlinePlan& plan);

}  // namespace nestor
