// Barriers between the ops of a block: only where one thread's access may meet another's in memory, one of them a write.
#include "codegen/gpu/simt/plan/block_plan.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

/// An access to memory since the last barrier. Shared memory is named by bytes, other memory by its buffer.
struct PendingAccess {
  int buffer = -1;  ///< -1: shared memory low..high
  std::int64_t low = 0, high = 0;
  bool write = false;
  std::optional<ThreadMap> map;  ///< known to be the same thread for equal elements of `named`
  int named = -1;                ///< the access's buffer; others may have other strides in the same bytes
  bool operator==(const PendingAccess& other) const = default;
};
using Pending = std::vector<PendingAccess>;

bool is_token(const std::string& name) { return name[0] == '#'; }

/// Is the token the only one in an index that both maps have? Then equal elements have it equal, whatever the other indices are.
bool tells(const ThreadMap& a, const ThreadMap& b, const std::string& token) {
  for (std::size_t k = 0; k < std::min(a.index.size(), b.index.size()); ++k) {
    const auto& terms = a.index[k].terms;
    const auto tokens = std::count_if(terms.begin(), terms.end(), [](const auto& term) { return is_token(term.first); });
    if (a.index[k] == b.index[k] && tokens == 1 && terms.contains(token) && terms.at(token) != 0) return true;
  }
  return false;
}

/// Do equal elements have the same thread? A step of a recurrence reads of the columns of the step before what its own thread has written.
bool has_same_threads(const ThreadMap& a, const ThreadMap& b) {
  if (a == b) return true;
  if (!(a.layout == b.layout) || a.row_extents != b.row_extents || a.column_extent != b.column_extent) return false;
  for (std::size_t row = 0; row < a.row_extents.size(); ++row) {
    if (!tells(a, b, row_token(row))) return false;
  }
  return a.column_extent == 0 || tells(a, b, kColumnToken);
}

bool meet(const PendingAccess& a, const PendingAccess& b) {
  if (!a.write && !b.write) return false;
  if (a.buffer != b.buffer) return false;
  if (a.buffer < 0 && (a.low >= b.high || b.low >= a.high)) return false;
  return !(a.map && b.map && a.named == b.named && has_same_threads(*a.map, *b.map));
}

class BarrierPass {
 public:
  explicit BarrierPass(BlockPlan& plan) : plan_(plan) {}

  void run() {
    Pending pending;
    visit(plan_.root, pending);
  }

 private:
  void visit(const BlockNode& node, Pending& pending) {
    switch (node.kind) {
      case TileNode::Kind::op:
        return visit_op(plan_.ops[node.op], pending);
      case TileNode::Kind::sequence:
        for (const BlockNode& child : node.children) visit(child, pending);
        return;
      case TileNode::Kind::condition: {
        Pending inside = pending;
        for (const BlockNode& child : node.children) visit(child, inside);
        merge(pending, inside);
        return;
      }
      case TileNode::Kind::loop: {
        if (node.once) {
          loops_.insert(node.var);
          for (const BlockNode& child : node.children) visit(child, pending);
          loops_.erase(node.var);
          return;
        }
        // Flags only ever get set, so that a second pass over what the first left behind reaches the fixed point of one level.
        loops_.insert(node.var);
        for (int pass = 0; pass < 2; ++pass) {
          Pending inside = pending;
          for (const BlockNode& child : node.children) visit(child, inside);
          if (node.independent) std::erase_if(inside, [](const PendingAccess& touch) { return touch.buffer >= 0; });
          merge(pending, inside);
        }
        loops_.erase(node.var);
        return;
      }
    }
  }

  static void merge(Pending& into, const Pending& from) {
    for (const PendingAccess& touch : from) {
      if (std::find(into.begin(), into.end(), touch) == into.end()) into.push_back(touch);
    }
  }

