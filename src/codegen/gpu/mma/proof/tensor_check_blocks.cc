// Symbolic execution of both roles, block by block: which tiles are held, which products are under way, whose turn it is, which sums are
// still in lanes.
#include "codegen/gpu/mma/proof/tensor_proof.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

using Kind = Event::Kind;

/// Tiles of a circular buffer that have been waited for and not released: the current one, and those before it that are kept.
struct Tiles {
  int waited = 0, behind = 0;
  bool current() const { return waited > behind; }
  bool operator==(const Tiles& other) const = default;
};

/// A product under way, and how many tiles further its warpgroup has gone in the circular buffers that it reads.
struct Flying {
  int op;
  std::map<int, int> age;
  bool operator==(const Flying& other) const = default;
};

/// What a block in a loop or a condition must leave as it was.
struct Held {
  std::map<int, Tiles> tiles;     ///< by circular buffer; none: no tile
  std::set<int> operands;         ///< circular buffers that have been read into registers
  std::set<int> whole;            ///< buffers of sums that have been added up over lanes
  std::vector<Flying> in_flight;  ///< products, oldest first
  bool turn = false;
  bool operator==(const Held& other) const = default;
};

class ConsumerWalk {
 public:
  explicit ConsumerWalk(TensorProof& proof) : proof_(proof) {}

  void run() {
    Held outside;  // what the blocks that run on one condition have found
    for (std::size_t b = 0; b < proof_.consumer.size(); ++b) {
      const RoleBlock& block = proof_.consumer[b];
      const Held before = held_;
      if (b == 0 || !same_conditions(proof_.consumer[b - 1], block)) outside = held_;
      always_ = block.always();
      for (std::size_t k = 0; k < block.steps.size(); ++k) {
        step(block.steps[k].event);
        const Event* next = k + 1 < block.steps.size() ? &block.steps[k + 1].event : nullptr;
        if (!amid_is_met(block.steps[k].event, next))
          proof_.fail("{} is released in the middle of an op that does not come next", proof_.name(block.steps[k].event.ring));
      }
      const bool leaves = b + 1 == proof_.consumer.size() || !same_conditions(block, proof_.consumer[b + 1]);
      if ((block.loop() && !(held_ == before)) || (!block.conditions.empty() && leaves && !(held_ == outside)))
        proof_.fail("an iteration, or what runs on a condition, does not leave tiles, products, sums and turns as it found them");
    }
    if (!held_.in_flight.empty())
      proof_.fail("product {} is in flight at the end of a work tile", proof_.op(held_.in_flight.front().op).op.name);
    for (const auto& [ring, tiles] : held_.tiles)
      proof_.fail("a tile of {} is held at the end of a work tile", proof_.name(ring));
    if (held_.turn) proof_.fail("a turn is not passed on at the end of a work tile");
    if (proof_.plan.ping_pong_tiles() && turns_ != 1) proof_.fail("a warpgroup has {} turns in a work tile of its own", turns_);
    for (int r = 0; r < static_cast<int>(proof_.plan.circular_buffers.size()); ++r) {
      if (keeps_.count(r) != 0 && gives_.count(r) != 0)
        proof_.fail("tiles of {} are kept behind, but not all of them", proof_.name(r));
      if (proof_.ring(r).scheduler && held_.operands.count(r) == 0)
        proof_.fail("{} is not read: no work tile follows", proof_.name(r));
    }
  }

 private:
  /// Both run, or neither does.
  static bool same_conditions(const RoleBlock& a, const RoleBlock& b) {
    return std::equal(a.conditions.begin(), a.conditions.end(), b.conditions.begin(), b.conditions.end(),
                      [](const IntExpr& left, const IntExpr& right) { return left.str() == right.str(); });
  }

  void step(const Event& event) {
    switch (event.kind) {
      case Kind::wait_full:
        return wait(event.ring);
      case Kind::next_tile:
        return next(event.ring);
      case Kind::release:
        return release(event.ring);
      case Kind::take_registers:
        return take(event.ring);
      case Kind::product:
        return product(event.op);
      case Kind::wait_products:
        if (held_.in_flight.size() > static_cast<std::size_t>(event.count))
          held_.in_flight.erase(held_.in_flight.begin(), held_.in_flight.end() - event.count);
        return;
      case Kind::compute:
        return compute(proof_.op(event.op));
      case Kind::narrow:
        return narrow(event.op);
      case Kind::quad_reduction:
        return finish(event.ring);
      case Kind::wait_turn:
      case Kind::pass_turn:
        return turn(event.kind == Kind::wait_turn);
      case Kind::wait_empty:
      case Kind::load:
      case Kind::commit_copies:
      case Kind::wait_copies:
      case Kind::wait_stores:
      case Kind::barrier:
      case Kind::read_test:
        return;
    }
  }

