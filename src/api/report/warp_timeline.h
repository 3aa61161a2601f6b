// Warp timeline: how the roles of a kernel on tensor cores share time, by walking their events with estimated costs.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "codegen/gpu/target/gpu_target.h"
#include "codegen/tile/tile_program.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace nestor {

/// What a lane does from one clock to another.
struct LaneSpan {
  int lane = 0;
  double start = 0, end = 0;  ///< clocks
  std::string kind;           ///< "wait", "product", "compute", "copy", "held"
  std::string text;
};

struct Timeline {
  struct Lane {
    std::string name;
    std::string kind;  ///< "role", "unit" or "stage"
  };
  std::vector<Lane> lanes;  ///< roles, then tensor cores and copies, then every stage of every circular buffer
  std::vector<LaneSpan> spans;
  double clocks = 0;  ///< of one work tile
};

/// One work tile, that of the grid's middle block at these sizes. The order is what barriers, stages and turns allow; times are
/// estimates. Throws UserError when the events cannot be laid out.
Timeline timeline_of(const nvptx::TensorPlan& plan, const Sizes& sizes);

/// Timelines of all kernels of a program that run on tensor cores: {"symbol", "warpgroups", "threads", "shared_bytes", "lanes": [[name, kind]],
/// "texts", "kinds", "spans": [[lane, start, length, kind, text]], "clocks", "gap": [from, to] clocks that are left out, or null}.
nlohmann::json timelines_of(const TileProgram& program, const NvptxTarget& target, const Sizes& sizes);

}  // namespace nestor
