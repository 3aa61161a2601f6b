// RolledSums: sums that differ by constants in their indices, as one sum over these.
#pragma once

#include <isl/cpp.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "poly/nest/nest.h"

namespace nestor {

constexpr std::size_t kFewestRolled = 3;  ///< sums: two are one kernel's as they are

using Shift = std::vector<std::int64_t>;  ///< constants of all indices, less those of the first sum

/// A box of shifts: each is a sum of steps.
struct Grid {
  std::vector<Shift> steps;
  std::vector<Shift> places;  ///< how often each shift takes the steps
};

/// A sum and the affine functions of its accesses: of what it writes, of its reads, and of its integers.
struct AffineSum {
  Statement sum, start;
  std::vector<isl::aff> write, others;
};
/// Nothing where accesses are not affine.
std::optional<AffineSum> affine_sum(const Statement& sum, const Statement& start);

/// The constants by which accesses of `other` differ from those of `one`; nothing where something else does.
std::optional<Shift> shift_of(const Nest& nest, const AffineSum& one, const AffineSum& other);

/// Sums that become one, the first of which has the least constants, and where each stands among them.
struct Rolled {
  std::vector<AffineSum> sums;
  Grid grid;
};

/// Sums with their shifts as one; nothing where they are few, the shifts no box, or the points in pieces.
std::optional<Rolled> rolled_up(const Nest& nest, std::vector<std::pair<Shift, AffineSum>> alike);

/// The first sum, over all points: with a dim for each step in front of its reduced ones.
Statement joint_sum(const Nest& nest, const Rolled& rolled);

}  // namespace nestor
