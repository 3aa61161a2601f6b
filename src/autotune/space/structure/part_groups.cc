// Units along one part axis together, the others before them.
#include "autotune/space/structure/part_groups.h"

#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/group_steps.h"
#include "autotune/space/structure/try_steps.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

namespace nestor {
namespace {

bool runs_along(const LoopGroup& loop_group, const PartAxis& part) {
  const int own = loop_group.position_of(part.axis), whole = loop_group.position_of(part.whole);
  if (own >= 0) return !loop_group.reduced[static_cast<std::size_t>(own)];
  return whole >= 0 && !loop_group.reduced[static_cast<std::size_t>(whole)];
}

/// The loop groups that have the part axis, and those that compute something for them, but for operands of products.
std::vector<int> makers_of_parts(const Nest& nest, const NestStructure& structure, const std::vector<int>& along,
                                 const PartAxis& part) {
  std::vector<int> makers;
  std::set<std::string> read;
  for (std::size_t k = along.size(); k-- > 0;) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(along[k])];
    const auto writes_read = [&](const std::string& name) { return read.contains(nest.statement(name).write.tensor); };
    const bool makes = loop_group.position_of(part.axis) >= 0 ||
                       std::any_of(loop_group.statements.begin(), loop_group.statements.end(), writes_read);
    if (!makes) continue;
    makers.insert(makers.begin(), along[k]);
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      if (multiplies_matrices(statement)) continue;
      for (const Access& each : statement.reads) read.insert(each.tensor);
    }
  }
  return makers;
}

/// The products of `along`, and what computes something for them or of them there.
std::vector<int> with_products(const Nest& nest, const NestStructure& structure, const std::vector<int>& along) {
  std::set<int> chosen;
  std::set<std::string> written, read;
  const auto take = [&](int u) {
    chosen.insert(u);
    for (const std::string& name : structure.loop_groups[static_cast<std::size_t>(u)].statements) {
      written.insert(nest.statement(name).write.tensor);
      for (const Access& each : nest.statement(name).reads) read.insert(each.tensor);
    }
  };
  const auto touches = [&](int u) {
    const std::vector<std::string>& names = structure.loop_groups[static_cast<std::size_t>(u)].statements;
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      const Statement& statement = nest.statement(name);
      const auto is_written = [&](const Access& each) { return written.contains(each.tensor); };
      return is_written(statement.write) || read.contains(statement.write.tensor) ||
             std::any_of(statement.reads.begin(), statement.reads.end(), is_written);
    });
  };
  for (const int u : along) {
    if (multiplies(nest, structure, {u})) take(u);
  }
  for (std::size_t before = 0; before != chosen.size();) {
    before = chosen.size();
    for (const int u : along) {
      if (!chosen.contains(u) && touches(u)) take(u);
    }
  }
  return {chosen.begin(), chosen.end()};
}

/// Loop groups along the part axis, together. Nothing where parts of rows have no rows.
std::optional<FusionGroup> group_along(const NestStructure& structure, bool by_row, const PartAxis& part,
                                       const std::vector<int>& own) {
  FusionGroup group;
  group.loop_groups = own;
  group.part = part;
  if (by_row) {
    group.axes = common_axes(structure, group.loop_groups, group.loop_groups.front());
    std::erase_if(group.axes, [&](int axis) { return axis == part.axis || axis == part.whole; });
    if (group.axes.empty()) return std::nullopt;
    group.reduction_axes = {part.whole};
    group.at_front = true;
  }
  group.axes.push_back(part.axis);
  group.forms.push_back({});
  group.heaviest = *std::max_element(group.loop_groups.begin(), group.loop_groups.end(), [&](int a, int b) {
    return structure.loop_groups[static_cast<std::size_t>(a)].points < structure.loop_groups[static_cast<std::size_t>(b)].points;
  });
  return group;
}

/// The loop groups of `own` along the part axis together, those of `beside` too, the others before them or, where they need the parts, behind.
std::optional<std::vector<FusionGroup>> part_groups_of(const Schedule& base, const NestStructure& structure, Fusion fusion,
                                                       bool by_row, const PartAxis& part, const std::vector<int>& own,
                                                       const std::vector<int>& beside = {}) {
  std::vector<FusionGroup> along;
  if (!beside.empty()) along.push_back(*group_along(structure, false, part, beside));
  auto group = group_along(structure, by_row, part, own);
  if (!group) return std::nullopt;
  along.push_back(std::move(*group));
  std::vector<int> others;
  for (int u = 0; u < static_cast<int>(structure.loop_groups.size()); ++u) {
    const auto is_in = [&](const std::vector<int>& groups) { return std::find(groups.begin(), groups.end(), u) != groups.end(); };
    if (!is_in(own) && !is_in(beside)) others.push_back(u);
  }
  std::vector<FusionGroup> fusion_groups = find_fusion_groups_of(base, structure, others, fusion);
  std::optional<Schedule> schedule = base;
  for (const FusionGroup& other : fusion_groups) {
    if (schedule) schedule = try_steps(*schedule, group_steps(structure, other, probe_plan(other)).steps);
  }
  for (FusionGroup& each : along) {
    const GroupSteps steps = group_steps(structure, each, probe_plan(each));
    if (schedule) schedule = try_steps(*schedule, steps.steps);
    if (!schedule) return std::nullopt;
    for (const int axis : each.axes)
      each.parallel.push_back(try_step(*schedule, make_step("parallel", {steps.outer.at(axis)})).has_value());
    fusion_groups.push_back(std::move(each));
  }
  return fusion_groups;
}

}  // namespace

std::optional<std::vector<FusionGroup>> find_part_groups(const Schedule& base, const NestStructure& structure, Fusion fusion,
                                                         bool by_row) {
  for (const PartAxis& part : structure.parts) {
    std::vector<int> along;
    for (int u = 0; u < static_cast<int>(structure.loop_groups.size()); ++u) {
      if (runs_along(structure.loop_groups[static_cast<std::size_t>(u)], part)) along.push_back(u);
    }
    if (along.empty()) continue;
    if (by_row && fusion == Fusion::careful) {
      const std::vector<int> own = with_products(base.nest(), structure, along);
      std::vector<int> beside;
      std::set_difference(along.begin(), along.end(), own.begin(), own.end(), std::back_inserter(beside));
      if (!own.empty() && !beside.empty()) return part_groups_of(base, structure, fusion, by_row, part, own, beside);
    }
    if (auto found = part_groups_of(base, structure, fusion, by_row, part, along)) return found;
    // What is made of the combined parts runs along the axis, too, as a product that is computed again.
    const std::vector<int> makers = makers_of_parts(base.nest(), structure, along, part);
    if (makers.size() == along.size() || !multiplies(base.nest(), structure, makers)) continue;
    if (auto found = part_groups_of(base, structure, Fusion::related, by_row, part, makers)) return found;
  }
  return std::nullopt;
}

}  // namespace nestor
