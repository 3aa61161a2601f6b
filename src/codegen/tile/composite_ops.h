// Composite reductions at tile level: saving the leading value, correcting its followers, showing it to its mediators.
#pragma once

#include "codegen/tile/op_builder.h"

#include <string>
#include <vector>

namespace nestor {

/// Adds a buffer for the previous leading value of each active composite. Call once, before ops are built.
/// Returns the buffers' indices by lead statement.
std::map<std::string, int> add_previous_values(const ProgramPlan& plan, Storage& storage);

/// Ops to run in place of `lead`: save the leading value, the reduction itself, one correction a follower.
std::vector<TileOp> lead_ops(const ProgramPlan& plan, const Storage& storage, const Composite& composite, int previous_buffer,
                             const TileOp& lead, const std::map<std::string, OpBox>& boxes);

/// Rewrites the op of a mediator or follower so that it sees the running leading value as the composite's view of it.
void apply_view(const ProgramPlan& plan, const Composite& composite, const std::map<std::string, OpBox>& boxes,
                const StatementPlan& reader, TileOp& op);

}  // namespace nestor
