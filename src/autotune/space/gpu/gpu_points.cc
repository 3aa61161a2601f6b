// Likely shapes of blocks and tiles, written as values of parameters.
#include "autotune/space/gpu/gpu_points.h"

#include "autotune/space/distribution.h"
#include "autotune/space/gpu/column_strips.h"
#include "autotune/space/gpu/short_rows.h"
#include "autotune/space/gpu/tensor_fusion.h"
#include "autotune/space/gpu/tensor_guesses.h"
#include "autotune/space/gpu/tensor_steps.h"
#include "autotune/space/gpu/tensor_waves.h"
#include "autotune/space/gpu/transposed_rows.h"
#include "autotune/space/group_choice.h"
#include "autotune/space/pair_sums.h"
#include "autotune/space/product_points.h"
#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/rule_steps.h"
#include "autotune/space/window_points.h"
#include "support/rounding.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace nestor {
namespace {

constexpr std::int64_t kWarp = 32;

/// The rules of the choice, everything fused, no loop over tiles of a reduction.
NamedValues fused_values(const GpuPointSource& source, const RuleChoice& choice, Fusion fusion = Fusion::maximal) {
  NamedValues values;
  for (const std::string& rule : source.rules) values["rule." + rule] = choice.rules.contains(rule);
  values["split_axis"] = choice.split;
  values["fusion"] = place_of(fusion);
  values["form"] = 0;
  values["reduction_axis"] = -1;
  return values;
}

/// Rows that stay on chip, a share of elements for each thread, in likely shapes and residences of blocks.
void add_rows_of(const GpuPointSource& source, const RuleChoice& choice, Fusion fusion, std::vector<NamedValues>& points) {
  const GpuLimits& limits = source.limits;
  const RuleVariant& variant = source.variants.at(choice);
  const FusionGroup& main = source.variants.heaviest(variant, fusion);
  const RowTiles tiles = row_tiles(variant.structure, main);
  std::vector<GpuShape> shapes = likely_shapes(tiles.points, limits);
  const bool kept = !shapes.empty();
  if (!kept) shapes.push_back(longest_shape(variant.structure, main, limits));
  // Products of a serial loop's steps are shared by no cluster, and nothing runs ahead of them.
  const bool in_steps =
      !serial_axes(main).empty() && multiplies(source.variants.nest(variant), variant.structure, main.loop_groups);
  if (in_steps) std::erase_if(shapes, [](const GpuShape& shape) { return shape.cluster > 1; });
  for (GpuShape shape : shapes) {
    if (!main.part) shape = shape_of_rows(tiles, shape);
    // A block over a part takes its work tiles one at a time: narrow ones by few threads, and there is room for more blocks. Of those that
    // keep no warp busy it takes several.
    const std::int64_t rows = main.part && shape.threads < kWarp * shape.rows ? shape.rows : 1;
    if (main.part && rows == 1) shape.threads = std::max<std::int64_t>(shape.threads / shape.rows, kWarp);
    for (const GpuResidence& residence : kept ? likely_residences(shape, limits) : std::vector<GpuResidence>{{}}) {
      if (in_steps && residence.persistent > 0) continue;
      NamedValues values = fused_values(source, choice, fusion);
      for (const Parameter& parameter : source.parameters) {
        if (parameter.name.starts_with("tile.")) values[parameter.name] = main.part ? kCombinedColumns : 1;
      }
      if (!main.part) {
        for (const auto& [name, tile] : values_of(tiles, variant.structure, main, shape.rows)) values[name] = tile;
      }
      const std::int64_t resident = resident_blocks(shape, limits);
      const std::int64_t at_once = residence.persistent > 0 ? resident : std::max<std::int64_t>(resident / 2, 1);
      values["num_splits"] = limits.units * at_once / shape.cluster;
      values["threads"] = shape.threads;
      values["cluster"] = shape.cluster;
      values["staging"] = static_cast<std::int64_t>(residence.staging);
      values["streaming"] = 0;
      values["part_tile"] = rows;
      values["persistent"] = main.part ? 0 : residence.persistent;
      values["prefetch"] = main.part && residence.prefetch == 0 ? 2 : residence.prefetch;
      points.push_back(std::move(values));
    }
  }
}

/// Everything fused; rows that no cluster holds are left to kernels of their own. Where later sums share fewer loops than the heaviest work
/// has, as a mean over the rows of an image, its rows alone come next.
void add_row_values(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(choice);
  const FusionGroup &whole = source.variants.heaviest(variant, Fusion::maximal),
                    &rows = source.variants.heaviest(variant, Fusion::careful);
  const bool fits = !likely_shapes(row_tiles(variant.structure, whole).points, source.limits).empty();
  if (fits) add_rows_of(source, choice, Fusion::maximal, points);
  const std::vector<Statement>& statements = source.variants.nest(variant).statements;
  const bool products = std::any_of(statements.begin(), statements.end(), multiplies_matrices);
  if (!fits || (rows.axes.size() > whole.axes.size() && !products)) add_rows_of(source, choice, Fusion::careful, points);
}

/// A loop that products sum over, or stream their columns along, and into how many parts it is cut.
struct Cut {
  int axis = -1;
  std::int64_t parts = 1;
};

/// For the blocks that the choice's tiles leave. Parts of sums take equally long: one round of them; more where tiles have few terms, so that
/// blocks wait for copies. The streamed loop, or of those around its tiles the one that is cut into most parts.
Cut useful_cut(const RuleVariant& variant, const FusionGroup& group, const TensorAxes& axes, const TensorChoice& choice,
               const std::vector<int>& splits, const GpuLimits& limits) {
  constexpr int kFullTile = 64, kMostRounds = 4;
  const bool sums = axes.column >= 0;
  std::int64_t blocks = choice.grid.cluster;
  const GroupPlan plan = tensor_plan(group, axes, choice);
  const auto extent = [&](int axis) { return variant.structure.axes[static_cast<std::size_t>(axis)].extent; };
  for (const int axis : group.axes) blocks *= ceil_div(extent(axis), plan.tile.at(axis));
  const std::int64_t tiles = extent(axes.reduction_axis) / (sums ? choice.depth : choice.columns);
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

/// The axis, among those that can be cut, as the usual rules number it; -1: it is none of them. Parts of operands leave sums as they are.
int usual_axis(const GpuPointSource& source, const std::set<std::string>& rules, int axis) {
  std::set<std::string> others = rules;
  others.erase(kPartsRule);
  if (others != source.usual_rules) return -1;
  const auto same = [&](int split) { return source.variants.axis_after(rules, source.usual_rules, split) == axis; };
  const auto found = std::find_if(source.split_axes.begin(), source.split_axes.end(), same);
  return found == source.split_axes.end() ? -1 : *found;
}

/// How much is fused where the product's sum, or the loop over its columns, is cut into parts along the axis; nothing where it cannot be.
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

/// One of each, as long as both have some.
std::vector<NamedValues> by_turns(std::vector<NamedValues> first, std::vector<NamedValues> second) {
  std::vector<NamedValues> all;
  for (std::size_t k = 0; k < std::max(first.size(), second.size()); ++k) {
    for (std::vector<NamedValues>* list : {&first, &second}) {
      if (k < list->size()) all.push_back(std::move((*list)[k]));
    }
  }
  return all;
}

/// Products on tensor cores, choice by choice. Where small weights may vanish in f16, and do in the data of the check, all guesses of a choice
/// may be wrong: those with parts of such weights come in turns with them.
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

/// The first guesses of a product that is computed again: its statistics in parts of the streamed columns, then its results, which are
/// stored by the kernel that computes it. Sums of more terms take longer twice than through memory.
void add_products_again(const GpuPointSource& source, std::vector<NamedValues>& points) {
  constexpr std::int64_t kMostTerms = 1024, kSomeParts = 4;
  constexpr std::size_t kFew = 6;
  const bool possible = std::find(source.rules.begin(), source.rules.end(), kAgainRule) != source.rules.end();
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

/// The first guesses where a product's rows are summed up: each of its tiles leaves a part of the reductions along its columns, so that
/// what is reduced need not go to memory. Does any fit, of sums of so many terms?
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

/// The same where columns are summed up, too: a product for each, unless its terms take longer than the way through memory.
void add_parts_of_tiles(const GpuPointSource& source, std::vector<NamedValues>& points) {
  constexpr std::int64_t kMostTerms = 1024;
  std::set<std::string> rules = source.tensor_rules.front();
  const bool across = std::find(source.rules.begin(), source.rules.end(), kAcrossRule) != source.rules.end();
  if (across) rules.insert(kAcrossRule);
  if (across && add_parts_of_tiles(source, rules, kMostTerms, points)) return;
  add_parts_of_tiles(source, source.tensor_rules.front(), std::numeric_limits<std::int64_t>::max(), points);
}

/// The values of a group of sums with those of the choice, tiles of one for all other axes, and nothing kept or copied ahead.
NamedValues completed(const GpuPointSource& source, const RuleChoice& choice, Fusion fusion, NamedValues values) {
  for (const Parameter& parameter : source.parameters) {
    if (parameter.name.starts_with("tile.")) values.emplace(parameter.name, 1);
  }
  values.merge(fused_values(source, choice, fusion));
  values.merge(NamedValues{{"num_splits", choice.parts}, {"persistent", 0}, {"prefetch", 0}, {"staging", 0}, {"streaming", 0}});
  return values;
}

/// Products on plain lanes: of several, each in a kernel of its own first, which has no other statements to keep rows for. Then everything
/// together, and what shares loops.
void add_product_values(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(choice);
  const Nest& nest = source.variants.nest(variant);
  std::vector<std::vector<NamedValues>> products;
  for (const FusionGroup& group : source.variants.fusion_groups(variant, Fusion::alike)) {
    products.push_back(likely_product_tiles(nest, variant.structure, group, source.limits));
    if (products.back().empty()) products.pop_back();
  }
  for (std::size_t k = 0; products.size() > 1 && k < products.front().size(); ++k) {
    NamedValues tiles = products.front()[k];
    for (const std::vector<NamedValues>& other : products) {
      for (const auto& [name, value] : other[k]) tiles[name] = std::max(tiles[name], value);
    }
    points.push_back(completed(source, choice, Fusion::alike, std::move(tiles)));
  }
  for (const Fusion fusion : {Fusion::maximal, Fusion::careful}) {
    const FusionGroup& group = source.variants.heaviest(variant, fusion);
    for (NamedValues& tiles : likely_product_tiles(nest, variant.structure, group, source.limits)) {
      tiles.merge(fused_values(source, choice, fusion));
      points.push_back(std::move(tiles));
    }
  }
}

/// Products on plain lanes with few results and long sums: parts of these keep all units busy, and others along the same dims have parts, too.
void add_parts_of_products(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  constexpr std::int64_t kTile = 64, kLongestPart = 2048, kRounds = 2;
  const RuleVariant& whole = source.variants.at(choice);
  const FusionGroup& group = source.variants.heaviest(whole, Fusion::none);
  const LoopGroup& heavy = whole.structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  if (!multiplies(source.variants.nest(whole), whole.structure, {group.heaviest})) return;
  std::int64_t tiles = 1;
  for (std::size_t k = 0; k < heavy.extents.size(); ++k) tiles *= heavy.reduced[k] ? 1 : ceil_div(heavy.extents[k], kTile);
  for (const int split : source.split_axes) {
    const int position = heavy.position_of(split);
    if (choice.rules != source.usual_rules || position < 0 || !heavy.reduced[static_cast<std::size_t>(position)]) continue;
    const std::int64_t extent = heavy.extents[static_cast<std::size_t>(position)];
    if (tiles * kRounds > source.limits.units || extent < kLongestPart * 2) continue;
    for (const std::int64_t rounds : {kRounds, std::int64_t{1}, 2 * kRounds}) {
      const RuleChoice cut{choice.rules, split, ceil_div(rounds * source.limits.units, tiles)};
      const RuleVariant& variant = source.variants.at(cut);
      for (const Fusion fusion : {Fusion::alike, Fusion::none}) {
        const FusionGroup& parts = source.variants.heaviest(variant, fusion);
        std::vector<NamedValues> tiles =
            likely_product_tiles(source.variants.nest(variant), variant.structure, parts, source.limits);
        for (NamedValues& values : tiles) points.push_back(completed(source, cut, fusion, std::move(values)));
        if (!tiles.empty()) break;
      }
    }
  }
}

/// How many parts keep in the first cache what a block of `columns` columns reads of an input, where the group's sums read it again. 0: they
/// read none twice.
std::int64_t parts_to_read_again(const RuleVariant& variant, const Nest& nest, const FusionGroup& group, std::int64_t columns) {
  constexpr std::int64_t kNearBytes = 32 << 10;  // some blocks of a multiprocessor share its first cache
  std::map<std::string, int> readers;
  std::int64_t bytes = 0, points = 1;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = variant.structure.loop_groups[static_cast<std::size_t>(u)];
    std::int64_t own = 1;
    for (std::size_t k = 0; k < loop_group.extents.size(); ++k) {
      if (!loop_group.reduced[k]) continue;
      const auto part = std::find_if(variant.structure.parts.begin(), variant.structure.parts.end(), [&](const PartAxis& each) {
        return each.whole == loop_group.axes[k] && loop_group.position_of(each.axis) >= 0;
      });
      own *= part != variant.structure.parts.end() ? part->size : loop_group.extents[k];
    }
    for (const std::string& name : loop_group.statements) {
      for (const Access& read : nest.statement(name).reads) {
        const Tensor& tensor = nest.tensor(read.tensor);
        if (tensor.role != TensorRole::input || own <= 1 || ++readers[read.tensor] < 2) continue;
        bytes = std::max<std::int64_t>(bytes, static_cast<std::int64_t>(size_in_bytes(tensor.type)));
        points = std::max(points, own);
      }
    }
  }
  return bytes == 0 ? 0 : ceil_div(points * columns * bytes, kNearBytes);
}

/// Instances of the group's heaviest loop group.
double heaviest_points(const RuleVariant& variant, const FusionGroup& group) {
  return variant.structure.loop_groups[static_cast<std::size_t>(group.heaviest)].points;
}

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

bool sums_up(const RuleVariant& variant, const FusionGroup& group) {
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const std::vector<bool>& reduced = variant.structure.loop_groups[static_cast<std::size_t>(u)].reduced;
    return std::find(reduced.begin(), reduced.end(), true) != reduced.end();
  });
}

