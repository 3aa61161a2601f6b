// Generation of loop steps for one fusion group.
#include "autotune/space/structure/group_steps.h"

#include <algorithm>

namespace nestor {
namespace {

/// The loops of one loop group while steps transform them.
struct GroupLoops {
  std::vector<std::string> chain;   ///< all loops, outermost first
  std::vector<std::string> shared;  ///< those that are fused with the other loop groups', outermost first
  std::vector<std::string> sums;    ///< loops of other reduced dims around it
  std::string reduction_loop;       ///< its reduction loop, or empty
};

void replace(std::vector<std::string>& chain, const std::string& loop, const std::vector<std::string>& by) {
  const auto at = std::find(chain.begin(), chain.end(), loop);
  const auto next = chain.erase(at);
  chain.insert(next, by.begin(), by.end());
}

class Emitter {
 public:
  Emitter(const NestStructure& structure, const FusionGroup& group, const GroupPlan& plan)
      : structure_(structure), group_(group), plan_(plan) {}

  GroupSteps emit() {
    for (const int u : group_.loop_groups) loops_.push_back(shape_loop_group(structure_.loop_groups[u]));
    fuse_shared();
    fuse_reductions();
    transform_shared();
    mark_parallel();
    for (std::size_t k = 0; k < group_.loop_groups.size(); ++k) {
      const GroupLoops& loops = loops_[k];
      const std::size_t around = loops.shared.size() + loops.sums.size() + (loops.reduction_loop.empty() ? 0 : 1);
      const auto first_inner = loops.chain.begin() + static_cast<std::ptrdiff_t>(around);
      result_.inner[structure_.loop_groups[group_.loop_groups[k]].first] = {first_inner, loops.chain.end()};
    }
    return std::move(result_);
  }

 private:
  void step(std::string name, std::vector<nlohmann::json> args) {
    result_.steps.push_back(make_step(std::move(name), std::move(args)));
  }

  /// Splits a loop when its tile asks for it; returns the part that goes outside.
  std::string take_outside(GroupLoops& loops, const std::string& loop, std::int64_t tile) {
    if (tile <= 1) return loop;
    step("split", {loop, tile, loop + "_o", loop + "_i"});
    replace(loops.chain, loop, {loop + "_o", loop + "_i"});
    return loop + "_o";
  }

  /// A loop group over the points of parts: parts outside, the points of one in the reduction loop, or tiles of them; in a loop around tiles of
  /// another reduced dim where that is streamed. False for other loop groups and axes.
  bool take_part(const LoopGroup& loop_group, int axis, GroupLoops& loops) {
    if (!group_.part || axis != group_.part->axis || loop_group.position_of(group_.part->whole) < 0) return false;
    const std::string& points = loop_group.loops[loop_group.position_of(group_.part->whole)];
    loops.shared.push_back(take_outside(loops, points, group_.part->size));
    const bool streams_other = plan_.reduction_axis < 0 ? plan_.sums_outside : plan_.reduction_axis != group_.part->whole;
    if (group_.tile_is_part) return true;
    if (streams_other) {
      loops.sums.push_back(points + "_i");
      return true;
    }
    loops.reduction_loop = points + "_i";
    if (plan_.reduction_axis == group_.part->whole)
      loops.reduction_loop = take_outside(loops, loops.reduction_loop, plan_.reduction_tile);
    return true;
  }

  GroupLoops shape_loop_group(const LoopGroup& loop_group) {
    GroupLoops loops;
    loops.chain = loop_group.loops;
    for (const AxisSkew& skew : plan_.form.skews) {
      step("skew", {loop_group.loops[loop_group.position_of(skew.outer)], loop_group.loops[loop_group.position_of(skew.inner)],
                    skew.factor});
    }
    for (const int axis : plan_.order) {
      if (take_part(loop_group, axis, loops)) continue;
      loops.shared.push_back(take_outside(loops, loop_group.loops[loop_group.position_of(axis)], plan_.tile.at(axis)));
    }
    // Inside a tile of time steps the steps stay shared: each one needs the statements of the one before.
    if (plan_.form.kind == GroupForm::Kind::time_tile) {
      const int time = plan_.form.skews.front().outer;
      if (plan_.tile.at(time) > 1) loops.shared.push_back(loop_group.loops[loop_group.position_of(time)] + "_i");
    }
    const std::size_t reduction_axis = plan_.reduction_axis < 0 || !loops.reduction_loop.empty()
                                           ? std::string::npos
                                           : static_cast<std::size_t>(loop_group.shared_position_of(plan_.reduction_axis));
    if (reduction_axis < loop_group.loops.size())
      loops.reduction_loop = take_outside(loops, loop_group.loops[reduction_axis], plan_.reduction_tile);
    for (std::size_t k = 0; plan_.sums_outside && !loops.reduction_loop.empty() && k < loop_group.loops.size(); ++k) {
      const bool of_part = group_.part && loop_group.axes[k] == group_.part->whole;
      if (loop_group.reduced[k] && k != reduction_axis && !of_part) loops.sums.push_back(loop_group.loops[k]);
    }
    std::vector<std::string> wanted = loops.shared;
    wanted.insert(wanted.end(), loops.sums.begin(), loops.sums.end());
    if (!loops.reduction_loop.empty()) wanted.push_back(loops.reduction_loop);
    // Of a part's own loop one iteration is left, which must not stand between the loops that are worth tiling.
    const bool of_part = group_.part && loop_group.position_of(group_.part->whole) >= 0;
    if (of_part && loop_group.position_of(group_.part->axis) >= 0)
      wanted.push_back(loop_group.loops[loop_group.position_of(group_.part->axis)]);
    const auto own = static_cast<std::ptrdiff_t>(wanted.size());
    for (const std::string& loop : loops.chain) {
      if (std::find(wanted.begin(), wanted.end(), loop) == wanted.end()) wanted.push_back(loop);
    }
    if (plan_.form.kind == GroupForm::Kind::inside) {
      std::stable_sort(wanted.begin() + own, wanted.end(), [&](const std::string& a, const std::string& b) {
        return place_inside(loop_group, a) < place_inside(loop_group, b);
      });
    }
    if (wanted != loops.chain) step("reorder", {wanted.begin(), wanted.end()});
    loops.chain = wanted;
    return loops;
  }

