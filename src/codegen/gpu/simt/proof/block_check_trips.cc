// Trips: copies ahead of their trip, commit groups and circular buffer slots, run for every number of trips that can differ. What a trip does depends on
// the trips left and on the distances between its own number and those of the copies under way; these repeat with the slots' period, so
// runs somewhat longer than that show all there is.
#include "codegen/gpu/simt/proof/block_proof.h"

#include <map>
#include <set>

namespace nestor::nvptx {
namespace {

/// Copies of one buffer.
struct Tile {
  std::int64_t held = -1;  ///< trip whose copy is in registers; -1: none
  struct Slot {
    std::int64_t trip = -1;
    std::int64_t group = -1;  ///< commit group; -1: not committed yet
  };
  std::vector<Slot> slots;
};

class Run {
 public:
  Run(BlockProof& proof, const BlockNode& loop, const std::set<int>& buffers, std::int64_t trips)
      : proof_(proof), loop_(loop), trips_(trips) {
    for (const int buffer : buffers) tiles_[buffer].slots.resize(static_cast<std::size_t>(std::max(place(buffer).stages, 1)));
  }

  void visit(const BlockNode& node, bool straight = true) {
    if (!proof_.good()) return;
    if (node.advance >= 0 || node.commit) {
      if (!straight) return proof_.fail("copies ahead are waited for in a loop or condition of their own");
      return node.commit ? commit() : advance(node.advance);
    }
    switch (node.kind) {
      case TileNode::Kind::op:
        return run_op(node.op, straight);
      case TileNode::Kind::condition:
        return condition(node, straight);
      case TileNode::Kind::sequence:
        return children(node, straight);
      case TileNode::Kind::loop:
        break;
    }
    if (&node == &loop_) {
      for (trip_ = 0; trip_ < trips_; ++trip_) children(node, straight);
    } else if (is_name(node) && node.var == kTrip) {
      trip_ = node.lower.as_constant().value_or(-1);
      children(node, straight);
    } else {
      children(node, straight && is_name(node));
    }
  }

 private:
  const Placement& place(int buffer) const { return proof_.plan.placements.at(buffer); }
  const std::string& name(int buffer) const { return proof_.plan.buffer(buffer).name; }

  void children(const BlockNode& node, bool straight) {
    for (const BlockNode& child : node.children) visit(child, straight);
  }

  /// `trips - (this trip + so many) > 0`, or a condition of the body's own.
  void condition(const BlockNode& node, bool straight) {
    const IntExpr& test = node.condition;
    if (const auto known = test.as_constant()) {  // of a number of trips that is a constant
      if (*known != 0) children(node, straight);
      return;
    }
    if (test.op() == IntOp::gt && test.args()[1].is_constant(0)) {
      Affine rest = affine_of(loop_.upper) - affine_of(test.args()[0]);
      const auto trip = rest.terms.find(kTrip);
      const bool counts = trip != rest.terms.end() && trip->second == 1;
      if (counts) rest.terms.erase(trip);
      if (rest.terms.empty()) {
        if ((counts ? trip_ : 0) + rest.constant < trips_) children(node, straight);
        return;
      }
    }
    children(node, false);
  }

  void run_op(int number, bool straight) {
    const BlockOp& op = proof_.op(number);
    for (const TileAccess& read : op.op.reads) {
      const auto tile = tiles_.find(read.buffer);
      if (tile != tiles_.end() && tile->second.held != trip_)
        return proof_.fail("{} reads {} of trip {} in trip {} of {}", op.op.name, name(read.buffer), tile->second.held, trip_,
                           trips_);
    }
    const auto tile = tiles_.find(op.op.write.buffer);
    if (tile == tiles_.end()) return;
    const std::int64_t trip = trip_ + op.ahead;
    if (trip >= trips_) return proof_.fail("{} copies {} for trip {} of {}", op.op.name, name(op.op.write.buffer), trip, trips_);
    if (!straight) return proof_.fail("{} copies {} in a loop or condition of its own", op.op.name, name(op.op.write.buffer));
    if (op.ahead == 0) {
      tile->second.held = trip_;
      return;
    }
    if (place(op.op.write.buffer).stages < 1)
      return proof_.fail("{} has no circular buffer for copies ahead", name(op.op.write.buffer));
    Tile::Slot& slot = slot_of(tile->second, trip);
    if (slot.trip > tile->second.held && slot.trip < trips_)
      return proof_.fail("{}: the copy of {} for trip {} overwrites that for trip {} before it is read", op.op.name,
                         name(op.op.write.buffer), trip, slot.trip);
    slot = {trip, -1};
  }

  static Tile::Slot& slot_of(Tile& tile, std::int64_t trip) {
    return tile.slots[(trip - 1) % static_cast<std::int64_t>(tile.slots.size())];
  }

  void commit() {
    for (auto& [buffer, tile] : tiles_) {
      for (Tile::Slot& slot : tile.slots) {
        if (slot.trip >= 0 && slot.group < 0) slot.group = groups_;
      }
    }
    ++groups_;
  }