/// The common axis of the group by its name; -1: it has none.
int axis_named(const RuleVariant& variant, const FusionGroup& group, const std::string& name) {
  const auto same = std::find_if(group.axes.begin(), group.axes.end(),
                                 [&](int each) { return variant.structure.axes[static_cast<std::size_t>(each)].name == name; });
  return same == group.axes.end() ? -1 : *same;
}

/// Does no operand of the group's sums have all of their dims? Then each is read again for other results.
bool repeats_operands(const Nest& nest, const RuleVariant& variant, const FusionGroup& group) {
  const LoopGroup& heavy = variant.structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  return std::all_of(heavy.statements.begin(), heavy.statements.end(), [&](const std::string& name) {
    const Statement& statement = nest.statement(name);
    return std::all_of(statement.reads.begin(), statement.reads.end(),
                       [&](const Access& read) { return followed_dims(read).size() < statement.dims.size(); });
  });
}

/// Work tiles of the group where each has so many of the columns.
std::int64_t work_tiles_of(const RuleVariant& variant, const FusionGroup& group, const Axis& columns, std::int64_t tile) {
  std::int64_t tiles = ceil_div(columns.extent, tile);
  for (const int axis : group.axes) {
    const Axis& other = variant.structure.axes[static_cast<std::size_t>(axis)];
    tiles *= other.name == columns.name ? 1 : other.extent;
  }
  return tiles;
}

