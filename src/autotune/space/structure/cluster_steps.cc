// Generation of loop steps for one cluster.
#include "autotune/space/structure/cluster_steps.h"

#include <algorithm>

namespace nestor {
namespace {

/// The loops of one unit while steps transform them.
struct UnitLoops {
  std::vector<std::string> chain;   ///< all loops, outermost first
  std::vector<std::string> shared;  ///< those that are fused with the other units', outermost first
  std::string stream;               ///< its stream loop, or empty
};

void replace(std::vector<std::string>& chain, const std::string& loop, const std::vector<std::string>& by) {
  const auto at = std::find(chain.begin(), chain.end(), loop);
  const auto next = chain.erase(at);
  chain.insert(next, by.begin(), by.end());
}

class Emitter {
 public:
  Emitter(const NestStructure& structure, const Cluster& cluster, const ClusterPlan& plan)
      : structure_(structure), cluster_(cluster), plan_(plan) {}

  ClusterSteps emit() {
    for (const int u : cluster_.units) loops_.push_back(shape_unit(structure_.units[u]));
    fuse_shared();
    fuse_streams();
    transform_shared();
    mark_parallel();
    for (std::size_t k = 0; k < cluster_.units.size(); ++k) {
      const UnitLoops& loops = loops_[k];
      const auto first_inner =
          loops.chain.begin() + static_cast<std::ptrdiff_t>(loops.shared.size() + (loops.stream.empty() ? 0 : 1));
      result_.inner[structure_.units[cluster_.units[k]].first] = {first_inner, loops.chain.end()};
    }
    return std::move(result_);
  }

 private:
  void step(std::string name, std::vector<nlohmann::json> args) {
    result_.steps.push_back(make_step(std::move(name), std::move(args)));
  }

  /// Splits a loop when its tile asks for it; returns the part that goes outside.
  std::string take_outside(UnitLoops& loops, const std::string& loop, std::int64_t tile) {
    if (tile <= 1) return loop;
    step("split", {loop, tile, loop + "_o", loop + "_i"});
    replace(loops.chain, loop, {loop + "_o", loop + "_i"});
    return loop + "_o";
  }

  /// A unit over the points of parts: parts outside, the points of one in the stream loop, or tiles of them. False for other units and
  /// axes.
  bool take_part(const Unit& unit, int axis, UnitLoops& loops) {
    if (!cluster_.part || axis != cluster_.part->axis || unit.position_of(cluster_.part->whole) < 0) return false;
    const std::string& points = unit.loops[unit.position_of(cluster_.part->whole)];
    loops.shared.push_back(take_outside(loops, points, cluster_.part->size));
    loops.stream = points + "_i";
    if (plan_.stream == cluster_.part->whole) loops.stream = take_outside(loops, loops.stream, plan_.stream_tile);
    return true;
  }

  UnitLoops shape_unit(const Unit& unit) {
    UnitLoops loops;
    loops.chain = unit.loops;
    for (const AxisSkew& skew : plan_.form.skews) {
      step("skew", {unit.loops[unit.position_of(skew.outer)], unit.loops[unit.position_of(skew.inner)], skew.factor});
    }
    for (const int axis : plan_.order) {
      if (take_part(unit, axis, loops)) continue;
      loops.shared.push_back(take_outside(loops, unit.loops[unit.position_of(axis)], plan_.tile.at(axis)));
    }
    // Inside a tile of time steps the steps stay shared: each one needs the statements of the one before.
    if (plan_.form.kind == ClusterForm::Kind::time_tile) {
      const int time = plan_.form.skews.front().outer;
      if (plan_.tile.at(time) > 1) loops.shared.push_back(unit.loops[unit.position_of(time)] + "_i");
    }
    const std::size_t stream =
        plan_.stream < 0 || !loops.stream.empty() ? std::string::npos : static_cast<std::size_t>(unit.position_of(plan_.stream));
    if (stream < unit.loops.size()) loops.stream = take_outside(loops, unit.loops[stream], plan_.stream_tile);
    std::vector<std::string> wanted = loops.shared;
    if (!loops.stream.empty()) wanted.push_back(loops.stream);
    // Of a part's own loop one iteration is left, which must not stand between the loops that are worth tiling.
    if (cluster_.part && !loops.stream.empty() && unit.position_of(cluster_.part->axis) >= 0)
      wanted.push_back(unit.loops[unit.position_of(cluster_.part->axis)]);
    for (const std::string& loop : loops.chain) {
      if (std::find(wanted.begin(), wanted.end(), loop) == wanted.end()) wanted.push_back(loop);
    }
    if (wanted != loops.chain) step("reorder", {wanted.begin(), wanted.end()});
    loops.chain = wanted;
    return loops;
  }

