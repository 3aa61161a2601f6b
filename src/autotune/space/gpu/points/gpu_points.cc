// Likely shapes of blocks and tiles, written as values of parameters.
#include "autotune/space/gpu/points/gpu_points.h"

#include "autotune/space/gpu/points/column_points.h"
#include "autotune/space/gpu/points/recurrence_points.h"
#include "autotune/space/gpu/points/tensor_core_points.h"
#include "autotune/space/gpu/scattered_sums.h"
#include "autotune/space/gpu/short_rows.h"
#include "autotune/space/gpu/tensor_rules.h"
#include "autotune/space/gpu/tensor_steps.h"
#include "autotune/space/gpu/transposed_rows.h"
#include "autotune/space/group_choice.h"
#include "autotune/space/pair_sums.h"
#include "autotune/space/product_points.h"
#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/rule_steps.h"
#include "autotune/space/window_points.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/rounding.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace nestor {
namespace {

/// Do statements of a step within the common loops reduce what others of the step read? Blocks of a cluster would not see it.
bool reduces_in_steps(const Nest& nest, const RuleVariant& variant, const FusionGroup& group) {
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const LoopGroup& loop_group = variant.structure.loop_groups[static_cast<std::size_t>(u)];
    return loop_group.statements.size() > 1 &&
           std::any_of(loop_group.statements.begin(), loop_group.statements.end(),
                       [&](const std::string& name) { return nest.statement(name).reduction.has_value(); });
  });
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
  if (in_steps || reduces_in_steps(source.variants.nest(variant), variant, main))
    std::erase_if(shapes, [](const GpuShape& shape) { return shape.cluster > 1; });
  const auto add = [&](const GpuShape& shape, std::int64_t rows_of_part) {
    for (const GpuResidence& residence : kept ? likely_residences(shape, limits) : std::vector<GpuResidence>{{}}) {
      if (in_steps && residence.persistent > 0) continue;
      NamedValues values = fused_values(source, choice, fusion);
      for (const Parameter& parameter : source.parameters) {
        if (parameter.name.starts_with("tile.")) values[parameter.name] = main.part ? kCombinedColumns : 1;
      }
      if (!main.part) {
        // Rows of groups with more loops than the main one has, as what is made of each element once a sum of all is known.
        for (const FusionGroup& group : source.variants.fusion_groups(variant, fusion)) {
          for (const auto& [name, tile] : values_of(row_tiles(variant.structure, group), variant.structure, group, 1)) {
            if (tile == 0) values[name] = tile;
          }
        }
        for (const auto& [name, tile] : values_of(tiles, variant.structure, main, shape.rows)) values[name] = tile;
      }
      const std::int64_t resident = resident_blocks(shape, limits);
      const std::int64_t at_once = residence.persistent > 0 ? resident : std::max<std::int64_t>(resident / 2, 1);
      values["num_splits"] = limits.units * at_once / shape.cluster;
      values["threads"] = shape.threads;
      values["cluster"] = shape.cluster;
      values["staging"] = static_cast<std::int64_t>(residence.staging);
      values["streaming"] = 0;
      values["part_tile"] = rows_of_part;
      values["persistent"] = main.part ? 0 : residence.persistent;
      values["prefetch"] = residence.prefetch;
      if (main.part && residence.prefetch == 0) {  // then without: copies ahead want rows in registers
        values["prefetch"] = 2;
        points.push_back(values);
        values["prefetch"] = 0;
      }
      points.push_back(std::move(values));
    }
  };
  for (GpuShape shape : shapes) {
    if (!main.part) {
      add(shape_of_rows(tiles, shape), 1);
      continue;
    }
    // A block over a part takes several of the rows that keep no warp busy at a time. Others come one by one: narrow ones by few
    // threads, so that there is room for more blocks.
    if (shape.threads < nvptx::kWarpThreads * shape.rows) add(shape, shape.rows);
    shape.threads = std::max<std::int64_t>(shape.threads / shape.rows, nvptx::kWarpThreads);
    add(shape, 1);
  }
}

/// Everything fused; rows that no cluster holds are left to kernels of their own. Where later sums share fewer loops than the
/// heaviest work has, as a mean over the rows of an image, its rows alone come next.
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

