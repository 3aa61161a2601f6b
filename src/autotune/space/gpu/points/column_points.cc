// Columns, strips of rows, and parts of long sums.
#include "autotune/space/gpu/points/column_points.h"

#include "autotune/space/gpu/column_strips.h"
#include "autotune/space/gpu/short_rows.h"
#include "autotune/space/gpu/transposed_rows.h"
#include "autotune/space/structure/axes.h"
#include "support/rounding.h"

#include <algorithm>
#include <map>
#include <utility>

namespace nestor {
namespace {

/// How many parts keep in the first cache what a block of `columns` columns reads of an input, where the group's sums read it
/// again. 0: they read none twice.
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

/// Are there products of matrices whose operands do not both lie along the columns? Of such as do, tiles would read a line of
/// memory for each element.
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

/// Does the group, with about as many points as `sums`, sum up few terms for each result? Then what holds the chip up are the long sums.
bool is_outweighed(const RuleVariant& variant, const FusionGroup& group, const FusionGroup& sums) {
  constexpr double kFewTerms = 32;
  const auto terms_of = [&](const FusionGroup& each) {
    return terms_of_sum(variant.structure.loop_groups[static_cast<std::size_t>(each.heaviest)]);
  };
  return heaviest_points(variant, group) <= 2 * heaviest_points(variant, sums) && terms_of(group) > 1 &&
         terms_of(group) <= kFewTerms && terms_of(sums) > kFewTerms;
}

}  // namespace

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
  } else if ((sums == &largest || is_outweighed(whole, largest, *sums)) != (kind == ColumnSums::heaviest)) {
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

}  // namespace nestor
