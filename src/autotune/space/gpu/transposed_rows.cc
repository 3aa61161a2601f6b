// Last indices of what a group reads and writes.
#include "autotune/space/gpu/transposed_rows.h"

#include "autotune/space/gpu/gpu_steps.h"
#include "autotune/space/structure/axes.h"
#include "codegen/gpu/target/gpu_target.h"
#include "support/rounding.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <string>

namespace nestor {
namespace {

/// Common axes of the group that the indices of an access follow, in their order; -1: none.
std::vector<int> common_axes_of(const FusionGroup& group, const LoopGroup& loop_group, const Access& access) {
  std::vector<int> axes = followed_axes(loop_group, access);
  for (int& axis : axes) {
    if (std::find(group.axes.begin(), group.axes.end(), axis) == group.axes.end()) axis = -1;
  }
  return axes;
}

/// Notes what the statement reads across, and in `along` what it reads otherwise; false: it reads along several other axes, or writes along
/// another one than those before it.
bool add_statement(const FusionGroup& group, const LoopGroup& loop_group, const Statement& statement, TransposedRows& found,
                   std::set<std::string>& along) {
  const std::vector<int> written = common_axes_of(group, loop_group, statement.write);
  if (written.empty() || written.back() < 0 || (found.written >= 0 && found.written != written.back())) return false;
  found.written = written.back();
  for (const Access& read : statement.reads) {
    const std::vector<int> axes = common_axes_of(group, loop_group, read);
    const bool across = !axes.empty() && axes.back() >= 0 && axes.back() != found.written &&
                        std::find(axes.begin(), axes.end(), found.written) != axes.end();
    if (!across) {
      along.insert(read.tensor);
      continue;
    }
    if (found.read >= 0 && found.read != axes.back()) return false;
    found.read = axes.back();
    if (std::find(found.tensors.begin(), found.tensors.end(), read.tensor) == found.tensors.end())
      found.tensors.push_back(read.tensor);
  }
  return true;
}

/// Elements along the loops that an access follows.
double elements_of(const NestStructure& structure, const std::vector<int>& axes) {
  double elements = 1;
  for (const int axis : axes)
    elements *= axis < 0 ? 1 : static_cast<double>(structure.axes[static_cast<std::size_t>(axis)].extent);
  return elements;
}

constexpr std::int64_t kFewestThreads = 64;  ///< of a block of sums

/// So many that the threads of a block share them.
bool sums_many_terms(const LoopGroup& loop_group) {
  constexpr double kManyTerms = 512;
  return terms_of_sum(loop_group) >= kManyTerms;
}

/// Where nothing is summed up: of many rows a thread has several, and loads once what they share; of few, no more than keep all units busy.
std::int64_t rows_without_sums(const NestStructure& structure, const FusionGroup& group, const RowTiles& tiles,
                               const GpuShape& shape, const GpuLimits& limits) {
  constexpr double kMostOfThread = 64, kRounds = 16;
  double all = 1;
  for (std::size_t k = 0; k < tiles.inside; ++k)
    all *= static_cast<double>(structure.axes[static_cast<std::size_t>(group.axes[k])].extent);
  std::int64_t rows = shape.rows;
  while (shape.cluster == 1 && tiles.inside > 0 &&
         2 * static_cast<double>(rows) * tiles.points <= kMostOfThread * static_cast<double>(shape.threads) &&
         all >= 2 * static_cast<double>(rows) * kRounds * limits.units &&
         2 * rows <= structure.axes[static_cast<std::size_t>(group.axes[tiles.inside - 1])].extent)
    rows *= 2;
  while (rows > 1 && all < static_cast<double>(rows) * limits.units &&
         static_cast<double>(rows / 2) * tiles.points >= static_cast<double>(shape.threads))
    rows /= 2;
  return rows;
}

/// Of blocks of single elements with so many in a row: whole rows in whole warps, where vectors of a row are few and no power of two. Else
/// some threads of each row would be idle, or neighbours would not have neighbouring vectors.
std::int64_t threads_of_whole_rows(std::int64_t threads, std::int64_t row) {
  constexpr std::int64_t kWidest = 8;
  const std::int64_t vectors = row / std::gcd(row, kWidest);
  if (vectors < 2 || vectors > nvptx::kWarpThreads || std::has_single_bit(static_cast<std::uint64_t>(vectors))) return threads;
  const std::int64_t whole = std::lcm(vectors, std::int64_t{nvptx::kWarpThreads});
  return whole > 2 * threads ? threads : std::max<std::int64_t>(threads / whole, 1) * whole;
}

/// Threads that find something to do in the heaviest sum of the group: each has elements of a row of sums to itself; of a single sum they
/// share the last dim, by vectors, and the longest of the others. 0: it sums over one dim, or none.
std::int64_t threads_of_sum(const NestStructure& structure, const FusionGroup& group) {
  constexpr std::int64_t kVector = 4, kRowOfSums = 128;
  const LoopGroup& heavy = structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  std::vector<std::int64_t> summed;
  std::int64_t sums = 1;
  for (std::size_t k = 0; k < heavy.extents.size(); ++k) {
    const bool common = std::find(group.axes.begin(), group.axes.end(), heavy.axes[k]) != group.axes.end();
    if (heavy.reduced[k]) summed.push_back(heavy.extents[k]);
    if (!heavy.reduced[k] && !common) sums *= heavy.extents[k];
  }
  if (!summed.empty() && sums >= kRowOfSums) return sums;
  if (summed.size() < 2) return 0;
  const std::int64_t along = ceil_div(summed.back(), kVector);
  summed.pop_back();
  return along * *std::max_element(summed.begin(), summed.end());
}

}  // namespace

std::optional<TransposedRows> transposed_rows(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  TransposedRows found;
  std::set<std::string> along;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      if (statement.reduction || !add_statement(group, loop_group, statement, found, along)) return std::nullopt;
      // What the group itself writes stays on chip as it is.
      if (std::find(found.tensors.begin(), found.tensors.end(), statement.write.tensor) != found.tensors.end())
        return std::nullopt;
    }
  }
  // A block copies one part of a tensor, and no two: pairs (i, j) and (j, i) are read where they are.
  std::erase_if(found.tensors, [&](const std::string& tensor) { return along.contains(tensor); });
  return found.read >= 0 ? std::optional(std::move(found)) : std::nullopt;
}

