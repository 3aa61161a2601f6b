// Steps and limits of GPU candidates.
#include "autotune/space/gpu/gpu_steps.h"

#include "autotune/space/knob_values.h"
#include "autotune/space/structure/axes.h"
#include "codegen/gpu/target/block_registers.h"
#include "codegen/gpu/target/gpu_target.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
#include "poly/schedule/steps/step_table.h"
#include "support/rounding.h"

#include <fmt/format.h>
#include <isl/aff.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

namespace nestor {
namespace {

constexpr std::int64_t kPieceBytes = 16;                ///< of an asynchronous copy
constexpr double kFewPoints = 256, kManyPoints = 4096;  ///< of a work tile that is no row of a sum
constexpr double kPointsOfThread = 8;
constexpr std::int64_t kFewestThreads = 64;  ///< of a block of sums
constexpr double kFewestPoints = 3;          ///< a thread's share below which most of its time goes into overhead

/// Calls `visit(loop_group, statement)` for every statement of the fusion group.
template <class F>
void for_each_statement(const GpuGroup& part, const F& visit) {
  for (const int u : part.group.loop_groups) {
    const LoopGroup& loop_group = part.structure.loop_groups[u];
    for (const std::string& name : loop_group.statements) visit(loop_group, part.nest.statement(name));
  }
}

/// Inputs that the fusion group reads, with the number of statements that do.
std::map<std::string, int> inputs_read(const GpuGroup& part) {
  std::map<std::string, int> readers;
  for_each_statement(part, [&](const LoopGroup&, const Statement& statement) {
    std::set<std::string> read;
    for (const Access& access : statement.reads) {
      if (part.nest.tensor(access.tensor).role == TensorRole::input) read.insert(access.tensor);
    }
    for (const std::string& tensor : read) ++readers[tensor];
  });
  return readers;
}

/// How the fusion group reads an input.
struct InputUse {
  bool follows_work_tiles = false;  ///< work tiles (or points of a part) read different elements
  bool has_rows = false;            ///< elements next to each other belong to one work tile
  bool bounded = true;              ///< what a work tile reads has a size known when compiling
  bool alike = true;                ///< every read takes the same elements of a work tile: threads can keep theirs in registers
};

/// A work tile takes a tile of the axis, or one position of it.
bool is_of_work_tile(const GpuGroup& part, int axis) {
  return part.plan.tile.contains(axis) || (part.group.part && axis == part.group.part->whole);
}

/// Can asynchronous copies, of 4 or of 16 bytes, move what a work tile reads of the input?
bool has_whole_pieces(const GpuGroup& part, const std::string& name, const InputUse& use) {
  const Tensor& tensor = part.nest.tensor(name);
  const auto bytes = static_cast<std::int64_t>(size_in_bytes(tensor.type));
  if (bytes == 4) return true;
  return use.has_rows && has_one_value(part.nest, tensor.shape.back()) &&
         shape_at(tensor, part.sizes).back() * bytes % kPieceBytes == 0;
}

InputUse input_use(const GpuGroup& part, const std::string& tensor) {
  using Place = std::pair<bool, std::optional<std::int64_t>>;  // does an index follow a dim, and its constant term
  InputUse use;
  std::optional<std::vector<Place>> first;
  for_each_statement(part, [&](const LoopGroup& loop_group, const Statement& statement) {
    for (const Access& read : statement.reads) {
      if (read.tensor != tensor) continue;
      const auto followed = followed_dims(read);
      for (std::size_t k = 0; k < followed.size(); ++k) {
        const bool known = followed[k] && static_cast<std::size_t>(*followed[k]) < loop_group.axes.size();
        const bool work_tile = known && is_of_work_tile(part, loop_group.axes[static_cast<std::size_t>(*followed[k])]);
        use.follows_work_tiles = use.follows_work_tiles || work_tile;
        use.has_rows = use.has_rows || (known && !work_tile && k + 1 == followed.size());
        use.bounded = use.bounded && (work_tile || has_one_value(part.nest, part.nest.tensor(tensor).shape[k]));
      }
      std::vector<Place> places;
      const auto terms = constant_terms(read);
      for (std::size_t k = 0; k < followed.size(); ++k) places.emplace_back(followed[k].has_value(), terms[k]);
      use.alike = use.alike && (!first || *first == places);
      first = places;
    }
  });
  return use;
}

std::vector<std::string> staged_inputs(const GpuGroup& part, const GpuChoice& choice) {
  std::vector<std::string> staged;
  if (choice.staging == GpuChoice::Staging::direct || part.plan.order.empty()) return staged;
  for (const auto& [tensor, readers] : inputs_read(part)) {
    const bool wanted = readers > 1 || choice.staging == GpuChoice::Staging::all;
    if (wanted && input_use(part, tensor).bounded) staged.push_back(tensor);
  }
  return staged;
}

/// Extents of the part of a tensor that one work tile touches through `access`: indices that follow an outer loop count with its tile.
std::vector<std::int64_t> extents_of(const GpuGroup& part, const LoopGroup& loop_group, const Access& access) {
  std::vector<std::int64_t> extents = shape_at(part.nest.tensor(access.tensor), part.sizes);
  const auto followed = followed_dims(access);
  for (std::size_t k = 0; k < extents.size(); ++k) {
    std::int64_t& extent = extents[k];
    const auto dim = k < followed.size() ? followed[k] : std::nullopt;
    if (dim && static_cast<std::size_t>(*dim) < loop_group.axes.size()) {
      const int axis = loop_group.axes[static_cast<std::size_t>(*dim)];
      const auto tile = part.plan.tile.find(axis);
      if (tile != part.plan.tile.end()) extent = std::min(extent, tile->second);
      if (axis == part.plan.reduction_axis)
        extent = std::min(extent, part.plan.reduction_tile);
      else if (part.group.part && axis == part.group.part->whole)
        extent = 1;
    }
    extent = std::max<std::int64_t>(extent, 1);
  }
  return extents;
}

std::int64_t elements_of(const GpuGroup& part, const LoopGroup& loop_group, const Access& access) {
  return product_of(extents_of(part, loop_group, access));
}

/// Elements that one work tile keeps on chip: staged inputs, and temporaries of the fusion group, the largest of which takes the place of
/// the largest input.
std::int64_t kept_elements(const GpuGroup& part, const GpuChoice& choice) {
  const std::vector<std::string> staged = staged_inputs(part, choice);
  std::map<std::string, std::int64_t> kept;
  const auto note = [&](const LoopGroup& loop_group, const Access& access) {
    std::int64_t& known = kept[access.tensor];
    known = std::max(known, elements_of(part, loop_group, access));
  };
  for_each_statement(part, [&](const LoopGroup& loop_group, const Statement& statement) {
    if (part.group.loop_groups.size() > 1 && part.nest.tensor(statement.write.tensor).role == TensorRole::temporary)
      note(loop_group, statement.write);
    for (const Access& read : statement.reads) {
      if (std::find(staged.begin(), staged.end(), read.tensor) != staged.end()) note(loop_group, read);
    }
  });
  std::int64_t total = 0, largest_input = 0, largest_temporary = 0;
  for (const auto& [tensor, elements] : kept) {
    total += elements;
    std::int64_t& largest = part.nest.tensor(tensor).role == TensorRole::input ? largest_input : largest_temporary;
    largest = std::max(largest, elements);
  }
  // Partial sums live beside the inputs that they are sums of.
  return part.group.part ? total : total - std::min(largest_input, largest_temporary);
}

/// Registers of a thread of a block over a part while it copies the next work tile: for inputs that are copied ahead, in pieces of 16 bytes,
/// sums over the part, and one row of what it computes from a work tile.
std::int64_t held_beside_copies(const GpuGroup& part, const GpuChoice& choice) {
  const std::vector<std::string> staged = staged_inputs(part, choice);
  std::map<std::string, std::int64_t> held, rows;
  std::int64_t vector = 1;
  for_each_statement(part, [&](const LoopGroup& loop_group, const Statement& statement) {
    if (part.nest.tensor(statement.write.tensor).role == TensorRole::temporary) {
      const auto followed = followed_dims(statement.write);
      const bool of_item = std::any_of(followed.begin(), followed.end(), [&](const auto& dim) {
        return dim && static_cast<std::size_t>(*dim) < loop_group.axes.size() &&
               loop_group.axes[static_cast<std::size_t>(*dim)] == part.group.part->whole;
      });
      (of_item ? rows : held)[statement.write.tensor] = elements_of(part, loop_group, statement.write);
    }
    for (const Access& read : statement.reads) {
      const bool copied = std::find(staged.begin(), staged.end(), read.tensor) != staged.end();
      if (!copied) continue;
      const InputUse use = input_use(part, read.tensor);
      if (!use.follows_work_tiles || !use.alike || !has_whole_pieces(part, read.tensor, use)) continue;
      held[read.tensor] = elements_of(part, loop_group, read);
      if (use.has_rows) vector = std::max<std::int64_t>(vector, kPieceBytes / size_in_bytes(part.nest.tensor(read.tensor).type));
    }
  });
  const auto share = [&](std::int64_t elements) {
    return elements == 1 ? 1 : round_up(ceil_div(elements, std::int64_t{choice.grid.threads} * choice.grid.cluster), vector);
  };
  std::int64_t total = 0, largest = 0;
  for (const auto& [tensor, elements] : held) total += share(elements);
  for (const auto& [tensor, elements] : rows) largest = std::max(largest, share(elements));
  return total + largest;
}

/// Do other statements than the fusion group's read the tensor?
bool read_elsewhere(const GpuGroup& part, const std::string& tensor) {
  std::set<std::string> own;
  for_each_statement(part, [&](const LoopGroup&, const Statement& statement) { own.insert(statement.name); });
  return std::any_of(part.nest.statements.begin(), part.nest.statements.end(), [&](const Statement& statement) {
    const auto reads = [&](const Access& read) { return read.tensor == tensor; };
    return !own.contains(statement.name) && std::any_of(statement.reads.begin(), statement.reads.end(), reads);
  });
}

/// Rows of a temporary, the longest of whose dims runs along the threads, that each thread of a cluster keeps: they share one row.
std::int64_t rows_in_cluster(const GpuGroup& part) {
  std::int64_t most = 1;
  if (part.group.loop_groups.size() < 2) return most;
  for_each_statement(part, [&](const LoopGroup& loop_group, const Statement& statement) {
    const std::string& tensor = statement.write.tensor;
    if (part.nest.tensor(tensor).role != TensorRole::temporary || read_elsewhere(part, tensor)) return;
    const std::vector<std::int64_t> extents = extents_of(part, loop_group, statement.write);
    const std::int64_t longest = extents.empty() ? 1 : *std::max_element(extents.begin(), extents.end());
    most = std::max(most, product_of(extents) / longest);
  });
  return most;
}

/// Indices (tensor, place) at which the group's statements reach other iterations of a serial loop than their own, as a recurrence does: a
/// block keeps what all of them have.
std::set<std::pair<std::string, std::size_t>> kept_steps(const GpuGroup& part) {
  const std::vector<int> serial = serial_axes(part.group);
  std::set<std::pair<std::string, std::size_t>> kept;
  const auto note = [&](const LoopGroup& loop_group, const Access& access) {
    const auto followed = followed_dims(access);
    const std::vector<bool> shifted = shifted_indices(access);
    for (std::size_t k = 0; k < followed.size(); ++k) {
      if (!shifted[k] || static_cast<std::size_t>(*followed[k]) >= loop_group.axes.size()) continue;
      const int axis = loop_group.axes[static_cast<std::size_t>(*followed[k])];
      if (std::find(serial.begin(), serial.end(), axis) != serial.end()) kept.emplace(access.tensor, k);
    }
  };
  if (serial.empty()) return kept;
  for_each_statement(part, [&](const LoopGroup& loop_group, const Statement& statement) {
    note(loop_group, statement.write);
    for (const Access& read : statement.reads) note(loop_group, read);
  });
  return kept;
}

/// A temporary of which a block would keep as many elements as a size says that it does not know; empty: there is none.
std::string unbounded_temporary(const GpuGroup& part) {
  if (part.group.loop_groups.size() < 2 || part.plan.order.empty()) return "";
  std::string unbounded;
  const std::set<std::pair<std::string, std::size_t>> steps = kept_steps(part);
  for_each_statement(part, [&](const LoopGroup& loop_group, const Statement& statement) {
    const Tensor& tensor = part.nest.tensor(statement.write.tensor);
    if (tensor.role != TensorRole::temporary || read_elsewhere(part, tensor.name)) return;
    const auto followed = followed_dims(statement.write);
    for (std::size_t k = 0; k < followed.size(); ++k) {
      const bool known = followed[k] && static_cast<std::size_t>(*followed[k]) < loop_group.axes.size();
      const int axis = known ? loop_group.axes[static_cast<std::size_t>(*followed[k])] : -1;
      const bool cut =
          known && !steps.contains({tensor.name, k}) &&
          (is_of_work_tile(part, axis) || axis == part.plan.reduction_axis || (part.group.part && axis == part.group.part->axis));
      if (!cut && !has_one_value(part.nest, tensor.shape[k])) unbounded = tensor.name;
    }
  });
  return unbounded;
}

std::int64_t power_of_two_from(double value) {
  return value <= 1 ? 1 : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::ceil(value))));
}

}  // namespace

