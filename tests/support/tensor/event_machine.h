// Event machine: runs the roles of a tensor plan, of a block or of all blocks of a cluster, in an order of one's choice and as far as
// barriers, stages and turns allow, as the hardware has them. What a GPU would get wrong silently is a fault here. Of what is computed it
// knows when and from which places; classes derived from it say what that is: numbers that stand for tiles, or values in double.
#pragma once

#include "support/tensor/event_agents.h"
#include "support/tensor/tensor_block_copies.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace nestor::testing {

class EventMachine : protected EventAgents {
 public:
  using EventAgents::Integers;
  static constexpr unsigned kOrders = 6;

  /// `work tiles`: values of sizes and grid variables, one a work tile of the block or cluster.
  EventMachine(const nvptx::TensorPlan& plan, std::vector<Integers> work_tiles) : EventAgents(plan, std::move(work_tiles)) {}
  virtual ~EventMachine() = default;
  EventMachine(const EventMachine&) = delete;
  EventMachine& operator=(const EventMachine&) = delete;

  /// What goes wrong ("" : nothing) when roles advance in an order of `seed`: one as far as it can before another (below kOrders), or by chance.
  /// May be called again with another one.
  std::string run(unsigned seed) {
    for (const nvptx::CircularBuffer& ring : plan_.circular_buffers) {
      if (ring.stages < 1 || ring.readers < 1) return "a circular buffer without stages or readers";
    }
    try {
      start();
      advance(seed);
      check_ends();
    } catch (const Fault& fault) {
      return fault.what();
    }
    return verdict();
  }

 protected:
  // ---- what is computed

  virtual void begin(int agents) = 0;                                        ///< nothing is held
  virtual void end_item(const Agent& agent) = 0;                             ///< registers are forgotten
  virtual void bring(const Place& place, int copier, const Step& step) = 0;  ///< a block's share of a tile comes
  virtual void take(const Agent& agent, const Place& place, Hash tile) = 0;  ///< a tile into registers
  virtual void narrow(const Agent& agent, int op, const Step& step) = 0;     ///< a fragment into an operand
  virtual void multiply(const Agent& agent, const Product& product) = 0;     ///< as late as may be
  virtual void compute(const Agent& agent, int op, const Step& step) = 0;
  virtual void quad_reduction(const Agent& agent, int buffer) = 0;
  virtual std::string verdict() = 0;  ///< on what was stored

  /// The tile in a place, as far as the block's own copies tell.
  Hash tile_in(const Place& place) const {
    const auto found = tiles_.find(place);
    return found == tiles_.end() ? 0 : found->second;
  }

 private:
  /// Of one block. Phases of its barriers: `full` ends when the block's own copier has said what to wait for and all of it has come.
  struct Stage {
    int loads = 0, full = 0, empty = 0, arrivals = 0;  ///< phases completed, arrivals of the current one
    int tiles = 0;                                     ///< that the block's own copier has said to wait for
    bool awaited = false;
    int missing = 0;           ///< shares that are waited for and have not come; negative: came before
    std::map<int, Hash> tile;  ///< shares, by copying block
  };

  void start() {
    stages_.clear();
    tiles_.clear();
    agents_.clear();
    copies_ = BlockCopies(plan_.warpgroups);
    turns_.assign(static_cast<std::size_t>(plan_.cluster() * plan_.warpgroups), 0);
    prepared_.assign(static_cast<std::size_t>(plan_.cluster()), false);
    for (int block = 0; block < plan_.cluster(); ++block) {
      if (plan_.has_turns()) turns_[static_cast<std::size_t>(block * plan_.warpgroups)] = 1;
      for (int group = -1; group < plan_.warpgroups; ++group) {
        Agent& agent = agents_.emplace_back();
        agent.number = static_cast<int>(agents_.size()) - 1;
        agent.block = block;
        agent.group = group;
      }
    }
    begin(static_cast<int>(agents_.size()));
  }

  // ---- order

  void advance(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::size_t> order(agents_.size());
    std::iota(order.begin(), order.end(), 0);
    for (unsigned k = 0; k < seed && seed < kOrders; ++k) std::next_permutation(order.begin(), order.end());
    while (true) {
      std::vector<std::size_t> able;
      bool done = true;
      for (const std::size_t a : order) {
        if (agents_[a].at == program(agents_[a]).size()) continue;
        done = false;
        if (ready(agents_[a])) able.push_back(a);
      }
      if (done) return;
      if (able.empty()) fail("roles wait for each other for ever");
      take_step(agents_[seed < kOrders ? able.front() : able[random() % able.size()]]);
    }
  }

