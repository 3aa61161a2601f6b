// RuleVariants: a nest after each choice of algebra rules, with its clusters, worked out once and on demand.
#pragma once

#include "autotune/space/structure/cluster_search.h"
#include "autotune/space/structure/nest_structure.h"
#include "autotune/trial/base_schedules.h"

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace nestor {

/// The rules of a variant: which ones are applied wherever they match, and the axis whose reductions are cut into parts.
struct RuleChoice {
  std::set<std::string> rules;
  int split = -1;  ///< an axis of the nest after the rules; -1: none
  std::int64_t parts = 0;
  auto operator<=>(const RuleChoice& other) const = default;
};

/// The nest after one choice of rules.
struct RuleVariant {
  std::vector<Step> rules;
  NestStructure structure;
};

/// What it returns lives as long as it does: legality is proved by applying steps, and most choices are never looked at.
class RuleVariants {
 public:
  /// `schedules` must outlive it; `sizes` are complete.
  RuleVariants(BaseSchedules& schedules, const Sizes& sizes) : schedules_(schedules), sizes_(sizes) {}

  const RuleVariant& at(const RuleChoice& choice);
  const Schedule& base(const RuleVariant& variant) { return schedules_.base(variant.rules); }
  const Nest& nest(const RuleVariant& variant) { return base(variant).nest(); }
  /// `by_row`: where reductions are in parts, clusters that share rows as well (find_part_clusters).
  const std::vector<Cluster>& clusters(const RuleVariant& variant, Fusion fusion, bool by_row = false);
  /// The cluster whose largest unit has most instances.
  const Cluster& heaviest(const RuleVariant& variant, Fusion fusion, bool by_row = false);
  /// find_stream_groups() of a cluster that clusters() returned.
  const std::vector<int>& stream_groups(const RuleVariant& variant, const Cluster& cluster, int stream);

 private:
  BaseSchedules& schedules_;
  const Sizes sizes_;
  std::map<RuleChoice, RuleVariant> variants_;
  std::map<std::tuple<const RuleVariant*, Fusion, bool>, std::vector<Cluster>> clusters_;
  std::map<std::pair<const Cluster*, int>, std::vector<int>> stream_groups_;
};

/// Those of `axes` along which sums in `parts` parts meet work on the items that they are sums of: one reading of an item
/// serves both.
std::vector<int> meeting_axes(RuleVariants& variants, const std::set<std::string>& rules, const std::vector<int>& axes,
                              std::int64_t parts);

}  // namespace nestor
