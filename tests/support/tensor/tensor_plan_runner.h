// Runs the events of a tensor plan with numbers in place of tiles: barriers, stages and turns as the hardware has them, in an order of one's
// choice, and every value remembered by what it was made from; of all blocks of a cluster together. An independent judge of plans, at
// given sizes.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "support/tensor/event_walk.h"
#include "support/tensor/tensor_block_copies.h"
#include "support/tensor/tensor_plan_hashes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace nestor::testing {

class TensorPlanRunner : private TensorPlanHashes {
 public:
  static constexpr unsigned kOrders = 6;
  using TensorPlanHashes::Integers;

  /// `work tiles`: values of sizes and grid variables, one a work tile of the block or cluster.
  TensorPlanRunner(const nvptx::TensorPlan& plan, std::vector<Integers> work_tiles)
      : TensorPlanHashes(plan, std::move(work_tiles)) {
    for (int block = 0; block < plan_.cluster(); ++block) {
      producers_.push_back(program_of(block, plan_.producer, true));
      consumers_.push_back(program_of(block, plan_.consumer, false));
    }
  }

  /// What goes wrong ("" : nothing) when roles advance in an order of `seed`: one as far as it can before another (below kOrders), or by chance.
  /// May be called again with another one.
  std::string run(unsigned seed) {
    for (const nvptx::CircularBuffer& ring : plan_.circular_buffers) {
      if (ring.stages < 1 || ring.readers < 1) return "a circular buffer without stages or readers";
    }
    start();
    std::mt19937 random(seed);
    std::vector<std::size_t> order(agents_.size());
    std::iota(order.begin(), order.end(), 0);
    for (unsigned k = 0; k < seed && seed < kOrders; ++k) std::next_permutation(order.begin(), order.end());
    while (fault_.empty()) {
      std::vector<std::size_t> able;
      bool done = true;
      for (const std::size_t a : order) {
        if (agents_[a].at == program(agents_[a]).size()) continue;
        done = false;
        if (ready(agents_[a])) able.push_back(a);
      }
      if (done) return compare();
      if (able.empty()) return "deadlock";
      step(agents_[seed < kOrders ? able.front() : able[random() % able.size()]]);
    }
    return fault_;
  }

 private:
  using Kind = nvptx::Event::Kind;
  /// What a role does next; an event at its iteration, with all that its expressions come to there.
  struct Step {
    enum class Kind : std::uint8_t { event, ends_work_tile, prepares, starts, leaves } kind = Kind::event;
    nvptx::Event event{};
    Hash tile = 0;        ///< that a load brings
    Hash mask = 0;        ///< which elements the op of a product or a compute works on
    bool past = false;    ///< a load for an iteration that there is not
    bool astray = false;  ///< a load for another iteration than its own, outside of any
  };
  /// Of one block. Phases of its barriers: `full` ends when the block's own copier has said what to wait for and all of it has come.
  struct Stage {
    int loads = 0, full = 0, empty = 0, arrivals = 0;  ///< phases completed, arrivals of the current one
    int tiles = 0;                                     ///< that the block's own copier has said to wait for
    bool awaited = false;
    int missing = 0;           ///< shares that are waited for and have not come; negative: came before
    std::map<int, Hash> tile;  ///< shares, by copying block
  };
  struct Product {
    int op;
    std::vector<std::tuple<int, int, int>> tiles;  ///< circular buffer, stage, load
  };
  struct Agent {
    int block = 0;
    int group = -1;                              ///< -1: the producer
    std::size_t at = 0;                          ///< the next step of its program
    std::map<int, int> positions, fills;         ///< by circular buffer
    std::map<int, int> behind;                   ///< by circular buffer: tiles kept before the current one
    std::map<std::pair<int, int>, int> arrived;  ///< by circular buffer and stage: the load that has been waited for
    std::map<int, Hash> tiles, operands, held;
    std::map<int, bool> whole;
    std::vector<Product> in_flight;
    std::vector<Hash> stored;
    std::set<int> leaving;  ///< circular buffers of resident blocks through whose place a result leaves
  };