int axis_of_column_sums(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  int found = -1;
  bool alike = true;  // all read along the same axis
  // Of all dims of a sum, or of some of those of a long one.
  const auto add = [&](const LoopGroup& loop_group, const Statement& statement, bool whole) {
    for (const Access& read : statement.reads) {
      // What has fewer dims than the sum has is read again and again; what has none of its results' (weights of terms), by all of these.
      const std::vector<int> axes = common_axes_of(group, loop_group, read);
      const bool summed = std::find(axes.begin(), axes.end(), -1) != axes.end();
      const bool weighs = std::all_of(axes.begin(), axes.end(), [](int axis) { return axis < 0; });
      if (axes.empty() || (whole ? axes.size() < statement.dims.size() : !summed || weighs)) continue;
      alike = alike && axes.back() >= 0 && (found < 0 || found == axes.back());
      found = axes.back();
    }
  };
  const auto add_all = [&](bool whole) {
    for (const int u : group.loop_groups) {
      const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
      for (const std::string& name : loop_group.statements) {
        const Statement& statement = nest.statement(name);
        if (statement.reduction && (whole || sums_many_terms(loop_group))) add(loop_group, statement, whole);
      }
    }
  };
  add_all(true);
  if (found >= 0 || !alike) return alike ? found : -1;
  // Results of their own for each distance of two operands (gradients of a filter for each channel): no operand has all dims.
  add_all(false);
  const bool wide = found >= 0 && structure.axes[static_cast<std::size_t>(found)].extent >= nvptx::kWarpThreads;
  return alike && wide ? found : -1;
}

std::optional<ShortRuns> short_runs(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  constexpr std::int64_t kShortRun = 64;
  const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  for (const std::string& name : loop_group.statements) {
    const Statement& statement = nest.statement(name);
    if (!statement.reduction) continue;
    for (const Access& read : statement.reads) {
      const std::vector<int> axes = followed_axes(loop_group, read);
      if (axes.size() < statement.dims.size() || axes.size() < 2) continue;
      const ShortRuns runs{axes.back(), axes[axes.size() - 2]};
      if (runs.run < 0 || runs.beside < 0) continue;
      const auto is_reduced = [&](int axis) {
        return loop_group.reduced[static_cast<std::size_t>(loop_group.position_of(axis))];
      };
      if (is_reduced(runs.run) && !is_reduced(runs.beside) &&
          structure.axes[static_cast<std::size_t>(runs.run)].extent < kShortRun)
        return runs;
    }
  }
  return std::nullopt;
}

