// Units along one part axis together, the others before them.
#include "autotune/space/structure/part_groups.h"

#include "autotune/space/structure/group_steps.h"
#include "autotune/space/structure/try_steps.h"

#include <algorithm>

namespace nestor {
namespace {

bool runs_along(const LoopGroup& loop_group, const PartAxis& part) {
  const int own = loop_group.position_of(part.axis), whole = loop_group.position_of(part.whole);
  if (own >= 0) return !loop_group.reduced[static_cast<std::size_t>(own)];
  return whole >= 0 && !loop_group.reduced[static_cast<std::size_t>(whole)];
}

}  // namespace

std::optional<std::vector<FusionGroup>> find_part_groups(const Schedule& base, const NestStructure& structure, Fusion fusion,
                                                         bool by_row) {
  for (const PartAxis& part : structure.parts) {
    FusionGroup group;
    std::vector<int> others;
    for (int u = 0; u < static_cast<int>(structure.loop_groups.size()); ++u)
      (runs_along(structure.loop_groups[static_cast<std::size_t>(u)], part) ? group.loop_groups : others).push_back(u);
    if (group.loop_groups.empty()) continue;
    group.part = part;
    if (by_row) {
      group.axes = common_axes(structure, group.loop_groups, group.loop_groups.front());
      std::erase_if(group.axes, [&](int axis) { return axis == part.axis || axis == part.whole; });
      if (group.axes.empty()) continue;
      group.reduction_axes = {part.whole};
      group.at_front = true;
    }
    group.axes.push_back(part.axis);
    group.forms.push_back({});
    group.heaviest = *std::max_element(group.loop_groups.begin(), group.loop_groups.end(), [&](int a, int b) {
      return structure.loop_groups[static_cast<std::size_t>(a)].points <
             structure.loop_groups[static_cast<std::size_t>(b)].points;
    });
    std::vector<FusionGroup> fusion_groups = find_fusion_groups_of(base, structure, others, fusion);
    std::optional<Schedule> schedule = base;
    for (const FusionGroup& other : fusion_groups) {
      if (schedule) schedule = try_steps(*schedule, group_steps(structure, other, probe_plan(other)).steps);
    }
    const GroupSteps steps = group_steps(structure, group, probe_plan(group));
    if (schedule) schedule = try_steps(*schedule, steps.steps);
    if (!schedule) continue;
    for (const int axis : group.axes)
      group.parallel.push_back(try_step(*schedule, make_step("parallel", {steps.outer.at(axis)})).has_value());
    fusion_groups.push_back(std::move(group));
    return fusion_groups;
  }
  return std::nullopt;
}

}  // namespace nestor
