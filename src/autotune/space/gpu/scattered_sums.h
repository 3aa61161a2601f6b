// Sums to whose terms data says where they belong.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/structure/nest_structure.h"
#include "poly/nest/nest.h"

namespace nestor {

/// Parameter of spaces with such sums: do threads look for the terms of theirs?
inline constexpr const char* kScatterParameter = "scatter";

/// The dim of the statement along which data says to which of many sums a term belongs: terms change nothing unless an index along it is a number
/// that does not follow it. -1: it is no such sum.
int scattered_dim(const Statement& statement);

/// Has the group such a sum?
bool scatters_terms(const Nest& nest, const NestStructure& structure, const FusionGroup& group);

/// What blocks of such sums are like.
struct ScatteredBlocks {
  std::int64_t threads = 128;   ///< where they are not the sums' own: those of places along memory have 32
  std::int64_t fewest = 132;    ///< blocks, unless that leaves threads too few sums for looking to pay
  std::int64_t most = 1 << 14;  ///< sums of a block: it keeps them on chip, and other blocks fit beside it
};

/// Values for such a group. Empty for others.
NamedValues values_of_scattered(const Nest& nest, const NestStructure& structure, const FusionGroup& group,
                                const ScatteredBlocks& blocks);

}  // namespace nestor
