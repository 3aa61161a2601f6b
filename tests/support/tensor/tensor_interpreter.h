// Runs a tensor plan without a GPU: every value is computed in double where the plan says, operands rounded to 16 bits when asked, while
// the roles of a block, or of all blocks of a cluster, take their events in an order of one's choice.
#pragma once

#include "support/tensor/event_machine.h"
#include "support/tensor/tensor_values.h"

#include <algorithm>
#include <limits>

namespace nestor::testing {

struct TensorRun {
  bool round_operands = true;  ///< fragments become 16-bit operands, as on the GPU
  int blocks = 3;              ///< of a persistent grid, or clusters
  unsigned seed = 1;           ///< of the order in which roles go on (EventMachine::run)
};

/// One block or cluster.
class TensorBlockInterpreter : public EventMachine {
 public:
  TensorBlockInterpreter(const nvptx::TensorPlan& plan, std::vector<Integers> work_tiles, TensorValues& values)
      : EventMachine(plan, std::move(work_tiles)), values_(values) {}

 private:
  using Group = TensorValues::Group;
  using Elements = TensorValues::Elements;
  static constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

  void begin(int agents) override {
    groups_.assign(static_cast<std::size_t>(agents), {});
    tiles_.clear();
  }
  void end_item(const Agent& agent) override { groups_.at(static_cast<std::size_t>(agent.number)) = {}; }
  /// The first share of a tile finds nothing of the one before.
  void bring(const Place& place, int copier, const Step& step) override {
    auto& [tile, elements] = tiles_[place];
    if (elements.empty() || tile != step.tile) elements.assign(TensorValues::elements_of(ring(place.ring)), kMissing);
    tile = step.tile;
    values_.fill(copier, ring(place.ring), elements, *step.around);
  }
  void take(const Agent& agent, const Place& place, Hash /*tile*/) override {
    values_.hold(sharer(agent), of(agent), place.ring, tiles_.at(place).second);
  }
  void narrow(const Agent& agent, int k, const Step& step) override {
    values_.narrow(row_group(agent), of(agent), k, {*step.around, step.masked});
  }
  void multiply(const Agent& agent, const Product& product) override {
    values_.multiply(sharer(agent), of(agent), product.op, product.a ? &tiles_.at(*product.a).second : nullptr,
                     tiles_.at(product.b).second);
  }
  void compute(const Agent& agent, int k, const Step& step) override {
    Group& group = of(agent);
    group.first_row = agent.block * plan_.rows();
    group.read.clear();
    for (const auto& [read, ring] : op(k).read_rings) group.read[ring] = &tiles_.at(current(agent, ring)).second;
    values_.compute(row_group(agent), group, op(k), {*step.around, step.masked});
  }
  void quad_reduction(const Agent& agent, int buffer) override { TensorValues::quad_reduction(of(agent), buffer); }
  std::string verdict() override { return ""; }

  Group& of(const Agent& agent) { return groups_.at(static_cast<std::size_t>(agent.number)); }
  /// Groups of all blocks in the order of their rows.
  int row_group(const Agent& agent) const { return agent.block * plan_.sharing_warpgroups() + sharer(agent); }

  TensorValues& values_;
  std::vector<Group> groups_;                         ///< by agent
  std::map<Place, std::pair<Hash, Elements>> tiles_;  ///< what tells a tile from others, and [rows][64 * column_blocks]
};

/// All work tiles of the grid.
class TensorInterpreter {
 public:
  /// `memory`: dense row-major values of each argument by name; sizes complete.
  TensorInterpreter(const nvptx::TensorPlan& plan, const Sizes& sizes, const std::map<std::string, double>& scalars,
                    std::map<std::string, std::vector<double>>& memory, const TensorRun& options)
      : plan_(plan),
        sizes_(sizes.begin(), sizes.end()),
        values_(plan, sizes, scalars, memory, options.round_operands),
        options_(options) {
    for (const auto& [name, value] : plan.program->fixed_sizes) sizes_[name] = value;
  }

  /// Throws InternalError where a GPU would go wrong.
  void run() {
    std::int64_t count = 1;
    for (const nvptx::GridLoop& loop : plan_.kernel->grid) count *= value_at(loop.count, sizes_);
    const std::int64_t blocks = plan_.persistent() ? std::min<std::int64_t>(options_.blocks, count) : count;
    for (std::int64_t block = 0; block < blocks; ++block) {
      std::vector<EventValues> work_tiles;  // in turns forwards and backwards over the blocks
      for (std::int64_t round = 0; round * blocks < count; ++round) {
        const std::int64_t work_tile = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
        if (work_tile < count) work_tiles.push_back(coordinates(work_tile));
      }
      const std::string fault = TensorBlockInterpreter(plan_, std::move(work_tiles), values_).run(options_.seed);
      if (!fault.empty()) internal_error("tensor plan of {}: {}", plan_.program->name, fault);
    }
  }

 private:
  EventValues coordinates(std::int64_t work_tile) const {
    EventValues values = sizes_;
    for (std::size_t k = plan_.kernel->grid.size(); k-- > 0;) {
      const nvptx::GridLoop& loop = plan_.kernel->grid[k];
      const std::int64_t count = value_at(loop.count, sizes_);
      values[loop.var] = value_at(loop.lower, sizes_) + loop.step * (work_tile % count);
      work_tile /= count;
    }
    return values;
  }

  const nvptx::TensorPlan& plan_;
  EventValues sizes_;
  TensorValues values_;
  TensorRun options_;
};

}  // namespace nestor::testing
