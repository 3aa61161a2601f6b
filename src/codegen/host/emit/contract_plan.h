// Which dims of a contraction are rows, columns and depth of a matrix product, and how its panels are blocked.
#pragma once

#include "codegen/host/emit/op_nest.h"

#include <optional>
#include <vector>

namespace nestor {

/// value = scale * reads[a] * reads[b] after casts: a moves with rows, b with columns, both with depth.
struct ContractPlan {
  int a = 0, b = 1;  ///< read ordinals
  double scale = 1;
  int row = -1, column = -1, depth = -1;
  std::vector<int> outer;        ///< other kept dims: loops around the product
  std::vector<int> outer_depth;  ///< other reduced dims: the product accumulates over them
  GuardLevels outer_guards;      ///< by position in `outer`
  std::vector<IntExpr> row_bounds, column_bounds, depth_bounds;

  int rows = 6;     ///< of C that one microkernel computes
  int vectors = 2;  ///< its columns, in vectors
  unsigned width = 8;
  bool pack_a = false, pack_b = true;
  bool fetch_c = false;  ///< microkernels take long enough for C to come from a far cache meanwhile
  bool direct_c = true;  ///< C is f32 and dense along columns: microkernels update it in place
  std::int64_t block_rows = 0, block_columns = 0, block_depth = 0;  ///< of the panels kept in caches

  std::int64_t panel_columns() const { return static_cast<std::int64_t>(vectors) * width; }
};

/// Nothing when the op has no form that the microkernel takes (no rows, no columns, guards across dims, other types).
std::optional<ContractPlan> plan_contract(const OpContext& context);

}  // namespace nestor
