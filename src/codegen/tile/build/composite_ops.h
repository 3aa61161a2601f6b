// Composite reductions at tile level: saving the leading value, correcting its followers, showing it to its mediators.
#pragma once

#include "codegen/tile/build/op_builder.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// The box of a statement at the place where ops are made; null where it has no instances.
using BoxOf = std::function<const OpBox*(const std::string& statement)>;

/// Adds a buffer for the previous leading value of each active composite. Call once, before ops are built. Returns the buffers'
/// placements by lead statement.
std::map<std::string, Placement> add_previous_values(const ProgramPlan& plan, Storage& storage);

/// Ops to run in place of `lead`, which has instances there: save the leading value, the reduction itself, one correction a follower.
/// Every accumulator whose leading value may have moved is corrected once. Throws UserError where the tiles do not allow that.
std::vector<TileOp> lead_ops(const ProgramPlan& plan, const Storage& storage, const Composite& composite,
                             const Placement& previous, const TileOp& lead, const BoxOf& boxes);

/// Rewrites the op of a mediator or follower so that it sees the running leading value as the composite's view of it.
void apply_view(const ProgramPlan& plan, const Composite& composite, const BoxOf& boxes, const StatementPlan& reader, TileOp& op);

}  // namespace nestor