int axis_of_repeated_reads(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  for (const std::string& name : loop_group.statements) {
    const Statement& statement = nest.statement(name);
    if (!statement.reduction || statement.reads.empty()) continue;
    std::vector<int> largest;
    for (const Access& read : statement.reads) {
      std::vector<int> axes = followed_axes(loop_group, read);
      if (elements_of(structure, axes) > elements_of(structure, largest)) largest = std::move(axes);
    }
    const std::vector<int> written = common_axes_of(group, loop_group, statement.write);
    if (written.size() < 2 || largest.empty() || written.back() != largest.back()) continue;
    for (const int axis : written) {
      if (axis >= 0 && std::find(largest.begin(), largest.end(), axis) == largest.end()) return axis;
    }
  }
  return -1;
}

NamedValues values_of_repeated_reads(const NestStructure& structure, const FusionGroup& group, int axis) {
  constexpr std::int64_t kPoints = 16, kColumns = 128, kThreads = 128;
  NamedValues values{{"threads", kThreads}, {"cluster", 1}, {"reduction_axis", -1}};
  for (const int other : group.axes) {
    const Axis& cut = structure.axes[static_cast<std::size_t>(other)];
    std::int64_t tile = other == axis ? kPoints : other == group.axes.back() ? kColumns : 1;
    while (tile > 1 && tile >= cut.extent) tile /= 2;  // a whole axis may be longer in another launch
    values["tile." + cut.name] = tile;
  }
  return values;
}

int axis_of_short_sums(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  constexpr double kMostTerms = 128;
  if (group.axes.empty()) return -1;  // a single number
  const int last = group.axes.back();
  bool sums = false;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    const double terms = terms_of_sum(loop_group);
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      const std::vector<int> written = followed_axes(loop_group, statement.write);
      if (written.size() != group.axes.size() || written.back() != last || terms > kMostTerms) return -1;
      if (!statement.reduction) continue;
      const int dim = loop_group.position_of(last);
      const bool along = std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) {
        const std::vector<std::vector<int>> dims = summed_dims(read);
        return !dims.empty() && std::find(dims.back().begin(), dims.back().end(), dim) != dims.back().end();
      });
      if (!along || terms <= 1) return -1;
      sums = true;
    }
  }
  return sums ? last : -1;
}

int axis_of_prefixes(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  for (const int u : group.loop_groups) {
    const int axis = axis_of_prefixes(nest, structure, structure.loop_groups[static_cast<std::size_t>(u)]);
    if (axis >= 0) return axis;
  }
  return -1;
}

/// Do places of running sums along the axis start or end elsewhere at other places of the axis `other`, as below a diagonal?
bool prefixes_follow(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int axis, int other) {
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    const int at = loop_group.position_of(other), along = loop_group.position_of(axis);
    return at >= 0 && along >= 0 &&
           std::any_of(loop_group.statements.begin(), loop_group.statements.end(), [&](const auto& name) {
             const Statement& statement = nest.statement(name);
             return prefix_dim(statement) == along && !is_box(statement.domain, along, at);
           });
  });
}

/// Rows one by one, or several short ones that have the same places; where the last axis is another one, some of its places, which lie side by
/// side.
NamedValues values_of_prefixes(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int axis,
                               std::int64_t threads) {
  constexpr std::int64_t kElements = 8, kColumns = 16;
  const std::int64_t row = std::max<std::int64_t>(structure.axes[static_cast<std::size_t>(axis)].extent, 1);
  NamedValues values{{"threads", threads}, {"cluster", 1}, {"reduction_axis", -1}};
  const bool along = group.axes.empty() || group.axes.back() == axis ||
                     std::find(group.axes.begin(), group.axes.end(), axis) == group.axes.end();
  bool last = true;
  for (std::size_t k = group.axes.size(); k-- > 0;) {
    const Axis& cut = structure.axes[static_cast<std::size_t>(group.axes[k])];
    std::int64_t tile = 1;
    if (group.axes[k] == axis) {
      tile = 0;
    } else if (std::exchange(last, false)) {
      tile = along ? std::max<std::int64_t>(threads * kElements / row, 1) : kColumns;
      if (prefixes_follow(nest, structure, group, axis, group.axes[k])) tile = 1;
      while (tile > 1 && tile >= cut.extent) tile /= 2;  // a whole axis may be longer in another launch
    }
    values["tile." + cut.name] = tile;
  }
  if (group.part) values["part_tile"] = along ? std::max<std::int64_t>(threads * kElements / row, 1) : kColumns;
  return values;
}

