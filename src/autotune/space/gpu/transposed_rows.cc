// Last indices of what a group reads and writes.
#include "autotune/space/gpu/transposed_rows.h"

#include "autotune/space/structure/axes.h"
#include "support/rounding.h"

#include <algorithm>

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

/// Notes what the statement reads across; false: it reads along several other axes, or writes along another one than those before it.
bool add_statement(const FusionGroup& group, const LoopGroup& loop_group, const Statement& statement, TransposedRows& found) {
  const std::vector<int> written = common_axes_of(group, loop_group, statement.write);
  if (written.empty() || written.back() < 0 || (found.written >= 0 && found.written != written.back())) return false;
  found.written = written.back();
  for (const Access& read : statement.reads) {
    const std::vector<int> axes = common_axes_of(group, loop_group, read);
    const bool across = !axes.empty() && axes.back() >= 0 && axes.back() != found.written &&
                        std::find(axes.begin(), axes.end(), found.written) != axes.end();
    if (!across) continue;
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

}  // namespace

std::optional<TransposedRows> transposed_rows(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  TransposedRows found;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      if (statement.reduction || !add_statement(group, loop_group, statement, found)) return std::nullopt;
      // What the group itself writes stays on chip as it is.
      if (std::find(found.tensors.begin(), found.tensors.end(), statement.write.tensor) != found.tensors.end())
        return std::nullopt;
    }
  }
  return found.read >= 0 ? std::optional(std::move(found)) : std::nullopt;
}

int axis_of_column_sums(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  int found = -1;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      if (!statement.reduction) continue;
      for (const Access& read : statement.reads) {
        // What has fewer dims than the sum has is read again and again.
        const std::vector<int> axes = common_axes_of(group, loop_group, read);
        if (axes.empty() || axes.size() < statement.dims.size()) continue;
        if (axes.back() < 0 || (found >= 0 && found != axes.back())) return -1;
        found = axes.back();
      }
    }
  }
  return found;
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
    double terms = 1;
    for (std::size_t k = 0; k < loop_group.axes.size(); ++k)
      terms *= loop_group.reduced[k] ? static_cast<double>(loop_group.extents[k]) : 1;
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

}  // namespace nestor