/// Are there products of matrices whose operands do not both lie along the columns? Of such as do, tiles would read a line of memory for each element.
bool multiplies_across(const Nest& nest, const RuleVariant& variant, int columns) {
  return std::any_of(
      variant.structure.loop_groups.begin(), variant.structure.loop_groups.end(), [&](const LoopGroup& loop_group) {
        return std::any_of(loop_group.statements.begin(), loop_group.statements.end(), [&](const std::string& name) {
          const Statement& statement = nest.statement(name);
          const auto lies_along = [&](const Access& access) {
            const std::vector<int> axes = followed_axes(loop_group, access);
            return !axes.empty() && axes.back() == columns;
          };
          return multiplies_matrices(statement) && !std::all_of(statement.reads.begin(), statement.reads.end(), lies_along);
        });
      });
}

/// Sums across memory: where they are most of the work, where they are not, or where they are products for each place along it.
enum class ColumnSums : std::uint8_t { heaviest, lighter, products };

/// Sums across memory (statistics of channels that lie last), each statement in kernels of its own: whole, then in parts so that few
/// columns keep all units busy. Parts whose sums read the same points again are short enough for the first cache at first.
void add_column_values(const GpuPointSource& source, const std::set<std::string>& rules, ColumnSums kind,
                       std::vector<NamedValues>& points) {
  constexpr std::int64_t kColumns = 64, kRounds = 4;
  const RuleVariant& whole = source.variants.at({rules});
  const Nest& nest = source.variants.nest(whole);
  const auto axis_of = [&](const FusionGroup& group) { return axis_of_column_sums(nest, whole.structure, group); };
  const FusionGroup* sums =
      heaviest_of(source.variants, whole, Fusion::none, [&](const FusionGroup& group) { return axis_of(group) >= 0; });
  if (sums == nullptr || multiplies_across(nest, whole, axis_of(*sums))) return;
  const FusionGroup& largest = source.variants.heaviest(whole, Fusion::none);
  if (kind == ColumnSums::products) {
    if (heaviest_points(whole, *sums) < heaviest_points(whole, largest) || !repeats_operands(nest, whole, *sums)) return;
  } else if ((sums == &largest) != (kind == ColumnSums::heaviest)) {
    return;
  }
  const Axis& columns = whole.structure.axes[static_cast<std::size_t>(axis_of(*sums))];
  const auto group_along = [&](const RuleVariant& variant, Fusion fusion) {
    return heaviest_of(source.variants, variant, fusion, [&](const FusionGroup& group) {
      return axis_named(variant, group, columns.name) >= 0 && sums_up(variant, group);
    });
  };
  const auto add = [&](const RuleChoice& choice, Fusion fusion) {
    const RuleVariant& variant = source.variants.at(choice);
    const FusionGroup* group = group_along(variant, fusion);
    if (group == nullptr) return;
    NamedValues values =
        values_of_column_sums(variant.structure, *group, axis_named(variant, *group, columns.name), source.limits);
    points.push_back(completed(source, choice, fusion, std::move(values)));
  };
  const std::int64_t parts = kRounds * source.limits.units * kColumns / std::max(columns.extent, kColumns);
  // Where each operand is read for many results, these keep all units busy.
  const bool busy = repeats_operands(nest, whole, *sums) && work_tiles_of(whole, *sums, columns, kColumns) >= source.limits.units;
  if (busy) add({rules}, Fusion::alike);
  for (const int split : source.split_axes) {
    if (parts <= kRounds || busy) continue;
    const RuleVariant& cut = source.variants.at({rules, split, parts});
    const FusionGroup* group = group_along(cut, Fusion::alike);
    const std::int64_t again =
        group == nullptr ? 0 : parts_to_read_again(cut, source.variants.nest(cut), *group, std::min(columns.extent, kColumns));
    if (again > 1 && 2 * again * parts <= whole.structure.axes[static_cast<std::size_t>(split)].extent)
      add({rules, split, again * parts}, Fusion::alike);
    add({rules, split, parts}, Fusion::alike);
  }
  // Sums that read the same points again, in one kernel.
  const FusionGroup* together = source.split_axes.empty() ? nullptr : group_along(whole, Fusion::alike);
  if (together != nullptr && work_tiles_of(whole, *together, columns, kColumns) >= source.limits.units && !busy &&
      parts_to_read_again(whole, nest, *together, 1) > 0)
    add({rules}, Fusion::alike);
  add({rules}, Fusion::none);
}