  void fuse_shared() {
    for (std::size_t k = 1; k < loops_.size(); ++k) {
      for (std::size_t level = 0; level < loops_[k].shared.size(); ++level) {
        const std::string &first = loops_.front().shared[level], &last = loops_[k - 1].shared[level],
                          &own = loops_[k].shared[level];
        cluster_.at_front ? step("fuse_with", {own, first}) : step("fuse_with", {last, own});
      }
    }
    shared_ = cluster_.at_front ? loops_.front().shared : loops_.back().shared;
    for (std::size_t k = 0; k < plan_.order.size(); ++k) result_.outer[plan_.order[k]] = shared_[k];
  }

  /// Each loop joins the last one of its group, latest first: what corrects an accumulator must share the loop before
  /// the statement whose value still moves may enter it.
  void fuse_streams() {
    std::map<int, std::string> last;
    for (std::size_t k = loops_.size(); k-- > 0;) {
      if (loops_[k].stream.empty()) continue;
      const int group = plan_.stream_groups.empty() ? 0 : plan_.stream_groups[k];
      const auto [into, first] = last.emplace(group, loops_[k].stream);
      if (!first) step("fuse_with", {loops_[k].stream, into->second});
    }
    for (const auto& [group, loop] : last) result_.stream_loops.push_back(loop);
  }

  /// Wavefronts over tiles: the sum of the time tile and the first space tile goes outside, time tiles of one sum are
  /// independent.
  void transform_shared() {
    if (plan_.form.kind != ClusterForm::Kind::time_tile || plan_.order.size() < 2) return;
    step("skew", {shared_[0], shared_[1], 1});
    step("reorder", {shared_[1], shared_[0]});
  }

  void mark_parallel() {
    if (plan_.parallel <= 0) return;
    if (plan_.form.kind == ClusterForm::Kind::time_tile) {
      if (plan_.order.size() >= 2) step("parallel", {shared_[0]});
      return;
    }
    if (plan_.form.kind == ClusterForm::Kind::wavefront) {
      step("parallel", {result_.outer.at(plan_.form.skews.front().outer)});
      return;
    }
    int left = plan_.parallel;
    bool started = false;
    for (std::size_t k = 0; k < plan_.order.size() && left > 0; ++k) {
      const auto position = std::find(cluster_.axes.begin(), cluster_.axes.end(), plan_.order[k]) - cluster_.axes.begin();
      const bool free = cluster_.parallel[static_cast<std::size_t>(position)];
      // Parallel loops form one grid: they follow each other without a serial one between.
      if (!free && started) return;
      if (!free) continue;
      step("parallel", {shared_[k]});
      started = true;
      --left;
    }
  }

  const NestStructure& structure_;
  const Cluster& cluster_;
  const ClusterPlan& plan_;
  std::vector<UnitLoops> loops_;
  std::vector<std::string> shared_;
  ClusterSteps result_;
};

}  // namespace

Step make_step(std::string name, std::vector<nlohmann::json> args) { return Step{std::move(name), std::move(args)}; }

ClusterSteps cluster_steps(const NestStructure& structure, const Cluster& cluster, const ClusterPlan& plan) {
  return Emitter(structure, cluster, plan).emit();
}

ClusterPlan probe_plan(const Cluster& cluster) {
  ClusterPlan plan;
  plan.order = cluster.axes;
  for (const int axis : cluster.axes) plan.tile[axis] = 1;
  return plan;
}

}  // namespace nestor
