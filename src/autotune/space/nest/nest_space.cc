// The space of a nest: parameters from its structure, and steps from parameters.
#include "autotune/space/nest/nest_space.h"

#include "autotune/space/gpu/gpu_points.h"
#include "autotune/space/gpu/tensor_fit.h"
#include "autotune/space/gpu/tensor_fusion.h"
#include "autotune/space/gpu/tensor_guesses.h"
#include "autotune/space/gpu/tensor_steps.h"
#include "autotune/space/group_choice.h"
#include "autotune/space/structure/group_steps.h"
#include "autotune/space/structure/nest_structure.h"
#include "autotune/space/structure/rule_steps.h"
#include "autotune/space/structure/rule_variants.h"
#include "autotune/space/work_floor.h"
#include "support/error.h"
#include "support/knobs.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

namespace nestor {
namespace {

constexpr int kSummingThreads = 256;     ///< of a block that adds up a few parts of each of many sums
constexpr int kCombiningThreads = 512;  ///< of a block that combines parts, each thread a few of them
constexpr std::array<Fusion, 4> kFusions{Fusion::none, Fusion::careful, Fusion::maximal, Fusion::prepared};

bool has_16_bits(const Nest& nest) {
  return std::any_of(nest.tensors.begin(), nest.tensors.end(), [](const Tensor& tensor) {
    return tensor.role != TensorRole::temporary && size_in_bytes(tensor.type) == 2;
  });
}

class NestSpace : public Space {
 public:
  NestSpace(BaseSchedules& schedules, const Sizes& sizes, const SpaceLimits& limits)
      : schedules_(schedules), sizes_(sizes), limits_(limits), variants_(schedules, sizes) {
    for (const std::string& rule : matching_rules(schedules)) {
      if (rule == kSplittingRule || (limits.gpu && costs_accuracy(rule) && !has_16_bits(schedules.nest()))) continue;
      rules_.push_back(rule);
      if (enabled_by_default(rule)) usual_rules_.insert(rule);
    }
    tensor_rules_ = limits.gpu && has_tensor_cores(*limits.gpu) ? rules_for_tensor_cores(variants_, usual_rules_, *limits.gpu) : usual_rules_;
    make_parameters(variants_.at({usual_rules_}));
  }

  const std::vector<Parameter>& parameters() const override { return parameters_; }
  Point baseline() const override;
  std::vector<Point> defaults() const override;
  Candidate candidate(const Point& point) const override;

 private:
  void add(std::string name, std::vector<std::int64_t> choices) { parameters_.push_back({std::move(name), std::move(choices)}); }
  void make_parameters(const RuleVariant& usual);
  std::vector<std::int64_t> tile_choices(std::int64_t extent, bool leading) const;
  void add_splits(const RuleVariant& usual);
  NamedValues default_values() const;
  std::optional<TensorAxes> tensor_axes_of(const RuleVariant& variant, const FusionGroup& group) const;
  std::optional<TensorAxes> tensor_axes_with(const TensorChoice& choice, const RuleVariant& variant,
                                             const FusionGroup& group) const;
  TensorChoice first_choice(const TensorAxes& axes) const;
  std::string add_tensor_steps(const RuleVariant& variant, const FusionGroup& group, const TensorAxes& axes,
                               const TensorChoice& choice, std::vector<Step>& steps) const;
  int units() const { return limits_.gpu ? limits_.gpu->units : limits_.threads; }
  std::int64_t output_bytes() const;
  Point point_of(const NamedValues& values) const;