/// Sums across memory and what is made of them, in one kernel.
void add_strips(const GpuPointSource& source, const std::set<std::string>& rules, std::vector<NamedValues>& points) {
  const RuleVariant& whole = source.variants.at({rules});
  const Nest& nest = source.variants.nest(whole);
  const std::vector<FusionGroup>& groups = source.variants.fusion_groups(whole, Fusion::maximal);
  if (groups.size() != 1 || multiplies(nest)) return;
  auto values = values_of_strips(nest, whole.structure, groups.front(), source.limits);
  if (!values) return;
  points.push_back(completed(source, {rules}, Fusion::maximal, *values));
  if (std::exchange((*values)["staging"], 0) != 0)
    points.push_back(completed(source, {rules}, Fusion::maximal, std::move(*values)));
}

/// Many short rows, everything in one kernel.
void add_short_rows(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const RuleVariant& whole = source.variants.at(choice);
  const std::vector<FusionGroup>& groups = source.variants.fusion_groups(whole, Fusion::maximal);
  if (groups.size() != 1) return;
  for (NamedValues& values : values_of_short_rows(whole.structure, groups.front()))
    points.push_back(completed(source, choice, Fusion::maximal, std::move(values)));
}

/// Sums of few terms in many small blocks, with what else shares their outer axes.
void add_small_blocks(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(choice);
  const Nest& nest = source.variants.nest(variant);
  for (const Fusion fusion : {Fusion::maximal, Fusion::careful}) {
    for (const std::int64_t threads : {128, 256}) {
      NamedValues values = values_of_small_blocks(nest, variant.structure, source.variants.heaviest(variant, fusion), threads);
      if (values.empty()) continue;
      for (const FusionGroup& group : source.variants.fusion_groups(variant, fusion))
        values.merge(values_of_small_blocks(nest, variant.structure, group, threads));
      points.push_back(completed(source, choice, fusion, std::move(values)));
    }
  }
}