  bool thread_sum(int buffer) const { return plan_.fragments.count(buffer) != 0 && plan_.fragments.at(buffer).thread_sums; }

  void start() {
    fault_.clear();
    stages_.clear();
    agents_.clear();
    copies_ = BlockCopies(plan_.warpgroups);
    turns_.assign(static_cast<std::size_t>(plan_.cluster() * plan_.warpgroups), 0);
    prepared_.assign(static_cast<std::size_t>(plan_.cluster()), false);
    for (int block = 0; block < plan_.cluster(); ++block) {
      if (plan_.ping_pong()) turns_[static_cast<std::size_t>(block * plan_.warpgroups)] = 1;
      for (int group = -1; group < plan_.warpgroups; ++group) {
        agents_.emplace_back();
        agents_.back().block = block;
        agents_.back().group = group;
      }
    }
  }

  const std::vector<Step>& program(const Agent& agent) const {
    return (agent.group < 0 ? producers_ : consumers_)[static_cast<std::size_t>(agent.block)];
  }

  std::vector<Step> program_of(int block, const nvptx::EventNode& role, bool producer) const {
    std::vector<Step> program;
    if (producer) program.push_back({Step::Kind::prepares});
    program.push_back({Step::Kind::starts});
    for (const Integers& work_tile : work_tiles_) {
      walk_events(role, std::make_shared<const Integers>(work_tile), true,
                  [&](const nvptx::Event& event, const std::shared_ptr<const Integers>& around, bool /*masked*/) {
                    program.push_back(step_of(block, event, *around));
                  });
      program.push_back({Step::Kind::ends_work_tile});
    }
    program.push_back({Step::Kind::leaves});
    return program;
  }

  Step step_of(int block, const nvptx::Event& event, const Integers& around) const {
    Step step;
    step.event = event;
    if (event.kind == Kind::product || event.kind == Kind::compute) step.mask = mask_of(op(event.op), around);
    if (event.kind != Kind::load) return step;
    const nvptx::CircularBuffer& ring = this->ring(event.ring);
    Integers at = around;
    if (all_copy() && ring.streamed) {
      const auto iteration = at.find(ring.var);
      step.astray = iteration == at.end();
      if (step.astray) return step;
      iteration->second += event.count;
      step.past = iteration->second >= value_at(ring.upper, at);
    }
    if (!step.past) step.tile = next_tile(block, ring, at);
    return step;
  }

  // ---- the cluster

  /// The block's barriers are ready, and if blocks meet those of all.
  bool may_start(int block) const {
    const auto all = std::all_of(prepared_.begin(), prepared_.end(), [](bool prepared) { return prepared; });
    return plan_.cluster_start ? all : prepared_[static_cast<std::size_t>(block)];
  }
  /// A copier that waits for it has been told of the last tiles that blocks share.
  bool may_leave(const Agent& agent) const {
    if (agent.group >= 0 || !plan_.drains) return true;
    return std::all_of(stages_.begin(), stages_.end(), [&](const auto& entry) {
      const auto& [block, ring, number] = entry.first;
      return block != agent.block || this->ring(ring).blocks == 1 || entry.second.empty >= entry.second.tiles;
    });
  }
  /// Blocks whose memory an event reaches; one that has none is a fault.
  std::vector<int> reached(const Agent& agent, const nvptx::Event& event) {
    std::vector<int> blocks{agent.block};
    if (event.blocks > 1) blocks.resize(static_cast<std::size_t>(std::min(event.blocks, plan_.cluster())));
    if (event.blocks > 1) std::iota(blocks.begin(), blocks.end(), 0);
    for (const int block : blocks) {
      if (!prepared_[static_cast<std::size_t>(block)]) fault_ = "a block is reached before its barriers are ready";
      const bool lives = std::any_of(agents_.begin(), agents_.end(),
                                     [&](const Agent& a) { return a.block == block && a.at < program(a).size(); });
      if (!lives) fault_ = "a block is reached after its end";
    }
    return blocks;
  }

