// Values of a point read for one fusion group.
#include "autotune/space/group_choice.h"

#include "autotune/space/distribution.h"
#include "autotune/space/product_points.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace nestor {
namespace {

constexpr std::int64_t kFloatBytes = 4;

/// Is each step of the recurrence one point for each of its elements? A thread that has these through all steps waits for nobody.
bool has_steps_of_elements(const NestStructure& structure, const FusionGroup& group) {
  return group.forms.back().kind == GroupForm::Kind::inside && group.forms.back().skews.empty() &&
         std::all_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
           const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
           return std::all_of(loop_group.axes.begin(), loop_group.axes.end(), [&](int axis) {
             return std::find(group.axes.begin(), group.axes.end(), axis) != group.axes.end();
           });
         });
}

GroupForm form_for(RuleVariants& variants, const RuleVariant& variant, const FusionGroup& group, std::int64_t wanted, bool gpu) {
  if (wanted == kDistributedForm) {
    const std::optional<GroupForm>& found = distributed_form(variants, variant, group);
    if (found || !gpu) return found.value_or(group.forms.front());
  } else if (wanted == 0 && gpu && has_steps_of_elements(variant.structure, group)) {
    return group.forms.back();  // in place of a launch a step
  } else if (static_cast<std::size_t>(wanted) < group.forms.size()) {
    return group.forms[static_cast<std::size_t>(wanted)];
  }
  // Beside a group with such a form, others have theirs by other numbers.
  return group.forms.back().kind == GroupForm::Kind::inside ? group.forms.back() : group.forms.front();
}

/// Axes of rows and columns of products on lanes that may be longer or shorter in another launch: tiles of them have equal blocks for threads.
std::set<int> tiled_at_any_size(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  const LoopGroup& heavy = structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  std::set<int> axes;
  for (const int axis : tiled_by_products(nest, structure, group)) {
    const isl::set& domain = nest.statement(heavy.first).domain;
    if (!has_one_value(nest, extent_of(nest, domain, heavy.position_of(axis)))) axes.insert(axis);
  }
  return axes;
}

}  // namespace

