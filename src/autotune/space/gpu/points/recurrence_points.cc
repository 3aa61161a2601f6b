// Serial loops inside threads, in blocks, and over launches.
#include "autotune/space/gpu/points/recurrence_points.h"

#include "autotune/space/distribution.h"
#include "autotune/space/gpu/transposed_rows.h"
#include "autotune/space/structure/axes.h"
#include "support/rounding.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

namespace nestor {
namespace {

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

/// A recurrence whose statements have loops of their own in each step, or one of a single statement, and the independent axes
/// around these.
struct DistributedGroup {
  const FusionGroup* group = nullptr;
  std::vector<int> independent = {};
};

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

/// Of the loops around what a step has for one sequence.
std::vector<int> axes_around(const FusionGroup& group, const std::vector<int>& independent) {
  std::vector<int> around = serial_axes(group);
  around.insert(around.end(), independent.begin(), independent.end());
  return around;
}

/// Points of one of the heaviest statements, the widest, in a step of one sequence.
std::int64_t widest_of_step(const RuleVariant& variant, const FusionGroup& group, const std::vector<int>& independent) {
  const std::vector<int> around = axes_around(group, independent);
  const LoopGroup& heavy = variant.structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  std::int64_t points = 1;
  for (std::size_t k = 0; k < heavy.extents.size(); ++k)
    points *= std::find(around.begin(), around.end(), heavy.axes[k]) == around.end() ? heavy.extents[k] : 1;
  return points;
}

/// Threads of a block, and sequences that it goes through side by side.
struct Sequences {
  std::int64_t threads, tile;
};

/// Where a step of one sequence keeps no block busy: several sequences a block, while there are enough for some in each thread, or for the
/// lanes of a warp in each multiprocessor where a step leaves most of them idle.
std::vector<Sequences> short_sequences(const GpuPointSource& source, const RuleVariant& variant, const FusionGroup& group,
                                       const std::vector<int>& independent) {
  constexpr double kShort = 512, kFew = nvptx::kWarpThreads / 2;  // points of a step
  constexpr double kSequences = 256;                              // of a multiprocessor, side by side
  if (independent.empty()) return {};
  const double step =
      heaviest_points(variant, group) / (extent_of(variant, independent) * extent_of(variant, serial_axes(group)));
  const double sequences = extent_of(variant, {independent.back()}) / source.limits.units;
  if (step <= kShort && sequences >= kSequences) return {{128, 128}, {128, 512}, {64, 256}};
  if (step <= kFew && sequences >= nvptx::kWarpThreads) return {{32, 32}, {64, 64}, {128, 128}};
  return {};
}

/// Do the group's statements, none of which is a reduction, have steps of a recurrence within the common loops?
bool has_steps_inside(const Nest& nest, const RuleVariant& variant, const FusionGroup& group) {
  bool steps = false;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = variant.structure.loop_groups[static_cast<std::size_t>(u)];
    std::set<std::string> written;
    for (const std::string& name : loop_group.statements) {
      if (nest.statement(name).reduction) return false;
      written.insert(nest.statement(name).write.tensor);
    }
    const auto reads_own = [&](const std::string& name) {
      const std::vector<Access>& reads = nest.statement(name).reads;
      return std::any_of(reads.begin(), reads.end(), [&](const Access& read) { return written.contains(read.tensor); });
    };
    bool inside = false;
    for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
      const bool common = std::find(group.axes.begin(), group.axes.end(), loop_group.axes[k]) != group.axes.end();
      inside = inside || (!common && loop_group.extents[k] > 1);
    }
    steps = steps || (inside && std::any_of(loop_group.statements.begin(), loop_group.statements.end(), reads_own));
  }
  return steps;
}

/// Has a step nothing for a row but sums of it, the widest of more points than a warp has at once, and what follows from them?
bool sums_up_rows(const Nest& nest, const RuleVariant& variant, const FusionGroup& group, const std::vector<int>& independent) {
  const std::vector<int> around = axes_around(group, independent);
  const auto is_around = [&](int axis) { return std::find(around.begin(), around.end(), axis) != around.end(); };
  bool sums = false;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = variant.structure.loop_groups[static_cast<std::size_t>(u)];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      const std::vector<int> written = followed_axes(loop_group, statement.write);
      if (!std::all_of(written.begin(), written.end(), [&](int axis) { return axis < 0 || is_around(axis); })) return false;
      sums = sums || statement.reduction.has_value();
    }
  }
  return sums && widest_of_step(variant, group, independent) > 4 * nvptx::kWarpThreads;
}

}  // namespace

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