  /// A release in the middle of an op is said when that op runs: it comes next, but for others of the kind.
  bool amid_is_met(const Event& event, const Event* next) const {
    if (event.kind != Kind::release || event.count == 0) return true;
    if (event.count < 0 || event.count > kAmidParts) return false;
    if (next == nullptr || next->op != event.op) return false;
    if (next->kind == Kind::release) return next->count != 0;
    const TensorOp& op = proof_.op(event.op);
    const bool adds = op.kind == TensorOp::Kind::reduce && op.op.reduction == ReductionOp::add;
    return next->kind == Kind::compute && (op.kind == TensorOp::Kind::map || adds) && op.column >= 0;
  }

  bool reads_ring(int op, int ring) const { return proof_.op(op).a_ring == ring || proof_.op(op).b_ring == ring; }

  Tiles tiles_of(int ring) const {
    const auto found = held_.tiles.find(ring);
    return found == held_.tiles.end() ? Tiles{} : found->second;
  }
  void set_tiles(int ring, const Tiles& tiles) {
    if (tiles == Tiles{}) {
      held_.tiles.erase(ring);
    } else {
      held_.tiles[ring] = tiles;
    }
  }

  /// There is a stage for the tile beside those that the warpgroup keeps: it could not be copied while the warpgroup waits, else.
  void wait(int ring) {
    Tiles tiles = tiles_of(ring);
    if (tiles.current()) proof_.fail("{} is waited for again before its tile is released", proof_.name(ring));
    if (proof_.plan.ping_pong_tiles() && !held_.turn)
      proof_.fail("{} is waited for before the tiles of work tiles before it", proof_.name(ring));
    ++tiles.waited;
    if (tiles.waited > proof_.ring(ring).stages)
      proof_.fail("{} has {} stages where {} tiles are held at once", proof_.name(ring), proof_.ring(ring).stages, tiles.waited);
    set_tiles(ring, tiles);
  }

  void turn(bool begins) {
    if (held_.turn == begins) proof_.fail("turns are not waited for and passed on one after the other");
    if (proof_.plan.ping_pong_tiles() && !always_)
      proof_.fail("a turn in a work tile of a warpgroup's own has a condition or repeats");
    held_.turn = begins;
    turns_ += begins ? 1 : 0;
  }

  void next(int ring) {
    Tiles tiles = tiles_of(ring);
    if (!tiles.current()) proof_.fail("{} is passed over without a tile that has been waited for", proof_.name(ring));
    ++tiles.behind;
    set_tiles(ring, tiles);
    keeps_.insert(ring);
    for (Flying& flying : held_.in_flight) {
      if (reads_ring(flying.op, ring)) ++flying.age[ring];
    }
  }

  void release(int ring) {
    Tiles tiles = tiles_of(ring);
    if (tiles.waited == 0) return proof_.fail("{} is released without a tile that has been waited for", proof_.name(ring));
    if (held_.turn && !proof_.plan.ping_pong_tiles()) proof_.fail("{} is released within a turn", proof_.name(ring));
    if (tiles.behind == 0) gives_.insert(ring);
    for (const Flying& flying : held_.in_flight) {
      const auto age = flying.age.find(ring);
      if (reads_ring(flying.op, ring) && !proof_.ring(ring).in_registers &&
          (age == flying.age.end() ? 0 : age->second) == tiles.behind)
        proof_.fail("{} is released while product {} reads it", proof_.name(ring), proof_.op(flying.op).op.name);
    }
    if (tiles.behind > 0) --tiles.behind;
    --tiles.waited;
    set_tiles(ring, tiles);
  }

  void take(int ring) {
    need_tile(ring, "take_registers");
    if (!proof_.ring(ring).in_registers) proof_.fail("{} is read into registers that no product uses", proof_.name(ring));
    for (const Flying& flying : held_.in_flight) {
      if (reads_ring(flying.op, ring))
        proof_.fail("registers of {} are overwritten under product {}", proof_.name(ring), proof_.op(flying.op).op.name);
    }
    if (!held_.operands.insert(ring).second) proof_.fail("{} is read into registers twice", proof_.name(ring));
  }

  void need_tile(int ring, const std::string& reader) {
    if (!tiles_of(ring).current()) proof_.fail("{} reads {} without waiting for its tile", reader, proof_.name(ring));
  }

  /// No product under way writes the fragment.
  void need_settled(int buffer, const std::string& who) {
    for (const auto& [op, age] : held_.in_flight) {
      if (proof_.op(op).op.write.buffer == buffer)
        proof_.fail("{} touches {} while product {} is writing it", who, proof_.plan.buffer(buffer).name, proof_.op(op).op.name);
    }
  }

