// Runs a tensor plan without a GPU: the roles of a block, or of all blocks of a cluster, take their events in random order, as far as barriers allow, and every value is
// computed in double where the plan says, operands rounded to 16 bits when asked. What a GPU would get wrong silently is an exception
// here: a stage overwritten while a product reads it, a sum read before its product has ended, a barrier that nobody completes.
#pragma once

#include "support/tensor/tensor_block_copies.h"
#include "support/tensor/tensor_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace nestor::testing {

struct TensorRun {
  bool round_operands = true;  ///< fragments become 16-bit operands, as on the GPU
  int blocks = 3;              ///< of a persistent grid, or clusters
  unsigned seed = 1;           ///< of the order in which roles go on
};

class TensorInterpreter : private TensorValues {
 public:
  /// `memory`: dense row-major values of each argument by name; sizes complete.
  TensorInterpreter(const nvptx::TensorPlan& plan, const Sizes& sizes, const std::map<std::string, double>& scalars,
                    std::map<std::string, std::vector<double>>& memory, const TensorRun& options)
      : TensorValues(plan, sizes, scalars, memory, options.round_operands), options_(options), random_(options.seed) {}

  void run() {
    std::int64_t count = 1;
    for (const nvptx::GridLoop& loop : plan_.kernel->grid) count *= value_at(loop.count, sizes_);
    const std::int64_t blocks = plan_.persistent() ? std::min<std::int64_t>(options_.blocks, count) : count;
    for (std::int64_t block = 0; block < blocks; ++block) {
      std::vector<Values> work_tiles;  // in turns forwards and backwards over the blocks
      for (std::int64_t round = 0; round * blocks < count; ++round) {
        const std::int64_t work_tile = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
        if (work_tile < count) work_tiles.push_back(coordinates(work_tile));
      }
      run_block(work_tiles);
    }
  }

 private:
  using Kind = nvptx::Event::Kind;
  static constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

  struct TraceEntry : Moment {
    nvptx::Event event{};
    bool starts_work_tile = false;  ///< instead of the event: nothing lives on from the work tile before
  };
  struct Tile {
    std::int64_t position = -1;
    int shares = 0;                ///< that have been copied
    std::vector<double> elements;  ///< [rows][64 * column_blocks]
  };
  struct RingState {
    std::vector<Tile> stages;
    std::int64_t loaded = 0;
    bool stage_is_free = false;  ///< the producer has waited for it
  };
  /// A group of warps, or the producer, with nothing but a trace.
  struct Role : Group {
    int block = 0;
    std::vector<TraceEntry> trace;
    std::size_t at = 0;
    std::map<int, std::vector<double>> held;  ///< by circular buffer: the group's [rows][64 * column_blocks]
    std::map<int, std::int64_t> released, filled, behind;
    std::int64_t work_tile = 0;   ///< with mma, tiles are numbered within it
    std::map<int, bool> arrived;  ///< circular buffer's tile has been waited for
    bool has_turn = false;
  };

  Values coordinates(std::int64_t work_tile) const {
    Values values = sizes_;
    for (std::size_t k = plan_.kernel->grid.size(); k-- > 0;) {
      const nvptx::GridLoop& loop = plan_.kernel->grid[k];
      const std::int64_t count = value_at(loop.count, sizes_);
      values[loop.var] = value_at(loop.lower, sizes_) + loop.step * (work_tile % count);
      work_tile /= count;
    }
    return values;
  }

  // ---- roles

  Role role_of(const nvptx::EventNode& program, const std::vector<Values>& work_tiles) const {
    Role role;
    for (const Values& values : work_tiles) {
      role.trace.push_back({{values, true}, {}, true});
      walk_events(program, std::make_shared<const Values>(values), true,
                  [&](const nvptx::Event& event, const std::shared_ptr<const Values>& around, bool masked) {
                    role.trace.push_back({{*around, masked}, event, false});
                  });
    }
    return role;
  }