/// Sums over short runs of memory, in parts along the other axes that they sum over.
void add_short_runs(const GpuPointSource& source, const std::set<std::string>& rules, std::vector<NamedValues>& points) {
  const RuleVariant& whole = source.variants.at({rules});
  const Nest& nest = source.variants.nest(whole);
  const auto runs = short_runs(nest, whole.structure, source.variants.heaviest(whole, Fusion::none));
  if (!runs || multiplies(nest)) return;
  const std::string beside = whole.structure.axes[static_cast<std::size_t>(runs->beside)].name;
  for (const int split : source.split_axes) {
    if (split == runs->run) continue;
    for (const std::int64_t parts : {std::int64_t{source.limits.units}, std::int64_t{32}}) {
      const RuleChoice choice{rules, split, parts};
      if (whole.structure.axes[static_cast<std::size_t>(split)].extent < 4 * parts) continue;
      const RuleVariant& variant = source.variants.at(choice);
      NamedValues values = values_of_short_runs(variant.structure, source.variants.heaviest(variant, Fusion::alike), beside);
      points.push_back(completed(source, choice, Fusion::alike, std::move(values)));
    }
  }
}

/// Does a loop group beside these sum along the axis?
bool sums_along(const NestStructure& structure, int axis, const std::vector<int>& beside) {
  for (std::size_t u = 0; u < structure.loop_groups.size(); ++u) {
    if (std::find(beside.begin(), beside.end(), static_cast<int>(u)) != beside.end()) continue;
    const LoopGroup& group = structure.loop_groups[u];
    for (std::size_t k = 0; k < group.axes.size(); ++k) {
      if (group.reduced[k] && group.axes[k] == axis) return true;
    }
  }
  return false;
}

/// Sums with few results, such as one number of all that there is: parts keep all units busy, a block for each.
void add_few_results(const GpuPointSource& source, const std::set<std::string>& rules, std::vector<NamedValues>& points) {
  const RuleVariant& whole = source.variants.at({rules});
  const Nest& nest = source.variants.nest(whole);
  const auto results_of = [&](const FusionGroup& group) {
    std::int64_t results = 1;
    for (const int axis : group.axes) results *= whole.structure.axes[static_cast<std::size_t>(axis)].extent;
    return results;
  };
  constexpr double kLongSum = 1 << 17;  // points of a result that would keep a cluster busy for long
  constexpr std::int64_t kRounds = 8;   // of results that each keep a unit busy
  const FusionGroup* sums = heaviest_of(source.variants, whole, Fusion::none, [&](const FusionGroup& group) {
    const auto results = static_cast<double>(results_of(group));
    const double all = heaviest_points(whole, group);
    const bool few = results <= std::max(source.limits.units / 32, 1);
    return sums_up(whole, group) && (few || (results <= kRounds * source.limits.units && all >= kLongSum * results));
  });
  if (sums == nullptr || multiplies(nest)) return;
  const std::int64_t results = results_of(*sums);
  // One block, or a cluster, would be busy with a sum for longer than all are with what has more points.
  const double most = results == 1 ? 8 : 2;
  if (most * heaviest_points(whole, *sums) < heaviest_points(whole, source.variants.heaviest(whole, Fusion::none))) return;
  const auto cut_after_rules = [&](int split) { return source.variants.axis_after(rules, source.usual_rules, split); };
  // Sums of more results in parts as well would read their columns one by one: axes that these keep come first.
  std::vector<int> splits = source.split_axes;
  std::stable_partition(splits.begin(), splits.end(),
                        [&](int split) { return !sums_along(whole.structure, cut_after_rules(split), sums->loop_groups); });
  for (const int split : splits) {
    const int axis = cut_after_rules(split);
    if (axis < 0) continue;
    // Four blocks of 512 threads fill a multiprocessor. The last ones are for sums over one dim.
    for (const auto& [rounds, threads] : {std::pair{4, 512}, {2, 512}, {8, 512}, {32, 32}}) {
      const std::int64_t parts = ceil_div(rounds * source.limits.units, results);
      if (parts < 2 || whole.structure.axes[static_cast<std::size_t>(axis)].extent < 2 * parts) continue;
      // Points name axes as they are after the usual rules.
      points.push_back(
          completed(source, {rules, axis, parts}, Fusion::alike, {{"threads", threads}, {"cluster", 1}, {"split_axis", split}}));
    }
  }
}