  Stage& stage(const Agent& agent, int ring) {
    return stages_[{agent.block, ring, position(agent, ring) % this->ring(ring).stages}];
  }
  int turn(const Agent& agent, int ahead) const {
    return agent.block * plan_.warpgroups + (agent.group + ahead) % plan_.warpgroups;
  }
  static int position(const Agent& agent, int ring) {
    const auto found = agent.positions.find(ring);
    return found == agent.positions.end() ? 0 : found->second;
  }

  int phase(const Agent& agent, int ring) const { return position(agent, ring) / this->ring(ring).stages % 2; }

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

  void step(Agent& agent) {
    const Step& step = program(agent)[agent.at++];
    if (step.kind == Step::Kind::prepares) prepared_[static_cast<std::size_t>(agent.block)] = true;
    if (step.kind == Step::Kind::ends_work_tile) {
      if (!agent.in_flight.empty()) fault_ = "a product outlives its work tile";
      agent.tiles.clear();
      agent.operands.clear();
      agent.held.clear();
      agent.whole.clear();
      if (all_copy()) agent.positions.clear(), agent.fills.clear();
    }
    if (step.kind != Step::Kind::event) return;
    const int ring = step.event.ring;
    const bool of_product = step.event.kind == Kind::product || step.event.kind == Kind::narrow;
    if (of_product && op(step.event.op).kind != nvptx::TensorOp::Kind::product) {
      fault_ = "an event of products for another op";
      return;
    }
    switch (step.event.kind) {
      case Kind::wait_empty:
        return;
      case Kind::barrier:
        return copies_.pass(agent.group);
      case Kind::commit_copies:
        return copies_.commit(agent.group);
      case Kind::wait_copies:
        return copies_.wait(agent.group, step.event.count);
      case Kind::wait_full:
        if (all_copy()) return;
        agent.arrived[{ring, position(agent, ring) % this->ring(ring).stages}] = stage(agent, ring).loads;
        return;
      case Kind::load:
        return all_copy() ? copy(agent, step) : load(agent, ring, step);
      case Kind::release:
        return release(agent, step.event);
      case Kind::next_tile:
        ++agent.behind[ring];
        agent.positions[ring] = position(agent, ring) + 1;
        return;
      case Kind::take_registers:
        agent.held[ring] = tile(agent, ring);
        return;
      case Kind::product:
        return product(agent, step.event.op, step);
      case Kind::wait_stores:
        return agent.leaving.clear();
      case Kind::wait_products:
        if (agent.in_flight.size() > static_cast<std::size_t>(step.event.count))
          agent.in_flight.erase(agent.in_flight.begin(), agent.in_flight.end() - step.event.count);
        return;
      case Kind::narrow:
        return narrow(agent, step.event.op);
      case Kind::compute:
        return compute(agent, step.event.op, step);
      case Kind::quad_reduction:
        if (busy(agent, ring) || agent.whole[ring] || !thread_sum(ring)) fault_ = "a sum is added up at a wrong time";
        agent.whole[ring] = true;
        return;
      case Kind::wait_turn:
        --turns_[static_cast<std::size_t>(turn(agent, 0))];
        return;
      case Kind::pass_turn:
        if (++turns_[static_cast<std::size_t>(turn(agent, 1))] > 1) fault_ = "a turn is passed on twice";
        return;
    }
  }

  bool all_copy() const { return plan_.cores == nvptx::TensorCores::mma; }

