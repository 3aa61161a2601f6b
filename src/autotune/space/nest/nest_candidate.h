// NestCandidate: the steps of one point of a nest's space.
#pragma once

#include "autotune/space/gpu/axes/tensor_axes.h"
#include "autotune/space/gpu/gpu_steps.h"
#include "autotune/space/gpu/tensor_steps.h"
#include "autotune/space/space.h"
#include "autotune/space/space_limits.h"
#include "autotune/space/structure/rule_variants.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace nestor {

/// What a space knows about its candidates.
struct CandidateFacts {
  const Nest& nest;  ///< before any step
  const Sizes& sizes;
  const SpaceLimits& limits;
  const std::vector<std::string>& rules;         ///< of parameters "rule.NAME"
  const std::set<std::string>& usual_rules;      ///< those of `rules` after which axes are numbered
  const std::set<std::string>& may_stay_behind;  ///< leads of rule online whose extremum may stay behind
  double scalar_floor_ms = 0;                    ///< of candidates that leave the tensor cores alone, where those could be used
  int columns = -1, terms = -1;  ///< axes of their columns and terms then, as the usual rules number them; -1: none
  bool streams_terms = false;    ///< tiles on tensor cores are of terms of sums of products, not of their columns
};

/// Makes one candidate from the values of a point.
class NestCandidate {
 public:
  NestCandidate(const CandidateFacts& facts, RuleVariants& variants, const NamedValues& values);

  Candidate build();

 private:
  /// How a fusion group is spread over blocks of a GPU, or over a host's threads.
  struct GroupShape {
    NamedValues values;
    GpuChoice on_gpu;
    GroupPlan plan;
  };

  bool on_tensor_cores() const { return tensor_.grid.warpgroups > 0; }
  bool is_main(const FusionGroup& group) const { return &group == main_; }
  /// Beside blocks that run over parts, what is left to do is to combine their results, but for products made of those. Beside tiles that are
  /// parts, there is more.
  bool combines(const FusionGroup& group) const {
    return main_->part && !is_main(group) && !multiplies(group) && !group.prepares &&
           (!main_->tile_is_part || mostly_combines(group));
  }
  double points_of_all(const FusionGroup& group) const;
  bool leaves_units_idle(const GpuGroup& part, const GpuChoice& choice) const;
  bool sums_up(const FusionGroup& group) const;
  bool mostly_combines(const FusionGroup& group) const;
  bool multiplies(const FusionGroup& group) const;
  RuleChoice rule_choice() const;
  std::optional<TensorAxes> axes_of(const FusionGroup& group) const;
  bool parts_rows_from_sums() const;
  void place_early(GridShape& grid) const;
  std::string add(const FusionGroup& group);
  bool adds_product_apart(const FusionGroup& group);
  bool adds_parallel_parts(const FusionGroup& group);
  bool adds_unrelated_parts(const FusionGroup& group);
  bool adds_in_parts(const std::vector<FusionGroup>& groups);
  std::string add_cut(const std::vector<FusionGroup>& groups);
  std::string add_whole(const FusionGroup& group);
  std::string add_products(const FusionGroup& group, const TensorAxes& axes);
  TensorChoice choice_beside(const TensorAxes& axes);
  GroupShape shape_of(const FusionGroup& group, NamedValues values) const;
  std::string make_shape(const FusionGroup& group, GroupShape& shape) const;
  void add_shape(const FusionGroup& group, const GroupShape& shape);
  bool distributes(const FusionGroup& group, const GroupPlan& plan) const;
  bool distributes_inside(const FusionGroup& group, const GroupPlan& plan) const;
  std::vector<Step> distributed_steps(const FusionGroup& group, const GroupPlan& plan, const GroupSteps& shared);
  void specialise(const GroupSteps& steps, const GroupPlan& plan);
  void append(const std::vector<Step>& steps) { candidate_.steps.insert(candidate_.steps.end(), steps.begin(), steps.end()); }

  const CandidateFacts& facts_;
  RuleVariants& variants_;
  const NamedValues& values_;
  const TensorChoice tensor_;
  const RuleChoice rules_;
  const RuleVariant& chosen_;
  const std::vector<FusionGroup>& groups_;
  const FusionGroup* const main_;
  Candidate candidate_;
  bool shaped_beside_ = false;  ///< a product beside the main group has the shape that the point asks for
};

}  // namespace nestor
