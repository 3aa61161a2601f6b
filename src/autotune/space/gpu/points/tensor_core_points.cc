// Shapes of tiles, parts of sums, and parts that are tiles.
#include "autotune/space/gpu/points/tensor_core_points.h"

#include "autotune/space/gpu/tensor_fusion.h"
#include "autotune/space/gpu/tensor_guesses.h"
#include "autotune/space/gpu/tensor_steps.h"
#include "autotune/space/gpu/tensor_waves.h"
#include "autotune/space/group_choice.h"
#include "autotune/space/structure/rule_steps.h"
#include "support/rounding.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace nestor {
namespace {

/// A loop that products sum over, or stream their columns along, and into how many parts it is cut.
struct Cut {
  int axis = -1;
  std::int64_t parts = 1;
};

/// For the blocks that the choice's tiles leave. Parts of sums take equally long: one round of them; more where tiles have few
/// terms, so that blocks wait for copies. The streamed loop, or of those around its tiles the one that is cut into most parts.
Cut useful_cut(const RuleVariant& variant, const FusionGroup& group, const TensorAxes& axes, const TensorChoice& choice,
               const std::vector<int>& splits, const GpuLimits& limits) {
  constexpr int kFullTile = 64, kMostRounds = 4;
  const bool sums = axes.column >= 0;
  std::int64_t blocks = choice.grid.cluster;
  const GroupPlan plan = tensor_plan(group, axes, choice);
  const auto extent = [&](int axis) { return variant.structure.axes[static_cast<std::size_t>(axis)].extent; };
  for (const int axis : group.axes) blocks *= ceil_div(extent(axis), plan.tile.at(axis));
  const std::int64_t tiles = extent(axes.reduction_axis) / (sums ? choice.depth : choice.columns);
  // A part has several chunks, as it has several tiles of terms elsewhere.
  if (std::find(splits.begin(), splits.end(), axes.chunk_axis) != splits.end())
    return {axes.chunk_axis, useful_parts(blocks, 1, axes.chunks, limits)};
  Cut best{axes.reduction_axis, useful_parts(blocks, sums ? 1 : 2, tiles, limits)};
  GpuLimits room = limits;
  if (axes.inner < kFullTile) room.units *= kMostRounds;
  const std::int64_t wanted = useful_parts(blocks, 1, std::max<std::int64_t>(tiles, 1) * axes.taps, room);
  for (const int axis : axes.tap_axes) {
    const bool cuts = std::find(splits.begin(), splits.end(), axis) != splits.end();
    // A part has two values of the loop at least.
    if (const std::int64_t parts = std::min(wanted, extent(axis) / 2); cuts && parts > best.parts) best = {axis, parts};
  }
  return best;
}

/// The axis, among those that can be cut, as the usual rules number it; -1: it is none of them. Parts of operands leave sums as
/// they are.
int usual_axis(const GpuPointSource& source, const std::set<std::string>& rules, int axis) {
  std::set<std::string> others = rules;
  others.erase(kPartsRule);
  if (others != source.usual_rules) return -1;
  const auto same = [&](int split) { return source.variants.axis_after(rules, source.usual_rules, split) == axis; };
  const auto found = std::find_if(source.split_axes.begin(), source.split_axes.end(), same);
  return found == source.split_axes.end() ? -1 : *found;
}

/// How much is fused where the product's sum, or the loop over its columns, is cut into parts along the axis; nothing where it
/// cannot be.
std::optional<Fusion> fusion_of_parts(const GpuPointSource& source, const RuleChoice& rules, Fusion whole, const TensorAxes& axes,
                                      int split) {
  constexpr std::int64_t kSomeParts = 4;
  const RuleVariant& variant = source.variants.at(rules);
  const FusionGroup& group = source.variants.heaviest(variant, whole);
  const bool possible = usual_axis(source, rules.rules, split) >= 0 &&
                        !rows_follow_stream(source.variants.nest(variant), variant.structure, group, axes);
  if (!possible || whole == Fusion::maximal) return possible ? std::optional(whole) : std::nullopt;
  if (whole != Fusion::prepared) return std::nullopt;
  // Streamed columns may have parts behind a preparation; else other sums in parts go along with the product's, or are apart.
  std::vector<Fusion> fusions{Fusion::maximal, Fusion::careful};
  if (axes.column < 0) fusions.insert(fusions.begin(), Fusion::prepared);
  const RuleVariant& cut = source.variants.at({rules.rules, split, kSomeParts});
  for (const Fusion fusion : fusions) {
    const FusionGroup& own = source.variants.heaviest(cut, fusion, true);
    if (own.part && tensor_axes_of(source.variants, cut, own, source.limits.sm)) return fusion;
  }
  return std::nullopt;
}

/// Products on tensor cores, after a choice of rules.
void add_tensor_values(const GpuPointSource& source, const std::set<std::string>& chosen, std::vector<NamedValues>& points) {
  const RuleChoice rules{chosen};
  const RuleVariant& variant = source.variants.at(rules);
  const Fusion fusion = fusion_for_tensor_cores(source.variants, variant, source.limits);
  const FusionGroup& group = source.variants.heaviest(variant, fusion);
  const std::optional<TensorAxes>& axes = tensor_axes_of(source.variants, variant, group, source.limits.sm);
  if (!axes) return;
  std::map<int, std::optional<Fusion>> fusions;  // of parts along an axis
  constexpr int kFewApart = 2;                   // where rows beside products have a kernel together
  int apart = 0;
  for (NamedValues values : likely_tensor_choices(*axes, source.limits)) {
    const Cut cut = useful_cut(variant, group, *axes, tensor_choice(values), source.split_axes, source.limits);
    values.merge(fused_values(source, rules, fusion));
    if (cut.parts > 1) {
      const auto [known, added] = fusions.emplace(cut.axis, std::nullopt);
      if (added) known->second = fusion_of_parts(source, rules, fusion, *axes, cut.axis);
      if (known->second) {
        NamedValues parts = values;
        parts["split_axis"] = usual_axis(source, chosen, cut.axis);
        parts["num_splits"] = cut.parts;
        parts["fusion"] = place_of(*known->second);
        points.push_back(std::move(parts));
      }
    }
    points.push_back(values);
    if (fusion != Fusion::rows || apart++ >= kFewApart) continue;
    values["fusion"] = place_of(Fusion::alike);
    points.push_back(std::move(values));
  }
}

/// Are all reductions in parts beside products whose tiles those are? An axis may have columns of one product and rows of another.
bool all_parts_are_tiles(RuleVariants& variants, const RuleVariant& variant) {
  std::set<int> tiled;
  for (const FusionGroup& group : variants.fusion_groups(variant, Fusion::maximal, true)) {
    if (group.tile_is_part) tiled.insert(group.loop_groups.begin(), group.loop_groups.end());
  }
  const std::vector<LoopGroup>& all = variant.structure.loop_groups;
  for (int u = 0; u < static_cast<int>(all.size()); ++u) {
    const bool cut = std::any_of(variant.structure.parts.begin(), variant.structure.parts.end(), [&](const PartAxis& part) {
      return all[static_cast<std::size_t>(u)].position_of(part.axis) >= 0 &&
             all[static_cast<std::size_t>(u)].position_of(part.whole) >= 0;
    });
    if (cut && !tiled.contains(u)) return false;
  }
  return true;
}

/// The first guesses where a product's rows are summed up: each of its tiles leaves a part of the reductions along its columns, so
/// that what is reduced need not go to memory. Does any fit, of sums of so many terms?
bool add_parts_of_tiles(const GpuPointSource& source, const std::set<std::string>& rules, std::int64_t most_terms,
                        std::vector<NamedValues>& points) {
  constexpr std::size_t kFew = 8;
  constexpr std::int64_t kUsualColumns = 128;
  const bool cuts = std::find(source.split_axes.begin(), source.split_axes.end(), source.columns) != source.split_axes.end();
  const int split = cuts ? source.variants.axis_after(rules, source.usual_rules, source.columns) : -1;
  if (split < 0) return false;
  const auto axes_of = [&](std::int64_t columns) -> std::optional<TensorAxes> {
    const RuleVariant& variant = source.variants.at({rules, split, 0, 1, columns});
    const FusionGroup& group = source.variants.heaviest(variant, Fusion::maximal, true);
    if (!group.tile_is_part || !all_parts_are_tiles(source.variants, variant)) return std::nullopt;
    const Nest& nest = source.variants.nest(variant);
    const auto& axes = tensor_axes_of(source.variants, variant, group, source.limits.sm);
    return axes && !rows_follow_stream(nest, variant.structure, group, *axes) ? axes : std::nullopt;
  };
  const auto likely = axes_of(kUsualColumns);
  if (!likely || !likely->no_product.empty() || likely->inner > most_terms) return false;
  const std::size_t first = points.size();
  std::set<NamedValues> seen;
  for (NamedValues values : likely_tensor_choices(*likely, source.limits)) {
    if (points.size() >= first + kFew) break;
    // Of the orders of tiles one is enough here.
    NamedValues shape = values;
    shape.erase("raster_group");
    if (!seen.insert(std::move(shape)).second) continue;
    if (tensor_choice(values).columns * 2 > likely->column_extent || !axes_of(tensor_choice(values).columns)) continue;
    values.merge(fused_values(source, {rules, source.columns}));
    points.push_back(std::move(values));
  }
  return points.size() > first;
}

}  // namespace

