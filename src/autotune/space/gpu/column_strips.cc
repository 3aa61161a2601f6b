// How wide strips are.
#include "autotune/space/gpu/column_strips.h"

#include "autotune/space/gpu/gpu_steps.h"
#include "autotune/space/gpu/transposed_rows.h"
#include "autotune/space/structure/axes.h"
#include "codegen/gpu/target/gpu_target.h"
#include "poly/nest/nest_sets.h"
#include "support/rounding.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <string>

namespace nestor {
namespace {

constexpr std::int64_t kStripBytes = 32 << 10;                  ///< some blocks of a multiprocessor share its first cache
constexpr std::int64_t kMostColumns = 64, kFewestColumns = 16;  ///< the least is a sector of memory, of 16 bits each
constexpr std::int64_t kElements = 32;                          ///< of a thread

bool contains(const std::vector<int>& axes, int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

/// What a work tile of one column reads of inputs that several statements read.
struct Column {
  std::int64_t bytes = 0, elements = 0;  ///< of all such inputs; of the largest
  bool known = true;                     ///< how many there are is the same for all launches
};

bool has_known_extents(const Nest& nest, const LoopGroup& loop_group, const Access& access, const FusionGroup& group) {
  const std::vector<int> axes = followed_axes(loop_group, access);
  const Tensor& tensor = nest.tensor(access.tensor);
  for (std::size_t k = 0; k < axes.size(); ++k) {
    if (!contains(group.axes, axes[k]) && !has_one_value(nest, tensor.shape[k])) return false;
  }
  return true;
}

Column column_of(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int columns) {
  Column column;
  std::map<std::string, std::pair<int, std::int64_t>> inputs;  // readers and elements
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    for (const std::string& name : loop_group.statements) {
      std::map<std::string, std::int64_t> read;
      for (const Access& access : nest.statement(name).reads) {
        if (nest.tensor(access.tensor).role != TensorRole::input) continue;
        const std::vector<int> axes = followed_axes(loop_group, access);
        if (!contains(axes, columns)) continue;
        std::int64_t own = 1;
        for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
          if (contains(axes, loop_group.axes[k]) && !contains(group.axes, loop_group.axes[k])) own *= loop_group.extents[k];
        }
        read[access.tensor] = std::max(read[access.tensor], own);
        column.known = column.known && has_known_extents(nest, loop_group, access, group);
      }
      for (const auto& [tensor, elements] : read) {
        auto& [readers, most] = inputs[tensor];
        ++readers;
        most = std::max(most, elements);
      }
    }
  }
  for (const auto& [tensor, use] : inputs) {
    if (use.first < 2) continue;
    column.bytes += use.second * static_cast<std::int64_t>(size_in_bytes(nest.tensor(tensor).type));
    column.elements = std::max(column.elements, use.second);
  }
  return column;
}

/// Does the read move with a dim that the loop group reduces?
bool moves_with_terms(const LoopGroup& loop_group, const std::vector<std::vector<int>>& dims_of_indices) {
  return std::any_of(dims_of_indices.begin(), dims_of_indices.end(), [&](const std::vector<int>& dims) {
    return std::any_of(dims.begin(), dims.end(), [&](int dim) { return loop_group.reduced[static_cast<std::size_t>(dim)]; });
  });
}

/// Columns and weights of one sum (axis_of_weighted_columns).
bool has_weighted_columns(const LoopGroup& loop_group, const Statement& statement, int axis) {
  const int column = loop_group.position_of(axis);
  int columns = 0, weights = 0;
  for (const Access& read : statement.reads) {
    const std::vector<std::vector<int>> dims = summed_dims(read);
    const auto follows = [&](const std::vector<int>& index) { return contains(index, column); };
    const auto count = std::count_if(dims.begin(), dims.end(), follows);
    if (count == 0) {
      weights += moves_with_terms(loop_group, dims) ? 1 : 0;
    } else if (count > 1 || dims.back() != std::vector<int>{column}) {
      return false;
    } else {
      columns += moves_with_terms(loop_group, dims) ? 1 : 0;
    }
  }
  return columns > 0 && weights > 0;
}

}  // namespace

int axis_of_weighted_columns(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  if (group.axes.empty()) return -1;
  const int axis = group.axes.back();
  bool sums = false;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      const std::vector<int> written = followed_axes(loop_group, statement.write);
      if (written.empty() || written.back() != axis) return -1;
      if (!statement.reduction) continue;
      if (!has_weighted_columns(loop_group, statement, axis)) return -1;
      sums = true;
    }
  }
  return sums && structure.axes[static_cast<std::size_t>(axis)].extent >= nvptx::kWarpThreads ? axis : -1;
}

bool has_known_extent(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int axis) {
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    for (const std::string& name : loop_group.statements) {
      const Access& write = nest.statement(name).write;
      const std::vector<int> axes = followed_axes(loop_group, write);
      for (std::size_t k = 0; k < axes.size(); ++k) {
        if (axes[k] == axis) return has_one_value(nest, nest.tensor(write.tensor).shape[k]);
      }
    }
  }
  return false;
}

std::optional<NamedValues> values_of_strips(const Nest& nest, const NestStructure& structure, const FusionGroup& group,
                                            const GpuLimits& limits) {
  const int axis = axis_of_column_sums(nest, structure, group);
  if (axis < 0) return std::nullopt;
  const Column column = column_of(nest, structure, group, axis);
  if (column.elements <= 1) return std::nullopt;
  std::int64_t others = 1;
  for (const int other : group.axes) {
    if (other != axis) others *= structure.axes[static_cast<std::size_t>(other)].extent;
  }
  const Axis& columns = structure.axes[static_cast<std::size_t>(axis)];
  const auto has_room = [&](std::int64_t tile) { return column.bytes * tile <= kStripBytes; };
  const auto strips = [&](std::int64_t tile) { return others * ceil_div(columns.extent, tile); };
  // Short rows are whole: parts of them would share sectors of memory.
  std::int64_t tile = columns.extent;
  bool whole =
      tile < 2 * kMostColumns && has_room(tile) && strips(tile) >= limits.units && has_known_extent(nest, structure, group, axis);
  for (tile = whole ? tile : kMostColumns; !whole && tile > kFewestColumns;) {
    if (has_room(tile) && tile < columns.extent && strips(tile) >= 2 * limits.units) break;
    tile /= 2;
  }
  if (!has_room(tile) || strips(tile) < limits.units || (!whole && tile >= columns.extent)) return std::nullopt;
  const auto share = std::bit_floor(static_cast<std::uint64_t>(ceil_div(tile * column.elements, kElements)));
  NamedValues values{
      {"threads", std::clamp<std::int64_t>(static_cast<std::int64_t>(share), 128, limits.most_threads / 2)},
      {"cluster", 1},
      {"reduction_axis", -1},
      {"staging", static_cast<std::int64_t>(column.known ? GpuChoice::Staging::reused : GpuChoice::Staging::direct)}};
  for (const int other : group.axes) values["tile." + structure.axes[static_cast<std::size_t>(other)].name] = 1;
  values["tile." + columns.name] = whole ? 0 : tile;
  return values;
}

}  // namespace nestor