/// Products on plain lanes: of several, each in a kernel of its own first, which has no other statements to keep rows for. Then
/// everything together, and what shares loops.
void add_product_values(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(choice);
  const Nest& nest = source.variants.nest(variant);
  std::vector<std::vector<NamedValues>> products;
  std::size_t main = 0;
  for (const FusionGroup& group : source.variants.fusion_groups(variant, Fusion::alike)) {
    products.push_back(likely_product_tiles(nest, variant.structure, group, source.limits));
    if (products.back().empty()) {
      products.pop_back();
    } else if (&group == &source.variants.heaviest(variant, Fusion::alike)) {
      main = products.size() - 1;
    }
  }
  // Tiles with two other long sides are chosen with their groups.
  const auto has_other_sides = [&](const NamedValues& tiles, const NamedValues& other) {
    int sides = 0, others = 0;
    for (const Axis& axis : variant.structure.axes) {
      const auto own = tiles.find("tile." + axis.name), its = other.find("tile." + axis.name);
      if (axis.extent < nvptx::kWarpThreads || own == tiles.end()) continue;
      sides += own->second > 1 ? 1 : 0;
      others += own->second == 1 && its != other.end() && its->second > 1 ? 1 : 0;
    }
    return sides > 1 && others > 0;
  };
  if (!products.empty() && has_other_sides(products.front().front(), products[main].front()))
    std::swap(products.front(), products[main]);
  for (std::size_t k = 0; products.size() > 1 && k < products.front().size(); ++k) {
    NamedValues tiles = products.front()[k];
    for (const std::vector<NamedValues>& other : products) {
      if (has_other_sides(products.front()[k], other[std::min(k, other.size() - 1)])) continue;
      for (const auto& [name, value] : other[std::min(k, other.size() - 1)]) tiles[name] = std::max(tiles[name], value);
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

/// Points of a sum of the loop group along the axis of that name; 0: it has none.
std::int64_t terms_along(const NestStructure& structure, const LoopGroup& loop_group, const std::string& axis) {
  for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
    if (loop_group.reduced[k] && structure.axes[static_cast<std::size_t>(loop_group.axes[k])].name == axis)
      return loop_group.extents[k];
  }
  return 0;
}

/// Sums that have parts: along which axis, how many terms each has at least, and whether terms may be other than products of two.
struct SumsInParts {
  std::string axis;
  std::int64_t fewest_terms = 2;
  bool other_terms = false;
};

/// The group of the largest such product; null: there is none, another one is larger, or it is no large part of all work.
const FusionGroup* heaviest_product(const GpuPointSource& source, const RuleVariant& variant, Fusion fusion,
                                    const SumsInParts& wanted) {
  constexpr double kPart = 0.25, kAlike = 0.9;
  const Nest& nest = source.variants.nest(variant);
  const auto has_tiles = [&](const FusionGroup& each) {
    return multiplies(nest, variant.structure, {each.heaviest}) ||
           (wanted.other_terms && !tiled_by_products(nest, variant.structure, each).empty());
  };
  const auto has_terms = [&](const FusionGroup& each) {
    const LoopGroup& heavy = variant.structure.loop_groups[static_cast<std::size_t>(each.heaviest)];
    return has_tiles(each) && terms_along(variant.structure, heavy, wanted.axis) >= wanted.fewest_terms;
  };
  const FusionGroup *group = heaviest_of(source.variants, variant, fusion, has_terms),
                    *largest = heaviest_of(source.variants, variant, fusion, has_tiles);
  if (group == nullptr) return nullptr;
  if (group != largest && (heaviest_points(variant, *group) < kAlike * heaviest_points(variant, *largest) ||
                           !multiplies(nest, variant.structure, {largest->heaviest})))
    return nullptr;
  const double all = heaviest_points(variant, source.variants.heaviest(variant, fusion));
  return heaviest_points(variant, *group) >= kPart * all ? group : nullptr;
}

/// Tiles of so many rows and columns that results have.
std::int64_t tiles_of_results(const LoopGroup& loop_group, std::int64_t tile) {
  std::int64_t tiles = 1;
  for (std::size_t k = 0; k < loop_group.extents.size(); ++k)
    tiles *= loop_group.reduced[k] ? 1 : ceil_div(loop_group.extents[k], tile);
  return tiles;
}

/// Do results fill tiles of so many rows and columns?
bool fills_tiles(const LoopGroup& loop_group, std::int64_t tile) {
  constexpr double kFilled = 0.75;
  bool fills = true;
  for (std::size_t k = 0; k < loop_group.extents.size(); ++k) {
    const auto extent = static_cast<double>(loop_group.extents[k]);
    fills =
        fills && (loop_group.reduced[k] || extent >= kFilled * static_cast<double>(tile * ceil_div(loop_group.extents[k], tile)));
  }
  return fills;
}

/// The likely tiles of the heaviest product, of whose sums each block has a part; `side`: the square ones of so many rows alone; 0: all.
void add_tiles_of_parts(const GpuPointSource& source, const RuleChoice& cut, const SumsInParts& wanted, std::int64_t side,
                        std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(cut);
  for (const Fusion fusion : {Fusion::alike, Fusion::none}) {
    const FusionGroup* parts = heaviest_product(source, variant, fusion, wanted);
    if (parts == nullptr) continue;
    std::vector<NamedValues> tiles =
        likely_product_tiles(source.variants.nest(variant), variant.structure, *parts, source.limits);
    if (side > 0) {
      std::erase_if(tiles, [&](const NamedValues& values) {
        return std::none_of(values.begin(), values.end(),
                            [&](const auto& value) { return value.first.starts_with("tile.") && value.second == side; });
      });
    }
    for (NamedValues& values : tiles) points.push_back(completed(source, cut, fusion, std::move(values)));
    if (!tiles.empty()) break;
  }
}

/// Products on plain lanes with few results and long sums: parts of these keep all units busy, and others along the same dims have
/// parts, too. Large tiles read less, and a thread has more results of what it reads.
void add_parts_of_products(const GpuPointSource& source, const RuleChoice& choice, bool other_terms,
                           std::vector<NamedValues>& points) {
  constexpr std::int64_t kTile = 64, kLargeTile = 128, kLongestPart = 2048, kRounds = 2;
  const RuleVariant& whole = source.variants.at(choice);
  for (const int split : source.split_axes) {
    SumsInParts wanted{whole.structure.axes[static_cast<std::size_t>(split)].name, 2 * kLongestPart, other_terms};
    const FusionGroup* group = heaviest_product(source, whole, Fusion::none, wanted);
    if (group == nullptr) continue;
    const LoopGroup& heavy = whole.structure.loop_groups[static_cast<std::size_t>(group->heaviest)];
    if (tiles_of_results(heavy, kTile) * kRounds > source.limits.units) continue;
    wanted.fewest_terms = 2;  // of a part
    const std::vector<std::int64_t> sides = fills_tiles(heavy, kLargeTile) ? std::vector{kLargeTile, kTile} : std::vector{kTile};
    for (const std::int64_t rounds : {kRounds, std::int64_t{1}, 2 * kRounds}) {
      for (const std::int64_t side : sides) {
        const RuleChoice cut{choice.rules, split, ceil_div(rounds * source.limits.units, tiles_of_results(heavy, side))};
        add_tiles_of_parts(source, cut, wanted, side == kLargeTile ? side : 0, points);
      }
    }
  }
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

/// Work tiles of the loop group with so many elements of the axis in each, and the terms of a result.
struct TilesAndTerms {
  std::int64_t tiles = 1, terms = 1;
};

TilesAndTerms tiles_and_terms(const LoopGroup& loop_group, int axis, std::int64_t elements) {
  TilesAndTerms found;
  for (std::size_t k = 0; k < loop_group.extents.size(); ++k) {
    const std::int64_t extent = loop_group.extents[k];
    (loop_group.reduced[k] ? found.terms : found.tiles) *= loop_group.axes[k] == axis ? ceil_div(extent, elements) : extent;
  }
  return found;
}

/// Sums whose terms serve many results, where these are the heaviest work: parts of the sums keep all units busy.
void add_shared_terms(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  constexpr std::int64_t kFewestResults = 8, kTermsOfThread = 32;
  const RuleVariant& whole = source.variants.at(choice);
  const Nest& nest = source.variants.nest(whole);
  const FusionGroup& group = source.variants.heaviest(whole, Fusion::none);
  const int axis = axis_of_shared_terms(nest, whole.structure, group);
  if (axis < 0 || multiplies(nest) || whole.structure.axes[static_cast<std::size_t>(axis)].extent < kFewestResults) return;
  const LoopGroup& heavy = whole.structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  const auto [tiles, terms] = tiles_and_terms(heavy, axis, kSumsOfThread);
  const std::string name = whole.structure.axes[static_cast<std::size_t>(axis)].name;
  for (const int split : source.split_axes) {
    const int position = heavy.position_of(split);
    if (position < 0 || !heavy.reduced[static_cast<std::size_t>(position)]) continue;
    for (const std::int64_t warps : {32, 8}) {
      const std::int64_t parts =
          std::min({ceil_div(warps * source.limits.units, tiles), heavy.extents[static_cast<std::size_t>(position)] / 2,
                    terms / (kTermsOfThread * nvptx::kWarpThreads)});
      if (parts < 2) continue;
      const RuleChoice cut{choice.rules, split, parts};
      const RuleVariant& variant = source.variants.at(cut);
      // By themselves; then with what they start from, and what is made of a part's points.
      for (const Fusion fusion : {Fusion::none, Fusion::careful}) {
        const FusionGroup* sums = heaviest_of(source.variants, variant, fusion, [&](const FusionGroup& each) {
          return axis_named(variant, each, name) >= 0 && sums_up(variant, each);
        });
        if (sums == nullptr) continue;
        NamedValues values = values_of_shared_terms(variant.structure, *sums, axis_named(variant, *sums, name));
        points.push_back(completed(source, cut, fusion, std::move(values)));
      }
    }
  }
}

/// Sums to whose terms data says where they belong: a thread has many, and goes through the terms for all of them.
void add_scattered(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(choice);
  const Nest& nest = source.variants.nest(variant);
  if (!scatters_terms(nest, variant.structure, source.variants.heaviest(variant, Fusion::none))) return;
  for (const Fusion fusion : {Fusion::careful, Fusion::none}) {
    // Large blocks, each warp of which goes through all terms; then small ones of a warp.
    for (ScatteredBlocks blocks : {ScatteredBlocks{.threads = 128, .fewest = source.limits.units},
                                   ScatteredBlocks{.threads = nvptx::kWarpThreads, .fewest = 8 * source.limits.units}}) {
      if (fusion == Fusion::none) blocks.most = std::numeric_limits<std::int64_t>::max();
      NamedValues values;
      for (const FusionGroup& group : source.variants.fusion_groups(variant, fusion))
        values.merge(values_of_scattered(nest, variant.structure, group, blocks));
      if (!values.empty()) points.push_back(completed(source, choice, fusion, std::move(values)));
    }
  }
}

/// Do all factors that the second choice stores, and the first does not, take several operations, and are they read by so few results each that
/// storing them takes more than making them where they are multiplied?
bool has_few_columns(const GpuPointSource& source, const RuleChoice& made, const RuleChoice& stored) {
  constexpr double kFewColumns = kMostCommonSums;
  const RuleVariant& variant = source.variants.at(stored);
  const Nest &before = source.variants.nest(source.variants.at(made)), &after = source.variants.nest(variant);
  const auto points = [&](const Statement& statement) {
    const std::vector<LoopGroup>& all = variant.structure.loop_groups;
    return std::find_if(all.begin(), all.end(),
                        [&](const LoopGroup& each) {
                          return std::find(each.statements.begin(), each.statements.end(), statement.name) !=
                                 each.statements.end();
                        })
        ->points;
  };
  bool any = false, few = true;
  for (const Statement& factor : after.statements) {
    if (before.find_statement(factor.name) != nullptr) continue;
    any = true;
    int operations = 0;
    factor.value.visit([&](const ScalarExpr& expr) { operations += expr.args().empty() ? 0 : 1; });
    few = few && operations >= nvptx::kWorthSharing;
    for (const Statement* reader : readers_of(after, factor.write.tensor))
      few = few && points(*reader) <= kFewColumns * points(factor);
  }
  return any && few;
}

/// Sums of which a few neighbours have a factor in common: a warp has all of these, and makes the factor once (most_rows_at_once()).
void add_common_factors(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(choice);
  const FusionGroup& group = source.variants.heaviest(variant, Fusion::maximal);
  const LoopGroup& heavy = variant.structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  for (const int axis : group.axes) {
    const std::int64_t extent = variant.structure.axes[static_cast<std::size_t>(axis)].extent;
    const int position = heavy.position_of(axis);
    if (position < 0 || extent < 2 || extent > kMostCommonSums) continue;
    NamedValues values{{"threads", nvptx::kWarpThreads}, {"cluster", 1}, {"reduction_axis", -1}};
    for (const int other : group.axes) {
      const auto tile = other == axis ? std::bit_ceil(static_cast<std::uint64_t>(extent)) : 1;
      values["tile." + variant.structure.axes[static_cast<std::size_t>(other)].name] = static_cast<std::int64_t>(tile);
    }
    points.push_back(completed(source, choice, Fusion::maximal, std::move(values)));
  }
}

/// The first guess with other shapes of the products beside its main group, behind a few others.
void add_shapes_beside(const GpuPointSource& source, std::vector<NamedValues>& points) {
  constexpr std::size_t kFewGuesses = 3;
  const auto is_wanted = [](const Parameter& parameter) { return parameter.name == kShapeBesideParameter; };
  if (points.empty() || std::none_of(source.parameters.begin(), source.parameters.end(), is_wanted)) return;
  for (const std::int64_t shape : {4, 1}) {
    NamedValues values = points.front();
    values[kShapeBesideParameter] = shape;
    points.insert(points.begin() + static_cast<std::ptrdiff_t>(std::min(kFewGuesses, points.size())), std::move(values));
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
    add_shapes_beside(source, points);
    if (parts_may_cost_more(source.variants, source.tensor_rules.front(), source.limits)) of_parts.swap(points);
  }
  RuleChoice simple{source.usual_rules};
  std::erase_if(simple.rules, [](const std::string& rule) { return makes_composites(rule); });
  RuleChoice without_tiles = simple;
  const bool recomputes = source.has_rule(kRecomputingRule);
  if (recomputes) without_tiles.rules.insert(kRecomputingRule);
  add_row_sequences(source, without_tiles, points);
  // States that no kernel stores: each thread has its own elements through all steps.
  if (source.has_rule(kFoldingRule) && !multiplies(source.variants.nest(source.variants.at(simple)))) {
    RuleChoice folded = simple;
    folded.rules.insert(kFoldingRule);
    add_own_elements(source, folded, points);
    add_row_values(source, folded, points);
    add_distributed(source, folded, points);
  }
  const bool steps = has_large_steps(source, simple);
  if (steps) add_distributed(source, simple, points);
  const bool solves = solves_systems(source, simple);
  if (solves) add_recurrences(source, simple, true, points);
  RuleChoice whole_factors = simple;
  const bool stores_factors = whole_factors.rules.erase(kFactorRule) > 0;
  // Of few columns, as where one token meets packed weights: all of it in one kernel, before anything else.
  if (stores_factors && has_few_columns(source, whole_factors, simple)) {
    std::vector<NamedValues> made;
    add_common_factors(source, whole_factors, made);
    add_few_results(source, whole_factors.rules, made);
    add_row_values(source, whole_factors, made);
    add_product_values(source, whole_factors, made);
    points.insert(points.begin(), made.begin(), made.end());
  }
  std::vector<NamedValues> parts_of_stored, parts_of_whole;
  add_parts_of_products(source, simple, false, parts_of_stored);
  // A factor of a few operations may take less than to store it.
  if (stores_factors && !parts_of_stored.empty()) add_parts_of_products(source, whole_factors, true, parts_of_whole);
  for (NamedValues& values : by_turns(std::move(parts_of_stored), std::move(parts_of_whole))) points.push_back(std::move(values));
  // Products for each place along memory, whose factors that rule would copy across it, and whose tiles would read across it.
  if (stores_factors || multiplies(source.variants.nest(source.variants.at(simple))))
    add_column_values(source, whole_factors.rules, ColumnSums::products, points);
  // What is reduced to few elements beside them would be one block's.
  RuleChoice rows = simple;
  if (source.has_rule(kRowsRule)) rows.rules.insert(kRowsRule);
  add_product_values(source, rows, points);
  if (rows.rules != simple.rules && !multiplies(source.variants.nest(source.variants.at(simple)))) {
    for (const ColumnSums kind : {ColumnSums::heaviest, ColumnSums::lighter}) add_column_values(source, rows.rules, kind, points);
    // Values that a later kernel computes again need not go through memory.
    if (recomputes) {
      RuleChoice computed = rows;
      computed.rules.insert(kRecomputingRule);
      add_row_values(source, computed, points);
    }
    add_row_values(source, rows, points);
  }
  add_scattered(source, simple, points);
  add_pair_sums(source, without_tiles, points);
  add_shared_terms(source, simple, points);
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
