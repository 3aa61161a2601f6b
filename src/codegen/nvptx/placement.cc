// Registers or shared memory for every scratch buffer, and the map of shared memory.
#include "codegen/nvptx/block_plan.h"

#include "support/error.h"

#include <algorithm>
#include <numeric>

namespace nestor::nvptx {
namespace {

/// 32-bit registers a thread may fill with tiles: half of what 256 threads of a full multiprocessor have, the rest computes.
constexpr std::int64_t kTileRegisters = 128;
constexpr std::int64_t kBanksBytes = 128;

struct ScratchUse {
  std::vector<std::pair<int, ThreadMap>> maps;  ///< op, map
  bool in_registers = true;
  int first_op = 1 << 30, last_op = -1;
};

std::map<int, ScratchUse> collect_uses(const BlockPlan& plan) {
  std::map<int, ScratchUse> uses;
  for (int k = 0; k < static_cast<int>(plan.ops.size()); ++k) {
    const BlockOp& op = plan.ops[k];
    const auto visit = [&](const TileAccess& access, bool is_write, bool operand) {
      if (plan.buffer(access.buffer).memory != Memory::scratch) return;
      ScratchUse& use = uses[access.buffer];
      use.first_op = std::min(use.first_op, k);
      use.last_op = std::max(use.last_op, k);
      const auto map = operand ? std::nullopt : thread_map(op, access, is_write);
      if (!map) {
        use.in_registers = false;
      } else {
        use.maps.emplace_back(k, *map);
      }
    };
    visit(op.op.write, true, false);
    for (const TileAccess& read : op.op.reads) visit(read, false, op.product.has_value());
  }
  return uses;
}

/// Every index is a row, the column, or of extent 1; all accesses agree.
bool is_register_tile(const Buffer& buffer, const ScratchUse& use) {
  if (!use.in_registers) return false;
  for (const auto& [op, map] : use.maps) {
    std::set<std::string> seen;
    for (std::size_t k = 0; k < map.index.size(); ++k) {
      if (buffer.extents[k].is_constant(1)) continue;
      const Affine& index = map.index[k];
      if (index.constant != 0 || index.terms.size() != 1 || index.terms.begin()->second != 1) return false;
      const std::string& token = index.terms.begin()->first;
      if (token[0] != '#' || !seen.insert(token).second) return false;
    }
    const ThreadMap& first = use.maps.front().second;
    for (std::size_t k = 0; k < map.index.size(); ++k) {
      if (!buffer.extents[k].is_constant(1) && !(map.index[k] == first.index[k])) return false;
    }
    if (map.row_extents != first.row_extents || map.column_extent != first.column_extent) return false;
  }
  return true;
}

Placement register_placement(const ThreadMap& map, const Layout& layout) {
  Placement place;
  place.kind = Placement::Kind::registers;
  place.by_row = !map.row_extents.empty();
  place.by_column = map.column_extent != 0;
  const std::int64_t rows = std::accumulate(map.row_extents.begin(), map.row_extents.end(), std::int64_t{1}, std::multiplies<>());
  if (place.by_row) place.row_slots = static_cast<int>(ceil_div(std::max<std::int64_t>(rows, 1), layout.groups));
  if (place.by_column) {
    const std::int64_t chunk = static_cast<std::int64_t>(layout.lanes) * layout.vector;
    place.column_slots = static_cast<int>(ceil_div(map.column_extent, chunk) * layout.vector);
  }
  return place;
}

/// A row of a shared buffer starts at a multiple of 16 bytes, and successive rows at different banks.
Placement shared_placement(const Buffer& buffer) {
  Placement place;
  place.kind = Placement::Kind::shared;
  const auto bytes = static_cast<std::int64_t>(size_in_bytes(buffer.type));
  const std::int64_t vector = 16 / bytes;
  place.strides.assign(buffer.extents.size(), 1);
  std::int64_t count = 1;
  for (int k = static_cast<int>(buffer.extents.size()) - 1; k >= 0; --k) {
    place.strides[k] = count;
    count *= *buffer.extents[k].as_constant();
    if (k + 1 == static_cast<int>(buffer.extents.size()) && buffer.extents.size() > 1) {
      count = round_up(count, std::lcm<std::int64_t>(vector, buffer.pad));
      if (count * bytes % kBanksBytes == 0) count += vector;
    }
  }
  place.bytes = round_up(std::max<std::int64_t>(count, 1) * bytes, 16);
  return place;
}

void require_constant(const BlockPlan& plan, const Buffer& buffer) {
  for (const IntExpr& extent : buffer.extents) {
    if (extent.as_constant()) continue;
    std::set<std::string> names;
    collect_variables(extent, names);
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "'" : ", '") + name + "'";
    user_error(
        "Kernel '{}' keeps '{}' on chip, but its size is {}, not known when compiling: fix {} (or cut the loops around it "
        "into tiles of constant size).",
        plan.program->name, buffer.name, extent.str(), list);
  }
}

/// Registers of an op's tiles that are alive during the whole kernel, as an upper bound: the sum of all tiles.
std::int64_t registers_of(const Placement& place) { return static_cast<std::int64_t>(place.row_slots) * place.column_slots; }

/// Ops that touch no register tile are free to use the layout that suits them.
void free_layouts(BlockPlan& plan) {
  for (BlockOp& op : plan.ops) {
    const bool tied =
        op.product || plan.in_registers(op.op.write) ||
        std::any_of(op.op.reads.begin(), op.op.reads.end(), [&](const TileAccess& read) { return plan.in_registers(read); });
    if (tied || (op.column < 0 && op.rows.empty())) continue;
    if (op.column < 0) {  // one dim only, which followed rows elsewhere: neighbouring threads take neighbouring values
      op.column = op.rows.back();
      op.rows.pop_back();
      op.roles[op.column] = DimRole::column;
    }
    int vector = 1;
    for (int width = 8; plan.vector_memory && op.op.kind != OpKind::points && width > 1 && vector == 1; width /= 2) {
      const auto bytes = [&](const TileAccess& access) {
        return static_cast<int>(size_in_bytes(plan.buffer(access.buffer).type));
      };
      int narrowest = bytes(op.op.write);
      for (const TileAccess& read : op.op.reads) narrowest = std::min(narrowest, bytes(read));
      if (width * narrowest <= 16 && can_vectorise(plan, op, width, false)) vector = width;
    }
    op.layout = best_layout(plan.threads, vector, op.row_bound(), op.column_bound(), op.reduces_columns(), false);
  }
}

}  // namespace