  void visit_op(BlockOp& op, Pending& pending) {
    Pending before, after;  // before and after the barriers inside of the op, if it has any
    touches(op, before, after);
    // What the blocks of a cluster exchange comes with a synchronisation of its own, which orders nothing else.
    const bool inner = combines_in_memory(op) || (op.product && !(op.product->a_direct && op.product->b_direct));
    if (!inner) before.insert(before.end(), after.begin(), after.end());
    const auto meets_pending = [&](const PendingAccess& touch) {
      return std::any_of(pending.begin(), pending.end(), [&](const PendingAccess& old) { return meet(old, touch); });
    };
    // A staged product starts with a barrier of its own.
    const bool starts_with_barrier = op.product && inner;
    if (!starts_with_barrier && std::any_of(before.begin(), before.end(), meets_pending)) op.barrier_before = true;
    if (op.barrier_before || inner) pending.clear();
    if (!inner) merge(pending, before);
    if (inner) merge(pending, after);
  }

  /// Partial results pass through shared memory, with a barrier between; those of one warp do not.
  bool combines_in_memory(const BlockOp& op) const {
    return (op.crosses_warps() && plan_.cluster == 1) || op.prefix_crosses_warps() ||
           (op.crosses_groups() && op.group_partials() > 1);
  }

  void touches(const BlockOp& op, Pending& before, Pending& after) const {
    const auto add = [&](Pending& list, const TileAccess& access, bool is_write, bool operand) {
      const Placement* place = plan_.placement(access.buffer);
      if (place != nullptr && place->kind == Placement::Kind::registers) return;
      PendingAccess touch;
      touch.write = is_write;
      touch.named = access.buffer;
      if (place != nullptr && place->kind == Placement::Kind::shared) {
        touch.low = place->offset;
        touch.high = place->offset + place->bytes;
      } else {
        if (plan_.buffer(access.buffer).role == TensorRole::input && plan_.buffer(access.buffer).memory == Memory::argument)
          return;
        touch.buffer = access.buffer;
      }
      if (!operand) touch.map = owner(op, access, is_write);
      list.push_back(touch);
    };
    const auto add_range = [&](Pending& list, std::int64_t low, std::int64_t bytes) {
      PendingAccess touch;
      touch.low = low;
      touch.high = low + bytes;
      touch.write = true;
      list.push_back(touch);
    };
    for (std::size_t k = 0; k < op.op.reads.size(); ++k) {
      add(before, op.op.reads[k], false, op.product.has_value());
      const auto staged = [&](const ProductPlan& product) {
        const int read = static_cast<int>(k);
        return (read == product.form.a && !product.a_direct) || (read == product.form.b && !product.b_direct);
      };
      if (op.product && !staged(*op.product)) add(after, op.op.reads[k], false, true);
    }
    add(after, op.op.write, true, false);
    if (op.op.reduction && !op.op.initialize) add(after, op.op.write, false, false);
    if (combines_in_memory(op)) {
      for (Pending* list : {&before, &after}) add_range(*list, op.partials_offset, plan_.partials_bytes(op));
    }
    if (op.product) {
      if (!op.product->a_direct) add_range(after, op.product->a_offset, op.product->a_bytes(op.layout));
      if (!op.product->b_direct) add_range(after, op.product->b_offset, op.product->b_bytes(op.layout));
    }
  }

  /// The map of an access that only one thread makes for each element, the same in every pass of the loops around it.
  std::optional<ThreadMap> owner(const BlockOp& op, const TileAccess& access, bool is_write) const {
    auto map = thread_map(op, access, is_write);
    if (!map) return std::nullopt;
    if (map->row_extents.empty() && op.layout.groups > 1) return std::nullopt;
    if (map->column_extent == 0 && op.layout.lanes > 1) return std::nullopt;
    for (const Affine& index : map->index) {
      bool token = false, loop = false;
      for (const auto& [name, coefficient] : index.terms) {
        token = token || is_token(name);
        loop = loop || loops_.count(name) != 0 || (name[0] == '[');
      }
      if (token && loop) return std::nullopt;
    }
    return map;
  }

  BlockPlan& plan_;
  std::set<std::string> loops_;
};

}  // namespace

void insert_barriers(BlockPlan& plan) {
  BarrierPass(plan).run();
  part_at_barriers(plan);
}

}  // namespace nestor::nvptx
