// Rules applied, structure analysed, fusion_groups found.
#include "autotune/space/structure/rule_variants.h"

#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/group_search.h"
#include "autotune/space/structure/nest_analysis.h"
#include "autotune/space/structure/part_groups.h"
#include "autotune/space/structure/preparation.h"
#include "autotune/space/structure/rule_steps.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace nestor {
namespace {

/// Of all loop groups.
double points_of(const NestStructure& structure, const FusionGroup& group) {
  double points = 0;
  for (const int u : group.loop_groups) points += structure.loop_groups[u].points;
  return points;
}

/// Sums of products of matrices that reductions along the axis are made of; none where such products sum up along it themselves.
std::set<std::string> reduced_products(const Nest& nest, const NestStructure& structure, int axis) {
  std::set<std::string> read, products;
  for (std::size_t u = structure.loop_groups.size(); u-- > 0;) {
    const LoopGroup& loop_group = structure.loop_groups[u];
    const int position = loop_group.position_of(axis);
    const bool reduces = position >= 0 && loop_group.reduced[static_cast<std::size_t>(position)];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      if (multiplies_matrices(statement)) {
        if (reduces) return {};
        if (read.contains(statement.write.tensor)) products.insert(statement.write.tensor);
      } else if (reduces || read.contains(statement.write.tensor)) {
        for (const Access& each : statement.reads) read.insert(each.tensor);
      }
    }
  }
  return products;
}

/// Axes along which other products than those of the axis are reduced.
std::vector<int> axes_of_other_products(const Nest& nest, const NestStructure& structure, int axis) {
  std::vector<int> axes;
  std::set<std::string> taken = reduced_products(nest, structure, axis);
  for (int other = 0; other < static_cast<int>(structure.axes.size()); ++other) {
    const std::set<std::string> products = other == axis ? std::set<std::string>{} : reduced_products(nest, structure, other);
    const auto is_taken = [&](const std::string& tensor) { return taken.contains(tensor); };
    if (products.empty() || std::any_of(products.begin(), products.end(), is_taken)) continue;
    taken.insert(products.begin(), products.end());
    axes.push_back(other);
  }
  return axes;
}

}  // namespace

std::set<int> RuleVariants::axes_once_one(const RuleChoice& choice, const NestStructure& structure) {
  std::set<int> axes{choice.split};
  std::set<std::string> rules = choice.rules;
  if (rules.erase(kRecomputingRule) == 0) return axes;
  const std::vector<LoopGroup>& stored = at({rules}).structure.loop_groups;
  std::map<std::string, int> before;  // loops, by axis
  for (const LoopGroup& loop_group : stored) {
    for (std::size_t k = 0; k < loop_group.loops.size(); ++k) before.emplace(loop_group.loops[k], loop_group.axes[k]);
  }
  std::set<int> once;
  const auto for_each_known = [&](const auto& visit) {
    for (const LoopGroup& loop_group : structure.loop_groups) {
      for (std::size_t k = 0; k < loop_group.loops.size(); ++k) {
        if (const auto known = before.find(loop_group.loops[k]); known != before.end()) visit(loop_group.axes[k], known->second);
      }
    }
  };
  for_each_known([&](int axis, int old) {
    if (axis == choice.split) once.insert(old);
  });
  for_each_known([&](int axis, int old) {
    if (once.contains(old)) axes.insert(axis);
  });
  return axes;
}

const RuleVariant& RuleVariants::at(const RuleChoice& choice) {
  const auto known = variants_.find(choice);
  if (known != variants_.end()) return *known->second;
  RuleVariant made;
  if (choice.split < 0) {
    made.rules = rule_steps(schedules_, choice.rules);
    if (const auto same = whole_.find(&schedules_.after_rules(made.rules)); same != whole_.end())
      return *variants_.emplace(choice, same->second).first->second;
  } else {
    const RuleVariant& whole = at({choice.rules});
    made.tiles_are_parts = choice.tile > 0;
    const auto split = [&](const std::set<int>& axes, std::int64_t parts, std::int64_t multiple) {
      made.rules = split_steps(schedules_, made.rules, whole.structure, axes, parts, multiple);
    };
    made.rules = whole.rules;
    if (!made.tiles_are_parts) split(axes_once_one(choice, whole.structure), choice.parts, choice.multiple);
    // A part for each point, rounded up to a tile of them.
    const auto split_into_tiles = [&](int axis) {
      split({axis}, std::max<std::int64_t>(whole.structure.axes[static_cast<std::size_t>(axis)].extent, 1), choice.tile);
    };
    if (made.tiles_are_parts) {
      split_into_tiles(choice.split);
      for (const int axis : axes_of_other_products(nest(whole), whole.structure, choice.split)) split_into_tiles(axis);
    }
  }
  made.structure = analyse(schedules_.base(made.rules), sizes_);
  made_.push_back(std::move(made));
  if (choice.split < 0) whole_.emplace(&schedules_.after_rules(made_.back().rules), &made_.back());
  return *variants_.emplace(choice, &made_.back()).first->second;
}

