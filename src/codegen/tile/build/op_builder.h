// From one statement at one place of the program to a tile op: box, guard, indices and kind.
#pragma once

#include "codegen/tile/places/bounds.h"
#include "codegen/tile/places/plan.h"
#include "codegen/tile/places/storage.h"

#include <optional>

namespace nestor {

/// The box of an op: the smallest one around all instances, for every outer iteration.
struct OpBox {
  isl::map points;             ///< { [outer] -> [inner] } instances
  isl::map hull;               ///< the same, filled up to the box
  std::vector<Interval> dims;  ///< one an inner loop
  bool exact = false;          ///< points and hull are equal
  bool parts =
      false;  ///< bounds are what its parts have in common: on tensor cores, of a union of many conditions, or of iterations without points
};

/// The iterations { [outer] } at which an op of the statement may run, around those in `exact`, where it has points. They are the same, but for
/// serial loops of kernels on tensor cores where those are told by divisions of the loop's variable: conditions on loops have none there, and
/// tiles without points are left to guards.
isl::set visited_iterations(const ProgramPlan& plan, const StatementPlan& statement, const isl::set& exact);

/// `domain`: the outer iterations { [outer] } at which the op runs, as visited_iterations() has them.
OpBox make_box(const ProgramPlan& plan, const StatementPlan& statement, const isl::set& domain);

/// { [outer] -> Tensor[index] } that the op touches through `access` when its inner loops run over `inner`, { [outer] -> [inner] }. At
/// points that are no instances ops compute what is simplest for the instances; where that is a choice, all that it may be.
isl::map touched_by(const StatementPlan& plan, const Access& access, const isl::map& inner);

/// { [outer] -> Tensor[index] } the elements that a buffer has room for, at the statement's outer loops.
isl::map room(const StatementPlan& statement, const Placement& placement);

/// How points of the hull that are no instances are treated.
struct GuardPlan {
  bool guarded = true;         ///< the op tests each point (meaningless when the box is exact)
  std::optional<double> fill;  ///< value written where the test fails
};

/// The op of a statement. Indices are relative to the buffers' origins; reads follow Statement::reads.
TileOp make_op(const ProgramPlan& plan, const Storage& storage, const StatementPlan& statement, const OpBox& box,
               const GuardPlan& guard);

/// `access` of the statement as an access to the buffer of `placement`, over the loops [outer, inner].
TileAccess buffer_access(const ProgramPlan& plan, const Placement& placement, const StatementPlan& statement,
                         const Access& access);

/// An affine function of the statement's dims, over the loops [outer, inner].
IntExpr at_loops(const ProgramPlan& plan, const StatementPlan& statement, const isl::pw_aff& function);

/// Gives the op the kind that its structure proves, and its contraction. `any_index`: dims that carry no dependence write each element once,
/// whatever the indices (a quotient and a remainder, say).
void classify(TileOp& op, bool any_index = false);

}  // namespace nestor