void place_scratch(BlockPlan& plan) {
  const std::map<int, ScratchUse> uses = collect_uses(plan);
  std::vector<std::pair<std::int64_t, int>> tiles;
  std::int64_t total = 0;
  for (const auto& [id, use] : uses) {
    const Buffer& buffer = plan.buffer(id);
    require_constant(plan, buffer);
    if (is_register_tile(buffer, use)) {
      plan.placements[id] = register_placement(use.maps.front().second, plan.layout);
      tiles.emplace_back(registers_of(plan.placements[id]), id);
      total += tiles.back().first;
    } else {
      plan.placements[id] = shared_placement(buffer);
    }
  }
  std::sort(tiles.rbegin(), tiles.rend());
  for (std::size_t k = 0; k < tiles.size() && total > kTileRegisters; ++k) {  // the largest give way
    total -= tiles[k].first;
    plan.placements[tiles[k].second] = shared_placement(plan.buffer(tiles[k].second));
  }
  free_layouts(plan);
  for (BlockOp& op : plan.ops) {
    const auto visit = [&](const TileAccess& access) {
      const Placement* place = plan.placement(access.buffer);
      if (place == nullptr || place->kind != Placement::Kind::registers) return;
      op.unroll_rows = op.unroll_rows || place->by_row;
      op.unroll_columns = op.unroll_columns || place->by_column;
    };
    visit(op.op.write);
    for (const TileAccess& read : op.op.reads) visit(read);
  }
}

}  // namespace nestor::nvptx