  bool ready(const Agent& agent) {
    const Step& step = program(agent)[agent.at];
    if (step.kind == Step::Kind::starts) return may_start(agent.block);
    if (step.kind == Step::Kind::leaves) return may_leave(agent);
    if (step.kind != Step::Kind::event) return true;
    if (step.event.kind == Kind::barrier) return copies_.arrive(agent.group);
    if (all_copy()) return true;
    if (step.event.kind == Kind::wait_full) return stage(agent, step.event.ring).full % 2 != phase(agent, step.event.ring);
    if (step.event.kind == Kind::wait_empty) return stage(agent, step.event.ring).empty % 2 == phase(agent, step.event.ring);
    if (step.event.kind == Kind::wait_turn) return turns_[static_cast<std::size_t>(turn(agent, 0))] > 0;
    return true;
  }

  /// The block's barriers are ready, and if blocks meet those of all.
  bool may_start(int block) const {
    const auto all = std::all_of(prepared_.begin(), prepared_.end(), [](bool prepared) { return prepared; });
    return plan_.cluster_start ? all : prepared_[static_cast<std::size_t>(block)];
  }
  /// A copier that waits for it has been told of the last tiles that blocks share.
  bool may_leave(const Agent& agent) const {
    if (agent.group >= 0 || !plan_.drains) return true;
    return std::all_of(stages_.begin(), stages_.end(), [&](const auto& entry) {
      const auto& [place, stage] = entry;
      return place.block != agent.block || this->ring(place.ring).blocks == 1 || stage.empty >= stage.tiles;
    });
  }
  /// Blocks whose memory an event reaches; one that has none is a fault.
  std::vector<int> reached(const Agent& agent, const nvptx::Event& event) const {
    std::vector<int> blocks{agent.block};
    if (event.blocks > 1) blocks.resize(static_cast<std::size_t>(std::min(event.blocks, plan_.cluster())));
    if (event.blocks > 1) std::iota(blocks.begin(), blocks.end(), 0);
    for (const int block : blocks) {
      if (!prepared_[static_cast<std::size_t>(block)]) fail("a block is reached before its barriers are ready");
      const bool lives = std::any_of(agents_.begin(), agents_.end(),
                                     [&](const Agent& a) { return a.block == block && a.at < program(a).size(); });
      if (!lives) fail("a block is reached after its end");
    }
    return blocks;
  }

  Stage& stage(const Agent& agent, int ring) { return stages_[current(agent, ring)]; }
  // ---- events

  void take_step(Agent& agent) {
    const Step& step = program(agent)[agent.at++];
    if (step.kind == Step::Kind::prepares) prepared_[static_cast<std::size_t>(agent.block)] = true;
    if (step.kind == Step::Kind::ends_work_tile) finish_item(agent);
    for (const auto& [ring, tiles] : step.tiles) agent.positions[ring] = position(agent, ring) + tiles;
    if (step.kind == Step::Kind::event) run_event(agent, step);
  }

  void finish_item(Agent& agent) {
    if (!agent.in_flight.empty()) fail("a product outlives its work tile");
    agent.written.clear();
    agent.operands.clear();
    agent.held.clear();
    agent.whole.clear();
    if (all_copy()) agent.positions.clear(), agent.fills.clear();
    end_item(agent);
  }

  void run_event(Agent& agent, const Step& step) {
    const nvptx::Event& event = step.event;
    switch (event.kind) {
      case Kind::wait_empty:
        return;
      case Kind::barrier:
        return copies_.pass(agent.group);
      case Kind::commit_copies:
        return copies_.commit(agent.group);
      case Kind::wait_copies:
        return copies_.wait(agent.group, event.count);
      case Kind::wait_full:
        if (!all_copy()) agent.arrived[current(agent, event.ring)] = stage(agent, event.ring).loads;
        return;
      case Kind::load:
        return all_copy() ? copy(agent, step) : load(agent, step);
      case Kind::release:
        return release(agent, event);
      case Kind::next_tile:
        ++agent.behind[event.ring];
        agent.positions[event.ring] = position(agent, event.ring) + 1;
        return;
      case Kind::take_registers:
        return take_registers(agent, event.ring);
      case Kind::product:
        return issue(agent, step);
      case Kind::read_test:
        return;
      case Kind::wait_stores:
        return agent.leaving.clear();
      case Kind::wait_products:
        for (; agent.in_flight.size() > static_cast<std::size_t>(event.count); agent.in_flight.pop_front()) land(agent);
        return;
      case Kind::narrow:
        return make_operand(agent, step);
      case Kind::compute:
        return run_op(agent, step);
      case Kind::quad_reduction:
        if (busy(agent, event.ring) || agent.whole[event.ring] || !thread_sum(event.ring))
          fail("a sum is added up at a wrong time");
        agent.whole[event.ring] = true;
        return quad_reduction(agent, event.ring);
      case Kind::wait_turn:
        --turns_[static_cast<std::size_t>(turn(agent, 0))];
        return;
      case Kind::pass_turn:
        if (++turns_[static_cast<std::size_t>(turn(agent, 1))] > 1) fail("a turn is passed on twice");
        return;
    }
  }