  BaseSchedules& schedules_;
  const Sizes sizes_;
  const SpaceLimits limits_;
  std::vector<std::string> rules_;
  std::set<std::string> usual_rules_, tensor_rules_;
  std::vector<Parameter> parameters_;
  double scalar_floor_ms_ = 0;             ///< of candidates that leave the tensor cores alone, where those could be used
  bool streams_terms_ = false;             ///< tiles on tensor cores are of terms of sums of products, not of their columns
  std::set<std::string> may_stay_behind_;  ///< leads of rule online whose extremum may stay behind
  std::vector<int> split_axes_;            ///< along which reductions can be cut into parts, when all usual rules are applied
  mutable RuleVariants variants_;
};

std::vector<std::int64_t> NestSpace::tile_choices(std::int64_t extent, bool leading) const {
  std::vector<std::int64_t> choices{0, 1};
  const std::int64_t most = leading ? 8 : 512;
  for (std::int64_t tile = 2; tile <= most && tile < extent; tile *= 2) choices.push_back(tile);
  return choices;
}

/// Reductions cut into parts: along which axis, and into how many, a few for more parallelism or some for each processor.
void NestSpace::add_splits(const RuleVariant& usual) {
  std::vector<std::int64_t> choices{-1};
  std::vector<int> axes;
  std::int64_t longest = 1;
  for (const int axis : splittable_axes(schedules_, usual.rules, usual.structure)) {
    choices.push_back(axis);
    axes.push_back(axis);
    longest = std::max(longest, usual.structure.axes[axis].extent);
  }
  std::set<std::int64_t> parts;
  for (const std::int64_t few : {2, 4, 8, 16, 32}) parts.insert(few);
  for (const std::int64_t together : {2, 4, 8}) parts.insert(units() / together);
  for (const std::int64_t each : {1, 2, 3, 4, 6, 8, 12, 16}) parts.insert(each * units());
  std::erase_if(parts, [&](std::int64_t count) { return count < 2 || 2 * count > longest; });
  if (axes.empty() || parts.empty()) return;
  split_axes_ = std::move(axes);
  add("split_axis", choices);
  add("num_splits", {parts.begin(), parts.end()});
}

void NestSpace::make_parameters(const RuleVariant& usual) {
  for (const std::string& rule : rules_) add("rule." + rule, {1, 0});
  add_splits(usual);
  std::vector<std::int64_t> fusions;
  std::size_t most_forms = 1, most_outer = 1;
  std::map<int, bool> tiled;  // axis -> is it always followed by two more common axes
  std::set<int> reductions;
  const bool on_tensor_cores = limits_.gpu && has_tensor_cores(*limits_.gpu);
  const Fusion wanted = on_tensor_cores ? fusion_for_tensor_cores(variants_, usual, *limits_.gpu) : Fusion::maximal;
  for (std::size_t f = 0; f < kFusions.size(); ++f) {
    if (kFusions[f] == Fusion::prepared && wanted != Fusion::prepared) continue;
    const auto& groups = variants_.fusion_groups(usual, kFusions[f]);
    const bool same = f > 0 && groups.size() == variants_.fusion_groups(usual, kFusions[f - 1]).size();
    if (!same || kFusions[f] == Fusion::prepared) fusions.push_back(static_cast<std::int64_t>(f));
    for (const FusionGroup& group : groups) {
      most_forms = std::max(most_forms, group.forms.size());
      most_outer = std::max(most_outer, group.axes.size());
      reductions.insert(group.reduction_axes.begin(), group.reduction_axes.end());
      for (std::size_t k = 0; k < group.axes.size(); ++k) {
        const bool leading = k + 2 < group.axes.size();
        const auto [known, added] = tiled.emplace(group.axes[k], leading);
        known->second = known->second && leading;
      }
    }
  }
  add("fusion", fusions);
  const auto count_up = [](std::int64_t from, std::size_t count) {
    std::vector<std::int64_t> values(count);
    for (std::size_t k = 0; k < count; ++k) values[k] = from + static_cast<std::int64_t>(k);
    return values;
  };
  if (most_forms > 1) add("form", count_up(0, most_forms));
  for (const auto& [axis, leading] : tiled) {
    add("tile." + usual.structure.axes[axis].name, tile_choices(usual.structure.axes[axis].extent, leading));
  }
  if (most_outer > 1) add("order", count_up(0, std::min<std::size_t>(most_outer, 3)));
  if (!reductions.empty()) {
    std::vector<std::int64_t> choices{-1};
    std::int64_t longest = 1;
    for (const int axis : reductions) {
      choices.push_back(axis);
      longest = std::max(longest, usual.structure.axes[axis].extent);
    }
    add("reduction_axis", choices);
    std::vector<std::int64_t> tiles;
    for (std::int64_t tile = 16; tile <= 1024 && tile < longest; tile *= 2) tiles.push_back(tile);
    if (tiles.empty()) tiles.push_back(1);
    add("reduction_tile", tiles);
  }
  if (limits_.gpu) {
    for (Parameter& parameter : gpu_parameters(*limits_.gpu)) parameters_.push_back(std::move(parameter));
    if (const auto axes =
            on_tensor_cores ? tensor_axes_of(usual, variants_.heaviest(usual, wanted)) : std::nullopt) {
      may_stay_behind_ = leads_that_may_stay_behind(variants_.nest(usual), usual.rules);
      for (Parameter& parameter : tensor_parameters(*axes, limits_.gpu->sm, !may_stay_behind_.empty()))
        parameters_.push_back(std::move(parameter));
      streams_terms_ = axes->column >= 0;
      scalar_floor_ms_ = least_scalar_ms(least_instances(variants_.nest(usual), sizes_), limits_.gpu->units);
    }
    add("specialize", {0, 1});
    return;
  }
  if (limits_.threads > 1) add("parallel", count_up(0, std::min<std::size_t>(most_outer, 3) + 1));
  add("vector", {0, limits_.vector_elements, 2 * limits_.vector_elements});
  add("unroll", {0, 2, 4, 8});
  add("specialize", {0, 1});
  add("streaming", {0, 1});
}

std::optional<TensorAxes> NestSpace::tensor_axes_of(const RuleVariant& variant, const FusionGroup& group) const {
  return tensor_axes(variants_.nest(variant), variant.structure, group);
}

/// Steps of the heaviest fusion group on tensor cores; why there are none, or "".
std::string NestSpace::add_tensor_steps(const RuleVariant& variant, const FusionGroup& group, const TensorAxes& axes,
                                        const TensorChoice& choice, std::vector<Step>& steps) const {
  if (std::string why = tensor_infeasible(axes, choice, *limits_.gpu); !why.empty()) return why;
  GroupPlan plan = tensor_plan(group, axes, choice);
  if (!group.part) plan.reduction_groups = variants_.reduction_groups(variant, group, plan.reduction_axis);
  const std::vector<Step> more = tensor_steps(group_steps(variant.structure, group, plan), axes, choice);
  steps.insert(steps.end(), more.begin(), more.end());
  return "";
}

std::optional<TensorAxes> NestSpace::tensor_axes_with(const TensorChoice& choice, const RuleVariant& variant,
                                                      const FusionGroup& group) const {
  return choice.grid.warpgroups > 0 ? tensor_axes_of(variant, group) : std::nullopt;
}

/// For a group beside the main one: what fits first, or a choice that says why nothing does.
TensorChoice NestSpace::first_choice(const TensorAxes& axes) const {
  for (const NamedValues& values : likely_tensor_choices(axes, *limits_.gpu)) {
    const TensorChoice choice = tensor_choice(values);
    if (tensor_infeasible(axes, choice, *limits_.gpu).empty()) return choice;
  }
  return TensorChoice{.grid = {.warpgroups = 1}};
}

Candidate NestSpace::candidate(const Point& point) const {
  Candidate candidate;
  const NamedValues values = named_values(*this, point);
  RuleChoice rules;
  for (const std::string& rule : rules_) {
    if (value_or(values, "rule." + rule, 0)) rules.rules.insert(rule);
  }
  rules.split = static_cast<int>(value_or(values, "split_axis", -1));
  const TensorChoice on_tensor_cores = tensor_choice(values);
  if (rules.split >= 0) rules.parts = value_or(values, "num_splits", 0);
  // Tiles of a part's terms are whole: copies bring zeros beyond the end of an operand, not beyond that of a part.
  if (rules.split >= 0 && streams_terms_ && on_tensor_cores.grid.warpgroups > 0) rules.multiple = on_tensor_cores.depth;
  const RuleVariant& chosen = variants_.at(rules);
  candidate.steps = chosen.rules;
  const auto fusion = kFusions.at(static_cast<std::size_t>(value_or(values, "fusion", 0)));
  if (on_tensor_cores.grid.warpgroups > 0 && on_tensor_cores.rescale > 0 && rules.split < 0)
    candidate.steps = with_threshold(std::move(candidate.steps), may_stay_behind_, on_tensor_cores.rescale);
  const bool by_row = on_tensor_cores.grid.warpgroups > 0;
  const std::vector<FusionGroup>& parts = variants_.fusion_groups(chosen, fusion, by_row);
  const FusionGroup* main = &variants_.heaviest(chosen, fusion, by_row);
  candidate.least_ms = scalar_floor_ms_;
  // Blocks of later kernels may be placed before the one before ends.
  const FusionGroup* first = main->at_front ? main : parts.data();
  const auto place_early = [&](GridShape& grid, const FusionGroup& group) {
    const bool can = limits_.gpu && limits_.gpu->sm >= knob_named("programmatic_launch").least_sm;
    grid.programmatic_launch = can && &group != first ? 1 : 0;
  };
  if (main->at_front && !tensor_axes_of(chosen, *main)) {
    candidate.infeasible = "parts of rows are for products on tensor cores";
    return candidate;
  }
  for (const FusionGroup& group : parts) {
    // Products of other groups get tensor cores as well, by choices of their own.
    const bool beside = on_tensor_cores.grid.warpgroups > 0 && &group != main && !main->part;
    const auto axes = &group == main || beside ? tensor_axes_with(on_tensor_cores, chosen, group) : std::nullopt;
    if (axes) {
      if (rules.split >= 0 && rows_follow_stream(variants_.nest(chosen), chosen.structure, group, *axes)) {
        candidate.infeasible = "tiles of a part have other rows than its sums";
        return candidate;
      }
      TensorChoice placed = &group == main ? on_tensor_cores : first_choice(*axes);
      place_early(placed.grid, group);
      candidate.infeasible = add_tensor_steps(chosen, group, *axes, placed, candidate.steps);
      if (!candidate.infeasible.empty()) return candidate;
      candidate.least_ms = 0;
      continue;
    }
    NamedValues own = beside ? values_beside_products(chosen.structure, group, *limits_.gpu) : values;
    GpuChoice on_gpu = gpu_choice(own);
    // Beside blocks that run over parts, what is left to do is to combine their results.
    const bool combines = main->part && &group != main;
    if (combines) on_gpu = {.grid = {.threads = kCombiningThreads}};
    if (combines && streams_terms_ && on_tensor_cores.grid.warpgroups > 0) {
      // A few parts of many sums: threads take elements, not parts of one element.
      on_gpu.grid.threads = kSummingThreads;
      for (const auto& [name, tile] : tiles_of_few_parts(chosen.structure, group)) {
        if (value_or(own, name, 0) == 0) own[name] = tile;
      }
    }
    place_early(on_gpu.grid, group);
    GroupPlan plan = plan_for(variants_, chosen, group, own, limits_, combines);
    const Nest& nest = variants_.nest(chosen);
    const GpuGroup part{nest, chosen.structure, group, plan, sizes_};
    if (limits_.gpu && !combines) {
      candidate.infeasible = gpu_infeasible(part, on_gpu, *limits_.gpu);
      if (!candidate.infeasible.empty() && &group != main && !main->part) {
        // What suits the main group does not suit this one.
        own = values_beside_products(chosen.structure, group, *limits_.gpu);
        on_gpu = gpu_choice(own);
        place_early(on_gpu.grid, group);
        plan = plan_for(variants_, chosen, group, own, limits_, combines);
        candidate.infeasible = gpu_infeasible(part, on_gpu, *limits_.gpu);
      }
      if (!candidate.infeasible.empty()) return candidate;
    }
    const bool keeps_rows = !limits_.gpu && !plan.order.empty() && group.loop_groups.size() > 1;
    const std::int64_t bytes = keeps_rows ? scratch_bytes(nest, chosen.structure, group, plan) : 0;
    if (bytes > limits_.scratch_bytes) {
      candidate.infeasible =
          fmt::format("one tile holds {} KiB of temporaries, more than {} KiB", bytes >> 10, limits_.scratch_bytes >> 10);
      return candidate;
    }
    GroupSteps shape = group_steps(chosen.structure, group, plan);
    if (limits_.gpu) {
      const std::vector<Step> steps = gpu_steps(part, shape, on_gpu);
      candidate.steps.insert(candidate.steps.end(), steps.begin(), steps.end());
    } else {
      candidate.steps.insert(candidate.steps.end(), shape.steps.begin(), shape.steps.end());
      const std::vector<Step> inner = inner_loop_steps(chosen.structure, group, shape, values);
      candidate.steps.insert(candidate.steps.end(), inner.begin(), inner.end());
    }
    // Every specialised loop triples the versions of the program: only the one that matters.
    if (&group == main && value_or(values, "specialize", 0)) {
      for (const auto& [axis, loop] : shape.outer) {
        if (plan.tile.at(axis) > 1) candidate.steps.push_back(make_step("specialize", {loop}));
      }
      for (const std::string& loop : shape.reduction_loops) {
        if (plan.reduction_tile > 1) candidate.steps.push_back(make_step("specialize", {loop}));
      }
    }
  }
  if (limits_.gpu ? gpu_choice(values).streaming_outputs : value_or(values, "streaming", 0) != 0) {
    for (const Tensor& tensor : schedules_.nest().tensors) {
      if (tensor.role == TensorRole::output) candidate.steps.push_back(make_step("streaming", {tensor.name}));
    }
  }
  return candidate;
}

Point NestSpace::point_of(const NamedValues& values) const {
  Point point;
  for (const Parameter& parameter : parameters_) {
    // The nearest choice: a default need not know which sizes are too large for this problem.
    const std::int64_t wanted = value_or(values, parameter.name, parameter.choices.front());
    const auto best = std::min_element(parameter.choices.begin(), parameter.choices.end(), [&](std::int64_t a, std::int64_t b) {
      return std::abs(a - wanted) < std::abs(b - wanted);
    });
    point.push_back(static_cast<int>(best - parameter.choices.begin()));
  }
  return point;
}

/// No rules, nothing fused or tiled; the outermost parallel loop of each statement runs in parallel.
Point NestSpace::baseline() const {
  NamedValues values;
  for (const Parameter& parameter : parameters_) {
    const bool tile = parameter.name.starts_with("tile.");
    values[parameter.name] = parameter.name == "parallel" || tile                                   ? 1
                             : parameter.name == "reduction_axis" || parameter.name == "split_axis" ? -1
                                                                                                    : 0;
  }
  if (limits_.gpu) values["threads"] = GpuChoice{}.grid.threads;
  return point_of(values);
}

std::int64_t NestSpace::output_bytes() const {
  std::int64_t total = 0;
  for (const Tensor& tensor : schedules_.nest().tensors) {
    if (tensor.role != TensorRole::output) continue;
    std::int64_t bytes = static_cast<std::int64_t>(size_in_bytes(tensor.type));
    for (const std::int64_t extent : shape_at(tensor, sizes_)) bytes *= extent;
    total += bytes;
  }
  return total;
}

/// Tiles that keep one task's temporaries in the private cache, streaming long reductions.
NamedValues NestSpace::default_values() const {
  NamedValues values;
  for (const std::string& rule : rules_) values["rule." + rule] = usual_rules_.contains(rule);
  const RuleVariant& usual = variants_.at({usual_rules_});
  values["split_axis"] = -1;
  values["fusion"] = static_cast<std::int64_t>(Fusion::maximal);
  values["parallel"] = 3;
  const FusionGroup* main = &variants_.heaviest(usual, Fusion::maximal);
  const LoopGroup& heavy = usual.structure.loop_groups[main->heaviest];
  const auto axis_value = [&](int axis, std::int64_t tile) { values["tile." + usual.structure.axes[axis].name] = tile; };
  for (const int axis : main->axes) axis_value(axis, 1);
  if (main->axes.empty()) return values;
  const int last = main->axes.back();
  // Elements that one iteration of the last common loop works on.
  const double inner = points_per_work_tile(usual.structure, *main);
  const bool contracts = std::find(heavy.reduced.begin(), heavy.reduced.end(), true) != heavy.reduced.end();
  const std::int64_t few_rows = static_cast<std::int64_t>(std::max(1.0, 8192 / std::max(inner, 1.0)));
  values["reduction_tile"] = 64;
  values["streaming"] = output_bytes() > limits_.shared_cache_bytes / 2;
  const bool long_reduction = !main->reduction_axes.empty() && inner > 16384;
  if (long_reduction) values["reduction_axis"] = main->reduction_axes.front();
  if (inner > 1) axis_value(last, contracts && inner >= 64 && main->axes.size() > 1 ? 64 : few_rows);
  if (contracts && !long_reduction && main->axes.size() > 1) {
    axis_value(last, 128);
    axis_value(main->axes[main->axes.size() - 2], 64);
  }
  // The last loop is the innermost one of all: whole rows stay inside for vectors.
  if (inner <= 1) axis_value(last, 0);
  return values;
}

std::vector<Point> NestSpace::defaults() const {
  std::vector<Point> points;
  if (limits_.gpu) {
    for (const NamedValues& values :
         likely_gpu_values({variants_, *limits_.gpu, parameters_, rules_, usual_rules_, tensor_rules_, split_axes_})) {
      points.push_back(point_of(values));
    }
    return points;
  }
  const NamedValues first = default_values();
  points.push_back(point_of(first));
  const auto changed = [&](const NamedValues& changes) {
    NamedValues values = first;
    for (const auto& [name, value] : changes) values[name] = value;
    points.push_back(point_of(values));
  };
  for (const int axis : meeting_axes(variants_, usual_rules_, split_axes_, std::max(units(), 2))) {
    changed({{"split_axis", axis}, {"num_splits", 4 * units()}});
  }
  changed({{"streaming", 1 - value_or(first, "streaming", 0)}});
  changed({{"specialize", 1}});
  changed({{"reduction_tile", 128}});
  changed({{"fusion", static_cast<std::int64_t>(Fusion::careful)}, {"reduction_axis", -1}});
  for (const Parameter& parameter : parameters_) {
    if (parameter.name == "form") {
      for (const std::int64_t form : parameter.choices) changed({{"form", form}});
    }
  }
  return points;
}

}  // namespace

std::unique_ptr<Space> make_nest_space(BaseSchedules& schedules, const Sizes& sizes, const SpaceLimits& limits) {
  return std::make_unique<NestSpace>(schedules, sizes, limits);
}

}  // namespace nestor
