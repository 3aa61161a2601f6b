// The map of shared memory: scratch buffers, staged operands of products, partial results that cross warps.
#include "codegen/gpu/simt/plan/block_plan.h"

#include "support/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

constexpr std::int64_t kStagingBudget = 24 << 10;  ///< bytes for the operand tiles of one product, so that blocks share an SM
/// Messages of one exchange that a block sends: more of them take longer on their way than its warps take to combine their results.
constexpr int kMostMessages = 128;
constexpr int kBankPad = 4;                       ///< floats: the next row starts 16 bytes further round the banks
constexpr int kMostStages = 3;                    ///< k tiles of a product in shared memory at once
constexpr std::int64_t kStagesBudget = 64 << 10;  ///< bytes for them, so that blocks share a multiprocessor
constexpr std::int64_t kSharedRegisters = 128;    ///< of a thread of a product, where several blocks share a multiprocessor
constexpr std::int64_t kOtherRegisters = 32;      ///< of it: second operands and addresses

/// Something that needs shared memory while the ops at places first..last of the tree run.
struct Item {
  std::string what;
  std::int64_t bytes = 0;
  int first = 0, last = 0;
  std::int64_t* offset = nullptr;
};

/// For each op, the range of places in the tree of the outermost loop around it: what one pass writes, the next one may read. Ops are not
/// numbered in the order of the tree where copies stand before their loop or run ahead.
class LoopRanges {
 public:
  explicit LoopRanges(const BlockPlan& plan) : ranges_(plan.ops.size()) { visit(plan.root, false); }
  const std::pair<int, int>& of(int op) const { return ranges_[op]; }
  int place_of(int op) const { return places_.at(op); }

 private:
  void visit(const BlockNode& node, bool inside) {
    const auto first = order_.size();
    if (node.kind == TileNode::Kind::op) {
      const int place = static_cast<int>(order_.size());
      places_[node.op] = place;
      ranges_[node.op] = {place, place};
      order_.push_back(node.op);
    }
    const bool loop = node.kind == TileNode::Kind::loop;
    for (const BlockNode& child : node.children) visit(child, inside || loop);
    if (!loop || inside) return;
    for (auto k = first; k < order_.size(); ++k)
      ranges_[order_[k]] = {static_cast<int>(first), static_cast<int>(order_.size()) - 1};
  }

  std::vector<std::pair<int, int>> ranges_;
  std::map<int, int> places_;
  std::vector<int> order_;
};

bool lies_in_shared(const BlockPlan& plan, const TileAccess& access) {
  const Placement* place = plan.placement(access.buffer);
  return place != nullptr && place->kind == Placement::Kind::shared && plan.buffer(access.buffer).type == ElementType::f32;
}

/// Operand in shared memory, whole, with `along` in the last index at multiples of `width` and `across` in another one.
bool readable_in_place(const BlockPlan& plan, const BlockOp& op, int read, int along, int across, std::int64_t width) {
  const TileAccess& access = op.op.reads[read];
  const OpDim &last = op.op.dims[along], &other = op.op.dims[across];
  if (!lies_in_shared(plan, access) || access.index.back().coefficient(last.var) != 1 || access.index.back().uses(other.var))
    return false;
  int across_uses = 0;
  for (std::size_t k = 0; k + 1 < access.index.size(); ++k) {
    if (access.index[k].uses(last.var)) return false;
    across_uses += access.index[k].uses(other.var);
  }
  Multiples multiples = op.multiples;
  multiples[last.var] = width;
  std::set<std::string> sizes;
  return across_uses == 1 && known_multiple(access.index.back(), multiples, {}, 1, sizes) % width == 0 &&
         known_multiple(last.lower, op.multiples, {}, 1, sizes) % width == 0;
}

bool contiguous_along(const BlockOp& op, int read, int dim) {
  const TileAccess& access = op.op.reads[read];
  return !access.index.empty() && access.index.back().coefficient(op.op.dims[dim].var) == 1;
}

int copy_width(BlockPlan& plan, const BlockOp& op, int read, int dim, std::int64_t length) {
  const int width = static_cast<int>(16 / size_in_bytes(plan.buffer(op.op.reads[read].buffer).type));
  return plan.vector_memory && length % width == 0 && can_copy_vectors(plan, op, read, dim, width, true) ? width : 1;
}

/// Asynchronous copies move f32 as it lies in global memory; other copies ahead count their own groups of copies.
bool copies_ahead(const BlockPlan& plan, const BlockOp& op) {
  const ProductPlan& product = *op.product;
  const auto moves = [&](int read) {
    const Buffer& buffer = plan.buffer(op.op.reads[read].buffer);
    return buffer.type == ElementType::f32 && buffer.memory != Memory::scratch;
  };
  if ((product.a_direct && product.b_direct) || op.op.guard.defined()) return false;
  if ((!product.a_direct && !moves(product.form.a)) || (!product.b_direct && !moves(product.form.b))) return false;
  return plan.cluster == 1 &&
         std::none_of(plan.ops.begin(), plan.ops.end(), [](const BlockOp& other) { return other.ahead > 0; });
}