std::vector<Parameter> gpu_parameters(const GpuLimits& limits) {
  const auto searched = [](const char* name, std::int64_t most) {
    Parameter parameter{name, knob_named(name).searched};
    std::erase_if(parameter.choices, [&](std::int64_t value) { return value > most; });
    return parameter;
  };
  std::vector<Parameter> parameters{searched("threads", limits.most_threads)};
  if (const Parameter cluster = searched("cluster", limits.most_cluster()); cluster.choices.size() > 1)
    parameters.push_back(cluster);
  parameters.push_back({"persistent", knob_named("persistent").searched});
  parameters.push_back({"prefetch", {0, 1, 2, 3}});
  parameters.push_back({"staging", {0, 1, 2}});
  parameters.push_back({"streaming", {0, 1, 2, 3}});
  return parameters;
}

GpuChoice gpu_choice(const NamedValues& values) {
  GpuChoice choice;
  const GridShape shape = shape_of(values);
  if (shape.threads > 0) choice.grid.threads = shape.threads;
  choice.grid.cluster = shape.cluster;
  choice.grid.persistent = shape.persistent;
  choice.prefetch = static_cast<int>(value_or(values, "prefetch", 0));
  choice.staging = static_cast<GpuChoice::Staging>(value_or(values, "staging", 0));
  const std::int64_t streaming = value_or(values, "streaming", 0);
  choice.streaming_outputs = (streaming & 1) != 0;
  choice.streaming_inputs = (streaming & 2) != 0;
  return choice;
}

