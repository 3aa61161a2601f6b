// GpuPointSource: what likely points are chosen from, and what all kinds of them share.
#pragma once

#include "autotune/space/gpu/gpu_steps.h"
#include "autotune/space/space.h"
#include "autotune/space/structure/rule_variants.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

/// What the points are chosen from.
struct GpuPointSource {
  RuleVariants& variants;
  const GpuLimits& limits;
  const std::vector<Parameter>& parameters;                ///< of the space
  const std::vector<std::string>& rules;                   ///< all that match the nest
  const std::set<std::string>& usual_rules;                ///< those of `rules` that pay off almost everywhere
  const std::vector<std::set<std::string>>& tensor_rules;  ///< choices for candidates on tensor cores, the best guess first
  const std::vector<int>& split_axes;                      ///< along which reductions can be cut into parts
  bool has_rule(const std::string& rule) const { return std::find(rules.begin(), rules.end(), rule) != rules.end(); }
  int columns = -1;  ///< axis of the columns of sums of products whose terms are streamed, as the usual rules number it; -1: none
};

/// The rules of the choice, statements fused so, no loop over tiles of a reduction.
NamedValues fused_values(const GpuPointSource& source, const RuleChoice& choice, Fusion fusion = Fusion::maximal);

/// The values of a group of sums with those of the choice, tiles of one for all other axes, and nothing kept or copied ahead.
NamedValues completed(const GpuPointSource& source, const RuleChoice& choice, Fusion fusion, NamedValues values);

/// One of each, as long as both have some.
std::vector<NamedValues> by_turns(std::vector<NamedValues> first, std::vector<NamedValues> second);

/// Instances of the group's heaviest loop group.
double heaviest_points(const RuleVariant& variant, const FusionGroup& group);

bool sums_up(const RuleVariant& variant, const FusionGroup& group);

/// The common axis of the group by its name; -1: it has none.
int axis_named(const RuleVariant& variant, const FusionGroup& group, const std::string& name);

/// The heaviest of the fusion groups for which `fits` holds.
template <class Fits>
const FusionGroup* heaviest_of(RuleVariants& variants, const RuleVariant& variant, Fusion fusion, const Fits& fits) {
  const FusionGroup* found = nullptr;
  const auto points = [&](const FusionGroup& group) {
    double all = 0;
    for (const int u : group.loop_groups) all += variant.structure.loop_groups[static_cast<std::size_t>(u)].points;
    return std::pair(heaviest_points(variant, group), all);
  };
  for (const FusionGroup& group : variants.fusion_groups(variant, fusion)) {
    if (fits(group) && (found == nullptr || points(group) > points(*found))) found = &group;
  }
  return found;
}

}  // namespace nestor