/// Sums of few terms along memory: everything together, some elements for each thread.
void add_short_sums(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(choice);
  const FusionGroup& group = source.variants.heaviest(variant, Fusion::maximal);
  const int axis = axis_of_short_sums(source.variants.nest(variant), variant.structure, group);
  if (axis < 0) return;
  for (const std::int64_t rows : {8, 4, 16}) {
    NamedValues values = values_of_short_sums(variant.structure, group, axis, rows);
    values.merge(fused_values(source, choice));
    values.merge(NamedValues{{"persistent", 0}, {"prefetch", 0}, {"staging", 0}, {"streaming", 0}});
    points.push_back(std::move(values));
  }
}

bool is_inside(const GroupForm& form) { return form.kind == GroupForm::Kind::inside; }

const FusionGroup* heaviest_recurrence(RuleVariants& variants, const RuleVariant& variant, Fusion fusion) {
  return heaviest_of(variants, variant, fusion,
                     [&](const FusionGroup& each) { return std::any_of(each.forms.begin(), each.forms.end(), is_inside); });
}

/// Each thread runs through the serial loop of the heaviest recurrence for elements of its own.
void add_inside(const GpuPointSource& source, const RuleChoice& choice, Fusion fusion, std::initializer_list<std::int64_t> blocks,
                std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(choice);
  const FusionGroup* group = heaviest_recurrence(source.variants, variant, fusion);
  for (std::size_t form = group == nullptr ? 0 : group->forms.size(); form-- > 0;) {
    if (!is_inside(group->forms[form])) continue;
    for (const std::int64_t threads : blocks) {
      NamedValues values =
          values_of_recurrence(source.variants.nest(variant), variant.structure, *group, group->forms[form], threads);
      values["form"] = static_cast<std::int64_t>(form);
      points.push_back(completed(source, choice, fusion, std::move(values)));
    }
  }
}

/// Recurrences: each thread runs through a serial loop; of two such loops, threads share wavefronts.
void add_recurrences(const GpuPointSource& source, const RuleChoice& choice, bool systems, std::vector<NamedValues>& points) {
  if (systems) {
    // With what computes the matrices in one kernel, then apart: what is likely of either comes first.
    for (const std::int64_t threads : {128, 64, 256}) {
      for (const Fusion fusion : {Fusion::maximal, Fusion::careful}) add_inside(source, choice, fusion, {threads}, points);
    }
  }
  for (const Fusion fusion : {Fusion::maximal, Fusion::careful, Fusion::none})
    add_inside(source, choice, fusion, {128, 32, 256}, points);
}

/// A recurrence whose statements have loops of their own in each step, or one of a single statement, and the independent axes around these.
struct DistributedGroup {
  const FusionGroup* group = nullptr;
  std::vector<int> independent = {};
};

/// Are the points of a step independent, while those of the next one need others than their own?
bool has_steps_of_points(const FusionGroup& group) {
  const std::vector<int> serial = serial_axes(group);
  return !serial.empty() && serial.size() < group.axes.size() && serial.front() == group.axes.front() &&
         std::none_of(group.forms.begin(), group.forms.end(), is_inside);
}

DistributedGroup heaviest_distributed(RuleVariants& variants, const RuleVariant& variant, Fusion fusion) {
  const FusionGroup* group = heaviest_of(variants, variant, fusion, [&](const FusionGroup& each) {
    return distributed_form(variants, variant, each).has_value() || has_steps_of_points(each);
  });
  if (group == nullptr) return {};
  const std::optional<GroupForm>& form = distributed_form(variants, variant, *group);
  return {group, form ? independent_axes(*group, *form) : std::vector<int>{}};
}

double extent_of(const RuleVariant& variant, const std::vector<int>& axes) {
  double points = 1;
  for (const int axis : axes) points *= static_cast<double>(variant.structure.axes[static_cast<std::size_t>(axis)].extent);
  return points;
}

/// Does a step of one sequence keep no block busy, while there are sequences enough for some in each thread?
bool has_many_short_sequences(const GpuPointSource& source, const RuleVariant& variant, const FusionGroup& group,
                              const std::vector<int>& independent) {
  constexpr double kShort = 512;      // points of a step
  constexpr double kSequences = 256;  // of a multiprocessor, side by side
  if (independent.empty()) return false;
  const double step =
      heaviest_points(variant, group) / (extent_of(variant, independent) * extent_of(variant, serial_axes(group)));
  return step <= kShort && extent_of(variant, {independent.back()}) >= kSequences * source.limits.units;
}