  void run_block(const std::vector<Values>& work_tiles) {
    rings_.assign(static_cast<std::size_t>(plan_.cluster()), {});
    for (auto& circular_buffers : rings_) {
      for (const nvptx::CircularBuffer& ring : plan_.circular_buffers)
        circular_buffers.push_back({std::vector<Tile>(static_cast<std::size_t>(ring.stages))});
    }
    copies_ = BlockCopies(plan_.warpgroups);
    producers_.assign(rings_.size(), role_of(plan_.producer, work_tiles));
    groups_.assign(rings_.size() * static_cast<std::size_t>(plan_.warpgroups), role_of(plan_.consumer, work_tiles));
    for (std::size_t b = 0; b < producers_.size(); ++b) producers_[b].block = static_cast<int>(b);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      groups_[g].block = static_cast<int>(g) / plan_.warpgroups;
      groups_[g].has_turn = static_cast<int>(g) % plan_.warpgroups == 0;
    }
    const std::size_t count = groups_.size() + producers_.size();
    std::vector<std::size_t> order(count);
    for (std::size_t k = 0; k < count; ++k) order[k] = k;
    for (bool moved = true; moved;) {
      moved = false;
      std::shuffle(order.begin(), order.end(), random_);
      for (const std::size_t k : order) {
        // A role that goes on goes some way, so that it comes ahead of the others by different distances.
        for (int steps = std::uniform_int_distribution<int>(1, 40)(random_); steps > 0; --steps) {
          const bool went = k < groups_.size() ? step(static_cast<int>(k)) : step_producer(producers_[k - groups_.size()]);
          if (!went) break;
          moved = true;
        }
      }
    }
    check_ends();
  }

  void check_ends() const {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const Role& role = groups_[g];
      if (role.at < role.trace.size())
        fail(fmt::format("group {} waits for ever at event {} of {}", g, role.at, role.trace.size()));
      if (!role.in_flight.empty()) fail("a product is never waited for");
      for (std::size_t r = 0; r < plan_.circular_buffers.size(); ++r) {
        if (all_copy()) continue;
        const auto found = role.released.find(static_cast<int>(r));
        if ((found == role.released.end() ? 0 : found->second) != state_of(role.block, static_cast<int>(r)).loaded)
          fail("a tile is loaded that nobody reads, or left unread");
      }
    }
    for (const Role& producer : producers_) {
      if (producer.at < producer.trace.size()) fail("a producer waits for ever");
    }
  }

  bool step_producer(Role& producer) {
    if (producer.at == producer.trace.size()) return false;
    const TraceEntry& entry = producer.trace[producer.at];
    if (!entry.starts_work_tile) {
      const int r = entry.event.ring;
      RingState& state = state_of(producer.block, r);
      if (entry.event.kind == Kind::wait_empty) {
        const std::int64_t needed = state.loaded - ring(r).stages + 1;
        const auto reads = [&](Role& role) {
          return (ring(r).blocks > 1 || role.block == producer.block) && role.released[r] < needed;
        };
        if (std::any_of(groups_.begin(), groups_.end(), reads)) return false;
        state.stage_is_free = true;
      } else if (entry.event.kind == Kind::load) {
        if (!std::exchange(state.stage_is_free, false)) fail("a tile is loaded into a stage that may still be read");
        load(producer.block, r, entry.values);
      } else {
        fail("the producer does what only consumers do");
      }
    }
    ++producer.at;
    return true;
  }

  /// One event of a group; false: it has to wait.
  bool step(int g) {
    Role& role = groups_[static_cast<std::size_t>(g)];
    if (role.at == role.trace.size()) return false;
    const TraceEntry& entry = role.trace[role.at];
    if (entry.starts_work_tile) {
      if (!role.in_flight.empty()) fail("a product lives on after its work tile");
      role.tiles.clear();
      role.operands.clear();
      role.held.clear();
      if (all_copy()) start_work_tile(role);
    } else if (!run_event(g, role, entry)) {
      return false;
    }
    ++role.at;
    return true;
  }

  bool run_event(int g, Role& role, const TraceEntry& entry) {
    const nvptx::Event& event = entry.event;
    switch (event.kind) {
      case Kind::barrier:
        if (!copies_.arrive(g)) return false;
        copies_.pass(g);
        return true;
      case Kind::commit_copies:
        copies_.commit(g);
        return true;
      case Kind::wait_copies:
        copies_.wait(g, event.count);
        return true;
      case Kind::load:
        if (!all_copy()) break;
        copy(g, role, entry);
        return true;
      case Kind::wait_full:
        if (all_copy()) return role.arrived[event.ring] = true;
        return role.arrived[event.ring] = is_full(role, event.ring);
      case Kind::release:
        for (const InFlight& flying : role.in_flight) {
          if (op(flying.op).a_ring == event.ring && flying.a_position == role.released[event.ring])
            fail("a tile is released under a product");
          if (op(flying.op).b_ring == event.ring && flying.b_position == role.released[event.ring])
            fail("a tile is released under a product");
        }
        ++role.released[event.ring];
        if (role.behind[event.ring] > 0) {
          --role.behind[event.ring];
        } else {
          role.arrived[event.ring] = false;
        }
        return true;
      case Kind::next_tile:
        ++role.behind[event.ring];
        role.arrived[event.ring] = false;
        return true;
      case Kind::product:
        issue(g, role, event.op);
        return true;
      case Kind::wait_stores:
        return true;
      case Kind::wait_products:
        while (static_cast<int>(role.in_flight.size()) > event.count) land(g, role);
        return true;
      case Kind::compute:
        compute(g, role, op(event.op), entry);
        return true;
      case Kind::narrow:
        narrow(g, role, event.op, entry);
        return true;
      case Kind::quad_reduction:
        for (std::size_t row = 0; row < role.tiles.at(event.ring).size(); row += kQuad) sum_quad(role.tiles.at(event.ring), row);
        return true;
      case Kind::take_registers:
        take_registers(g, role, event.ring);
        return true;
      case Kind::wait_turn:
        return std::exchange(role.has_turn, false);
      case Kind::pass_turn: {
        Role& next = groups_[static_cast<std::size_t>(role.block * plan_.warpgroups + (g + 1) % plan_.warpgroups)];
        if (next.has_turn) fail("a turn is passed twice");
        next.has_turn = true;
        return true;
      }
      case Kind::wait_empty:
        break;
    }
    fail("a consumer does what only the producer does");
  }

  // ---- tiles in shared memory

  bool all_copy() const { return plan_.cores == nvptx::TensorCores::mma; }

  /// Stages are filled and read from the first one on.
  void start_work_tile(Role& role) const {
    constexpr std::int64_t kMostTiles = 720720;  // a multiple of any number of stages
    ++role.work_tile;
    for (auto* counts : {&role.released, &role.filled}) {
      for (std::size_t r = 0; r < plan_.circular_buffers.size(); ++r)
        (*counts)[static_cast<int>(r)] = role.work_tile * kMostTiles;
    }
  }

  /// The group's part of a tile. Here it is the whole one, which is the same whoever copies it.
  void copy(int g, Role& role, const TraceEntry& entry) {
    const int r = entry.event.ring;
    const nvptx::CircularBuffer& info = ring(r);
    const std::int64_t position = role.filled[r]++;
    Values values = entry.values;
    if (info.streamed) {
      values.at(info.var) += entry.event.count;
      if (values.at(info.var) >= value_at(info.upper, values)) return;
    }
    const int stage = static_cast<int>(position % info.stages);
    copies_.copy(g, r, stage, static_cast<std::size_t>(position));
    fail_with(copies_.fault());
    Tile& tile = state_of(role.block, r).stages[static_cast<std::size_t>(stage)];
    tile.position = position;
    tile.elements.assign(elements_of(info), 0);
    fill(role.block, info, tile, values);
  }

  void fail_with(const std::string& fault) const {
    if (!fault.empty()) fail(fault);
  }

  /// Threads of all groups have copied what group `g` reads here.
  void read_copies(int g, int r, std::int64_t position) {
    if (!all_copy()) return;
    copies_.read(g, r, static_cast<int>(position % ring(r).stages));
    fail_with(copies_.fault());
  }

  RingState& state_of(int block, int r) { return rings_.at(static_cast<std::size_t>(block)).at(static_cast<std::size_t>(r)); }
  const RingState& state_of(int block, int r) const {
    return rings_.at(static_cast<std::size_t>(block)).at(static_cast<std::size_t>(r));
  }
  static std::size_t elements_of(const nvptx::CircularBuffer& info) {
    return static_cast<std::size_t>(info.rows * row_elements(info));
  }

  bool is_full(Role& role, int r) {
    const std::int64_t position = current(role, r);
    const Tile& tile = state_of(role.block, r).stages[static_cast<std::size_t>(position % ring(r).stages)];
    return tile.position == position && tile.shares == ring(r).blocks;
  }

  /// The tile that the group is at: behind those that it has released, and those that it keeps.
  static std::int64_t current(const Role& role, int r) {
    const auto count = [&](const auto& counts) {
      const auto found = counts.find(r);
      return found == counts.end() ? 0 : found->second;
    };
    return count(role.released) + count(role.behind);
  }

  /// As a tensor copy: what lies outside of the argument is 0. A share of a tile goes to all blocks that share it.
  void load(int block, int r, const Values& values) {
    const nvptx::CircularBuffer& info = ring(r);
    const std::int64_t position = state_of(block, r).loaded++;
    for (int to = 0; to < plan_.cluster(); ++to) {
      if (info.blocks == 1 && to != block) continue;
      Tile& tile = state_of(to, r).stages[static_cast<std::size_t>(position % info.stages)];
      if (tile.position != position) tile = {position, 0, std::vector<double>(elements_of(info), kMissing)};
      ++tile.shares;
      fill(block, info, tile, values);
    }
  }

  /// The share of a tile that `block` copies; all of it where none is shared.
  void fill(int block, const nvptx::CircularBuffer& info, Tile& tile, const Values& values) {
    const bool columns = info.shares_columns();
    const int share = info.blocks > 1 ? block : 0, width = info.copied_blocks() * nvptx::kBlockColumns;
    const int first_row = columns ? 0 : share * info.copied_rows(), first_column = columns ? share * width : 0;
    std::vector<std::int64_t> origin;
    for (const IntExpr& index : info.origin) origin.push_back(value_at(index, values));
    if (info.own_index >= 0) origin[static_cast<std::size_t>(info.own_index)] += std::int64_t{block} * plan_.packs();
    for (int row = first_row; row < first_row + info.copied_rows(); ++row) {
      for (int column = first_column; column < first_column + width; ++column) {
        std::vector<std::int64_t> index = origin;
        index[static_cast<std::size_t>(info.row_index)] += info.pack_index < 0 ? row : row / plan_.pack;
        if (info.pack_index >= 0) index[static_cast<std::size_t>(info.pack_index)] += row % plan_.pack;
        index.back() += column;
        const double* element = find(info.buffer, index);
        tile.elements[static_cast<std::size_t>(row * row_elements(info) + column)] = element == nullptr ? 0 : *element;
      }
    }
  }

  const std::vector<double>& tile_at(int block, int r, std::int64_t position) const {
    const Tile& tile = state_of(block, r).stages[static_cast<std::size_t>(position % ring(r).stages)];
    if (tile.position != position) fail("a stage is overwritten while a product reads it");
    return tile.elements;
  }

  double tile_element(const Group& group, int r, int row, int column) const override {
    const Role& role = static_cast<const Role&>(group);
    const auto arrived = role.arrived.find(r);
    if (arrived == role.arrived.end() || !arrived->second) fail("a tile is read before it has arrived");
    return tile_at(role.block, r, current(role, r))
        .at(static_cast<std::size_t>((row - role.block * plan_.rows()) * row_elements(ring(r)) + column));
  }

  void take_registers(int g, Role& role, int r) {
    if (!role.arrived[r]) fail("a tile is read before it has arrived");
    read_copies(g, r, current(role, r));
    const auto& all = tile_at(role.block, r, current(role, r));
    const auto share = static_cast<std::ptrdiff_t>(group_rows()) * row_elements(ring(r));
    const int own = g % plan_.warpgroups;
    role.held[r].assign(all.begin() + own * share, all.begin() + (own + 1) * share);
  }

  // ---- products

  void issue(int g, Role& role, int k) {
    const nvptx::TensorOp& op = this->op(k);
    for (const int r : {op.a_ring, op.b_ring}) {
      if (r >= 0 && !ring(r).in_registers && !role.arrived[r]) fail(op.op.name + " reads a tile before it has arrived");
      if (r >= 0 && !ring(r).in_registers) read_copies(g, r, current(role, r));
    }
    if (op.a_ring < 0 && role.operands.count(k) == 0) fail(op.op.name + " has no first operand yet");
    role.in_flight.push_back({k, op.a_ring < 0 ? -1 : current(role, op.a_ring), current(role, op.b_ring)});
  }

  double first_operand(int g, const Role& role, const InFlight& in_flight, int row, int k) const {
    const nvptx::TensorOp& op = this->op(in_flight.op);
    if (op.a_ring < 0) return role.operands.at(in_flight.op)[static_cast<std::size_t>(row * op.k + k)];
    const int width = row_elements(ring(op.a_ring));
    if (ring(op.a_ring).in_registers) return role.held.at(op.a_ring)[static_cast<std::size_t>(row * width + k)];
    const int own = g % plan_.warpgroups * group_rows() + row;
    return tile_at(role.block, op.a_ring,
                   in_flight.a_position)[static_cast<std::size_t>(op.a_by_row ? k * width + own : own * width + k)];
  }

  /// The oldest product ends. It is computed now, from what its operands hold now: the latest that the hardware may read them.
  void land(int g, Role& role) {
    const InFlight in_flight = role.in_flight.front();
    role.in_flight.pop_front();
    const nvptx::TensorOp& op = this->op(in_flight.op);
    std::vector<double>& sums = role.tiles[op.op.write.buffer];
    if (op.op.initialize) sums.assign(static_cast<std::size_t>(group_rows() * op.n), 0);
    if (sums.size() != static_cast<std::size_t>(group_rows() * op.n)) fail(op.op.name + " adds to a tile that has no value");
    const std::vector<double>& b = tile_at(role.block, op.b_ring, in_flight.b_position);
    const int width = row_elements(ring(op.b_ring));
    for (int row = 0; row < group_rows(); ++row) {
      for (int k = 0; k < op.k; ++k) {
        const double a = first_operand(g, role, in_flight, row, k);
        for (int n = 0; n < op.n; ++n)
          sums[static_cast<std::size_t>(row * op.n + n)] +=
              a * b[static_cast<std::size_t>(op.b_by_column ? k * width + n : n * width + k)];
      }
    }
  }

  TensorRun options_;
  std::mt19937 random_;
  std::vector<std::vector<RingState>> rings_;  ///< by block
  std::vector<Role> producers_;                ///< by block
  std::vector<Role> groups_;                   ///< of all blocks, in the order of their rows
  BlockCopies copies_{1};
};

}  // namespace nestor::testing
