// Staging: copies of the part of a tensor that one iteration of a loop reads.
#pragma once

#include "codegen/tile/places/storage.h"

#include <string>
#include <vector>

namespace nestor {

/// A copy to be made at the start of each iteration of a loop.
struct StagePlan {
  std::string tensor;
  std::string loop;
  const StatementPlan* reader = nullptr;  ///< one statement inside the loop: its first `depth` loops are those of the copy
  std::size_t depth = 0;
  std::vector<std::string> readers;  ///< statements that read the copy
  Placement placement;
};

/// Adds the buffers, and redirects reads in `storage.staged`. Throws UserError: a loop that is no outer loop of a reader,
/// a tensor that nobody reads there, a part without constant size, a tensor that is not in memory.
std::vector<StagePlan> plan_stages(const ProgramPlan& plan, Storage& storage);

/// The copy itself, over variables of the loops around it. `known`, { [loops around] }: what holds of them.
TileOp stage_op(const ProgramPlan& plan, const Storage& storage, const StagePlan& stage, const isl::set& known);

}  // namespace nestor