/// A block goes through the steps of a sequence, or threads through those of many short ones; each step of all sequences has a launch for each statement, or one kernel of tiles along the
/// last two common axes.
void add_distributed(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(choice);
  const auto tile_of = [&](int axis) { return "tile." + variant.structure.axes[static_cast<std::size_t>(axis)].name; };
  struct Shape {
    std::int64_t threads, before, last;  // tiles of the last axes
  };
  std::set<std::vector<std::vector<int>>> known;  // loop groups of all groups, where they are the same
  std::vector<NamedValues> others;
  for (const Fusion fusion : {Fusion::maximal, Fusion::careful, Fusion::none}) {
    const auto [group, independent] = heaviest_distributed(source.variants, variant, fusion);
    if (group == nullptr) continue;
    std::vector<std::vector<int>> groups;
    for (const FusionGroup& each : source.variants.fusion_groups(variant, fusion)) groups.push_back(each.loop_groups);
    if (!known.insert(std::move(groups)).second) continue;
    const std::vector<int> serial = serial_axes(*group);
    std::vector<int> free;
    for (const int axis : group->axes) {
      if (std::find(serial.begin(), serial.end(), axis) == serial.end()) free.push_back(axis);
    }
    const auto add = [&](NamedValues values, std::vector<NamedValues>& to) {
      values["cluster"] = 1;
      to.push_back(completed(source, choice, fusion, std::move(values)));
    };
    const auto add_sequences = [&](std::int64_t threads, std::int64_t tile, std::vector<NamedValues>& to) {
      NamedValues values{{"form", kDistributedForm}, {"threads", threads}};
      for (const int axis : independent) values[tile_of(axis)] = axis == independent.back() ? tile : 1;
      if (!independent.empty()) add(std::move(values), to);
    };
    if (has_many_short_sequences(source, variant, *group, independent)) {
      for (const auto& [threads, tile] : {std::pair{128, 128}, {128, 512}, {64, 256}}) add_sequences(threads, tile, points);
    }
    for (const std::int64_t threads : {256, 64, 128, 512}) add_sequences(threads, 1, threads == 256 ? points : others);
    NamedValues launches{{"threads", 256}};
    for (const int axis : free) launches[tile_of(axis)] = 0;
    add(std::move(launches), points);
    for (const auto& [threads, before, last] : {Shape{256, 8, 32}, {256, 32, 64}, {128, 4, 32}, {128, 16, 16}, {256, 1, 0}}) {
      if (free.empty()) break;
      NamedValues values{{"threads", threads}, {tile_of(free.back()), last}};
      if (free.size() > 1) values[tile_of(free[free.size() - 2])] = before;
      add(std::move(values), last == 32 ? points : others);
    }
  }
  points.insert(points.end(), others.begin(), others.end());
}

/// Is a step of one sequence, in the heaviest recurrence of this kind, work for more than a thread, and a good part of all work?
bool has_large_steps(const GpuPointSource& source, const RuleChoice& choice) {
  constexpr double kPart = 0.25;
  const RuleVariant& variant = source.variants.at(choice);
  const auto [group, independent] = heaviest_distributed(source.variants, variant, Fusion::none);
  if (group == nullptr) return false;
  const double steps = extent_of(variant, independent) * extent_of(variant, serial_axes(*group));
  const double points = heaviest_points(variant, *group);
  return points >= static_cast<double>(kWarp) * steps &&
         points >= kPart * heaviest_points(variant, source.variants.heaviest(variant, Fusion::none));
}

/// Are triangular systems a good part of the work?
bool solves_systems(const GpuPointSource& source, const RuleChoice& choice) {
  constexpr double kPart = 0.25;
  const RuleVariant& variant = source.variants.at(choice);
  const FusionGroup* group = heaviest_recurrence(source.variants, variant, Fusion::none);
  if (group == nullptr || !solves_system(source.variants.nest(variant), variant.structure, *group)) return false;
  return heaviest_points(variant, *group) >= kPart * heaviest_points(variant, source.variants.heaviest(variant, Fusion::none));
}

/// Are running sums the heaviest statements?
bool is_of_prefixes(const GpuPointSource& source, const RuleChoice& choice) {
  const RuleVariant& variant = source.variants.at(choice);
  return axis_of_prefixes(source.variants.nest(variant), variant.structure, source.variants.heaviest(variant, Fusion::none)) >= 0;
}

/// Running sums: a block has whole rows of them, and what else stays there. Of few results made of all rows a block has a part, tile by tile.
void add_prefixes(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  if (multiplies(source.variants.nest(source.variants.at(choice)))) return;
  std::set<NamedValues> known;
  const auto add = [&](RuleChoice rules, Fusion fusion) {
    const RuleVariant& variant = source.variants.at(rules);
    const Nest& nest = source.variants.nest(variant);
    const FusionGroup* group = heaviest_of(source.variants, variant, fusion, [&](const FusionGroup& each) {
      return axis_of_prefixes(nest, variant.structure, each) >= 0;
    });
    if (group == nullptr || (rules.split >= 0 && !group->part)) return;
    const int axis = axis_of_prefixes(nest, variant.structure, *group);
    for (const std::int64_t threads : {256, 128, 512}) {
      NamedValues tiles = values_of_prefixes(nest, variant.structure, *group, axis, threads);
      if (group->part) rules.parts = source.limits.units * std::max<std::int64_t>(source.limits.most_threads / threads, 1);
      if (known.insert(tiles).second) points.push_back(completed(source, rules, fusion, std::move(tiles)));
    }
  };
  for (const int axis : meeting_axes(source.variants, choice.rules, source.split_axes, std::max(source.limits.units, 2)))
    add({choice.rules, axis, std::max(source.limits.units, 2)}, Fusion::maximal);
  for (const Fusion fusion : {Fusion::maximal, Fusion::careful, Fusion::none}) add(choice, fusion);
}