void add_row_sequences(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  constexpr std::int64_t kElementsOfThread = 32, kMostThreads = 256, kRows = 8;  // rows of a multiprocessor
  const RuleVariant& variant = source.variants.at(choice);
  const std::vector<FusionGroup>& groups = source.variants.fusion_groups(variant, Fusion::maximal);
  const auto [steps, independent] = heaviest_distributed(source.variants, variant, Fusion::alike);
  if (steps == nullptr || independent.empty() || groups.size() != 1 || steps->loop_groups == groups.front().loop_groups) return;
  const FusionGroup& all = groups.front();
  if (std::set(all.axes.begin(), all.axes.end()) != std::set(independent.begin(), independent.end())) return;
  if (!sums_up_rows(source.variants.nest(variant), variant, *steps, independent)) return;
  if (extent_of(variant, independent) < static_cast<double>(kRows * source.limits.units)) return;
  const auto widest = static_cast<std::uint64_t>(ceil_div(widest_of_step(variant, *steps, independent), kElementsOfThread));
  // Fewer threads wait less for each other in each step.
  const auto least =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(std::bit_ceil(widest)), nvptx::kWarpThreads, kMostThreads);
  for (const std::int64_t threads : {least, 2 * least, 4 * least}) {
    NamedValues values{{"threads", threads}, {"cluster", 1}, {"reduction_axis", -1}};
    for (const int axis : all.axes) values["tile." + variant.structure.axes[static_cast<std::size_t>(axis)].name] = 1;
    points.push_back(completed(source, choice, Fusion::maximal, std::move(values)));
  }
}

void add_own_elements(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  constexpr std::int64_t kElementsOfThread = 4;
  const RuleVariant& variant = source.variants.at(choice);
  const Nest& nest = source.variants.nest(variant);
  for (const Fusion fusion : {Fusion::maximal, Fusion::careful}) {
    const FusionGroup& group = source.variants.heaviest(variant, fusion);
    if (group.part || group.axes.empty() || !serial_axes(group).empty() || !has_steps_inside(nest, variant, group)) continue;
    for (const std::int64_t threads : {64, 32, 128}) {
      NamedValues values{{"threads", threads}, {"cluster", 1}, {"reduction_axis", -1}, {"persistent", 0},
                         {"prefetch", 0},      {"staging", 0}, {"streaming", 0}};
      for (const int axis : group.axes)
        values["tile." + variant.structure.axes[static_cast<std::size_t>(axis)].name] =
            axis == group.axes.back() ? kElementsOfThread * threads : 1;
      points.push_back(completed(source, choice, fusion, std::move(values)));
    }
    break;
  }
}

void add_distributed(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const RuleVariant& variant = source.variants.at(choice);
  const auto tile_of = [&](int axis) { return "tile." + variant.structure.axes[static_cast<std::size_t>(axis)].name; };
  constexpr std::int64_t kStepOfWarp = 4 * nvptx::kWarpThreads, kStepOfBlock = 64 * 256;
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
    for (const auto& [threads, tile] : short_sequences(source, variant, *group, independent))
      add_sequences(threads, tile, points);
    // Of a step that a warp has done at once, other warps would do the same: threads wait for each other, and fewer sequences find room.
    const std::int64_t widest = widest_of_step(variant, *group, independent);
    const bool short_step = widest <= kStepOfWarp;
    // Of a few long ones most multiprocessors would have none.
    const bool idle = widest > kStepOfBlock && extent_of(variant, independent) < source.limits.units;
    if (short_step) add_sequences(nvptx::kWarpThreads, 1, points);
    for (const std::int64_t threads : {256, 64, 128, 512})
      add_sequences(threads, 1, threads == 256 && !short_step && !idle ? points : others);
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

bool has_large_steps(const GpuPointSource& source, const RuleChoice& choice) {
  constexpr double kPart = 0.25;
  const RuleVariant& variant = source.variants.at(choice);
  const auto [group, independent] = heaviest_distributed(source.variants, variant, Fusion::none);
  if (group == nullptr) return false;
  const double steps = extent_of(variant, independent) * extent_of(variant, serial_axes(*group));
  const double points = heaviest_points(variant, *group);
  const bool comes_first = points >= static_cast<double>(nvptx::kWarpThreads) * steps ||
                           !short_sequences(source, variant, *group, independent).empty();
  return comes_first && points >= kPart * heaviest_points(variant, source.variants.heaviest(variant, Fusion::none));
}

bool solves_systems(const GpuPointSource& source, const RuleChoice& choice) {
  constexpr double kPart = 0.25;
  const RuleVariant& variant = source.variants.at(choice);
  const FusionGroup* group = heaviest_recurrence(source.variants, variant, Fusion::none);
  if (group == nullptr || !solves_system(source.variants.nest(variant), variant.structure, *group)) return false;
  return heaviest_points(variant, *group) >= kPart * heaviest_points(variant, source.variants.heaviest(variant, Fusion::none));
}

bool is_of_prefixes(const GpuPointSource& source, const RuleChoice& choice) {
  const RuleVariant& variant = source.variants.at(choice);
  return axis_of_prefixes(source.variants.nest(variant), variant.structure, source.variants.heaviest(variant, Fusion::none)) >= 0;
}

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

}  // namespace nestor