namespace {

/// What most statements have of a work tile of one position: the longest of their own loops that sum up nothing.
std::int64_t elements_of_work_tile(const NestStructure& structure, const FusionGroup& group) {
  std::int64_t most = 1;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    std::int64_t elements = 1;
    for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
      const bool common = std::find(group.axes.begin(), group.axes.end(), loop_group.axes[k]) != group.axes.end();
      if (!common && !loop_group.reduced[k]) elements *= loop_group.extents[k];
    }
    most = std::max(most, elements);
  }
  return most;
}

}  // namespace

bool solves_system(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const std::vector<std::string>& names = structure.loop_groups[static_cast<std::size_t>(u)].statements;
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return reads_own_sums(nest.statement(name)); });
  });
}

NamedValues values_of_recurrence(const Nest& nest, const NestStructure& structure, const FusionGroup& group,
                                 const GroupForm& form, std::int64_t threads) {
  NamedValues values{{"threads", threads}, {"cluster", 1}, {"reduction_axis", -1}};
  const std::vector<int> outside = wavefront_order(group, form);
  std::int64_t left = form.skews.empty() ? threads : 1;
  // What computes the matrix of a system keeps the threads busy: one system will do if half of them have an element of it.
  if (solves_system(nest, structure, group) && 2 * elements_of_work_tile(structure, group) >= threads) left = 1;
  for (std::size_t k = outside.size(); k-- > 0;) {
    const Axis& cut = structure.axes[static_cast<std::size_t>(outside[k])];
    const bool whole = k > 0 && cut.extent <= left;
    std::int64_t tile = std::max<std::int64_t>(left, 1);
    while (tile > 1 && tile >= cut.extent) tile /= 2;  // a whole axis may be longer in another launch
    values["tile." + cut.name] = whole ? 0 : tile;
    left = ceil_div(left, whole ? std::max<std::int64_t>(cut.extent, 1) : tile);
  }
  return values;
}

NamedValues values_of_short_sums(const NestStructure& structure, const FusionGroup& group, int axis, std::int64_t rows) {
  constexpr std::int64_t kColumns = 128, kThreads = 128;
  NamedValues values{{"threads", kThreads}, {"cluster", 1}, {"reduction_axis", -1}};
  std::int64_t taken = 1;
  for (std::size_t k = group.axes.size(); k-- > 0;) {
    const Axis& cut = structure.axes[static_cast<std::size_t>(group.axes[k])];
    std::int64_t tile = group.axes[k] == axis ? kColumns : std::max<std::int64_t>(rows * kColumns / taken, 1);
    while (tile > 1 && tile >= cut.extent) tile /= 2;  // a whole axis may be longer in another launch
    if (k + 3 <= group.axes.size()) tile = 1;
    taken *= tile;
    values["tile." + cut.name] = tile;
  }
  return values;
}

NamedValues values_of_transposed(const NestStructure& structure, const FusionGroup& group, const TransposedRows& rows) {
  constexpr std::int64_t kSide = 64, kThreads = 256;
  NamedValues values{{"threads", kThreads}, {"cluster", 1}, {"reduction_axis", -1}};
  for (const int axis : group.axes) {
    const Axis& cut = structure.axes[static_cast<std::size_t>(axis)];
    std::int64_t tile = axis == rows.written || axis == rows.read ? kSide : 1;
    while (tile > 1 && tile >= cut.extent) tile /= 2;  // a whole axis may be longer in another launch
    values["tile." + cut.name] = tile;
  }
  return values;
}

NamedValues values_of_column_sums(const NestStructure& structure, const FusionGroup& group, int axis, const GpuLimits& limits) {
  constexpr std::int64_t kMostColumns = 64, kFewestColumns = 16;  // of 16 bits: a sector of memory
  NamedValues values{{"threads", limits.most_threads / 2}, {"cluster", 1}, {"reduction_axis", -1}};
  std::int64_t others = 1;
  for (const int other : group.axes) {
    const Axis& cut = structure.axes[static_cast<std::size_t>(other)];
    values["tile." + cut.name] = 1;
    if (other != axis) others *= cut.extent;
  }
  const Axis& columns = structure.axes[static_cast<std::size_t>(axis)];
  std::int64_t tile = kMostColumns;
  while (tile > kFewestColumns && (tile >= 2 * columns.extent || others * ceil_div(columns.extent, tile) < limits.units))
    tile /= 2;
  values["tile." + columns.name] = tile;
  return values;
}