  /// The group's part of the tile of some iterations later, if there is one.
  void copy(Agent& agent, const Step& step) {
    const int stage = agent.fills[step.event.ring]++ % ring(step.event.ring).stages;
    if (step.astray) fault_ = "a tile is copied for no iteration";
    if (step.astray || step.past) return;
    copies_.copy(agent.group, step.event.ring, stage, step.tile);
    if (!copies_.fault().empty()) fault_ = copies_.fault();
  }

  void load(Agent& agent, int ring, const Step& step) {
    const int number = position(agent, ring) % this->ring(ring).stages;
    Stage& own = this->stage(agent, ring);
    if (own.awaited) fault_ = "two tiles are waited for at once";
    own.awaited = true;
    ++own.tiles;
    own.missing += this->ring(ring).blocks;
    for (const int block : reached(agent, step.event)) {
      for (const Agent& group : agents_) {
        if (group.block == block && group.leaving.count(ring) != 0) fault_ = "a tile is overwritten before a result has left";
        for (const Product& product : group.in_flight) {
          for (const auto& [of, place, load] : product.tiles) {
            if (group.block == block && of == ring && place == number) fault_ = "a tile is overwritten under a product";
          }
        }
      }
      Stage& stage = stages_[{block, ring, number}];
      ++stage.loads;
      stage.tile[this->ring(ring).blocks > 1 ? agent.block : 0] = step.tile;
      --stage.missing;
      fill(stage);
    }
    agent.positions[ring] = position(agent, ring) + 1;
  }

  static void fill(Stage& stage) {
    if (!stage.awaited || stage.missing != 0) return;
    stage.awaited = false;
    ++stage.full;
  }

  void release(Agent& agent, const nvptx::Event& event) {
    const int ring = event.ring, oldest = position(agent, ring) - agent.behind[ring];
    if (oldest < 0) {
      fault_ = "a tile is released that nobody has";
      return;
    }
    for (const Product& product : agent.in_flight) {
      for (const auto& [of, place, load] : product.tiles) {
        if (of == ring && place == oldest % this->ring(ring).stages) fault_ = "a tile is released under a product";
      }
    }
    for (const int block : reached(agent, event)) {
      Stage& stage = stages_[{block, ring, oldest % this->ring(ring).stages}];
      if (++stage.arrivals < this->ring(ring).readers) continue;
      stage.arrivals = 0;
      ++stage.empty;
    }
    if (agent.behind[ring] > 0) {
      --agent.behind[ring];
    } else {
      agent.positions[ring] = position(agent, ring) + 1;
    }
  }

  Hash tile(Agent& agent, int ring) {
    if (all_copy()) {
      const Hash tile = copies_.read(agent.group, ring, position(agent, ring) % this->ring(ring).stages);
      if (!copies_.fault().empty()) fault_ = copies_.fault();
      return tile;
    }
    const Stage& stage = this->stage(agent, ring);
    const auto seen = agent.arrived.find({ring, position(agent, ring) % this->ring(ring).stages});
    if (seen == agent.arrived.end() || seen->second != stage.loads || stage.loads == 0)
      fault_ = "a tile is read before it has arrived";
    const int shares = this->ring(ring).blocks;
    const auto first = stage.tile.empty() ? 0 : stage.tile.begin()->second;
    for (int share = 0; share < shares; ++share) {
      const auto found = stage.tile.find(share);
      if (found == stage.tile.end() || found->second != first) fault_ = "a tile is read in part";
    }
    return first;
  }

  bool busy(const Agent& agent, int buffer) const {
    return std::any_of(agent.in_flight.begin(), agent.in_flight.end(),
                       [&](const Product& p) { return op(p.op).op.write.buffer == buffer; });
  }

  Hash fragment(Agent& agent, int buffer, bool in_parts) {
    if (busy(agent, buffer)) fault_ = "a tile is read under a product";
    if (agent.tiles.count(buffer) == 0) fault_ = "a tile is read before it is written";
    if (thread_sum(buffer) && !in_parts && !agent.whole[buffer]) fault_ = "a part of a sum is read";
    return agent.tiles[buffer];
  }

