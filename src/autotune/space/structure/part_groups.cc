// Units along one part axis together, the others before them.
#include "autotune/space/structure/part_groups.h"

#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/group_steps.h"
#include "autotune/space/structure/preparation.h"
#include "autotune/space/structure/try_steps.h"

#include <algorithm>
#include <iterator>
#include <numeric>
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

/// Those of `loop_groups` that are not in `others`.
std::vector<int> without(const std::vector<int>& loop_groups, const std::vector<int>& others) {
  std::vector<int> left;
  std::copy_if(loop_groups.begin(), loop_groups.end(), std::back_inserter(left),
               [&](int u) { return std::find(others.begin(), others.end(), u) == others.end(); });
  return left;
}

/// Loop groups along a part axis together.
struct Along {
  PartAxis part;
  std::vector<int> own;
  PartForm form;
};

FusionGroup group_along(const NestStructure& structure, const Along& along) {
  const PartForm form = along.form;
  FusionGroup group;
  group.loop_groups = along.own;
  group.part = along.part;
  if (form != PartForm::alone) {
    group.axes = common_axes(structure, group.loop_groups, group.loop_groups.front());
    std::erase_if(group.axes, [&](int axis) { return axis == along.part.axis || axis == along.part.whole; });
    group.reduction_axes = {along.part.whole};
    group.at_front = true;
    group.tile_is_part = form == PartForm::by_tile;
  }
  group.axes.push_back(along.part.axis);
  group.forms.push_back({});
  group.heaviest = *std::max_element(group.loop_groups.begin(), group.loop_groups.end(), [&](int a, int b) {
    return structure.loop_groups[static_cast<std::size_t>(a)].points < structure.loop_groups[static_cast<std::size_t>(b)].points;
  });
  return group;
}

/// Those groups, the others before them or, where they need the parts, behind. `first`: those of the others that stand in front as a
/// preparation.
std::optional<std::vector<FusionGroup>> part_groups_of(const Schedule& base, const NestStructure& structure, Fusion fusion,
                                                       const std::vector<Along>& parts, const std::vector<int>& first = {}) {
  std::vector<int> others(structure.loop_groups.size());
  std::iota(others.begin(), others.end(), 0);
  others = without(others, first);
  std::vector<FusionGroup> groups;
  for (const Along& along : parts) {
    if (without(along.own, others).size() > 0) return std::nullopt;  // two parts need the same
    others = without(others, along.own);
    groups.push_back(group_along(structure, along));
    if (along.form != PartForm::alone && groups.back().axes.size() < 2) return std::nullopt;
  }
  std::vector<FusionGroup> fusion_groups = find_fusion_groups_of(base, structure, first, fusion);
  for (FusionGroup& each : fusion_groups) each.prepares = true;
  for (FusionGroup& each : find_fusion_groups_of(base, structure, others, fusion)) fusion_groups.push_back(std::move(each));
  std::optional<Schedule> schedule = base;
  for (const FusionGroup& other : fusion_groups) {
    if (schedule) schedule = try_steps(*schedule, group_steps(structure, other, probe_plan(other)).steps);
  }
  std::vector<GroupSteps> steps;
  for (const FusionGroup& group : groups) {
    steps.push_back(group_steps(structure, group, probe_plan(group)));
    if (schedule) schedule = try_steps(*schedule, steps.back().steps);
  }
  if (!schedule) return std::nullopt;
  for (std::size_t k = 0; k < groups.size(); ++k) {
    for (const int axis : groups[k].axes)
      groups[k].parallel.push_back(try_step(*schedule, make_step("parallel", {steps[k].outer.at(axis)})).has_value());
    fusion_groups.push_back(std::move(groups[k]));
  }
  return fusion_groups;
}

/// The groups along the parts: all that runs along them; else what makes parts, as what is made of combined ones runs along the axis, too
/// (a product that is computed again); else that without a preparation, as norms of operands along the axis do not share rows with products.
std::optional<std::vector<FusionGroup>> groups_along(const Schedule& base, const NestStructure& structure, Fusion fusion,
                                                     PartForm form, const std::vector<PartAxis>& parts) {
  std::vector<Along> all, making, alone;
  const std::vector<int> first = form == PartForm::alone ? std::vector<int>{} : preparing_loop_groups(base.nest(), structure);
  bool fewer = false, multiplied = true;
  for (const PartAxis& part : parts) {
    Along along{part, {}, form};
    for (int u = 0; u < static_cast<int>(structure.loop_groups.size()); ++u) {
      if (runs_along(structure.loop_groups[static_cast<std::size_t>(u)], part)) along.own.push_back(u);
    }
    if (along.own.empty()) return std::nullopt;
    const std::vector<int> makers = makers_of_parts(base.nest(), structure, along.own, part), left = without(makers, first);
    fewer = fewer || makers.size() != along.own.size();
    multiplied = multiplied && multiplies(base.nest(), structure, makers) && !left.empty();
    all.push_back(std::move(along));
    making.push_back({part, makers, form});
    alone.push_back({part, left, form});
  }
  if (form == PartForm::by_row && fusion == Fusion::careful) {  // products alone, and other sums in parts of their own
    const std::vector<int> own = with_products(base.nest(), structure, all.front().own), beside = without(all.front().own, own);
    const PartAxis& part = parts.front();
    if (!own.empty() && !beside.empty())
      return part_groups_of(base, structure, fusion, {{part, beside, PartForm::alone}, {part, own, form}});
  }
  auto found = part_groups_of(base, structure, fusion, all);
  // What combines parts has one kernel, if it can.
  std::vector<Fusion> fusions{Fusion::related};
  if (form == PartForm::by_tile) fusions.insert(fusions.begin(), fusion);
  for (const Fusion each : fusions) {
    if (!found && multiplied && fewer) found = part_groups_of(base, structure, each, making);
  }
  for (const Fusion each : fusions) {
    if (!found && multiplied && !first.empty()) found = part_groups_of(base, structure, each, alone, first);
  }
  return found;
}

}  // namespace

std::optional<std::vector<FusionGroup>> find_part_groups(const Schedule& base, const NestStructure& structure, Fusion fusion,
                                                         PartForm form) {
  if (form == PartForm::by_tile && structure.parts.size() > 1) {
    if (auto found = groups_along(base, structure, fusion, form, structure.parts)) return found;
  }
  for (const PartAxis& part : structure.parts) {
    if (auto found = groups_along(base, structure, fusion, form, {part})) return found;
  }
  return std::nullopt;
}

}  // namespace nestor
