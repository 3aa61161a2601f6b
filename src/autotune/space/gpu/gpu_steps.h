// GpuSteps: what candidates for a GPU have besides shared and tiled loops: grids of blocks, staged inputs, cache hints.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/space_limits.h"
#include "autotune/space/structure/group_steps.h"
#include "support/knobs.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// One choice of the parameters below.
struct GpuChoice {
  /// How inputs come to a block. direct: each access loads; reused: inputs that several statements read are kept on chip;
  /// all: every input is.
  enum class Staging : std::uint8_t { direct, reused, all } staging = Staging::direct;
  GridShape grid{.threads = 256};
  int prefetch = 0;  ///< work tiles (or points of a part) whose inputs a block has on their way while it works on one
  bool streaming_inputs = false;          ///< of inputs that are staged
  bool streaming_outputs = false;         ///< of outputs
  std::vector<std::string> transposed{};  ///< tensors that a block copies to the chip by rows, to read them across
};

std::vector<Parameter> gpu_parameters(const GpuLimits& limits);
GpuChoice gpu_choice(const NamedValues& values);

/// The part of a nest that one fusion group of statements is, as the functions below need it.
struct GpuGroup {
  const Nest& nest;
  const NestStructure& structure;
  const FusionGroup& group;
  const GroupPlan& plan;
  const Sizes& sizes;
};

/// The fusion group's steps with a grid in place of parallel loops, and the choice's steps after them.
std::vector<Step> gpu_steps(const GpuGroup& part, const GroupSteps& shape, const GpuChoice& choice);

/// Why the choice cannot run or would leave most threads idle, known without compiling; empty when neither is so.
std::string gpu_infeasible(const GpuGroup& part, const GpuChoice& choice, const GpuLimits& limits);

/// Points of the fusion group's largest loop group that a block has at once.
double points_of_block(const GpuGroup& part);

/// Points per iteration of the outer loops of the fusion group's largest loop group, when every tile is 1.
double points_per_work_tile(const NestStructure& structure, const FusionGroup& group);

/// Shapes worth trying first for rows of so many points: values of threads, cluster and rows (a work tile's tile).
struct GpuShape {
  std::int64_t threads, cluster, rows;
};
std::vector<GpuShape> likely_shapes(double points, const GpuLimits& limits);

/// For rows longer than a cluster keeps: each block goes round its share, and few rows have clusters, so that all units are busy.
GpuShape longest_shape(const NestStructure& structure, const FusionGroup& group, const GpuLimits& limits);

/// Which common axes a work tile takes whole: those from `inside` on, so that it has `points` for each position of the others.
struct RowTiles {
  double points = 1;
  std::size_t inside = 0;
};
RowTiles row_tiles(const NestStructure& structure, const FusionGroup& group);

/// Tiles of the group's common axes: `rows` of the innermost one that is not taken whole.
NamedValues values_of(const RowTiles& tiles, const NestStructure& structure, const FusionGroup& group, std::int64_t rows);

/// The shape, with more rows where rows have few points: a thread wants some for itself.
GpuShape shape_of_rows(const RowTiles& tiles, GpuShape shape);

/// Tiles of a group that adds up `parts` parts of each of many sums: fewer sums for a block where there are many parts.
NamedValues tiles_of_few_parts(const NestStructure& structure, const FusionGroup& group, std::int64_t parts);

/// Blocks that keep half of a multiprocessor's threads.
std::int64_t resident_blocks(const GpuShape& shape, const GpuLimits& limits);
/// How blocks of such a shape may take work tiles: one each, or resident_blocks() in turn.
struct GpuResidence {
  std::int64_t persistent = 0, prefetch = 0;
  GpuChoice::Staging staging = GpuChoice::Staging::reused;
};
std::vector<GpuResidence> likely_residences(const GpuShape& shape, const GpuLimits& limits);

}  // namespace nestor