GroupPlan plan_for(RuleVariants& variants, const RuleVariant& variant, const FusionGroup& group, const NamedValues& values,
                   const SpaceLimits& limits, bool combines) {
  GroupPlan plan;
  if (group.part) {
    plan = probe_plan(group);
    plan.parallel = limits.gpu || limits.threads > 1 ? 1 : 0;
    const std::int64_t points = limits.gpu && !group.tile_is_part ? value_or(values, "part_tile", 1) : 1;
    if (points > 1 && points < group.part->size) {
      plan.reduction_axis = group.part->whole;
      plan.reduction_tile = points;
    }
    return plan;
  }
  plan.form = form_for(variants, variant, group, value_or(values, "form", 0), limits.gpu.has_value());
  // A grid is one row of blocks, whatever loops it stands for.
  plan.parallel = limits.gpu           ? static_cast<int>(group.axes.size())
                  : limits.threads > 1 ? static_cast<int>(value_or(values, "parallel", 1))
                                       : 0;
  std::vector<int> axes = wavefront_order(group, plan.form);
  const bool natural = plan.form.kind == GroupForm::Kind::natural;
  const std::set<int> open = limits.gpu ? tiled_at_any_size(variants.nest(variant), variant.structure, group) : std::set<int>{};
  for (const int axis : axes) {
    const auto position = std::find(group.axes.begin(), group.axes.end(), axis) - group.axes.begin();
    const bool serial = !group.parallel[static_cast<std::size_t>(position)];
    std::int64_t tile = value_or(values, "tile." + variant.structure.axes[axis].name, 1);
    const std::int64_t extent = variant.structure.axes[axis].extent;
    const bool may_be_larger = open.contains(axis) || (limits.gpu && extent <= kMostCommonSums);
    if (tile > 1 && tile >= (may_be_larger ? 2 * extent : extent)) tile = 0;
    if (tile == 0 && combines) tile = axis == axes.back() ? kCombinedColumns : 1;
    // Loops that carry dependences stay whole and outside unless a skew made tiles of them legal.
    if (plan.form.kind == GroupForm::Kind::wavefront || (natural && serial && !group.tilable)) tile = 1;
    if (plan.form.kind == GroupForm::Kind::distributed && serial) tile = 1;
    if (plan.form.kind == GroupForm::Kind::inside && tile == 0 && axis == axes.front() && limits.gpu) tile = 1;
    if (plan.form.kind == GroupForm::Kind::time_tile && tile < 2)
      tile = std::min<std::int64_t>(16, variant.structure.axes[axis].extent);
    if (tile == 0) continue;
    plan.order.push_back(axis);
    plan.tile[axis] = tile;
  }
  if (natural && group.tilable && plan.order.size() > 1) {
    // 1: the two innermost swapped; 2: the innermost first.
    const std::int64_t order = value_or(values, "order", 0);
    if (order == 1) std::swap(plan.order.back(), plan.order[plan.order.size() - 2]);
    if (order == 2) std::rotate(plan.order.begin(), plan.order.end() - 1, plan.order.end());
  }
  const int reduction_axis = static_cast<int>(value_or(values, "reduction_axis", -1));
  if (natural &&
      std::find(group.reduction_axes.begin(), group.reduction_axes.end(), reduction_axis) != group.reduction_axes.end()) {
    const std::int64_t tile = value_or(values, "reduction_tile", 64);
    if (tile < variant.structure.axes[reduction_axis].extent) {
      plan.reduction_axis = reduction_axis;
      plan.reduction_tile = tile;
      plan.reduction_groups = variants.reduction_groups(variant, group, reduction_axis);
      if (std::all_of(plan.reduction_groups.begin(), plan.reduction_groups.end(), [](int g) { return g < 0; }))
        plan.reduction_axis = -1;
    }
  }
  return plan;
}

std::int64_t scratch_bytes(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const GroupPlan& plan) {
  std::map<std::string, std::int64_t> bytes;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[u];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      const Tensor& tensor = nest.tensor(statement.write.tensor);
      if (tensor.role != TensorRole::temporary) continue;
      std::int64_t elements = 1;
      for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
        if (loop_group.reduced[k] || (group.part && group.part->whole == loop_group.axes[k])) continue;
        std::int64_t extent = loop_group.extents[k];
        const auto tile = plan.tile.find(loop_group.axes[k]);
        if (tile != plan.tile.end()) extent = std::min(extent, tile->second);
        if (loop_group.axes[k] == plan.reduction_axis) extent = std::min(extent, plan.reduction_tile);
        elements *= std::max<std::int64_t>(extent, 1);
      }
      bytes[tensor.name] = std::max(bytes[tensor.name], elements * kFloatBytes);
    }
  }
  std::int64_t total = 0;
  for (const auto& [tensor, size] : bytes) total += size;
  return total;
}

std::vector<Step> inner_loop_steps(const NestStructure& structure, const FusionGroup& group, const GroupSteps& shape,
                                   const NamedValues& values) {
  const LoopGroup& loop_group = structure.loop_groups[group.heaviest];
  const std::vector<std::string>& inner = shape.inner.at(loop_group.first);
  const auto is_free = [&](const std::string& loop) {
    for (std::size_t k = 0; k < loop_group.loops.size(); ++k) {
      if (loop != loop_group.loops[k] && loop != loop_group.loops[k] + "_i") continue;
      if (group.part && group.part->axis == loop_group.axes[k]) return false;
      const auto common = std::find(group.axes.begin(), group.axes.end(), loop_group.axes[k]);
      const bool serial = common != group.axes.end() && !group.parallel[static_cast<std::size_t>(common - group.axes.begin())];
      return !loop_group.reduced[k] && !serial;
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