void add_products(const GpuPointSource& source, std::vector<NamedValues>& points) {
  std::vector<std::vector<NamedValues>> choices;
  for (const std::set<std::string>& rules : source.tensor_rules) {
    choices.emplace_back();
    add_tensor_values(source, rules, choices.back());
  }
  if (choices.size() > 1 && source.tensor_rules[1].contains(kMixedPartsRule)) {
    choices[0] = by_turns(std::move(choices[0]), std::move(choices[1]));
    choices[1].clear();
  }
  for (const std::vector<NamedValues>& choice : choices) points.insert(points.end(), choice.begin(), choice.end());
}

void add_products_again(const GpuPointSource& source, std::vector<NamedValues>& points) {
  constexpr std::int64_t kMostTerms = 1024, kSomeParts = 4;
  constexpr std::size_t kFew = 6;
  const bool possible = source.has_rule(kAgainRule);
  if (!possible) return;
  std::set<std::string> rules = source.usual_rules;
  rules.insert(kAgainRule);
  for (const int split : source.split_axes) {
    const RuleVariant& variant = source.variants.at({rules, split, kSomeParts});
    const FusionGroup& group = source.variants.heaviest(variant, Fusion::maximal, true);
    const auto axes = group.part ? tensor_axes_of(source.variants, variant, group, source.limits.sm) : std::nullopt;
    if (!axes || !axes->no_product.empty() || axes->inner > kMostTerms) continue;
    const auto extent = [&](int axis) { return variant.structure.axes[static_cast<std::size_t>(axis)].extent; };
    for (NamedValues values : likely_tensor_choices(*axes, source.limits)) {
      if (points.size() >= kFew) return;
      const TensorChoice choice = tensor_choice(values);
      std::int64_t blocks = 1;
      for (const int axis : group.axes) {
        if (axis != group.part->axis) blocks *= axis == axes->row ? ceil_div(extent(axis), choice.rows()) : extent(axis);
      }
      values.merge(fused_values(source, {rules, split}, Fusion::maximal));
      values["num_splits"] = useful_parts(blocks, 2, extent(group.part->whole) / choice.columns, source.limits);
      if (values["num_splits"] > 1) points.push_back(std::move(values));
    }
  }
}

void add_parts_of_tiles(const GpuPointSource& source, std::vector<NamedValues>& points) {
  constexpr std::int64_t kMostTerms = 1024;
  std::set<std::string> rules = source.tensor_rules.front();
  const bool across = source.has_rule(kAcrossRule);
  if (across) rules.insert(kAcrossRule);
  // What mixes a few of the sums that are made again has all of them in tiles.
  std::set<std::string> separated = rules;
  if (across && source.has_rule(kSeparatingRule) && separated.insert(kSeparatingRule).second &&
      &source.variants.at({separated}) != &source.variants.at({rules}) &&
      add_parts_of_tiles(source, separated, kMostTerms, points))
    return;
  if (across && add_parts_of_tiles(source, rules, kMostTerms, points)) return;
  add_parts_of_tiles(source, source.tensor_rules.front(), std::numeric_limits<std::int64_t>::max(), points);
}

}  // namespace nestor
