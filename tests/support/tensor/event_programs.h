// Event programs: what each role of a tensor plan does, step by step, at given sizes and for given work tiles.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "codegen/tile/int_code.h"
#include "support/tensor/event_walk.h"

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nestor::testing {

class EventPrograms {
 public:
  using Integers = EventValues;

 protected:
  using Kind = nvptx::Event::Kind;
  using Hash = std::size_t;

  /// What a role does next; an event at its iteration, with all that its expressions come to there.
  struct Step {
    enum class Kind : std::uint8_t { event, ends_work_tile, passes_work_tile, prepares, starts, leaves } kind = Kind::event;
    nvptx::Event event{};
    std::shared_ptr<const Integers> around{};  ///< of a load the values that its tile starts at
    bool masked = true;                        ///< masks are applied
    Hash tile = 0;                             ///< what tells the tile that a load brings from others
    Hash mask = 0;                             ///< which elements the op of a product or a compute works on
    bool past = false;                         ///< a load for an iteration that there is not
    bool astray = false;                       ///< a load for another iteration than its own, outside of any
    std::map<int, int> tiles{};                ///< by circular buffer: those of a work tile that is passed over
  };

  /// `work tiles`: values of sizes and grid variables, one a work tile of the block or cluster.
  EventPrograms(const nvptx::TensorPlan& plan, std::vector<Integers> work_tiles)
      : plan_(plan), work_tiles_(std::move(work_tiles)) {
    for (int block = 0; block < plan_.cluster(); ++block) {
      producers_.push_back(program_of(block, plan_.producer, true));
      for (int group = 0; group < programs_of_block(); ++group)
        consumers_.push_back(program_of(block, plan_.consumer, false, group));
    }
  }

  const nvptx::CircularBuffer& ring(int k) const { return plan_.circular_buffers.at(static_cast<std::size_t>(k)); }
  const nvptx::TensorOp& op(int k) const { return plan_.ops.at(static_cast<std::size_t>(k)); }
  bool all_copy() const { return plan_.cores == nvptx::TensorCores::mma; }

  static Hash mix(Hash a, Hash b) { return (a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2))) * 0x2545f4914f6cdd1dULL; }
  static Hash tile_of(int buffer, const std::vector<IntExpr>& origin, const Integers& around) {
    Hash hash = static_cast<Hash>(buffer) + 17;
    for (const IntExpr& index : origin) hash = mix(hash, static_cast<Hash>(value_at(index, around)));
    return hash;
  }
  /// Which elements an op works on, from a few of them.
  Hash mask_of(const nvptx::TensorOp& op, const Integers& around) const {
    Hash hash = 0;
    for (const IntExpr& condition : op.mask) hash = mix(hash, masked(condition, around));
    return hash;
  }

  const nvptx::TensorPlan& plan_;
  const std::vector<Integers> work_tiles_;
  /// Groups of a block that share their work tiles have one program; each of those that take them in turn has its own.
  int programs_of_block() const { return plan_.warpgroups / plan_.sharing_warpgroups(); }

  std::vector<std::vector<Step>> producers_, consumers_;  ///< by block; by block and program

 private:
  struct Condition {
    VariableSlots slots;
    IntCode code;
  };

  Hash masked(const IntExpr& expr, const Integers& around) const {
    const auto [known, fresh] = conditions_.try_emplace(&expr.args());
    Condition& condition = known->second;
    if (fresh) condition.code = IntCode(expr, condition.slots);
    const int row_slot = condition.slots.of(nvptx::kRow), column_slot = condition.slots.of(nvptx::kColumn),
              pack_slot = condition.slots.of(nvptx::kPack);
    std::vector<std::int64_t> point(condition.slots.size(), kNoValue);
    for (const auto& [name, slot] : condition.slots.all()) {
      if (const auto found = around.find(name); found != around.end()) point[static_cast<std::size_t>(slot)] = found->second;
    }
    point[static_cast<std::size_t>(pack_slot)] = 0;
    Hash hash = 5;
    for (const std::int64_t row : {0, 21, 63}) {
      for (const std::int64_t column : {0, 21, 63}) {
        point[static_cast<std::size_t>(row_slot)] = row;
        point[static_cast<std::size_t>(column_slot)] = column;
        hash = mix(hash, static_cast<Hash>(condition.code.evaluate(point.data()) != 0));
      }
    }
    return hash;
  }

  /// What the producer brings for a work tile.
  Step passing(const Integers& work_tile) const {
    Step step{Step::Kind::passes_work_tile};
    walk_events(
        plan_.producer, std::make_shared<const Integers>(work_tile), true,
        [&](const nvptx::Event& event, const auto&, bool) { step.tiles[event.ring] += event.kind == Kind::load ? 1 : 0; });
    return step;
  }

  std::vector<Step> program_of(int block, const nvptx::EventNode& role, bool producer, int number = 0) const {
    std::vector<Step> program;
    if (producer) program.push_back({Step::Kind::prepares});
    program.push_back({Step::Kind::starts});
    for (std::size_t k = 0; k < work_tiles_.size(); ++k) {
      const Integers& work_tile = work_tiles_[k];
      if (!producer && static_cast<int>(k) % programs_of_block() != number) {
        program.push_back(passing(work_tile));
        continue;
      }
      walk_events(role, std::make_shared<const Integers>(work_tile), true,
                  [&](const nvptx::Event& event, const std::shared_ptr<const Integers>& around, bool masked) {
                    program.push_back(step_of(block, event, around, masked));
                  });
      program.push_back({Step::Kind::ends_work_tile});
    }
    program.push_back({Step::Kind::leaves});
    return program;
  }

  Step step_of(int block, const nvptx::Event& event, const std::shared_ptr<const Integers>& around, bool masked) const {
    Step step{Step::Kind::event, event, around, masked};
    if (event.kind == Kind::load) find_tile(block, step);
    if (event.kind == Kind::product || event.kind == Kind::compute) step.mask = mask_of(op(event.op), *around);
    return step;
  }

  /// Which tile the block's copy brings.
  void find_tile(int block, Step& step) const {
    const nvptx::CircularBuffer& ring = this->ring(step.event.ring);
    if (all_copy() && ring.streamed) {
      Integers at = *step.around;
      const auto iteration = at.find(ring.var);
      step.astray = iteration == at.end();
      if (step.astray) return;
      iteration->second += step.event.count;
      step.past = iteration->second >= value_at(ring.upper, at);
      step.around = std::make_shared<const Integers>(std::move(at));
    }
    if (step.past) return;
    std::vector<IntExpr> origin = ring.origin;
    if (ring.own_index >= 0) {
      IntExpr& own = origin.at(static_cast<std::size_t>(ring.own_index));
      own = own + IntExpr(block * plan_.packs() * ring.row_stride);
    }
    step.tile = tile_of(ring.buffer, origin, *step.around);
  }

  mutable std::map<const void*, Condition> conditions_;  ///< of the plan's masks, looked up once
};

}  // namespace nestor::testing
