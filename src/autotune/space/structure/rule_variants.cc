// Rules applied, structure analysed, fusion_groups found.
#include "autotune/space/structure/rule_variants.h"

#include "autotune/space/structure/group_search.h"
#include "autotune/space/structure/nest_analysis.h"
#include "autotune/space/structure/part_groups.h"
#include "autotune/space/structure/preparation.h"
#include "autotune/space/structure/rule_steps.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace nestor {
namespace {

/// Of all loop groups.
double points_of(const NestStructure& structure, const FusionGroup& group) {
  double points = 0;
  for (const int u : group.loop_groups) points += structure.loop_groups[u].points;
  return points;
}

}  // namespace

const RuleVariant& RuleVariants::at(const RuleChoice& choice) {
  const auto known = variants_.find(choice);
  if (known != variants_.end()) return known->second;
  RuleVariant made;
  if (choice.split < 0) {
    made.rules = rule_steps(schedules_, choice.rules);
  } else {
    const RuleVariant& whole = at({choice.rules});
    made.rules = split_steps(schedules_, whole.rules, whole.structure, choice.split, choice.parts, choice.multiple);
  }
  made.structure = analyse(schedules_.base(made.rules), sizes_);
  return variants_.emplace(choice, std::move(made)).first->second;
}

const std::vector<FusionGroup>& RuleVariants::fusion_groups(const RuleVariant& variant, Fusion fusion, bool by_row) {
  by_row = by_row && !variant.structure.parts.empty();
  const auto known = fusion_groups_.find({&variant, fusion, by_row});
  if (known != fusion_groups_.end()) return known->second;
  const bool prepares = fusion == Fusion::prepared || fusion == Fusion::apart;
  const Fusion within = fusion == Fusion::prepared ? Fusion::maximal : fusion == Fusion::apart ? Fusion::careful : fusion;
  std::optional<std::vector<FusionGroup>> found;
  if (prepares && variant.structure.parts.empty()) {
    found = find_prepared_groups(base(variant), variant.structure, fusion);
  } else if (fusion != Fusion::none) {
    found = find_part_groups(base(variant), variant.structure, within, by_row);
  }
  if (!found) found = find_fusion_groups(base(variant), variant.structure, within);
  return fusion_groups_.emplace(std::tuple{&variant, fusion, by_row}, std::move(*found)).first->second;
}

const std::vector<FusionGroup>& RuleVariants::cut_groups(const RuleVariant& variant, const FusionGroup& group, Fusion fusion) {
  const auto known = cut_groups_.find({&group, fusion});
  if (known != cut_groups_.end()) return known->second;
  auto found = find_fusion_groups_of(base(variant), variant.structure, group.loop_groups, fusion);
  return cut_groups_.emplace(std::pair{&group, fusion}, std::move(found)).first->second;
}

const FusionGroup& RuleVariants::heaviest(const RuleVariant& variant, Fusion fusion, bool by_row) {
  const auto& found = fusion_groups(variant, fusion, by_row);
  return *std::max_element(found.begin(), found.end(), [&](const FusionGroup& a, const FusionGroup& b) {
    if (a.prepares != b.prepares) return a.prepares;
    const auto weight = [&](const FusionGroup& group) {
      return std::pair(variant.structure.loop_groups[group.heaviest].points, points_of(variant.structure, group));
    };
    return weight(a) < weight(b);
  });
}

const std::vector<int>& RuleVariants::reduction_groups(const RuleVariant& variant, const FusionGroup& group, int reduction_axis) {
  const auto known = reduction_groups_.find({&group, reduction_axis});
  if (known != reduction_groups_.end()) return known->second;
  return reduction_groups_
      .emplace(std::pair{&group, reduction_axis}, find_reduction_groups(base(variant), variant.structure, group, reduction_axis))
      .first->second;
}

std::vector<int> meeting_axes(RuleVariants& variants, const std::set<std::string>& rules, const std::vector<int>& axes,
                              std::int64_t parts) {
  std::vector<int> meeting;
  for (const int axis : axes) {
    const RuleVariant& split = variants.at({rules, axis, parts});
    const FusionGroup& main = variants.heaviest(split, Fusion::maximal);
    const bool meets = main.part && std::any_of(main.loop_groups.begin(), main.loop_groups.end(), [&](int u) {
                         const LoopGroup& loop_group = split.structure.loop_groups[u];
                         const int whole = loop_group.position_of(main.part->whole);
                         return whole >= 0 && !loop_group.reduced[whole];
                       });
    if (meets) meeting.push_back(axis);
  }
  return meeting;
}

}  // namespace nestor