  // ---- tiles in shared memory

  /// The group's part of the tile of some iterations later, if there is one. Here it is the whole one, which is the same whoever copies it.
  void copy(Agent& agent, const Step& step) {
    const int stage = agent.fills[step.event.ring]++ % ring(step.event.ring).stages;
    if (step.astray) fail("a tile is copied for no iteration");
    if (step.past) return;
    copies_.copy(agent.group, step.event.ring, stage, step.tile);
    if (!copies_.fault().empty()) fail(copies_.fault());
    const Place place{agent.block, step.event.ring, stage};
    tiles_[place] = step.tile;
    bring(place, agent.block, step);
  }

  void load(Agent& agent, const Step& step) {
    const int number = step.event.ring;
    const nvptx::CircularBuffer& ring = this->ring(number);
    const Place own = current(agent, number);
    if (std::exchange(stages_[own].awaited, true)) fail("two tiles are waited for at once");
    ++stages_[own].tiles;
    stages_[own].missing += ring.blocks;
    for (const int block : reached(agent, step.event)) {
      const Place place{block, number, own.stage};
      for (const Agent& group : agents_) {
        if (group.block == block && group.leaving.contains(number)) fail("a tile is overwritten before a result has left");
        if (std::any_of(group.in_flight.begin(), group.in_flight.end(), [&](const Product& p) { return reads(p, place); }))
          fail("a tile is overwritten under a product");
      }
      Stage& stage = stages_[place];
      ++stage.loads;
      stage.tile[ring.blocks > 1 ? agent.block : 0] = step.tile;
      tiles_[place] = step.tile;
      --stage.missing;
      complete(stage);
      if (!ring.scheduler) bring(place, ring.blocks > 1 ? agent.block : block, step);
    }
    agent.positions[number] = position(agent, number) + 1;
  }

  static void complete(Stage& stage) {
    if (!stage.awaited || stage.missing != 0) return;
    stage.awaited = false;
    ++stage.full;
  }

  void release(Agent& agent, const nvptx::Event& event) {
    const int number = event.ring, oldest = position(agent, number) - agent.behind[number];
    if (oldest < 0) fail("a tile is released that nobody has");
    const int slot_number = oldest % ring(number).stages;
    const Place own{agent.block, number, slot_number};
    if (std::any_of(agent.in_flight.begin(), agent.in_flight.end(), [&](const Product& p) { return reads(p, own); }))
      fail("a tile is released under a product");
    for (const int block : reached(agent, event)) {
      Stage& stage = stages_[{block, number, slot_number}];
      if (++stage.arrivals < ring(number).readers) continue;
      stage.arrivals = 0;
      ++stage.empty;
    }
    if (agent.behind[number] > 0) {
      --agent.behind[number];
    } else {
      agent.positions[number] = position(agent, number) + 1;
    }
  }

  /// The whole tile that the agent is at, which must be there.
  Hash read_tile(Agent& agent, int number) {
    const Place place = current(agent, number);
    if (all_copy()) {
      const Hash tile = copies_.read(agent.group, number, place.stage);
      if (!copies_.fault().empty()) fail(copies_.fault());
      return tile;
    }
    const Stage& stage = stages_[place];
    const auto seen = agent.arrived.find(place);
    if (seen == agent.arrived.end() || seen->second != stage.loads || stage.loads == 0)
      fail("a tile is read before it has arrived");
    const Hash first = stage.tile.begin()->second;
    for (int share = 0; share < ring(number).blocks; ++share) {
      const auto found = stage.tile.find(share);
      if (found == stage.tile.end() || found->second != first) fail("a tile is read in part");
    }
    return first;
  }

  void take_registers(Agent& agent, int number) {
    if (std::any_of(agent.in_flight.begin(), agent.in_flight.end(), [&](const Product& p) { return op(p.op).a_ring == number; }))
      fail("an operand in registers is overwritten");
    const Hash tile = read_tile(agent, number);
    agent.held.insert(number);
    if (!ring(number).scheduler) take(agent, current(agent, number), tile);
  }

  // ---- fragments