std::vector<Step> gpu_steps(const GpuGroup& part, const GroupSteps& shape, const GpuChoice& choice) {
  std::vector<Step> steps = shape.steps;
  std::vector<std::string> grid;
  for (Step& step : steps) {
    if (step.name != "parallel") continue;
    step.name = "gpu_blocks";
    grid.push_back(step.args.at(0).get<std::string>());
  }
  if (grid.empty()) return steps;
  GridShape shared = choice.grid;
  if (part.group.part) shared.persistent = 0;
  const bool resident = shared.persistent > 0;
  const std::vector<Step> knobs = steps_that_set(grid.front(), loop_knobs(shared));
  steps.insert(steps.end(), knobs.begin(), knobs.end());
  for (const std::string& tensor : choice.transposed) steps.push_back(make_step("stage", {tensor, grid.back(), 1}));
  for (const std::string& tensor : staged_inputs(part, choice)) {
    const InputUse use = input_use(part, tensor);
    const bool loops = use.follows_work_tiles && part.group.part;
    const bool ahead = use.follows_work_tiles && use.alike && (resident || loops) && has_whole_pieces(part, tensor, use);
    const int stages = ahead ? 1 + choice.prefetch : 1;
    steps.push_back(make_step("stage", {tensor, loops ? shape.reduction_loops.front() : grid.back(), stages}));
    // What all work tiles read should stay in the caches.
    if (use.follows_work_tiles && choice.streaming_inputs) steps.push_back(make_step("streaming", {tensor}));
  }
  return steps;
}

