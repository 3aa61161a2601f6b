// What all kinds of points share.
#include "autotune/space/gpu/points/point_source.h"

#include <algorithm>

namespace nestor {

NamedValues fused_values(const GpuPointSource& source, const RuleChoice& choice, Fusion fusion) {
  NamedValues values;
  for (const std::string& rule : source.rules) values["rule." + rule] = choice.rules.contains(rule);
  values["split_axis"] = choice.split;
  values["fusion"] = place_of(fusion);
  values["form"] = 0;
  values["reduction_axis"] = -1;
  return values;
}

NamedValues completed(const GpuPointSource& source, const RuleChoice& choice, Fusion fusion, NamedValues values) {
  for (const Parameter& parameter : source.parameters) {
    if (parameter.name.starts_with("tile.")) values.emplace(parameter.name, 1);
  }
  values.merge(fused_values(source, choice, fusion));
  values.merge(NamedValues{{"num_splits", choice.parts}, {"persistent", 0}, {"prefetch", 0}, {"staging", 0}, {"streaming", 0}});
  return values;
}

std::vector<NamedValues> by_turns(std::vector<NamedValues> first, std::vector<NamedValues> second) {
  std::vector<NamedValues> all;
  for (std::size_t k = 0; k < std::max(first.size(), second.size()); ++k) {
    for (std::vector<NamedValues>* list : {&first, &second}) {
      if (k < list->size()) all.push_back(std::move((*list)[k]));
    }
  }
  return all;
}

double heaviest_points(const RuleVariant& variant, const FusionGroup& group) {
  return variant.structure.loop_groups[static_cast<std::size_t>(group.heaviest)].points;
}

int axis_named(const RuleVariant& variant, const FusionGroup& group, const std::string& name) {
  const auto same = std::find_if(group.axes.begin(), group.axes.end(),
                                 [&](int each) { return variant.structure.axes[static_cast<std::size_t>(each)].name == name; });
  return same == group.axes.end() ? -1 : *same;
}

bool sums_up(const RuleVariant& variant, const FusionGroup& group) {
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const std::vector<bool>& reduced = variant.structure.loop_groups[static_cast<std::size_t>(u)].reduced;
    return std::find(reduced.begin(), reduced.end(), true) != reduced.end();
  });
}

}  // namespace nestor
