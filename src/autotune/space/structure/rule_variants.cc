// Rules applied, structure analysed, clusters found.
#include "autotune/space/structure/rule_variants.h"

#include "autotune/space/structure/nest_analysis.h"
#include "autotune/space/structure/part_clusters.h"
#include "autotune/space/structure/rule_steps.h"

#include <algorithm>
#include <optional>

namespace nestor {

const RuleVariant& RuleVariants::at(const RuleChoice& choice) {
  const auto known = variants_.find(choice);
  if (known != variants_.end()) return known->second;
  RuleVariant made;
  if (choice.split < 0) {
    made.rules = rule_steps(schedules_, choice.rules);
  } else {
    const RuleVariant& whole = at({choice.rules});
    made.rules = split_steps(schedules_, whole.rules, whole.structure, choice.split, choice.parts);
  }
  made.structure = analyse(schedules_.base(made.rules), sizes_);
  return variants_.emplace(choice, std::move(made)).first->second;
}

const std::vector<Cluster>& RuleVariants::clusters(const RuleVariant& variant, Fusion fusion, bool by_row) {
  by_row = by_row && !variant.structure.parts.empty();
  const auto known = clusters_.find({&variant, fusion, by_row});
  if (known != clusters_.end()) return known->second;
  std::optional<std::vector<Cluster>> parts;
  if (fusion != Fusion::none) parts = find_part_clusters(base(variant), variant.structure, fusion, by_row);
  return clusters_
      .emplace(std::tuple{&variant, fusion, by_row},
               parts ? std::move(*parts) : find_clusters(base(variant), variant.structure, fusion))
      .first->second;
}

const Cluster& RuleVariants::heaviest(const RuleVariant& variant, Fusion fusion, bool by_row) {
  const auto& found = clusters(variant, fusion, by_row);
  return *std::max_element(found.begin(), found.end(), [&](const Cluster& a, const Cluster& b) {
    return variant.structure.units[a.heaviest].points < variant.structure.units[b.heaviest].points;
  });
}

const std::vector<int>& RuleVariants::stream_groups(const RuleVariant& variant, const Cluster& cluster, int stream) {
  const auto known = stream_groups_.find({&cluster, stream});
  if (known != stream_groups_.end()) return known->second;
  return stream_groups_
      .emplace(std::pair{&cluster, stream}, find_stream_groups(base(variant), variant.structure, cluster, stream))
      .first->second;
}

std::vector<int> meeting_axes(RuleVariants& variants, const std::set<std::string>& rules, const std::vector<int>& axes,
                              std::int64_t parts) {
  std::vector<int> meeting;
  for (const int axis : axes) {
    const RuleVariant& split = variants.at({rules, axis, parts});
    const Cluster& main = variants.heaviest(split, Fusion::maximal);
    const bool meets = main.part && std::any_of(main.units.begin(), main.units.end(), [&](int u) {
                         const Unit& unit = split.structure.units[u];
                         const int whole = unit.position_of(main.part->whole);
                         return whole >= 0 && !unit.reduced[whole];
                       });
    if (meets) meeting.push_back(axis);
  }
  return meeting;
}

}  // namespace nestor
