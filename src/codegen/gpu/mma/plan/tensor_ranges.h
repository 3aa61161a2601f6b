// Which iterations of a loop over tiles are run, and where they need tests: parts at which masks hold for whole tiles, and the parts
// between them.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"

#include <vector>

namespace nestor::nvptx {

/// Iterations lower <= i < upper of a loop, none where upper <= lower.
struct Stretch {
  IntExpr lower, upper;
  /// A condition of the form "below b or from a on" has been cut in two: the stretch below, that from a on, or neither.
  enum class Side : std::uint8_t { whole, below, above } side = Side::whole;
};

/// What runs at an iteration of a loop, and on which condition over its variable (undefined: at all of them).
struct LoopBody {
  IntExpr condition;
  const std::vector<TileTree>* children = nullptr;
};
LoopBody body_of(const TileNode& loop);

/// The iterations at which the loop's body runs, each once, in order: one stretch, or two where its condition leaves out some in the
/// middle. Throws UserError where it leaves out others.
std::vector<Stretch> stretches_of(const TensorPlan& plan, const TileNode& loop);

/// Iterations from <= i < to of a stretch, none where to <= from.
struct TestedRange {
  IntExpr from, to;
  bool masked = true;
};

/// The iterations of a stretch of the loop over `var` from `from` on, each once and in order, cut where the masks of `ops` (numbers)
/// change between holding for the whole tile and not. Exact for masks whose clauses each have alternatives of one direction along the
/// loop; for clauses with two directions a tile counts as whole where one direction's alternatives fill it, in stretches of one side
/// that direction's. `back`: what runs at an iteration computes parts of those as far back as so many, from `from` - `back` on, and needs
/// tests where one of them does.
std::vector<TestedRange> tested_ranges(const TensorPlan& plan, const std::string& var, const Stretch& stretch,
                                       const IntExpr& from, const std::vector<int>& ops, int back = 0);

}  // namespace nestor::nvptx
