// Sums over one of two rows of things, of what all their pairs make (distances of points).
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/structure/nest_structure.h"
#include "poly/nest/nest.h"

namespace nestor {

/// The common axis of a group whose heaviest sum has terms of pairs: what follows the axis stays the same for all terms of an element, and
/// what the terms run along is the same for all elements. -1: it is no such sum.
int axis_of_pairs(const Nest& nest, const NestStructure& structure, const FusionGroup& group);

/// Values for such a group: threads share elements along the axis and, in groups, the terms. Each keeps what belongs to its elements.
NamedValues values_of_pairs(const NestStructure& structure, const FusionGroup& group, int axis, std::int64_t elements);

/// The common axis of a group whose heaviest sum has results along it, while no operand changes along it: what a term is made of serves all
/// results, as a key does that is counted in one of many bins. -1: it is no such sum.
int axis_of_shared_terms(const Nest& nest, const NestStructure& structure, const FusionGroup& group);

/// Sums of a thread along such an axis, which its registers hold.
inline constexpr std::int64_t kSumsOfThread = 32;

/// Values for such a group: blocks of one warp, each thread of which has as many sums as it has registers for.
NamedValues values_of_shared_terms(const NestStructure& structure, const FusionGroup& group, int axis);

}  // namespace nestor
