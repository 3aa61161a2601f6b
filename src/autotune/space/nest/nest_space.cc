// The space of a nest: parameters from its structure, and steps from parameters.
#include "autotune/space/nest/nest_space.h"

#include "autotune/space/distribution.h"
#include "autotune/space/gpu/points/gpu_points.h"
#include "autotune/space/gpu/scattered_sums.h"
#include "autotune/space/gpu/tensor_fusion.h"
#include "autotune/space/gpu/tensor_rules.h"
#include "autotune/space/gpu/tensor_steps.h"
#include "autotune/space/group_choice.h"
#include "autotune/space/nest/nest_candidate.h"
#include "autotune/space/product_points.h"
#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/nest_structure.h"
#include "autotune/space/structure/rule_steps.h"
#include "autotune/space/structure/rule_variants.h"
#include "autotune/space/work_floor.h"
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/few_terms.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/rounding.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

namespace nestor {
namespace {

bool has_16_bits(const Nest& nest) {
  return std::any_of(nest.tensors.begin(), nest.tensors.end(), [](const Tensor& tensor) {
    return tensor.role != TensorRole::temporary && size_in_bytes(tensor.type) == 2;
  });
}

/// Does a reduction read sums of a few terms, which it can add up itself, where nothing else multiplies matrices?
bool recomputes_sums(BaseSchedules& schedules) {
  const Nest& nest = schedules.after_rules(rule_steps(schedules, {"simplify"})).nest();
  const std::vector<RuleMatch> matches = rule(kRecomputingRule).find(nest);
  const auto is_product = [&](const Statement& statement) {
    return multiplies_matrices(statement) && !with_sum_as_value(nest, statement.name);
  };
  return std::none_of(nest.statements.begin(), nest.statements.end(), is_product) &&
         std::any_of(matches.begin(), matches.end(),
                     [&](const RuleMatch& match) { return nest.statement(match.target.front()).reduction.has_value(); });
}

/// Do several statements, beside products of matrices on tensor cores, read values made of inputs that could be computed where they are read (decays)?
bool recomputes_maps(BaseSchedules& schedules) {
  const Nest& nest = schedules.after_rules(rule_steps(schedules, {"simplify"})).nest();
  if (!has_16_bits(nest) || std::none_of(nest.statements.begin(), nest.statements.end(), multiplies_matrices)) return false;
  const std::vector<RuleMatch> matches = rule(kRecomputingRule).find(nest);
  return std::any_of(matches.begin(), matches.end(), [&](const RuleMatch& match) {
    const Statement& map = nest.statement(match.target.front());
    const bool of_inputs = std::all_of(map.reads.begin(), map.reads.end(),
                                       [&](const Access& read) { return nest.tensor(read.tensor).role == TensorRole::input; });
    return !map.reduction && of_inputs && readers_of(nest, map.write.tensor).size() > 1;
  });
}

bool contracts(const NestStructure& structure, const FusionGroup& group) {
  const std::vector<bool>& reduced = structure.loop_groups[group.heaviest].reduced;
  return std::find(reduced.begin(), reduced.end(), true) != reduced.end();
}

bool has_several_products(const Nest& nest) {
  return std::count_if(nest.statements.begin(), nest.statements.end(), multiplies_matrices) > 1;
}

/// Is there a result of so few elements that one kernel reads its product's operands faster than several would?
bool has_few_results(const Nest& nest, const Sizes& sizes) {
  return std::any_of(nest.tensors.begin(), nest.tensors.end(), [&](const Tensor& tensor) {
    return tensor.role == TensorRole::output && product_of(shape_at(tensor, sizes)) < kManyResults;
  });
}

class NestSpace : public Space {
 public:
  NestSpace(BaseSchedules& schedules, const Sizes& sizes, const SpaceLimits& limits)
      : schedules_(schedules), sizes_(sizes), limits_(limits), variants_(schedules, sizes) {
    const bool tensor_cores = limits.gpu && has_tensor_cores(*limits.gpu);
    std::set<std::string> for_products;
    bool recomputes = false;
    for (const std::string& rule : matching_rules(schedules)) {
      if (rule == kSplittingRule || (limits.gpu && costs_accuracy(rule) && !has_16_bits(schedules.nest()))) continue;
      const bool twice = rule == kAgainRule || rule == kAcrossRule || rule == kSlicingRule || rule == kSlicesRule;
      if ((is_for_products(rule) || twice) && !tensor_cores) continue;
      if ((rule == kForwardingRule || rule == kPrefixRule || rule == kLeavingRule) && !limits.gpu) continue;
      if (rule == kRecomputingRule) {
        recomputes = tensor_cores && recomputes_maps(schedules);
        if (!limits.gpu || !(recomputes || sums_over_planes(schedules.nest()) || recomputes_sums(schedules))) continue;
      }
      rules_.push_back(rule);
      const bool apart = rule != kSlicesRule || !has_few_results(schedules.nest(), sizes);
      if (enabled_by_default(rule) && apart) usual_rules_.insert(rule);
      if (is_for_products(rule)) for_products.insert(rule);
    }
    tensor_rules_ = {usual_rules_};
    const bool across = has_rule(kAcrossRule);
    if (tensor_cores) tensor_rules_ = rules_for_products(variants_, usual_rules_, for_products, across, *limits.gpu);
    if (recomputes) tensor_rules_ = rules_with_fewer_maps(variants_, tensor_rules_, *limits.gpu);
    make_parameters(variants_.at({usual_rules_}));
  }