  void make_operand(Agent& agent, const Step& step) {
    const int k = step.event.op;
    if (op(k).kind != nvptx::TensorOp::Kind::product) fail("an event of products for another op");
    if (std::any_of(agent.in_flight.begin(), agent.in_flight.end(), [&](const Product& p) { return p.op == k; }))
      fail("an operand is overwritten");
    read_fragment(agent, op(k).op.reads.at(static_cast<std::size_t>(op(k).form.a)).buffer, false);
    agent.operands.insert(k);
    narrow(agent, k, step);
  }

  void issue(Agent& agent, const Step& step) {
    const int k = step.event.op;
    const nvptx::TensorOp& op = this->op(k);
    if (op.kind != nvptx::TensorOp::Kind::product) fail("an event of products for another op");
    Product started{k, &step, std::nullopt, current(agent, op.b_ring)};
    if (op.a_ring < 0) {
      if (!agent.operands.contains(k)) fail("an operand is used before it is made");
    } else if (ring(op.a_ring).in_registers) {
      if (!agent.held.contains(op.a_ring)) fail("registers are used before they are filled");
    } else {
      started.a = current(agent, op.a_ring);
      started.a_tile = read_tile(agent, op.a_ring);
    }
    started.b_tile = read_tile(agent, op.b_ring);
    if (!op.op.initialize && !agent.written.contains(op.op.write.buffer)) fail("a product adds to a tile that has no value");
    agent.written.insert(op.op.write.buffer);
    agent.in_flight.push_back(started);
  }

  /// The oldest product ends. It is computed now, from what its operands hold now: the latest that the hardware may read them.
  void land(Agent& agent) {
    const Product& product = agent.in_flight.front();
    if (all_copy() && (tile_in(product.b) != product.b_tile || (product.a && tile_in(*product.a) != product.a_tile)))
      fail("a stage is overwritten while a product reads it");
    multiply(agent, product);
  }

  void run_op(Agent& agent, const Step& step) {
    const nvptx::TensorOp& op = this->op(step.event.op);
    if (op.kind == nvptx::TensorOp::Kind::product) fail("a product is computed, and not issued");
    const int written = op.op.write.buffer;
    if (busy(agent, written)) fail("a tile is written under a product");
    for (int r = 0; r < static_cast<int>(op.op.reads.size()); ++r) {
      const int buffer = op.op.reads[static_cast<std::size_t>(r)].buffer;
      if (const auto ring = op.read_rings.find(r); ring != op.read_rings.end()) {
        read_tile(agent, ring->second);
      } else if (plan_.fragments.contains(buffer)) {
        read_fragment(agent, buffer, buffer == written);
      }
    }
    if (op.op.reduction && !op.op.initialize) read_fragment(agent, written, true);
    if (thread_sum(written)) {
      if (op.op.reduction && agent.whole[written]) fail("a whole sum is added to as if it were a part");
      if (op.op.reads.empty()) agent.whole[written] = false;
    }
    compute(agent, step.event.op, step);
    agent.written.insert(written);
    if (op.through_shared && plan_.persistent()) leave(agent, plan_.lender(op));
  }

  /// A result goes into the place of the circular buffer's tile, which must be the group's to write, and leaves from there.
  void leave(Agent& agent, int ring) {
    if (ring < 0 || all_copy()) return;
    const Stage& stage = this->stage(agent, ring);
    const auto seen = agent.arrived.find({agent.block, ring, 0});
    const bool held = seen != agent.arrived.end() && seen->second == stage.loads && position(agent, ring) == stage.loads - 1;
    if (!held) fail("a result is written over a tile that may be the next work tile's");
    agent.leaving.insert(ring);
  }

  // ---- ends

  /// All shares of tiles have come, and every group has released every tile of its block.
  void check_ends() const {
    if (all_copy()) return;
    std::map<std::pair<int, int>, int> tiles;  // by block and circular buffer
    for (const auto& [place, stage] : stages_) {
      if (stage.awaited || stage.missing != 0) fail("a share of a tile is left over");
      tiles[{place.block, place.ring}] += stage.tiles;
    }
    for (const Agent& agent : agents_) {
      for (const auto& [place, count] : tiles) {
        if (agent.group >= 0 && agent.block == place.first && position(agent, place.second) != count)
          fail("a tile is loaded that nobody reads, or left unread");
      }
    }
  }

  std::map<Place, Stage> stages_;
  std::map<Place, Hash> tiles_;  ///< that came last
  std::vector<bool> prepared_;   ///< blocks whose barriers are ready
  std::vector<int> turns_;
  BlockCopies copies_{1};
};

}  // namespace nestor::testing