  void narrow(Agent& agent, int k) {
    if (std::any_of(agent.in_flight.begin(), agent.in_flight.end(), [&](const Product& p) { return p.op == k; }))
      fault_ = "an operand is overwritten";
    agent.operands[k] = fragment(agent, op(k).op.reads[static_cast<std::size_t>(op(k).form.a)].buffer, false);
  }

  void product(Agent& agent, int k, const Step& step) {
    const nvptx::TensorOp& op = this->op(k);
    Product started{k, {}};
    const auto operand = [&](int ring) {
      started.tiles.emplace_back(ring, position(agent, ring) % this->ring(ring).stages, stage(agent, ring).loads);
      return tile(agent, ring);
    };
    Hash a = 0;
    if (op.a_ring < 0) {
      if (agent.operands.count(k) == 0) fault_ = "an operand is used before it is made";
      a = agent.operands[k];
    } else if (ring(op.a_ring).in_registers) {
      if (agent.held.count(op.a_ring) == 0) fault_ = "registers are used before they are filled";
      a = agent.held[op.a_ring];
    } else {
      a = operand(op.a_ring);
    }
    const Hash b = operand(op.b_ring);
    set(agent.tiles, agent.stored, k, step.mask, {a, b});
    agent.in_flight.push_back(std::move(started));
  }

  void compute(Agent& agent, int k, const Step& step) {
    const TileOp& op = this->op(k).op;
    if (busy(agent, op.write.buffer)) fault_ = "a tile is written under a product";
    std::vector<Hash> reads;
    const auto& circular_buffers = this->op(k).read_rings;
    for (const TileAccess& read : op.reads) {
      const bool scratch = plan_.fragments.count(read.buffer) != 0;
      if (const auto ring = circular_buffers.find(static_cast<int>(reads.size())); ring != circular_buffers.end()) {
        reads.push_back(tile(agent, ring->second));
        continue;
      }
      reads.push_back(scratch ? fragment(agent, read.buffer, read.buffer == op.write.buffer) : tile_of(read.buffer, {}, {}));
    }
    if (thread_sum(op.write.buffer)) {
      if (op.reduction && agent.whole[op.write.buffer]) fault_ = "a whole sum is added to as if it were a part";
      if (op.reads.empty()) agent.whole[op.write.buffer] = false;
    }
    set(agent.tiles, agent.stored, k, step.mask, reads);
    if (this->op(k).through_shared && plan_.persistent()) leave(agent, plan_.lender(this->op(k)));
  }

  /// A result goes into the place of the circular buffer's tile, which must be the group's to write, and leaves from there.
  void leave(Agent& agent, int ring) {
    if (ring < 0 || all_copy()) return;
    const Stage& stage = this->stage(agent, ring);
    const auto seen = agent.arrived.find({ring, 0});
    const bool held = seen != agent.arrived.end() && seen->second == stage.loads && position(agent, ring) == stage.loads - 1;
    if (!held) fault_ = "a result is written over a tile that may be the next work tile's";
    agent.leaving.insert(ring);
  }

  std::string compare() {
    for (const Agent& agent : agents_) {
      if (agent.group >= 0 && agent.stored != expected(agent.block)) return "other values are stored";
    }
    for (const auto& [place, stage] : stages_) {
      if (!all_copy() && (stage.awaited || stage.missing != 0)) return "a share of a tile is left over";
    }
    return "";
  }

  std::vector<std::vector<Step>> producers_, consumers_;  ///< programs by block
  std::string fault_;
  std::map<std::tuple<int, int, int>, Stage> stages_;  ///< by block, circular buffer and number
  std::vector<bool> prepared_;                         ///< blocks whose barriers are ready
  std::vector<Agent> agents_;
  std::vector<int> turns_;
  BlockCopies copies_{1};
};

}  // namespace nestor::testing