  /// Serial loops stand behind those that threads share, or the one over wavefronts before them.
  int place_inside(const LoopGroup& loop_group, const std::string& loop) const {
    const auto& skews = plan_.form.skews;
    for (std::size_t k = 0; k < loop_group.loops.size(); ++k) {
      if (loop != loop_group.loops[k] && loop != loop_group.loops[k] + "_i") continue;
      if (loop_group.reduced[k]) return 3;
      if (!skews.empty()) return loop_group.axes[k] == skews.front().inner ? 0 : 1;
      const std::vector<int> serial = serial_axes(group_);
      return std::find(serial.begin(), serial.end(), loop_group.axes[k]) == serial.end() ? 1 : 2;
    }
    return 1;
  }

  void fuse_shared() {
    for (std::size_t k = 1; k < loops_.size(); ++k) {
      for (std::size_t level = 0; level < loops_[k].shared.size(); ++level) {
        const std::string &first = loops_.front().shared[level], &last = loops_[k - 1].shared[level],
                          &own = loops_[k].shared[level];
        group_.at_front ? step("fuse_with", {own, first}) : step("fuse_with", {last, own});
      }
    }
    shared_ = group_.at_front ? loops_.front().shared : loops_.back().shared;
    for (std::size_t k = 0; k < plan_.order.size(); ++k) result_.outer[plan_.order[k]] = shared_[k];
  }

  /// Each loop joins the last one of its group, latest first: what corrects an accumulator must share the loop before
  /// the statement whose value still moves may enter it.
  void fuse_reductions() {
    std::map<int, std::vector<std::string>> last;  // those of other reduced dims around it, and the loop
    for (std::size_t k = loops_.size(); k-- > 0;) {
      if (loops_[k].reduction_loop.empty()) continue;
      const int group = plan_.sums_apart ? static_cast<int>(k) : plan_.reduction_groups.empty() ? 0 : plan_.reduction_groups[k];
      std::vector<std::string> nested = loops_[k].sums;
      nested.push_back(loops_[k].reduction_loop);
      const auto [into, first] = last.emplace(group, nested);
      const bool alike = nested.size() == into->second.size();
      for (std::size_t level = alike ? 0 : nested.size() - 1; !first && level < nested.size(); ++level)
        step("fuse_with", {nested[level], alike ? into->second[level] : into->second.back()});
    }
    for (const auto& [group, nested] : last) result_.reduction_loops.push_back(nested.back());
  }

  /// Wavefronts over tiles: the sum of the time tile and the first space tile goes outside, time tiles of one sum are
  /// independent.
  void transform_shared() {
    if (plan_.form.kind != GroupForm::Kind::time_tile || plan_.order.size() < 2) return;
    step("skew", {shared_[0], shared_[1], 1});
    step("reorder", {shared_[1], shared_[0]});
  }

  void mark_parallel() {
    if (plan_.parallel <= 0) return;
    if (plan_.form.kind == GroupForm::Kind::time_tile) {
      if (plan_.order.size() >= 2) step("parallel", {shared_[0]});
      return;
    }
    if (plan_.form.kind == GroupForm::Kind::wavefront) {
      step("parallel", {result_.outer.at(plan_.form.skews.front().outer)});
      return;
    }
    int left = plan_.parallel;
    bool started = false;
    for (std::size_t k = 0; k < plan_.order.size() && left > 0; ++k) {
      const auto position = std::find(group_.axes.begin(), group_.axes.end(), plan_.order[k]) - group_.axes.begin();
      const bool free = group_.parallel[static_cast<std::size_t>(position)];
      // Parallel loops form one grid: they follow each other without a serial one between.
      if (!free && started) return;
      if (!free) continue;
      step("parallel", {shared_[k]});
      started = true;
      --left;
    }
  }

  const NestStructure& structure_;
  const FusionGroup& group_;
  const GroupPlan& plan_;
  std::vector<GroupLoops> loops_;
  std::vector<std::string> shared_;
  GroupSteps result_;
};

}  // namespace

Step make_step(std::string name, std::vector<nlohmann::json> args) { return Step{std::move(name), std::move(args)}; }

GroupSteps group_steps(const NestStructure& structure, const FusionGroup& group, const GroupPlan& plan) {
  return Emitter(structure, group, plan).emit();
}

GroupPlan probe_plan(const FusionGroup& group) {
  GroupPlan plan;
  plan.order = group.axes;
  for (const int axis : group.axes) plan.tile[axis] = 1;
  return plan;
}

}  // namespace nestor