  /// All groups but the last so many have arrived.
  void advance(int buffer) {
    const auto found = tiles_.find(buffer);
    if (found == tiles_.end()) return proof_.fail("nothing of {} is copied ahead", name(buffer));
    const std::int64_t arrived = groups_ - (place(buffer).stages - 1);
    const Tile::Slot& slot = slot_of(found->second, trip_ + 1);
    found->second.held = trip_ + 1 < trips_ ? trip_ + 1 : -1;
    if (trip_ + 1 >= trips_) return;
    if (slot.trip != trip_ + 1)
      return proof_.fail("{}: the slot for trip {} has the copy of trip {}", name(buffer), trip_ + 1, slot.trip);
    if (slot.group < 0 || slot.group >= arrived)
      proof_.fail("{}: the copy for trip {} of {} is read before it is waited for", name(buffer), trip_ + 1, trips_);
  }

  BlockProof& proof_;
  const BlockNode& loop_;
  std::int64_t trips_, trip_ = 0, groups_ = 0;
  std::map<int, Tile> tiles_;
};

class TripProver {
 public:
  explicit TripProver(BlockProof& proof) : proof_(proof) {
    for (const BlockOp& op : proof.plan.ops) {
      if (op.ahead > 0) note(op.op.write.buffer, op.ahead);
      if (op.ahead < 0) proof.fail("{} is a copy for a trip before", op.op.name);
    }
    for (const auto& [buffer, place] : proof.plan.placements) {
      if (place.stages > 0) note(buffer, place.stages);
    }
  }

  void run() {
    find(proof_.plan.root);
    if (left_ != 0) proof_.fail("copies ahead stand outside of a loop over trips");
    for (const int buffer : buffers_) {
      const Placement* place = proof_.plan.placement(buffer);
      if (place == nullptr || place->kind != Placement::Kind::registers || place->outside)
        proof_.fail("{} is copied ahead, and not into registers", proof_.plan.buffer(buffer).name);
    }
  }

 private:
  void note(int buffer, int distance) {
    buffers_.insert(buffer);
    deepest_ = std::max(deepest_, distance);
  }

  bool concerns(const BlockNode& node) const {
    if (node.advance >= 0 || node.commit) return true;
    if (node.kind != TileNode::Kind::op) return false;
    const TileOp& op = proof_.op(node.op).op;
    return buffers_.count(op.write.buffer) != 0 || std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) {
             return buffers_.count(read.buffer) != 0;
           });
  }
  int count(const BlockNode& node) const {
    int all = concerns(node) ? 1 : 0;
    for (const BlockNode& child : node.children) all += count(child);
    return all;
  }

  /// What concerns copies ahead stands beside or within one loop over trips.
  void find(const BlockNode& node) {
    if (left_ < 0) left_ = count(proof_.plan.root);
    for (const BlockNode& child : node.children) {
      if (is_loop(child) && child.var == kTrip && count(child) > 0) {
        left_ -= count(node);
        if (node.kind != TileNode::Kind::sequence) proof_.fail("a loop over trips stands by itself");
        return simulate(node, child);
      }
    }
    for (const BlockNode& child : node.children) find(child);
  }

  void simulate(const BlockNode& parent, const BlockNode& loop) {
    if (!loop.lower.is_constant(0) || loop.step != 1) proof_.fail("trips are not counted from 0");
    const std::int64_t longest = 3 * deepest_ + 4;
    // A resident block has a work tile: there are no more blocks than work tiles.
    std::int64_t from = proof_.persistent() && loop.independent ? 1 : 0, to = longest;
    if (const auto count = loop.upper.as_constant()) {
      // One number of trips; a large one does what those do that have a trip for each copy before the first.
      from = std::min<std::int64_t>(std::max<std::int64_t>(*count, 0), deepest_ + 1);
      to = std::min(std::max<std::int64_t>(*count, 0), longest);
    }
    for (std::int64_t trips = from; trips <= to; ++trips) {
      if (proof_.good()) Run(proof_, loop, buffers_, trips).visit(parent);
    }
  }

  BlockProof& proof_;
  std::set<int> buffers_;
  int deepest_ = 0;
  int left_ = -1;
};

}  // namespace

void prove_trips(BlockProof& proof) {
  const auto concerned = [](const auto& self, const BlockNode& node) -> bool {
    return node.advance >= 0 || node.commit ||
           std::any_of(node.children.begin(), node.children.end(), [&](const BlockNode& child) { return self(self, child); });
  };
  const bool ahead = std::any_of(proof.plan.ops.begin(), proof.plan.ops.end(), [](const BlockOp& op) { return op.ahead != 0; });
  const bool rings = std::any_of(proof.plan.placements.begin(), proof.plan.placements.end(),
                                 [](const auto& entry) { return entry.second.stages > 0; });
  if (ahead || rings || concerned(concerned, proof.plan.root)) TripProver(proof).run();
}

}  // namespace nestor::nvptx