/// Several blocks hide from each other that theirs wait. ptxas takes more registers than it needs where nobody limits them.
void share_registers(BlockPlan& plan, const BlockOp& op) {
  const ProductPlan& product = *op.product;
  const std::int64_t sums = std::int64_t{product.row_slots} * product.chunks * op.layout.vector;
  std::int64_t tiles = 0;
  for (const auto& [id, place] : plan.placements) {
    const bool takes_sums = id == op.op.write.buffer && op.op.initialize;
    if (place.kind == Placement::Kind::registers && !takes_sums) tiles += std::int64_t{place.row_slots} * place.column_slots;
  }
  if (product.stages == 1 || sums + tiles + 4 * product.row_slots + kOtherRegisters > kSharedRegisters) return;
  plan.blocks_per_unit = std::max(plan.blocks_per_unit, static_cast<int>(kUnitRegisters / (kSharedRegisters * plan.threads)));
}

void plan_product(BlockPlan& plan, BlockOp& op) {
  ProductPlan& product = *op.product;
  const ProductForm& form = product.form;
  const Layout& layout = op.layout;
  product.row_slots = static_cast<int>(ceil_div(std::max<std::int64_t>(*op.row_bound(), 1), layout.groups));
  product.chunks = static_cast<int>(
      ceil_div(std::max<std::int64_t>(*op.column_bound(), 1), static_cast<std::int64_t>(layout.lanes) * layout.vector));
  const std::int64_t rows = static_cast<std::int64_t>(product.row_slots) * layout.groups;
  const std::int64_t columns = static_cast<std::int64_t>(product.chunks) * layout.lanes * layout.vector;
  const auto k_exact = exact_extent(op.op.dims[form.k]), k_bound = extent_bound(op.op.dims[form.k]);
  const bool guarded = op.op.guard.defined();
  product.k_tile = (rows + columns) * (32 + kBankPad) * 4 <= kStagingBudget ? 32 : 16;
  if (k_bound && *k_bound < product.k_tile) product.k_tile = static_cast<int>(round_up(std::max<std::int64_t>(*k_bound, 1), 8));
  while (k_exact && product.k_tile > 8 && *k_exact % product.k_tile != 0 && *k_exact % (product.k_tile / 2) == 0)
    product.k_tile /= 2;
  const bool whole_ks = k_exact && *k_exact % product.k_tile == 0;
  product.a_direct = whole_ks && !guarded && exact_extent(op.op.dims[form.row]) == rows &&
                     readable_in_place(plan, op, form.a, form.k, form.row, 4);
  product.b_direct = whole_ks && !guarded && exact_extent(op.op.dims[form.column]) == columns &&
                     readable_in_place(plan, op, form.b, form.column, form.k, layout.vector);
  product.a_copy_along_k = contiguous_along(op, form.a, form.k) || !contiguous_along(op, form.a, form.row);
  product.b_copy_along_k = contiguous_along(op, form.b, form.k);
  product.b_by_column = !product.b_direct && product.b_copy_along_k;
  product.a_stride = product.k_tile + kBankPad;
  product.b_stride = (product.b_by_column ? layout.vector * product.k_tile : static_cast<int>(columns)) + kBankPad;
  const bool ahead = !(k_bound && *k_bound <= product.k_tile) && copies_ahead(plan, op);
  // Asynchronous copies turn nothing round: elements that lie along rows go one by one to where they lie along ks.
  if (!product.a_direct && (product.a_copy_along_k || !ahead)) {
    product.a_copy_width = product.a_copy_along_k ? copy_width(plan, op, form.a, form.k, product.k_tile)
                                                  : copy_width(plan, op, form.a, form.row, rows);
  }
  if (!product.b_direct) {
    product.b_copy_width = product.b_copy_along_k ? copy_width(plan, op, form.b, form.k, product.k_tile)
                                                  : copy_width(plan, op, form.b, form.column, columns);
  }
  if (ahead) {
    product.stages = kMostStages;
    const std::int64_t bytes =
        (product.a_direct ? 0 : product.a_bytes(layout)) + (product.b_direct ? 0 : product.b_bytes(layout));
    if (bytes > kStagesBudget) product.stages = 2;
  }
  const auto is_product = [](const BlockOp& other) { return other.product.has_value(); };
  if (std::count_if(plan.ops.begin(), plan.ops.end(), is_product) > 1) return;
  share_registers(plan, op);
  const auto meets = [](const BlockOp& other) { return other.meets_along_columns() || other.divided >= 0 || other.ahead > 0; };
  plan.square_warps = plan.cluster == 1 && fits_squares(plan.layout) && std::none_of(plan.ops.begin(), plan.ops.end(), meets);
}