NamedValues values_of_short_runs(const NestStructure& structure, const FusionGroup& group, const std::string& beside) {
  NamedValues values{{"threads", 256}, {"cluster", 1}, {"reduction_axis", -1}};
  for (const int axis : group.axes) {
    const std::string& name = structure.axes[static_cast<std::size_t>(axis)].name;
    values["tile." + name] = name == beside ? 0 : 1;
  }
  return values;
}

namespace {

/// Sums of a few terms, whose last axis has fewer of them than a block takes: whole short axes, and some places of the one before them.
void take_short_axes(const NestStructure& structure, const FusionGroup& group, const GpuLimits& limits, RowTiles& tiles,
                     GpuShape& shape) {
  constexpr std::int64_t kElementsOfThread = 4;
  constexpr double kFewTerms = 32;
  const double terms = points_per_work_tile(structure, group);
  const auto extent = [&](std::size_t k) { return structure.axes[static_cast<std::size_t>(group.axes[k])].extent; };
  if (terms <= 1 || terms > kFewTerms || extent(tiles.inside - 1) >= shape.rows) return;
  const std::int64_t wanted = std::max(shape.rows, kElementsOfThread * shape.threads);
  double all = 1;
  for (std::size_t k = 0; k < tiles.inside; ++k) all *= static_cast<double>(extent(k));
  if (all < static_cast<double>(wanted) * limits.units) return;  // fewer blocks would leave the chip idle
  shape.rows = wanted;
  while (tiles.inside > 1 && extent(tiles.inside - 1) < shape.rows) shape.rows = ceil_div(shape.rows, extent(--tiles.inside));
  shape.rows = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(shape.rows)));
}

/// Rows with several short sums each, as products of a row and a small matrix: threads have whole sums, so that fewer rows leave most of them idle.
void take_rows_of_sums(const NestStructure& structure, const FusionGroup& group, const GpuLimits& limits, GpuShape& shape) {
  constexpr double kMostTerms = 64, kFewestSums = 8, kSumsOfThread = 8;
  const double terms = terms_of_sum(structure.loop_groups[static_cast<std::size_t>(group.heaviest)]),
               sums = points_per_work_tile(structure, group) / std::max(terms, 1.0);
  if (terms <= 1 || terms > kMostTerms || sums < kFewestSums) return;
  double all = 1;
  for (const int axis : group.axes) all *= static_cast<double>(structure.axes[static_cast<std::size_t>(axis)].extent);
  // Every unit has a few blocks.
  const double most = std::min(static_cast<double>(shape.threads) * kSumsOfThread / sums, all / (2.0 * limits.units));
  if (most > static_cast<double>(shape.rows))
    shape.rows = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(most)));
}

}  // namespace

NamedValues values_beside_products(const NestStructure& structure, const FusionGroup& group, const GpuLimits& limits) {
  if (group.axes.empty()) return {{"reduction_axis", -1}};
  RowTiles tiles = row_tiles(structure, group);
  const std::vector<GpuShape> shapes = likely_shapes(tiles.points, limits);
  GpuShape shape = shapes.empty() ? longest_shape(structure, group, limits) : shape_of_rows(tiles, shapes.front());
  if (shape.cluster == 1 && elements_of_work_tile(structure, group) == 1) take_short_axes(structure, group, limits, tiles, shape);
  if (shape.cluster == 1) take_rows_of_sums(structure, group, limits, shape);
  if (points_per_work_tile(structure, group) <= 1) shape.rows = rows_without_sums(structure, group, tiles, shape, limits);
  if (shape.cluster == 1 && tiles.inside < group.axes.size() && points_per_work_tile(structure, group) <= 1) {
    const Axis& row = structure.axes[static_cast<std::size_t>(group.axes.back())];
    shape.threads = threads_of_whole_rows(shape.threads, row.extent);
  }
  // Blocks without idle threads: more of them find room at once.
  if (const std::int64_t most = threads_of_sum(structure, group); most > 0 && most < shape.threads * shape.cluster) {
    shape.threads = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(most))),
                                             kFewestThreads, shape.threads);
    shape.cluster = 1;
  }
  NamedValues values{{"threads", shape.threads}, {"cluster", shape.cluster}, {"reduction_axis", -1}};
  values.merge(values_of(tiles, structure, group, shape.rows));
  return values;
}

}  // namespace nestor