  const std::vector<Parameter>& parameters() const override { return parameters_; }
  Point baseline() const override;
  std::vector<Point> defaults() const override {
    if (!defaults_) defaults_ = likely_points();
    return *defaults_;
  }
  Candidate candidate(const Point& point) const override;

 private:
  bool has_rule(const std::string& rule) const { return std::find(rules_.begin(), rules_.end(), rule) != rules_.end(); }
  void add(std::string name, std::vector<std::int64_t> choices) { parameters_.push_back({std::move(name), std::move(choices)}); }
  std::vector<Point> likely_points() const;
  void make_parameters(const RuleVariant& usual);
  std::vector<std::int64_t> tile_choices(std::int64_t extent, bool leading, bool multiplied) const;
  void add_splits(const RuleVariant& usual);
  bool is_independent(const RuleVariant& variant, const FusionGroup& group, int axis);
  bool has_products_beside();
  NamedValues default_values() const;
  std::string tile_of_rows() const;
  std::optional<NamedValues> tiles_of_tasks(std::int64_t tasks) const;
  int units() const { return limits_.gpu ? limits_.gpu->units : limits_.threads; }
  std::int64_t output_bytes() const;
  Point point_of(const NamedValues& values) const;

  BaseSchedules& schedules_;
  const Sizes sizes_;
  const SpaceLimits limits_;
  std::vector<std::string> rules_;
  std::set<std::string> usual_rules_;
  std::vector<std::set<std::string>> tensor_rules_;  ///< choices for products on tensor cores, the best guess first
  std::vector<Parameter> parameters_;
  double scalar_floor_ms_ = 0;             ///< of candidates that leave the tensor cores alone, where those could be used
  int columns_ = -1, terms_ = -1;          ///< axes of columns and terms of sums of products whose terms are streamed; -1: none
  bool streams_terms_ = false;             ///< tiles on tensor cores are of terms of sums of products, not of their columns
  std::set<std::string> may_stay_behind_;  ///< leads of rule online whose extremum may stay behind
  std::vector<int> split_axes_;            ///< along which reductions can be cut into parts, when all usual rules are applied
  mutable RuleVariants variants_;
  mutable std::optional<std::vector<Point>> defaults_;
};

std::vector<std::int64_t> NestSpace::tile_choices(std::int64_t extent, bool leading, bool multiplied) const {
  std::vector<std::int64_t> choices{0, 1};
  const std::int64_t most = leading ? 8 : 512;
  // Tiles of products may be a little larger than what they cover: threads have equal blocks of them, whatever the size.
  const std::int64_t end = multiplied ? 2 * extent : extent;
  for (std::int64_t tile = 2; tile <= most && tile < end; tile *= 2) {
    choices.push_back(tile);
    // Three quarters of the usual ones fill better what is 48, 96 or 144 long.
    const std::int64_t between = tile / 2 * 3;
    if (multiplied && (between == 48 || between == 96) && between < end) choices.push_back(between);
  }
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
  if (limits_.gpu) add("part_tile", {1, 2, 4, 8, 16, 32, 64, 128});
}

void NestSpace::make_parameters(const RuleVariant& usual) {
  // What an older program found says nothing of rules for products that came later.
  for (const std::string& rule : rules_)
    add("rule." + rule, is_for_products(rule) ? std::vector<std::int64_t>{0, 1} : std::vector<std::int64_t>{1, 0});
  add_splits(usual);
  std::vector<std::int64_t> fusions;
  std::size_t most_forms = 1, most_outer = 1;
  bool distributes = false;
  std::map<int, bool> tiled;  // axis -> is it always followed by two more common axes
  std::set<int> multiplied;   // axes of rows and columns of products on lanes
  std::set<int> reductions;
  const bool on_tensor_cores = limits_.gpu && has_tensor_cores(*limits_.gpu);
  std::set<Fusion> wanted{Fusion::maximal};
  for (const std::set<std::string>& rules : tensor_rules_) {
    if (on_tensor_cores) wanted.insert(fusion_for_tensor_cores(variants_, variants_.at({rules}), *limits_.gpu));
  }
  // With rows of their own, sums of all that others make may meet these.
  std::vector<const RuleVariant*> compared{&usual};
  if (has_rule(kRowsRule) && !multiplies(schedules_.nest())) {
    std::set<std::string> rows = usual_rules_;
    rows.insert(kRowsRule);
    compared.push_back(&variants_.at({rows}));
  }
  for (std::size_t f = 0; f < kFusions.size(); ++f) {
    const bool of_parts =
        kFusions[f] == Fusion::alike && limits_.gpu && (!split_axes_.empty() || has_several_products(schedules_.nest()));
    if (kFusions[f] > Fusion::maximal && !wanted.contains(kFusions[f]) && !of_parts) continue;
    const auto& groups = variants_.fusion_groups(usual, kFusions[f]);
    const bool same =
        f > 0 && std::all_of(compared.begin(), compared.end(), [&](const RuleVariant* each) {
          return variants_.fusion_groups(*each, kFusions[f]).size() == variants_.fusion_groups(*each, kFusions[f - 1]).size();
        });
    if (!same || kFusions[f] > Fusion::maximal) fusions.push_back(static_cast<std::int64_t>(f));
    for (const FusionGroup& group : groups) {
      most_forms = std::max(most_forms, group.forms.size());
      distributes = distributes || distributed_form(variants_, usual, group);
      most_outer = std::max(most_outer, group.axes.size());
      reductions.insert(group.reduction_axes.begin(), group.reduction_axes.end());
      if (limits_.gpu) {
        for (const int axis : tiled_by_products(variants_.nest(usual), usual.structure, group)) multiplied.insert(axis);
        // A few sums with a factor in common are one tile (add_common_factors).
        for (const int axis : usual_rules_.contains(kFactorRule) ? group.axes : std::vector<int>{}) {
          if (usual.structure.axes[static_cast<std::size_t>(axis)].extent <= kMostCommonSums) multiplied.insert(axis);
        }
      }
      for (std::size_t k = 0; k < group.axes.size(); ++k) {
        const bool leading = k + 2 < group.axes.size() && !is_independent(usual, group, group.axes[k]);
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
  std::vector<std::int64_t> forms = count_up(0, most_forms);
  if (distributes) forms.insert(forms.begin(), kDistributedForm);
  if (forms.size() > 1) add("form", forms);
  for (const auto& [axis, leading] : tiled) {
    const bool product = multiplied.contains(axis);
    add("tile." + usual.structure.axes[axis].name, tile_choices(usual.structure.axes[axis].extent, leading && !product, product));
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
    const std::vector<Statement>& statements = variants_.nest(usual).statements;
    if (std::any_of(statements.begin(), statements.end(), [](const Statement& each) { return scattered_dim(each) >= 0; }))
      add(kScatterParameter, {0, 1});
    if (auto axes = on_tensor_cores ? tensor_axes_after(variants_, tensor_rules_.front(), *limits_.gpu) : std::nullopt) {
      for (const std::set<std::string>& rules : tensor_rules_) {
        const auto other = tensor_axes_after(variants_, rules, *limits_.gpu);
        if (other && other->pack_extent > axes->pack_extent) axes->pack = other->pack, axes->pack_extent = other->pack_extent;
        if (other) axes->wide_operands = std::max(axes->wide_operands, other->wide_operands);
      }
      may_stay_behind_ = leads_that_may_stay_behind(variants_.nest(usual), usual.rules);
      for (Parameter& parameter : tensor_parameters(*axes, limits_.gpu->sm, !may_stay_behind_.empty()))
        parameters_.push_back(std::move(parameter));
      if (has_products_beside()) add(kShapeBesideParameter, {0, 1, 2, 4, 8});
      streams_terms_ = axes->column >= 0;
      const auto usual_axis = [&](int axis) {
        return streams_terms_ ? variants_.axis_after(usual_rules_, tensor_rules_.front(), axis) : -1;
      };
      columns_ = usual_axis(axes->column);
      // Reductions along rows alone: operands change places.
      const auto cuts = [&](int axis) { return std::find(split_axes_.begin(), split_axes_.end(), axis) != split_axes_.end(); };
      if (const int rows = usual_axis(axes->row); !cuts(columns_) && cuts(rows)) columns_ = rows;
      terms_ = usual_axis(axes->reduction_axis);
      if (!parts_may_cost_more(variants_, tensor_rules_.front(), *limits_.gpu))
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

/// Is the axis one of independent loops around those that statements of the group share?
bool NestSpace::is_independent(const RuleVariant& variant, const FusionGroup& group, int axis) {
  if (limits_.gpu) return false;
  const auto& form = distributed_form(variants_, variant, group);
  const std::vector<int> axes = form ? independent_axes(group, *form) : std::vector<int>{};
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

/// Do several kernels have products on tensor cores, or does a rule make one more for reductions across the rows of one?
bool NestSpace::has_products_beside() {
  if (has_rule(kAcrossRule)) return true;
  return std::any_of(tensor_rules_.begin(), tensor_rules_.end(), [&](const std::set<std::string>& rules) {
    const RuleVariant& variant = variants_.at({rules});
    const auto& groups = variants_.fusion_groups(variant, fusion_for_tensor_cores(variants_, variant, *limits_.gpu));
    return std::count_if(groups.begin(), groups.end(), [&](const FusionGroup& group) {
             return tensor_axes_of(variants_, variant, group, limits_.gpu->sm).has_value();
           }) > 1;
  });
}

Candidate NestSpace::candidate(const Point& point) const {
  const NamedValues values = named_values(*this, point);
  const CandidateFacts facts{schedules_.nest(), sizes_,           limits_,  rules_, usual_rules_,
                             may_stay_behind_,  scalar_floor_ms_, columns_, terms_, streams_terms_};
  return NestCandidate(facts, variants_, values).build();
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
  values["fusion"] = place_of(Fusion::maximal);
  values["parallel"] = 3;
  const FusionGroup* main = &variants_.heaviest(usual, Fusion::maximal);
  const auto axis_value = [&](int axis, std::int64_t tile) { values["tile." + usual.structure.axes[axis].name] = tile; };
  for (const int axis : main->axes) axis_value(axis, 1);
  if (main->axes.empty()) return values;
  const int last = main->axes.back();
  // Elements that one iteration of the last common loop works on.
  const double inner = points_per_work_tile(usual.structure, *main);
  const bool sums = contracts(usual.structure, *main);
  const std::int64_t few_rows = static_cast<std::int64_t>(std::max(1.0, 8192 / std::max(inner, 1.0)));
  values["reduction_tile"] = 64;
  values["streaming"] = output_bytes() > limits_.shared_cache_bytes / 2;
  const bool long_reduction = !main->reduction_axes.empty() && inner > 16384;
  if (long_reduction) values["reduction_axis"] = main->reduction_axes.front();
  if (inner > 1) axis_value(last, sums && inner >= 64 && main->axes.size() > 1 ? 64 : few_rows);
  if (sums && !long_reduction && main->axes.size() > 1) {
    axis_value(last, 128);
    axis_value(main->axes[main->axes.size() - 2], 64);
  }
  // The last loop is the innermost one of all: whole rows stay inside for vectors.
  if (inner <= 1) axis_value(last, 0);
  return values;
}

/// The tile of the heaviest group's last common loop.
std::string NestSpace::tile_of_rows() const {
  const RuleVariant& usual = variants_.at({usual_rules_});
  return "tile." + usual.structure.axes[variants_.heaviest(usual, Fusion::maximal).axes.back()].name;
}

/// Tiles of the heaviest group's last two common loops that make at least so many tasks: as large as they can be, since each task of a
/// product packs its operands (0: the loop stays whole). Nothing where it sums up nothing over tiles.
std::optional<NamedValues> NestSpace::tiles_of_tasks(std::int64_t tasks) const {
  const RuleVariant& usual = variants_.at({usual_rules_});
  const FusionGroup& main = variants_.heaviest(usual, Fusion::maximal);
  const std::vector<int>& axes = main.axes;
  if (axes.size() < 2 || !contracts(usual.structure, main)) return std::nullopt;
  std::int64_t outer = 1;
  for (std::size_t k = 0; k + 2 < axes.size(); ++k) outer *= usual.structure.axes[axes[k]].extent;
  const Axis &rows = usual.structure.axes[axes[axes.size() - 2]], &columns = usual.structure.axes[axes.back()];
  std::int64_t row_tile = rows.extent, column_tile = columns.extent;
  while (outer * ceil_div(rows.extent, row_tile) * ceil_div(columns.extent, column_tile) < tasks &&
         std::max(row_tile, column_tile) > 1) {
    std::int64_t& larger = row_tile > column_tile ? row_tile : column_tile;
    larger = (larger + 1) / 2;
  }
  return NamedValues{{"tile." + rows.name, row_tile < rows.extent ? row_tile : 0},
                     {"tile." + columns.name, column_tile < columns.extent ? column_tile : 0}};
}

std::vector<Point> NestSpace::likely_points() const {
  std::vector<Point> points;
  if (limits_.gpu) {
    for (const NamedValues& values :
         likely_gpu_values({variants_, *limits_.gpu, parameters_, rules_, usual_rules_, tensor_rules_, split_axes_, columns_})) {
      points.push_back(point_of(values));
    }
    return points;
  }
  const NamedValues natural = default_values();
  const std::vector<NamedValues> distributed = likely_distributions(variants_, variants_.at({usual_rules_}), units(), natural);
  const NamedValues first = distributed.empty() ? natural : distributed.front();
  points.push_back(point_of(first));
  const auto changed = [&](const NamedValues& changes) {
    NamedValues values = first;
    for (const auto& [name, value] : changes) values[name] = value;
    points.push_back(point_of(values));
  };
  for (std::size_t k = 1; k < distributed.size(); ++k) changed(distributed[k]);
  for (const int axis : meeting_axes(variants_, usual_rules_, split_axes_, std::max(units(), 2))) {
    changed({{"split_axis", axis}, {"num_splits", 4 * units()}});
  }
  changed({{"streaming", 1 - value_or(first, "streaming", 0)}});
  changed({{"specialize", 1}});
  if (!distributed.empty()) {
    changed({{"parallel", 0}});
    changed({{"vector", 2 * limits_.vector_elements}});
    // What takes turns at each point of all loops is slow to try: once is enough.
    points.push_back(point_of(natural));
    return points;
  }
  changed({{"reduction_tile", 128}});
  if (value_or(first, "reduction_axis", -1) >= 0) {
    // More rows a tile: operands of products are packed for fewer tiles.
    for (const std::int64_t tile : {128, 256}) changed({{tile_of_rows(), tile}, {"reduction_tile", 256}});
    changed({{tile_of_rows(), 256}, {"reduction_tile", 512}});
  } else {
    for (const std::int64_t each : {1, 2, 4}) {
      if (const auto tiles = tiles_of_tasks(each * units())) changed(*tiles);
    }
    // A few rows in short stretches: what they read is fetched while sums of the stretches before are taken. Rows are in the first cache,
    // so that another pass over them costs less than corrections.
    const FusionGroup& main = variants_.heaviest(variants_.at({usual_rules_}), Fusion::maximal);
    for (const std::int64_t streaming : {0, 1}) {
      if (main.axes.empty() || main.reduction_axes.empty()) continue;
      changed(
          {{tile_of_rows(), 4}, {"reduction_axis", main.reduction_axes.front()}, {"rule.online", 0}, {"streaming", streaming}});
    }
  }
  changed({{"fusion", place_of(Fusion::careful)}, {"reduction_axis", -1}});
  for (const Parameter& parameter : parameters_) {
    if (parameter.name == "form") {
      for (const std::int64_t form : parameter.choices) {
        if (form != kDistributedForm) changed({{"form", form}});
      }
    }
  }
  return points;
}

}  // namespace

std::unique_ptr<Space> make_nest_space(BaseSchedules& schedules, const Sizes& sizes, const SpaceLimits& limits) {
  return std::make_unique<NestSpace>(schedules, sizes, limits);
}

}  // namespace nestor