std::string gpu_infeasible(const GpuGroup& part, const GpuChoice& choice, const GpuLimits& limits) {
  if (const std::string tensor = unbounded_temporary(part); !tensor.empty())
    return fmt::format("a block would keep rows of {} whose length is {}", tensor, nvptx::kUnknownSize);
  if (const std::int64_t rows = choice.grid.cluster > 1 ? rows_in_cluster(part) : 1; rows > nvptx::kMostRowSlots)
    return fmt::format("each thread of a cluster would keep {} rows", rows);
  const std::int64_t threads = std::int64_t{choice.grid.threads} * choice.grid.cluster;
  const std::int64_t kept = kept_elements(part, choice);
  if (kept > nvptx::chip_room(choice.grid.threads, choice.grid.cluster, limits.shared_bytes))
    return fmt::format("{} values do not fit registers and shared memory of {}", kept,
                       choice.grid.cluster == 1 ? "a block" : fmt::format("{} blocks", choice.grid.cluster));
  if (part.group.part && choice.prefetch > 0) {
    const std::int64_t held = held_beside_copies(part, choice);
    if (held > tile_registers(choice.grid.threads))
      return fmt::format("{} values of a thread do not fit its registers, beside copies of what comes next", held);
  }
  const double points = points_of_block(part);
  // A step of a recurrence is over when its last thread is.
  const double fewest = serial_axes(part.group).empty() ? kFewestPoints : 1;
  if (threads > 32 && points < fewest * static_cast<double>(threads))
    return fmt::format("{:.0f} points for {} threads", points, threads);
  return {};
}