  void product(int k) {
    const TensorOp& op = proof_.op(k);
    // Products of one shape may follow each other on the same sums.
    for (const auto& [other, age] : held_.in_flight) {
      if (proof_.op(other).op.write.buffer == op.op.write.buffer && proof_.op(other).n != op.n)
        need_settled(op.op.write.buffer, op.op.name);
    }
    if (proof_.ring(op.b_ring).in_registers) proof_.fail("the second operand of {} is in registers", op.op.name);
    need_tile(op.b_ring, op.op.name);
    if (is_thread_sum(op.op.write.buffer)) proof_.fail("product {} writes a sum in lanes", op.op.name);
    if (op.a_ring >= 0 && proof_.ring(op.a_ring).in_registers) {
      if (held_.operands.count(op.a_ring) == 0 || op.a_by_row) proof_.fail("{} has no operand in registers", op.op.name);
    } else if (op.a_ring >= 0) {
      need_tile(op.a_ring, op.op.name);
    }
    held_.in_flight.push_back({k, {}});
  }

  void compute(const TensorOp& op) {
    need_settled(op.op.write.buffer, op.op.name);
    for (const TileAccess& read : op.op.reads) need_settled(read.buffer, op.op.name);
    for (const auto& [read, ring] : op.read_rings) need_tile(ring, op.op.name);
    sums(op);
  }

  void narrow(int k) {
    const TensorOp& op = proof_.op(k);
    const int buffer = op.op.reads[static_cast<std::size_t>(op.form.a)].buffer;
    need_settled(buffer, "the operand of " + op.op.name);
    if (is_thread_sum(buffer)) proof_.fail("{} narrows a sum in lanes", op.op.name);
    if (std::any_of(held_.in_flight.begin(), held_.in_flight.end(), [&](const Flying& flying) { return flying.op == k; }))
      proof_.fail("the operand of {} is overwritten while it is in flight", op.op.name);
  }

  bool is_thread_sum(int buffer) const {
    const auto found = proof_.plan.fragments.find(buffer);
    return found != proof_.plan.fragments.end() && found->second.thread_sums;
  }

  /// Parts of sums are added to, scaled and cleared as parts; everything else wants the whole.
  void sums(const TensorOp& op) {
    const int written = op.op.write.buffer;
    for (const TileAccess& read : op.op.reads) {
      if (read.buffer != written && is_thread_sum(read.buffer) && held_.whole.count(read.buffer) == 0)
        proof_.fail("{} reads {} before the parts of its sum are added up", op.op.name, proof_.plan.buffer(read.buffer).name);
    }
    if (!is_thread_sum(written)) return;
    const std::string& name = proof_.plan.buffer(written).name;
    if (op.kind == TensorOp::Kind::reduce) {
      if (op.op.reduction != ReductionOp::add || held_.whole.count(written) != 0)
        proof_.fail("{} adds to {}, which is no sum in parts", op.op.name, name);
    } else if (writes_zero(op.op)) {
      held_.whole.erase(written);
    } else if (!scales(op.op, written)) {
      proof_.fail("{} does more than scale the parts of {}", op.op.name, name);
    }
  }

  void finish(int buffer) {
    if (!is_thread_sum(buffer)) return proof_.fail("a tile that is no sum in parts is added up over lanes");
    need_settled(buffer, "quad_reduction");
    if (!held_.whole.insert(buffer).second) proof_.fail("{} is added up over lanes twice", proof_.plan.buffer(buffer).name);
  }

  TensorProof& proof_;
  Held held_;
  bool always_ = true;           ///< the block being walked runs once in each work tile
  int turns_ = 0;                ///< that have begun
  std::set<int> keeps_, gives_;  ///< circular buffers whose tiles are kept behind; whose current tile is given back
};

/// Each wait for an empty stage is followed by the load that fills it.
void walk_producer(TensorProof& proof) {
  for (const RoleBlock& block : proof.producer) {
    int waited = -1;
    for (const RoleStep& step : block.steps) {
      const Event& event = step.event;
      if (event.kind == Kind::wait_empty ? waited >= 0 : waited != event.ring)
        proof.fail("{} of {} does not alternate with its counterpart", name_of(event.kind), proof.name(event.ring));
      waited = event.kind == Kind::wait_empty ? event.ring : -1;
    }
    if (waited >= 0) proof.fail("{} is waited for and not loaded", proof.name(waited));
  }
}

}  // namespace

void prove_blocks(TensorProof& proof) {
  ConsumerWalk(proof).run();
  walk_producer(proof);
}

}  // namespace nestor::nvptx