/// Sums of windows: each thread has a few neighbours. With what else can stay in the block, then by themselves.
void add_windows(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(choice);
  const Nest& nest = source.variants.nest(variant);
  if (multiplies(nest)) return;
  std::set<NamedValues> known;
  for (const Fusion fusion : {Fusion::maximal, Fusion::careful, Fusion::none}) {
    const FusionGroup& group = source.variants.heaviest(variant, fusion);
    const auto windows = windows_of(nest, variant.structure.loop_groups[static_cast<std::size_t>(group.heaviest)]);
    if (!windows) continue;
    for (NamedValues& tiles : likely_window_tiles(variant.structure, group, *windows)) {
      if (known.insert(tiles).second) points.push_back(completed(source, choice, fusion, std::move(tiles)));
    }
  }
}

/// Sums over pairs, in kernels of their own: tiles of all groups that have such.
void add_pair_sums(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(choice);
  const Nest& nest = source.variants.nest(variant);
  if (multiplies(nest)) return;
  if (axis_of_pairs(nest, variant.structure, source.variants.heaviest(variant, Fusion::careful)) < 0) return;
  for (const std::int64_t elements : {64, 128, 32}) {
    NamedValues values;
    for (const FusionGroup& group : source.variants.fusion_groups(variant, Fusion::careful)) {
      const int axis = axis_of_pairs(nest, variant.structure, group);
      if (axis >= 0) values.merge(values_of_pairs(variant.structure, group, axis, elements));
    }
    points.push_back(completed(source, choice, Fusion::careful, std::move(values)));
  }
}

}  // namespace

bool has_tensor_cores(const GpuLimits& limits) { return limits.sm >= 80; }

std::vector<NamedValues> likely_gpu_values(const GpuPointSource& source) {
  std::vector<NamedValues> points, of_parts;
  if (has_tensor_cores(source.limits)) {
    add_products_again(source, points);
    add_parts_of_tiles(source, points);
    add_products(source, points);
    if (parts_may_cost_more(source.variants, source.tensor_rules.front(), source.limits)) of_parts.swap(points);
  }
  RuleChoice simple{source.usual_rules};
  std::erase_if(simple.rules, [](const std::string& rule) { return makes_composites(rule); });
  const bool steps = has_large_steps(source, simple);
  if (steps) add_distributed(source, simple, points);
  const bool solves = solves_systems(source, simple);
  if (solves) add_recurrences(source, simple, true, points);
  add_parts_of_products(source, simple, points);
  // Products for each place along memory, whose factors that rule would copy across it, and whose tiles would read across it.
  RuleChoice whole_factors = simple;
  const bool stores_factors = whole_factors.rules.erase(kFactorRule) > 0;
  if (stores_factors || multiplies(source.variants.nest(source.variants.at(simple))))
    add_column_values(source, whole_factors.rules, ColumnSums::products, points);
  add_product_values(source, simple, points);
  RuleChoice without_tiles = simple;
  const bool recomputes = std::find(source.rules.begin(), source.rules.end(), kRecomputingRule) != source.rules.end();
  if (recomputes) without_tiles.rules.insert(kRecomputingRule);
  add_pair_sums(source, without_tiles, points);
  // A block over a part of all rows would take them one by one.
  const bool prefixes = is_of_prefixes(source, simple);
  if (prefixes) add_prefixes(source, simple, points);
  const std::int64_t parts = std::max(source.limits.units, 2);
  for (const int axis : meeting_axes(source.variants, simple.rules, source.split_axes, parts)) {
    add_row_values(source, {simple.rules, axis, parts}, points);
  }
  add_few_results(source, without_tiles.rules, points);
  if (recomputes) add_few_results(source, simple.rules, points);
  if (simple.rules != source.usual_rules) add_few_results(source, source.usual_rules, points);
  add_strips(source, simple.rules, points);
  add_column_values(source, simple.rules, ColumnSums::heaviest, points);
  add_short_runs(source, simple.rules, points);
  if (!prefixes) add_prefixes(source, simple, points);
  if (!solves) add_recurrences(source, simple, false, points);
  if (!steps) add_distributed(source, simple, points);
  add_windows(source, simple, points);
  add_short_sums(source, simple, points);
  add_small_blocks(source, simple, points);
  if (recomputes) add_row_values(source, without_tiles, points);
  add_short_rows(source, simple, points);
  if (!solves) add_row_values(source, simple, points);
  if (simple.rules != source.usual_rules) add_row_values(source, {source.usual_rules}, points);
  add_column_values(source, simple.rules, ColumnSums::lighter, points);
  // At last what is right for any nest: each statement in kernels of its own, in a shape that suits it.
  points.push_back(completed(source, simple, Fusion::none, {{"threads", 256}, {"cluster", 1}}));
  return of_parts.empty() ? points : by_turns(std::move(of_parts), std::move(points));
}

}  // namespace nestor