double points_of_block(const GpuGroup& part) {
  double points = points_per_work_tile(part.structure, part.group);
  for (const int axis : part.group.axes) {
    const auto tile = part.plan.tile.find(axis);
    const std::int64_t whole = part.structure.axes[static_cast<std::size_t>(axis)].extent;
    points *= static_cast<double>(tile == part.plan.tile.end() ? whole : tile->second);
  }
  if (part.group.part && part.plan.reduction_axis == part.group.part->whole)
    points *= static_cast<double>(part.plan.reduction_tile);
  return points;
}

double points_per_work_tile(const NestStructure& structure, const FusionGroup& group) {
  const LoopGroup& heavy = structure.loop_groups[group.heaviest];
  double points = 1;
  for (std::size_t k = 0; k < heavy.axes.size(); ++k) {
    const bool common = std::find(group.axes.begin(), group.axes.end(), heavy.axes[k]) != group.axes.end() ||
                        (group.part && group.part->whole == heavy.axes[k]);
    if (!common) points *= static_cast<double>(heavy.extents[k]);
  }
  return points;
}

std::vector<GpuShape> likely_shapes(double points, const GpuLimits& limits) {
  std::vector<GpuShape> shapes;
  const auto add = [&](std::int64_t threads, std::int64_t cluster, std::int64_t rows) {
    const bool known = std::any_of(shapes.begin(), shapes.end(), [&](const GpuShape& s) {
      return s.threads == threads && s.cluster == cluster && s.rows == rows;
    });
    if (!known && cluster <= limits.most_cluster()) shapes.push_back({threads, cluster, rows});
  };
  for (const double share : {16.0, 8.0, 32.0}) {
    const std::int64_t wanted = power_of_two_from(points / share);
    for (const std::int64_t most : {std::int64_t{256}, std::int64_t{512}, std::int64_t{limits.most_threads}}) {
      const std::int64_t threads = std::clamp<std::int64_t>(wanted, 128, most);
      add(threads, std::max<std::int64_t>(wanted / most, 1), std::max<std::int64_t>(threads / wanted, 1));
    }
  }
  return shapes;
}

