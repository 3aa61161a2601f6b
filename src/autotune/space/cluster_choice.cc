// Values of a point read for one cluster.
#include "autotune/space/cluster_choice.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace nestor {
namespace {

constexpr std::int64_t kFloatBytes = 4;

}  // namespace

ClusterPlan plan_for(RuleVariants& variants, const RuleVariant& variant, const Cluster& cluster, const NamedValues& values,
                     const SpaceLimits& limits, bool combines) {
  ClusterPlan plan;
  if (cluster.part) {
    plan = probe_plan(cluster);
    plan.parallel = limits.gpu || limits.threads > 1 ? 1 : 0;
    return plan;
  }
  const auto form = static_cast<std::size_t>(value_or(values, "form", 0));
  plan.form = form < cluster.forms.size() ? cluster.forms[form] : cluster.forms.front();
  // A grid is one row of blocks, whatever loops it stands for.
  plan.parallel = limits.gpu           ? static_cast<int>(cluster.axes.size())
                  : limits.threads > 1 ? static_cast<int>(value_or(values, "parallel", 1))
                                       : 0;
  std::vector<int> axes = wavefront_order(cluster, plan.form);
  const bool natural = plan.form.kind == ClusterForm::Kind::natural;
  for (const int axis : axes) {
    const auto position = std::find(cluster.axes.begin(), cluster.axes.end(), axis) - cluster.axes.begin();
    const bool serial = !cluster.parallel[static_cast<std::size_t>(position)];
    std::int64_t tile = value_or(values, "tile." + variant.structure.axes[axis].name, 1);
    if (tile > 1 && tile >= variant.structure.axes[axis].extent) tile = 0;
    if (tile == 0 && combines) tile = axis == axes.back() ? kCombinedColumns : 1;
    // Loops that carry dependences stay whole and outside unless a skew made tiles of them legal.
    if (plan.form.kind == ClusterForm::Kind::wavefront || (natural && serial && !cluster.tilable)) tile = 1;
    if (plan.form.kind == ClusterForm::Kind::time_tile && tile < 2)
      tile = std::min<std::int64_t>(16, variant.structure.axes[axis].extent);
    if (tile == 0) continue;
    plan.order.push_back(axis);
    plan.tile[axis] = tile;
  }
  if (natural && cluster.tilable && plan.order.size() > 1) {
    // 1: the two innermost swapped; 2: the innermost first.
    const std::int64_t order = value_or(values, "order", 0);
    if (order == 1) std::swap(plan.order.back(), plan.order[plan.order.size() - 2]);
    if (order == 2) std::rotate(plan.order.begin(), plan.order.end() - 1, plan.order.end());
  }
  const int stream = static_cast<int>(value_or(values, "reduction_axis", -1));
  if (natural && std::find(cluster.stream_axes.begin(), cluster.stream_axes.end(), stream) != cluster.stream_axes.end()) {
    const std::int64_t tile = value_or(values, "reduction_tile", 64);
    if (tile < variant.structure.axes[stream].extent) {
      plan.stream = stream;
      plan.stream_tile = tile;
      plan.stream_groups = variants.stream_groups(variant, cluster, stream);
      if (std::all_of(plan.stream_groups.begin(), plan.stream_groups.end(), [](int g) { return g < 0; })) plan.stream = -1;
    }
  }
  return plan;
}

std::int64_t scratch_bytes(const Nest& nest, const NestStructure& structure, const Cluster& cluster, const ClusterPlan& plan) {
  std::map<std::string, std::int64_t> bytes;
  for (const int u : cluster.units) {
    const Unit& unit = structure.units[u];
    for (const std::string& name : unit.statements) {
      const Statement& statement = nest.statement(name);
      const Tensor& tensor = nest.tensor(statement.write.tensor);
      if (tensor.role != TensorRole::temporary) continue;
      std::int64_t elements = 1;
      for (std::size_t k = 0; k < unit.axes.size(); ++k) {
        if (unit.reduced[k] || (cluster.part && cluster.part->whole == unit.axes[k])) continue;
        std::int64_t extent = unit.extents[k];
        const auto tile = plan.tile.find(unit.axes[k]);
        if (tile != plan.tile.end()) extent = std::min(extent, tile->second);
        if (unit.axes[k] == plan.stream) extent = std::min(extent, plan.stream_tile);
        elements *= std::max<std::int64_t>(extent, 1);
      }
      bytes[tensor.name] = std::max(bytes[tensor.name], elements * kFloatBytes);
    }
  }
  std::int64_t total = 0;
  for (const auto& [tensor, size] : bytes) total += size;
  return total;
}

std::vector<Step> inner_loop_steps(const NestStructure& structure, const Cluster& cluster, const ClusterSteps& shape,
                                   const NamedValues& values) {
  const Unit& unit = structure.units[cluster.heaviest];
  const std::vector<std::string>& inner = shape.inner.at(unit.first);
  const auto is_free = [&](const std::string& loop) {
    for (std::size_t k = 0; k < unit.loops.size(); ++k) {
      if (loop != unit.loops[k] && loop != unit.loops[k] + "_i") continue;
      if (cluster.part && cluster.part->axis == unit.axes[k]) return false;
      const auto common = std::find(cluster.axes.begin(), cluster.axes.end(), unit.axes[k]);
      const bool serial =
          common != cluster.axes.end() && !cluster.parallel[static_cast<std::size_t>(common - cluster.axes.begin())];
      return !unit.reduced[k] && !serial;
    }
    return false;
  };
  std::vector<Step> steps;
  std::vector<std::string> free;
  std::copy_if(inner.begin(), inner.end(), std::back_inserter(free), is_free);
  const std::int64_t vector = value_or(values, "vector", 0), unroll = value_or(values, "unroll", 0);
  if (vector > 0 && !free.empty()) steps.push_back(make_step("vectorize", {free.back(), vector}));
  if (unroll > 0 && free.size() > 1) steps.push_back(make_step("unroll", {free[free.size() - 2], unroll}));
  return steps;
}

}  // namespace nestor
