// Registers or shared memory for every scratch buffer, and the map of shared memory.
#include "codegen/gpu/simt/plan/block_plan.h"

#include "codegen/gpu/target/block_registers.h"
#include "support/error.h"

#include <algorithm>
#include <numeric>

namespace nestor::nvptx {
namespace {

constexpr std::int64_t kBanksBytes = 128;

struct ScratchUse {
  std::vector<std::pair<int, ThreadMap>> maps;  ///< op, map
  bool in_registers = true;
};

std::map<int, ScratchUse> collect_uses(const BlockPlan& plan) {
  std::map<int, ScratchUse> uses;
  for (int k = 0; k < static_cast<int>(plan.ops.size()); ++k) {
    const BlockOp& op = plan.ops[k];
    const auto visit = [&](const TileAccess& access, bool is_write, bool operand) {
      if (plan.buffer(access.buffer).memory != Memory::scratch) return;
      ScratchUse& use = uses[access.buffer];
      const auto map = operand ? std::nullopt : thread_map(op, access, is_write);
      if (!map) {
        use.in_registers = false;
      } else {
        use.maps.emplace_back(k, *map);
      }
    };
    // Registers have no places that data says.
    visit(op.op.write, true, op.scattered.has_value());
    for (const TileAccess& read : op.op.reads) visit(read, false, op.product.has_value() || op.scattered.has_value());
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
  if (place.by_row) place.row_slots = static_cast<int>(layout.row_slots(std::max<std::int64_t>(rows, 1)));
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
        "Kernel '{}' keeps '{}' on chip, but its size is {}, {}: fix {} (or cut the loops around it into tiles of constant "
        "size).",
        plan.program->name, buffer.name, extent.str(), kUnknownSize, list);
  }
}

/// Registers of a tile in each thread.
std::int64_t registers_of(const Placement& place) { return static_cast<std::int64_t>(place.row_slots) * place.column_slots; }

/// The ops between which a tile must keep its values: from the first to the last that touches it. One that is filled before a
/// loop and touched in it lasts to the loop's end, unless each pass ends by filling it anew from what was copied ahead.
struct Lifetime {
  int first = 1 << 30, last = -1;
};

void collect_order(const BlockNode& node, std::vector<int>& order, std::vector<std::pair<int, int>>& loops) {
  const int begin = static_cast<int>(order.size());
  if (node.kind == TileNode::Kind::op) order.push_back(node.op);
  for (const BlockNode& child : node.children) collect_order(child, order, loops);
  if (node.kind == TileNode::Kind::loop && !node.once) loops.emplace_back(begin, static_cast<int>(order.size()) - 1);
}

/// Most registers that tiles need at once.
std::int64_t peak_registers(const BlockPlan& plan, const std::vector<std::pair<std::int64_t, int>>& tiles) {
  std::vector<int> order;
  std::vector<std::pair<int, int>> loops;
  collect_order(plan.root, order, loops);
  std::map<int, Lifetime> lives;
  std::map<int, int> refills;  // by buffer: where its last copy ahead is
  for (int at = 0; at < static_cast<int>(order.size()); ++at) {
    const BlockOp& op = plan.ops[order[at]];
    const auto note = [&](int buffer) {
      Lifetime& life = lives[buffer];
      life.first = std::min(life.first, at);
      life.last = std::max(life.last, at);
    };
    note(op.op.write.buffer);
    for (const TileAccess& read : op.op.reads) note(read.buffer);
    if (op.ahead > 0) refills[op.op.write.buffer] = at;
  }
  for (auto& [buffer, life] : lives) {
    const auto refill = refills.find(buffer);
    for (const auto& [begin, end] : loops) {
      if (refill != refills.end() && refill->second >= begin && refill->second <= end) continue;
      if (life.first < begin && life.last >= begin && life.last <= end) life.last = end;
    }
  }
  std::int64_t peak = 0;
  for (int at = 0; at < static_cast<int>(order.size()); ++at) {
    std::int64_t alive = 0;
    for (const auto& [registers, id] : tiles) {
      const Lifetime& life = lives.at(id);
      // A tile whose last reader writes another one gives its registers over, element by element.
      if (life.first <= at && (life.last > at || life.first == life.last)) alive += registers;
    }
    peak = std::max(peak, alive);
  }
  return peak;
}

/// Ops that touch no register tile are free to use the layout that suits them. A number that all threads have is no tile: what sums over
/// columns make of it, all threads get, and all threads read it.
void free_layouts(BlockPlan& plan) {
  const auto in_tile = [&](const TileAccess& access) {
    const Placement* place = plan.placement(access.buffer);
    return plan.in_registers(access) && (place->by_row || place->by_column);
  };
  for (BlockOp& op : plan.ops) {
    const bool writes = plan.in_registers(op.op.write) && !(op.divided >= 0 && op.reduces_columns());
    const bool tied =
        op.product || writes || in_tile(op.op.write) || std::any_of(op.op.reads.begin(), op.op.reads.end(), in_tile);
    if (tied || (op.column < 0 && op.rows.empty())) continue;
    if (op.column < 0) {  // one dim only, which followed rows elsewhere: neighbouring threads take neighbouring values
      op.column = op.rows.back();
      op.rows.pop_back();
      op.roles[op.column] = DimRole::column;
      divide_sum(op);
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
    const auto rows = op.divided < 0 ? op.row_bound() : extent_bound(op.op.dims[op.divided]);
    const bool each_row = op.meets_along_columns() && op.divided < 0;
    const bool any_lanes = !op.meets_along_columns() && op.divided < 0 && plan.cluster == 1;
    const std::int64_t at_once = plan.cluster == 1 && shares_terms(op) ? most_rows_at_once(op) : 0;
    const Layout layout = best_layout(plan.all_threads(), vector, rows, op.column_bound(), each_row, false, any_lanes, at_once);
    const bool divides = op.divided >= 0 && divides_well(op, layout) && (plan.cluster == 1 || op.reduces_columns());
    op.layout = op.divided < 0 || divides ? layout : best_layout(plan.all_threads(), vector, 1, op.column_bound(), false, false);
    op.layout = with_windows(plan, {&op}, op.layout, op.row_bound(), op.column_bound());
  }
}

void refuse_long_code(const BlockPlan& plan) {
  for (const auto& [id, place] : plan.placements) {
    if (place.kind != Placement::Kind::registers || place.row_slots <= kMostRowSlots) continue;
    user_error(
        "Kernel '{}' keeps {} rows of '{}' in each thread, and writes code for each of them: at most {} are possible; "
        "cut the loop over rows into smaller tiles.",
        plan.program->name, place.row_slots, plan.buffer(id).name, kMostRowSlots);
  }
}

void refuse_shared(const BlockPlan& plan) {
  for (const auto& [id, place] : plan.placements) {
    if (place.kind != Placement::Kind::shared) continue;
    user_error(
        "Kernel '{}': threads read values of '{}' that others wrote, and blocks of a cluster do not share memory; leave it to "
        "one "
        "block (cluster 1).",
        plan.program->name, plan.buffer(id).name);
  }
}

}  // namespace

std::int64_t pieces_of(const BlockPlan& plan, int buffer) {
  const Placement& place = plan.placements.at(buffer);
  const auto bytes = static_cast<std::int64_t>(size_in_bytes(plan.buffer(buffer).type));
  return ceil_div(std::int64_t{place.row_slots} * place.column_slots * bytes, place.piece);
}

void place_scratch(BlockPlan& plan) {
  const std::map<int, ScratchUse> uses = collect_uses(plan);
  std::vector<std::pair<std::int64_t, int>> tiles;
  for (const auto& [id, use] : uses) {
    const Buffer& buffer = plan.buffer(id);
    require_constant(plan, buffer);
    if (is_register_tile(buffer, use)) {
      plan.placements[id] =
          register_placement(use.maps.front().second, plan.ops[static_cast<std::size_t>(use.maps.front().first)].layout);
      tiles.emplace_back(registers_of(plan.placements[id]), id);
    } else {
      plan.placements[id] = shared_placement(buffer);
    }
  }
  // The largest give way, first of all those that are only read again and again: all blocks should fit a multiprocessor.
  std::sort(tiles.begin(), tiles.end(), [&](const auto& a, const auto& b) {
    const bool a_lasts = plan.lasting.contains(a.second), b_lasts = plan.lasting.contains(b.second);
    return a_lasts != b_lasts ? a_lasts : a > b;
  });
  const std::int64_t room = tile_registers(plan.threads);
  const int blocks = plan.cluster > 1 ? std::max(plan.kernel->shape.persistent, 1) : 1;
  const std::int64_t share = tile_registers(plan.threads * blocks);
  while (!tiles.empty()) {
    const int id = tiles.front().second;
    if (peak_registers(plan, tiles) <= (plan.lasting.contains(id) ? share : room)) break;
    if (plan.cluster > 1) {
      plan.placements[id].outside = true;
    } else {
      plan.placements[id] = shared_placement(plan.buffer(id));
    }
    tiles.erase(tiles.begin());
  }
  if (peak_registers(plan, tiles) <= share) plan.blocks_per_unit = blocks;
  for (const BlockOp& op : plan.ops) {
    if (op.ahead > 0 && (!plan.in_registers(op.op.write) || plan.placements.at(op.op.write.buffer).outside)) {
      user_error(
          "Kernel '{}': '{}' is to be copied ahead, but the registers of {} threads have no room for the current work tile.",
          plan.program->name, plan.buffer(op.op.write.buffer).name, plan.all_threads());
    }
  }
  refuse_long_code(plan);
  if (plan.cluster > 1) refuse_shared(plan);
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
    // Blocks of a cluster have no memory in which groups could combine their parts of several sums.
    const bool apart = plan.cluster > 1 && !op.reduces_columns();
    if (op.divided >= 0 && (apart || !divides_well(op, op.layout))) op.divided = -1;
    op.unroll_rows = op.unroll_rows || (plan.cluster == 1 && !op.crosses_warps() && shares_terms(op) && fits_rows_at_once(op));
    op.unroll_columns = op.unroll_columns || op.crosses_groups();
  }
}

}  // namespace nestor::nvptx