bool RuleVariants::leave_statements(const std::set<std::string>& rules, const RuleVariant& variant) {
  const Schedule& without = schedules_.after_rules(rule_steps(schedules_, rules));
  const Nest &some = without.nest(), &all = nest(variant);
  const auto same_composite = [](const Composite& a, const Composite& b) { return a.rule == b.rule && a.lead == b.lead; };
  const auto same_access = [](const Access& a, const Access& b) {
    return a.tensor == b.tensor && isl_map_plain_is_equal(a.relation.get(), b.relation.get()) == isl_bool_true;
  };
  const auto same = [&](const Statement& a, const Statement& b) {
    return a.name == b.name && a.group == b.group && a.reduction == b.reduction && same_access(a.write, b.write) &&
           isl_set_plain_is_equal(a.domain.get(), b.domain.get()) == isl_bool_true &&
           multiplies_matrices(a) == multiplies_matrices(b) &&
           std::equal(a.reads.begin(), a.reads.end(), b.reads.begin(), b.reads.end(), same_access);
  };
  const std::vector<Composite>&of_some = without.composites(), &of_all = base(variant).composites();
  return std::equal(of_some.begin(), of_some.end(), of_all.begin(), of_all.end(), same_composite) &&
         std::equal(some.statements.begin(), some.statements.end(), all.statements.begin(), all.statements.end(), same);
}

int RuleVariants::axis_after(const std::set<std::string>& rules, const std::set<std::string>& others, int axis) {
  const std::vector<Axis>&known = at({others}).structure.axes, &axes = at({rules}).structure.axes;
  const auto same = [&](const Axis& each) { return each.name == known.at(static_cast<std::size_t>(axis)).name; };
  const auto found = std::find_if(axes.begin(), axes.end(), same);
  return found == axes.end() ? -1 : static_cast<int>(found - axes.begin());
}

const std::vector<FusionGroup>& RuleVariants::fusion_groups(const RuleVariant& variant, Fusion fusion, bool by_row) {
  by_row = by_row && !variant.structure.parts.empty();
  const auto known = fusion_groups_.find({&variant, fusion, by_row});
  if (known != fusion_groups_.end()) return known->second;
  const bool prepares = fusion == Fusion::prepared || fusion == Fusion::apart;
  const Fusion within = fusion == Fusion::prepared ? Fusion::maximal : fusion == Fusion::apart ? Fusion::careful : fusion;
  std::optional<std::vector<FusionGroup>> found;
  if (prepares && variant.structure.parts.empty()) {
    found = find_prepared_groups(base(variant), variant.structure, fusion);
  } else if (fusion != Fusion::none) {
    const PartForm form = !by_row ? PartForm::alone : variant.tiles_are_parts ? PartForm::by_tile : PartForm::by_row;
    found = find_part_groups(base(variant), variant.structure, within, form);
  }
  if (!found) found = find_fusion_groups(base(variant), variant.structure, within);
  return fusion_groups_.emplace(std::tuple{&variant, fusion, by_row}, std::move(*found)).first->second;
}

const std::vector<FusionGroup>& RuleVariants::cut_groups(const RuleVariant& variant, const FusionGroup& group, Fusion fusion) {
  const auto known = cut_groups_.find({&group, fusion});
  if (known != cut_groups_.end()) return known->second;
  auto found = find_fusion_groups_of(base(variant), variant.structure, group.loop_groups, fusion);
  return cut_groups_.emplace(std::pair{&group, fusion}, std::move(found)).first->second;
}