GpuShape longest_shape(const NestStructure& structure, const FusionGroup& group, const GpuLimits& limits) {
  std::int64_t blocks = 1, cluster = 1;
  for (const int axis : group.axes) blocks *= structure.axes[static_cast<std::size_t>(axis)].extent;
  while (2 * cluster <= limits.most_cluster() && blocks * cluster < limits.units) cluster *= 2;
  return {limits.most_threads, cluster, 1};
}

RowTiles row_tiles(const NestStructure& structure, const FusionGroup& group) {
  RowTiles tiles{points_per_work_tile(structure, group), group.axes.size()};
  const auto extent = [&](std::size_t k) { return structure.axes[static_cast<std::size_t>(group.axes[k])].extent; };
  // Where nothing is summed up, the last axes take the place of a row, unless they are long enough to be cut.
  const bool elementwise = tiles.points <= 1;
  while (elementwise && tiles.inside > 1 && tiles.points < kFewPoints &&
         tiles.points * static_cast<double>(extent(tiles.inside - 1)) <= kManyPoints)
    tiles.points *= static_cast<double>(extent(--tiles.inside));
  return tiles;
}

NamedValues values_of(const RowTiles& tiles, const NestStructure& structure, const FusionGroup& group, std::int64_t rows) {
  NamedValues values;
  for (std::size_t k = 0; k < group.axes.size(); ++k)
    values["tile." + structure.axes[static_cast<std::size_t>(group.axes[k])].name] = k >= tiles.inside       ? 0
                                                                                     : k + 1 == tiles.inside ? rows
                                                                                                             : 1;
  return values;
}

GpuShape shape_of_rows(const RowTiles& tiles, GpuShape shape) {
  // Elements of their own, not rows of them: some for each thread.
  if (tiles.points < kFewPoints && shape.cluster == 1)
    shape.rows = std::max<std::int64_t>(
        shape.rows, static_cast<std::int64_t>(kPointsOfThread * static_cast<double>(shape.threads) / tiles.points));
  return shape;
}

NamedValues tiles_of_few_parts(const NestStructure& structure, const FusionGroup& group, std::int64_t parts) {
  constexpr std::int64_t kRows = 4, kLine = 32, kMostColumns = 256, kElements = 1024;
  const auto share = std::bit_floor(static_cast<std::uint64_t>(kElements / std::max<std::int64_t>(parts, 1)));
  const std::int64_t columns = std::clamp(static_cast<std::int64_t>(share), kLine, kMostColumns);
  NamedValues values;
  for (std::size_t k = 0; k < group.axes.size(); ++k) {
    const std::size_t from_last = group.axes.size() - 1 - k;
    values["tile." + structure.axes[static_cast<std::size_t>(group.axes[k])].name] = from_last == 0   ? columns
                                                                                     : from_last == 1 ? kRows
                                                                                                      : 1;
  }
  return values;
}

std::int64_t resident_blocks(const GpuShape& shape, const GpuLimits& limits) {
  return std::max<std::int64_t>(limits.most_threads / shape.threads, 1);
}

std::vector<GpuResidence> likely_residences(const GpuShape& shape, const GpuLimits& limits) {
  const std::int64_t persistent = resident_blocks(shape, limits);
  std::vector<GpuResidence> residences{{}, {persistent, 2}};
  // Blocks of a cluster have long shares of rows: less room ahead, and what all work tiles read is as long.
  if (shape.cluster > 1) residences.push_back({persistent, 1, GpuChoice::Staging::all});
  return residences;
}

}  // namespace nestor
