// RuleVariants: a nest after each choice of algebra rules, with its fusion_groups, worked out once and on demand.
#pragma once

#include "autotune/space/structure/group_search.h"
#include "autotune/space/structure/nest_structure.h"
#include "autotune/trial/base_schedules.h"

#include <any>
#include <compare>
#include <cstdint>
#include <deque>
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
  std::int64_t multiple = 1;  ///< of which a part has points
  std::int64_t tile = 0;      ///< points of a part, whatever `parts`, which are the columns of a product's tile; 0: they are not
  auto operator<=>(const RuleChoice& other) const = default;
};

/// The nest after one choice of rules.
struct RuleVariant {
  std::vector<Step> rules;
  NestStructure structure;
  bool tiles_are_parts = false;  ///< RuleChoice::tile
};

/// What it returns lives as long as it does: legality is proved by applying steps, and most choices are never looked at.
class RuleVariants {
 public:
  /// `schedules` must outlive it; `sizes` are complete.
  RuleVariants(BaseSchedules& schedules, const Sizes& sizes) : schedules_(schedules), sizes_(sizes) {}

  /// Choices of whole reductions whose rules come to the same steps are one variant.
  const RuleVariant& at(const RuleChoice& choice);
  /// Do the rules leave the statements, accesses and composites of the variant, which has the same rules and some more? What these add are
  /// other values, or leave to reorder: a search for room among statements need not try both.
  bool leave_statements(const std::set<std::string>& rules, const RuleVariant& variant);
  const Schedule& base(const RuleVariant& variant) { return schedules_.base(variant.rules); }
  const Nest& nest(const RuleVariant& variant) { return base(variant).nest(); }
  /// The axis after `rules` that has the name of this one after `others`; -1: there is none.
  int axis_after(const std::set<std::string>& rules, const std::set<std::string>& others, int axis);
  /// `by_row`: where reductions are in parts, fusion_groups that share rows as well (find_part_groups).
  const std::vector<FusionGroup>& fusion_groups(const RuleVariant& variant, Fusion fusion, bool by_row = false);
  /// Loop groups of a fusion group that fusion_groups() or this returned, fused less; one, where that changes nothing.
  const std::vector<FusionGroup>& cut_groups(const RuleVariant& variant, const FusionGroup& group, Fusion fusion);
  /// The same where those stay together that computed tensors connect.
  const std::vector<FusionGroup>& unrelated_groups(const RuleVariant& variant, const FusionGroup& group);
  /// The fusion group whose largest loop group has most instances, of those that prepare nothing; of equal ones the one with most in all.
  /// Running sums count as one pass over their terms.
  const FusionGroup& heaviest(const RuleVariant& variant, Fusion fusion, bool by_row = false);
  /// find_stream_groups() of a fusion group that fusion_groups() returned.
  const std::vector<int>& reduction_groups(const RuleVariant& variant, const FusionGroup& group, int reduction_axis);
  /// What a caller has found out about a fusion group that fusion_groups() or cut_groups() returned, by a number of its own; empty at first.
  std::any& finding(const FusionGroup& group, int number) { return findings_[{&group, number}]; }

 private:
  /// The axis that the choice splits, of the structure after its rules, and those that were one with it while a value was stored that all of
  /// their loops ran along, and that is computed now where it is read.
  std::set<int> axes_once_one(const RuleChoice& choice, const NestStructure& structure);

  BaseSchedules& schedules_;
  const Sizes sizes_;
  std::map<RuleChoice, const RuleVariant*> variants_;
  std::deque<RuleVariant> made_;
  std::map<const Schedule*, const RuleVariant*> whole_;  ///< those of whole reductions, by the schedule that their rules come to
  std::map<std::tuple<const RuleVariant*, Fusion, bool>, std::vector<FusionGroup>> fusion_groups_;
  std::map<std::tuple<const RuleVariant*, Fusion, bool>, const FusionGroup*> heaviest_;
  std::map<std::pair<const FusionGroup*, Fusion>, std::vector<FusionGroup>> cut_groups_;
  std::map<const FusionGroup*, std::vector<FusionGroup>> unrelated_groups_;
  std::map<std::pair<const FusionGroup*, int>, std::vector<int>> reduction_groups_;
  std::map<std::pair<const FusionGroup*, int>, std::any> findings_;
};

/// Those of `axes` along which sums in `parts` parts meet work on the work tiles that they are sums of: one reading of a work tile
/// serves both.
std::vector<int> meeting_axes(RuleVariants& variants, const std::set<std::string>& rules, const std::vector<int>& axes,
                              std::int64_t parts);

}  // namespace nestor