const std::vector<FusionGroup>& RuleVariants::unrelated_groups(const RuleVariant& variant, const FusionGroup& group) {
  const auto known = unrelated_groups_.find(&group);
  if (known != unrelated_groups_.end()) return known->second;
  std::vector<FusionGroup> found;
  for (const std::vector<int>& related : related_loop_groups(nest(variant), variant.structure, group.loop_groups)) {
    std::vector<FusionGroup> own = find_fusion_groups_of(base(variant), variant.structure, related, Fusion::maximal);
    found.insert(found.end(), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
  }
  return unrelated_groups_.emplace(&group, std::move(found)).first->second;
}

const FusionGroup& RuleVariants::heaviest(const RuleVariant& variant, Fusion fusion, bool by_row) {
  const auto known = heaviest_.try_emplace(std::tuple{&variant, fusion, by_row}, nullptr).first;
  if (known->second != nullptr) return *known->second;
  const auto& found = fusion_groups(variant, fusion, by_row);
  // Running sums take one pass over their terms, not a sum for each place.
  const auto weight_of = [&](const LoopGroup& loop_group) {
    const bool runs = axis_of_prefixes(nest(variant), variant.structure, loop_group) >= 0;
    return runs ? loop_group.points / std::max(terms_of_sum(loop_group), 1.0) : loop_group.points;
  };
  const auto has_products = [&](int u) {
    const std::vector<std::string>& names = variant.structure.loop_groups[static_cast<std::size_t>(u)].statements;
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return multiplies_windows(nest(variant).statement(name)); });
  };
  // What prepares nothing before the rest, products before rows that a block keeps, and in careful groups before
  // sums of other terms that are as many.
  std::vector<std::tuple<bool, bool, double, bool, double>> weights;
  for (const FusionGroup& group : found) {
    double most = 0;
    for (const int u : group.loop_groups)
      most = std::max(most, weight_of(variant.structure.loop_groups[static_cast<std::size_t>(u)]));
    const bool first = fusion != Fusion::rows || multiplies(nest(variant), variant.structure, group.loop_groups),
               products =
                   fusion == Fusion::careful && std::any_of(group.loop_groups.begin(), group.loop_groups.end(), has_products);
    weights.emplace_back(!group.prepares, first, most, products, points_of(variant.structure, group));
  }
  return *(known->second = &found[static_cast<std::size_t>(std::max_element(weights.begin(), weights.end()) - weights.begin())]);
}

const std::vector<int>& RuleVariants::reduction_groups(const RuleVariant& variant, const FusionGroup& group, int reduction_axis) {
  const auto known = reduction_groups_.find({&group, reduction_axis});
  if (known != reduction_groups_.end()) return known->second;
  return reduction_groups_
      .emplace(std::pair{&group, reduction_axis}, find_reduction_groups(base(variant), variant.structure, group, reduction_axis))
      .first->second;
}

std::vector<int> meeting_axes(RuleVariants& variants, const std::set<std::string>& rules, const std::vector<int>& axes,
                              std::int64_t parts) {
  std::vector<int> meeting;
  const NestStructure& whole_sums = variants.at({rules}).structure;
  for (const int axis : axes) {
    // Cutting sums takes long to prove: not along an axis that nothing has but sums along it.
    const auto keeps = [&](const LoopGroup& loop_group) {
      const int position = loop_group.position_of(axis);
      return position >= 0 && !loop_group.reduced[static_cast<std::size_t>(position)];
    };
    if (std::none_of(whole_sums.loop_groups.begin(), whole_sums.loop_groups.end(), keeps)) continue;
    const RuleVariant& split = variants.at({rules, axis, parts});
    const FusionGroup& main = variants.heaviest(split, Fusion::maximal);
    const bool meets = main.part && std::any_of(main.loop_groups.begin(), main.loop_groups.end(), [&](int u) {
                         const LoopGroup& loop_group = split.structure.loop_groups[u];
                         const int whole = loop_group.position_of(main.part->whole);
                         return whole >= 0 && !loop_group.reduced[whole];
                       });
    if (meets) meeting.push_back(axis);
  }
  return meeting;
}

}  // namespace nestor