/// Bytes that the asynchronous copies of an op move at once.
int piece_bytes(const BlockPlan& plan, const BlockOp& op) {
  const auto bytes = static_cast<std::int64_t>(size_in_bytes(plan.buffer(op.op.write.buffer).type));
  if (op.read_vectors[0] && op.layout.vector * bytes % 16 == 0) return 16;
  if (bytes == 4) return 4;
  user_error("Kernel '{}': '{}' cannot be copied ahead, as its rows are no whole pieces of 16 bytes, nor its elements of 4.",
             plan.program->name, plan.buffer(op.op.write.buffer).name);
}

std::vector<Item> collect_items(BlockPlan& plan) {
  const LoopRanges ranges(plan);
  std::vector<Item> items;
  std::map<int, Item> buffers;
  for (auto& [id, place] : plan.placements) {
    if (place.outside)
      items.push_back({plan.buffer(id).name, pieces_of(plan, id) * 16 * plan.threads, 0, static_cast<int>(plan.ops.size()),
                       &place.outside_offset});
  }
  for (int k = 0; k < static_cast<int>(plan.ops.size()); ++k) {
    BlockOp& op = plan.ops[k];
    const auto visit = [&](const TileAccess& access) {
      const auto place = plan.placements.find(access.buffer);
      if (place == plan.placements.end() || place->second.kind != Placement::Kind::shared) return;
      Item& item = buffers
                       .try_emplace(access.buffer, Item{plan.buffer(access.buffer).name, place->second.bytes, 1 << 30, -1,
                                                        &place->second.offset})
                       .first->second;
      item.first = std::min(item.first, ranges.of(k).first);
      item.last = std::max(item.last, ranges.of(k).second);
    };
    visit(op.op.write);
    for (const TileAccess& read : op.op.reads) visit(read);
    if (op.product) {
      ProductPlan& product = *op.product;
      const int place = ranges.place_of(k);
      if (!product.a_direct)
        items.push_back({"operand of " + op.op.name, product.a_bytes(op.layout), place, place, &product.a_offset});
      if (!product.b_direct)
        items.push_back({"operand of " + op.op.name, product.b_bytes(op.layout), place, place, &product.b_offset});
    }
    if (op.ahead > 0 && op.ahead == plan.buffer(op.op.write.buffer).stages - 1) {
      Placement& place = plan.placements.at(op.op.write.buffer);
      place.piece = piece_bytes(plan, op);
      place.stages = op.ahead;
      items.push_back({"work tiles to come of " + op.op.name,
                       pieces_of(plan, op.op.write.buffer) * place.piece * plan.threads * place.stages, 0,
                       static_cast<int>(plan.ops.size()), &place.stages_offset});
    }
    if (!op.crosses_warps() && !op.crosses_groups() && !op.prefix_crosses_warps()) continue;
    // Few bytes: with a place of its own, a reduction need not wait until the one before it was read.
    const bool exchanges = plan.cluster > 1 && op.crosses_warps();
    op.gathers = exchanges && op.meeting().groups == 1 && plan.threads / 32 * plan.cluster > kMostMessages;
    if (!exchanges || op.gathers)
      items.push_back({"partial results of " + op.op.name, round_up(plan.partials_bytes(op), 16), 0,
                       static_cast<int>(plan.ops.size()), &op.partials_offset});
    if (exchanges) plan.exchange_bytes = std::max(plan.exchange_bytes, round_up(plan.exchanged_bytes(op), 16));
  }
  if (plan.cluster > 1 && plan.exchange_bytes > 0)
    items.push_back({"partial results of the cluster", kExchangeBarriers + kExchangeSlots * plan.exchange_bytes, 0,
                     static_cast<int>(plan.ops.size()), &plan.exchange_offset});
  for (auto& [id, item] : buffers) items.push_back(item);
  return items;
}

}  // namespace

void allocate_shared(BlockPlan& plan, const NvptxTarget& target) {
  for (BlockOp& op : plan.ops) {
    if (op.product) plan_product(plan, op);
  }
  std::vector<Item> items = collect_items(plan);
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.bytes > b.bytes; });
  for (std::size_t k = 0; k < items.size(); ++k) {
    std::int64_t offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t other = 0; other < k; ++other) {
        const Item& placed = items[other];
        const bool together = placed.first <= items[k].last && items[k].first <= placed.last;
        if (!together || *placed.offset >= offset + items[k].bytes || offset >= *placed.offset + placed.bytes) continue;
        offset = *placed.offset + round_up(placed.bytes, 16);
        moved = true;
      }
    }
    *items[k].offset = offset;
    plan.shared_bytes = std::max(plan.shared_bytes, offset + round_up(items[k].bytes, 16));
  }
  if (plan.shared_bytes <= target.shared_limit) return;
  std::string list;
  for (const Item& item : items) list += fmt::format("{}'{}' {} bytes", list.empty() ? "" : ", ", item.what, item.bytes);
  user_error("Kernel '{}' needs {} bytes of shared memory a block, and there are {}: {}. Smaller tiles would fit.",
             plan.program->name, plan.shared_bytes, target.shared_limit, list);
}

}  // namespace nestor::nvptx
