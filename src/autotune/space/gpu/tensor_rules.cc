// Choices of rules tried one after the other, each with what it makes of the fusion.
#include "autotune/space/gpu/tensor_rules.h"

#include "autotune/space/gpu/tensor_fusion.h"
#include "autotune/space/structure/product_chains.h"
#include "autotune/space/structure/rule_steps.h"
#include "codegen/tile/analysis/op_shape.h"
#include "codegen/tile/contraction.h"
#include "codegen/tile/seldom_sum.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {
namespace {

/// Have sums of few elements so many terms that products are worth the rest? Of few terms near pairs are many.
bool sums_many_terms(const NestStructure& structure) {
  constexpr double kFewTerms = 16;
  return std::all_of(structure.loop_groups.begin(), structure.loop_groups.end(),
                     [](const LoopGroup& loop_group) { return !loop_group.seldom || terms_of_sum(loop_group) >= kFewTerms; });
}

/// Points of products of matrices that stay on lanes after the rules.
double products_on_lanes(RuleVariants& variants, const std::set<std::string>& rules, const GpuLimits& limits) {
  const RuleVariant& variant = variants.at({rules});
  return points_on_lanes(variants, variant, fusion_for_tensor_cores(variants, variant, limits), limits);
}

/// Terms of sums in groups that no tensor cores take.
double terms_on_lanes(RuleVariants& variants, const std::set<std::string>& rules, const GpuLimits& limits) {
  const RuleVariant& variant = variants.at({rules});
  return points_on_lanes(variants, variant, fusion_for_tensor_cores(variants, variant, limits), limits,
                         [](const Statement& statement) { return statement.reduction == ReductionOp::add; });
}

/// Of the rows and terms of a usual tile, what sums fill.
double filled_share(const TensorAxes& axes) {
  constexpr std::int64_t kRows = 128, kTerms = 64;
  const std::int64_t rows = axes.row_extent * std::min<std::int64_t>(axes.pack_extent, nvptx::kMostPacked);
  return static_cast<double>(std::min(rows, kRows) * std::min(axes.inner, kTerms)) / (kRows * kTerms);
}

/// Is the rule for places that others leave, not one of those that are applied together?
bool stands_alone(const std::string& rule) {
  return rule == kSkippingRule || rule == kOrderingRule || rule == kColumnsRule || rule == kGatheringRule ||
         rule == kShortRowsRule;
}

/// Of the columns that make up for reading rows of many terms: fewer columns read them again and again. What a usual tile has to multiply in
/// the time in which both operands come from the second cache.
double filled_columns(const TensorAxes& axes) {
  constexpr std::int64_t kSide = 256, kManyTerms = 64;
  constexpr double kProducts = 2048, kElements = 14;  // in a clock of a multiprocessor
  if (axes.inner * axes.taps < kManyTerms) return 1;
  const auto rows = static_cast<double>(
                 std::min(axes.row_extent * std::min<std::int64_t>(axes.pack_extent, nvptx::kMostPacked), kSide)),
             columns = static_cast<double>(std::min(axes.column_extent, kSide));
  return std::min(1.0, rows * columns / kProducts / ((rows + columns) / kElements));
}

/// Elements that kernels beside the heaviest one's write after the rules, but for products of matrices.
double prepared_points(RuleVariants& variants, const RuleVariant& variant, Fusion fusion) {
  double points = 0;
  const FusionGroup* heaviest = &variants.heaviest(variant, fusion);
  for (const FusionGroup& group : variants.fusion_groups(variant, fusion)) {
    for (const int u : group.loop_groups) {
      const bool copies = &group != heaviest && !multiplies(variants.nest(variant), variant.structure, {u});
      points += group.prepares || copies ? variant.structure.loop_groups[static_cast<std::size_t>(u)].points : 0;
    }
  }
  return points;
}

/// Results of all sums of products.
double summed_points(const Nest& nest, const NestStructure& structure) {
  double points = 0;
  for (const LoopGroup& loop_group : structure.loop_groups) {
    const double terms = std::max(terms_of_sum(loop_group), 1.0);
    for (const std::string& name : loop_group.statements) {
      if (multiplies_matrices(nest.statement(name))) points += loop_group.points / terms;
    }
  }
  return points;
}

/// Clocks of a multiprocessor that what stands beside products takes after the rules, roughly.
double clocks_of_copies(RuleVariants& variants, const RuleVariant& variant, Fusion fusion) {
  constexpr double kElement = 4, kBytes = 14;  // bytes written and read, and bytes of memory in a clock
  return prepared_points(variants, variant, fusion) * kElement / kBytes;
}

/// Clocks of a multiprocessor that the copies before products and the products take after the rules, roughly: tiles of which a share is filled
/// cost as much as whole ones.
double guessed_clocks(RuleVariants& variants, const RuleVariant& variant, double filled, Fusion fusion) {
  constexpr double kProducts = 2048;  // of 16-bit operands in a clock
  const FusionGroup& group = variants.heaviest(variant, fusion);
  return variant.structure.loop_groups[group.heaviest].points / filled / kProducts + clocks_of_copies(variants, variant, fusion);
}

/// Clocks of a multiprocessor that products take after the rules, roughly, on tensor cores and on lanes, and what goes through memory
/// between kernels.
double clocks_of_products(RuleVariants& variants, const std::set<std::string>& rules, const GpuLimits& limits) {
  constexpr double kProducts = 2048, kLanes = 64, kBytes = 14,
                   kElement = 6;  // products and bytes in a clock; bytes written and read
  const RuleVariant& variant = variants.at({rules});
  const Fusion fusion = fusion_for_tensor_cores(variants, variant, limits);
  const Nest& nest = variants.nest(variant);
  double points = 0;
  for (const LoopGroup& loop_group : variant.structure.loop_groups) {
    for (const std::string& name : loop_group.statements)
      points += multiplies_matrices(nest.statement(name)) ? loop_group.points : 0;
  }
  const double on_lanes = points_on_lanes(variants, variant, fusion, limits);
  return (points - on_lanes) / kProducts + on_lanes / kLanes +
         points_between_kernels(variants, variant, fusion) * kElement / kBytes;
}

/// Tensors that the leading values of composites are computed from.
std::set<std::string> tensors_before_composites(const Schedule& schedule) {
  std::set<std::string> leads, found;
  for (const Composite& composite : schedule.composites()) leads.insert(schedule.nest().statement(composite.lead).write.tensor);
  for (const Statement* statement : statements_behind(schedule.nest(), leads)) found.insert(statement->write.tensor);
  return found;
}

/// The rules without composites where these follow sums of products of chunks, as the logits of a softmax in f32: such have no place in one
/// kernel. nullopt: sums have few chunks, as scores of attention, which cost more in memory than products on lanes.
std::optional<std::set<std::string>> without_composites_beside_chunks(RuleVariants& variants, std::set<std::string> rules) {
  constexpr double kManyChunks = 8;
  const RuleVariant& variant = variants.at({rules});
  const Nest& nest = variants.nest(variant);
  const std::set<std::string> before = tensors_before_composites(variants.base(variant));
  double fewest = std::numeric_limits<double>::infinity();
  for (const Statement& sum : nest.statements) {
    const bool adds_up = before.contains(sum.write.tensor) && adds_up_products(nest, sum);
    if (adds_up) fewest = std::min(fewest, default_points(nest, sum, reduced_dims(sum)));
  }
  if (std::isinf(fewest)) return rules;
  if (fewest < kManyChunks) return std::nullopt;
  std::erase_if(rules, makes_composites);
  return rules;
}

}  // namespace

std::set<std::string> rules_for_tensor_cores(RuleVariants& variants, const std::set<std::string>& default_rules,
                                             const std::set<std::string>& for_products, const GpuLimits& limits) {
  // Going past what data hides pays where a kernel of many products can.
  if (for_products.contains(kBlocksRule)) {
    std::set<std::string> others = for_products;
    others.erase(kBlocksRule);
    const std::set<std::string> rules = rules_for_tensor_cores(variants, default_rules, others, limits);
    std::set<std::string> skipping = rules;
    skipping.insert(kBlocksRule);
    const RuleVariant& variant = variants.at({skipping});
    const Fusion fusion = fusion_for_tensor_cores(variants, variant, limits);
    // Tables take launches of their own, which few products are not worth.
    constexpr double kManyProducts = 8.6e9;
    const double products = variant.structure.loop_groups[variants.heaviest(variant, fusion).heaviest].points;
    const bool place = products >= kManyProducts && has_place(variants, variant, fusion, limits) &&
                       products_on_lanes(variants, skipping, limits) <= products_on_lanes(variants, rules, limits);
    return place ? skipping : rules;
  }
  // Squares, exponentials, integers and what data hides, if they become products, come first: other rules are for the products that there are then.
  for (const char* algebra : {kExpandingRule, kFactoringRule, kIntegerRule, kMaskRule, kMaskedRule}) {
    if (!for_products.contains(algebra)) continue;
    std::set<std::string> expanded = default_rules, others = for_products;
    expanded.insert(algebra);
    others.erase(algebra);
    const std::set<std::string> rules = rules_for_tensor_cores(variants, expanded, others, limits);
    const RuleVariant& variant = variants.at({rules});
    const Fusion fusion = fusion_for_tensor_cores(variants, variant, limits);
    const bool all = sums_many_terms(variant.structure) && has_place(variants, variant, fusion, limits) &&
                     points_on_lanes(variants, variant, fusion, limits) == 0 &&
                     points_on_lanes(variants, variant, fusion, limits, sums_seldom) == 0;
    return all ? rules : rules_for_tensor_cores(variants, default_rules, others, limits);
  }
  // Products within sums of more factors, or of sums of such, where those would stay on lanes otherwise.
  constexpr std::array<const char*, 3> kNestings{kNestingRule, kOperandRule, kChainRule};
  if (std::any_of(kNestings.begin(), kNestings.end(), [&](const char* nesting) { return for_products.contains(nesting); })) {
    constexpr double kWorth = 0.75;  // of the clocks of the order as it is written
    std::set<std::string> others = for_products;
    for (const char* nesting : kNestings) others.erase(nesting);
    std::set<std::string> best = rules_for_tensor_cores(variants, default_rules, others, limits);
    for (const std::string_view nesting : kNestings) {
      if (!for_products.contains(std::string(nesting))) continue;
      std::set<std::string> nested = default_rules, for_nested = others;
      nested.emplace(nesting);
      // A definition that has no such operand does not say that it may be rounded.
      if (nesting != kNestingRule) {
        nested.insert(kMixedPartsRule);
        for_nested.erase(kRoundingRule);
      }
      nested = rules_for_tensor_cores(variants, nested, for_nested, limits);
      const RuleVariant& variant = variants.at({nested});
      const bool place = has_place(variants, variant, fusion_for_tensor_cores(variants, variant, limits), limits);
      const auto pays = [&] {
        if (nesting == kChainRule)
          return clocks_of_products(variants, nested, limits) < kWorth * clocks_of_products(variants, best, limits);
        return terms_on_lanes(variants, nested, limits) < terms_on_lanes(variants, best, limits) / 2;
      };
      if (place && pays()) best = nested;
    }
    return best;
  }
  // What no tensor copy can read is copied wherever it is read.
  std::set<std::string> usual = default_rules;
  if (for_products.contains(kAligningRule)) usual.insert(kAligningRule);
  // Rather without a rule than in kernels apart.
  const auto fuses = [&](const std::set<std::string>& rules) {
    const RuleVariant& variant = variants.at({rules});
    return has_place(variants, variant, Fusion::maximal, limits);
  };
  // How much of a tile of 128 x 128 results fill.
  const auto filled = [&](const std::set<std::string>& rules) {
    constexpr double kSide = 128;
    const auto axes = tensor_axes_after(variants, rules, limits);
    const bool sums = axes && axes->column >= 0;
    const auto part = [](std::int64_t extent) { return std::min(1.0, static_cast<double>(extent) / kSide); };
    return sums ? part(axes->row_extent) * part(axes->column_extent) : 1;
  };
  // Copies may cost more than tiles that are half empty, where products are few.
  const auto fills_more = [&](const std::set<std::string>& rules, const std::set<std::string>& others) {
    const double most = filled(rules), part = filled(others);
    const auto clocks = [&](const std::set<std::string>& each, double share) {
      const RuleVariant& variant = variants.at({each});
      return guessed_clocks(variants, variant, share, fusion_for_tensor_cores(variants, variant, limits));
    };
    return most > 2 * part && clocks(rules, most) < clocks(others, part);
  };
  const auto finds_place = [&](const std::set<std::string>& rules) {
    const RuleVariant& variant = variants.at({rules});
    return has_place(variants, variant, fusion_for_tensor_cores(variants, variant, limits), limits);
  };
  const auto between = [&](const std::set<std::string>& rules) {
    const RuleVariant& variant = variants.at({rules});
    return points_between_kernels(variants, variant, fusion_for_tensor_cores(variants, variant, limits));
  };
  const auto with = [](std::set<std::string> rules, const std::string& rule) {
    rules.insert(rule);
    return rules;
  };
  const auto on_lanes = [&](const std::set<std::string>& rules) { return products_on_lanes(variants, rules, limits); };
  // Operands of 16 bits may bring products to the tensor cores that are on lanes beside those that are there.
  const auto with_rounding = [&](const std::set<std::string>& rules) {
    const std::set<std::string> rounded = with(rules, kRoundingRule);
    const bool fewer = for_products.contains(kRoundingRule) && finds_place(rounded) && on_lanes(rounded) < on_lanes(rules) / 2;
    return fewer ? rounded : rules;
  };
  const bool orders = for_products.contains(kOrderingRule);
  // Zeros that are left out need no copies.
  if (for_products.contains(kSkippingRule)) {
    const std::set<std::string> direct = with(usual, kSkippingRule);
    if (fuses(direct)) return direct;
    if (orders && finds_place(with(direct, kOrderingRule))) return with(direct, kOrderingRule);
  }
  // Terms that lie side by side stay so where columns may lie behind them.
  const bool columns = for_products.contains(kColumnsRule);
  if (columns && !finds_place(usual) && finds_place(with(usual, kColumnsRule))) return with_rounding(with(usual, kColumnsRule));
  // Another order of terms needs smaller copies than other rules do.
  if (orders && !finds_place(usual) && finds_place(with(usual, kOrderingRule))) return with_rounding(with(usual, kOrderingRule));
  if (orders && for_products.contains(kRoundingRule) && !finds_place(usual)) {
    const std::set<std::string> rounded = with(with(usual, kRoundingRule), kOrderingRule);
    if (finds_place(rounded)) return rounded;
  }
  // What tensor copies cannot step along has no place as it is.
  if (for_products.contains(kGatheringRule)) {
    const std::set<std::string> gathered = with(usual, kGatheringRule);
    // Copies of operands instead of products that go through memory.
    if (finds_place(gathered) && (!finds_place(usual) || (!fuses(usual) && between(gathered) < between(usual) / 2)))
      return gathered;
  }
  std::set<std::string> more = usual, zeros = usual;
  for (const std::string& rule : for_products) {
    if (!stands_alone(rule)) (multiplies_zeros(rule) ? zeros : more).insert(rule);
  }
  if (orders && !finds_place(usual) && !finds_place(more) && finds_place(with(more, kOrderingRule))) more.insert(kOrderingRule);
  if (fuses(usual)) {
    // Operands of 16 bits may bring products to the tensor cores that are on lanes beside those that are fused.
    const std::set<std::string> rounded = with(usual, kRoundingRule);
    if (for_products.contains(kRoundingRule) && fuses(rounded) && on_lanes(rounded) < on_lanes(usual) / 2) return rounded;
    return more != usual && finds_place(more) && fills_more(more, usual) ? more : usual;
  }
  if (more != usual && fuses(more)) return more;
  if (more != usual && !finds_place(usual) && finds_place(more)) {
    // What other rules store may keep products from one kernel that operands of 16 bits alone bring together.
    const std::set<std::string> rounded = with(usual, kRoundingRule);
    const bool enough = for_products.contains(kRoundingRule) && rounded != more && finds_place(rounded) &&
                        on_lanes(rounded) <= on_lanes(more) && between(rounded) < between(more);
    return enough ? rounded : more;
  }
  // Copies that join sums, without those that lengthen runs of terms.
  if (more.contains(kSumJoiningRule)) {
    std::set<std::string> joined = with(usual, kSumJoiningRule);
    if (more.contains(kKeepingRule)) joined.insert(kKeepingRule);
    if (joined != more && fuses(joined)) return joined;
  }
  // Products with zeros only where there are none otherwise.
  std::set<std::string> all = more;
  all.insert(zeros.begin(), zeros.end());
  if (zeros != usual && !finds_place(usual)) {
    if (finds_place(zeros)) return zeros;
    if (finds_place(all)) return all;
  }
  const auto without = [](std::set<std::string> rules, const std::string& rule) {
    rules.erase(rule);
    return rules;
  };
  // Those that change what statements there are.
  std::vector<std::string> in_the_way;
  for (const std::string& rule : usual) {
    if (!variants.leave_statements(without(usual, rule), variants.at({usual}))) in_the_way.push_back(rule);
  }
  for (const std::string& rule : in_the_way) {
    if (fuses(without(usual, rule))) return without(usual, rule);
  }
  // Of products in kernels apart, as many as can be.
  if (finds_place(usual)) {
    std::set<std::string> best = usual, rounded = usual;
    // Operands of 16 bits alone may be enough, without copies that join sums.
    if (for_products.contains(kRoundingRule)) rounded.insert(kRoundingRule);
    for (const std::set<std::string>& rules : {rounded, more, all}) {
      if (rules != best && finds_place(rules) && on_lanes(rules) < on_lanes(best) / 2) best = rules;
    }
    // What a rule moves may keep a result from the kernel of its product.
    const auto kernels = [&](const std::set<std::string>& rules) {
      const RuleVariant& variant = variants.at({rules});
      return variants.fusion_groups(variant, fusion_for_tensor_cores(variants, variant, limits)).size();
    };
    for (const std::string& rule : in_the_way) {
      const std::set<std::string> fewer = without(best, rule);
      if (!finds_place(fewer) || terms_on_lanes(variants, fewer, limits) > terms_on_lanes(variants, best, limits)) continue;
      if (kernels(fewer) < kernels(best) && between(fewer) < between(best)) best = fewer;
    }
    return best;
  }
  for (const std::string& rule : in_the_way) {
    if (finds_place(without(usual, rule))) return without(usual, rule);
  }
  for (const std::string& rule : in_the_way) {
    if (more != usual && finds_place(without(more, rule))) return without(more, rule);
  }
  return usual;
}

std::vector<std::set<std::string>> rules_for_fuller_tiles(RuleVariants& variants, const std::set<std::string>& rules,
                                                          const std::set<std::string>& for_products, const GpuLimits& limits) {
  std::set<std::string> more = rules;
  for (const std::string& rule : for_products) {
    const bool nests = rule == kNestingRule || rule == kOperandRule || rule == kChainRule;
    if (!multiplies_zeros(rule) && !stands_alone(rule) && !nests) more.insert(rule);
  }
  more.erase(kSkippingRule);
  // Short rows side by side, with nothing else copied.
  std::set<std::string> joined = rules;
  for (const char* rule : {kShortRowsRule, kJoinedRule}) {
    if (for_products.contains(kShortRowsRule) && for_products.contains(rule)) joined.insert(rule);
  }
  std::vector<std::set<std::string>> choices{rules};
  const auto clocks = [&](const std::set<std::string>& each, bool columns, double& filled) {
    const RuleVariant& variant = variants.at({each});
    const Fusion fusion = fusion_for_tensor_cores(variants, variant, limits);
    const auto& axes = tensor_axes_of(variants, variant, variants.heaviest(variant, fusion), limits.sm);
    filled = axes && axes->column >= 0 && has_place(variants, variant, fusion, limits) ? filled_share(*axes) : 0;
    if (columns && filled > 0) filled *= filled_columns(*axes);
    return filled > 0 ? guessed_clocks(variants, variant, filled, fusion) : 0;
  };
  const auto consider = [&](const std::set<std::string>& others, bool columns) {
    if (std::find(choices.begin(), choices.end(), others) != choices.end()) return;
    double part = 0, whole = 0;
    const double before = clocks(choices.front(), columns, part), after = clocks(others, columns, whole);
    if (part > 0 && whole >= 2 * part) choices.insert(after < before ? choices.begin() : choices.end(), others);
  };
  consider(more, false);
  consider(joined, true);
  return choices;
}

std::vector<std::set<std::string>> rules_with_fewer_copies(RuleVariants& variants, std::vector<std::set<std::string>> choices,
                                                           const std::set<std::string>& usual, std::set<std::string> for_products,
                                                           const GpuLimits& limits) {
  constexpr double kCopy = 4, kSum = 8;  // bytes of an element, written and read
  if (!choices.front().contains(kSumJoiningRule)) return choices;
  for_products.erase(kSumJoiningRule);
  const std::set<std::string> fewer = rules_for_tensor_cores(variants, usual, for_products, limits);
  const RuleVariant &copies = variants.at({choices.front()}), &sums = variants.at({fewer});
  const auto joins = [](const Step& step) { return step.args.at(0) == kSumJoiningRule; };
  if (std::none_of(copies.rules.begin(), copies.rules.end(), joins) ||
      !has_place(variants, sums, fusion_for_tensor_cores(variants, sums, limits), limits))
    return choices;
  const double copied = kCopy * prepared_points(variants, copies, Fusion::prepared),
               summed = kSum * summed_points(variants.nest(sums), sums.structure);
  choices.insert(copied > summed ? choices.begin() : choices.begin() + 1, fewer);
  return choices;
}

namespace {

/// How many sums of products the nest has.
std::ptrdiff_t count_products(const Nest& nest) {
  return std::count_if(nest.statements.begin(), nest.statements.end(),
                       [](const Statement& statement) { return multiplies_matrices(statement); });
}

/// How many products those sums add up, as of parts.
std::size_t count_contractions(const Nest& nest) {
  std::size_t count = 0;
  for (const Statement& statement : nest.statements)
    count += multiplies_matrices(statement) ? unscaled_contractions_of(statement).size() : 0;
  return count;
}

/// Adds the first choice with sums that are added together as one: first where several accumulators become one and copies take little.
void add_joined_sums(RuleVariants& variants, const std::set<std::string>& for_products, const GpuLimits& limits,
                     std::vector<std::set<std::string>>& choices) {
  constexpr std::ptrdiff_t kAccumulators = 3;  // of which tiles have little room each
  constexpr double kCopies = 0.25;             // of the products' time
  if (!for_products.contains(kSumJoiningRule) || choices.front().contains(kSumJoiningRule)) return;
  std::set<std::string> joined = choices.front();
  joined.insert(kSumJoiningRule);
  const RuleVariant &apart = variants.at({choices.front()}), &one = variants.at({joined});
  const Fusion fusion = fusion_for_tensor_cores(variants, one, limits);
  const std::ptrdiff_t fewer = count_products(variants.nest(apart)) - count_products(variants.nest(one));
  if (fewer <= 0 || !has_place(variants, one, fusion, limits)) return;
  const double before = clocks_of_copies(variants, apart, fusion_for_tensor_cores(variants, apart, limits)),
               copies = clocks_of_copies(variants, one, fusion), products = guessed_clocks(variants, one, 1, fusion) - copies;
  const bool first = fewer + 1 >= kAccumulators && copies - before < kCopies * products;
  choices.insert(choices.begin() + (first ? 0 : 1), std::move(joined));
}

}  // namespace

std::vector<std::set<std::string>> rules_with_fewer_maps(RuleVariants& variants, std::vector<std::set<std::string>> choices,
                                                         const GpuLimits& limits) {
  constexpr double kWorth = 0.8;  // of what goes through memory
  std::set<std::string> fewer = choices.front();
  fewer.insert(kRecomputingRule);
  struct Cost {
    double between, on_lanes;
  };
  const auto cost_of = [&](const std::set<std::string>& rules) {
    const RuleVariant& variant = variants.at({rules});
    const Fusion fusion = fusion_for_tensor_cores(variants, variant, limits);
    return Cost{points_between_kernels(variants, variant, fusion), points_on_lanes(variants, variant, fusion, limits)};
  };
  const RuleVariant& variant = variants.at({fewer});
  if (!has_place(variants, variant, fusion_for_tensor_cores(variants, variant, limits), limits)) return choices;
  const Cost after = cost_of(fewer), before = cost_of(choices.front());
  if (after.between < kWorth * before.between && after.on_lanes <= before.on_lanes)
    choices.insert(choices.begin(), std::move(fewer));
  return choices;
}

bool parts_may_cost_more(RuleVariants& variants, const std::set<std::string>& rules, const GpuLimits& limits) {
  constexpr double kParts = 3, kSurelyEnough = 256;  // products of an element, whose parts are about 20 bytes of traffic
  if (!rules.contains(kPartsRule)) return false;
  std::set<std::string> lanes = rules;
  lanes.erase(kPartsRule);
  const RuleVariant& variant = variants.at({rules});
  const Nest &nest = variants.nest(variant), &before = variants.nest(variants.at({lanes}));
  double stored = 0;
  for (const FusionGroup& group : variants.fusion_groups(variant, fusion_for_tensor_cores(variants, variant, limits))) {
    if (multiplies(nest, variant.structure, group.loop_groups)) continue;
    for (const int u : group.loop_groups) {
      const LoopGroup& loop_group = variant.structure.loop_groups[static_cast<std::size_t>(u)];
      for (const std::string& name : loop_group.statements) {
        const Tensor& written = nest.tensor(nest.statement(name).write.tensor);
        const bool part = written.type == ElementType::bf16 && written.role == TensorRole::temporary;
        stored += part && before.find_statement(name) == nullptr ? loop_group.points : 0;
      }
    }
  }
  const double saved = products_on_lanes(variants, lanes, limits) - products_on_lanes(variants, rules, limits);
  return saved < kSurelyEnough * stored / kParts;
}

std::vector<std::set<std::string>> rules_for_products(RuleVariants& variants, std::set<std::string> usual,
                                                      const std::set<std::string>& for_products, bool across,
                                                      const GpuLimits& limits) {
  constexpr double kManyPoints = 1 << 29;  // that parts in memory and a kernel more are worth
  std::set<std::string> others = for_products;
  // What is reduced to few elements in one kernel leaves the others few blocks.
  if (others.erase(kRowsRule) > 0) usual.insert(kRowsRule);
  for (const char* parts : {kPartsRule, kMixedPartsRule}) others.erase(parts);
  std::vector<std::set<std::string>> choices =
      rules_for_fuller_tiles(variants, rules_for_tensor_cores(variants, usual, others, limits), others, limits);
  choices = rules_with_fewer_copies(variants, std::move(choices), usual, others, limits);
  add_joined_sums(variants, others, limits, choices);
  // At last sums that are mixed in another kernel.
  std::set<std::string> joint = choices.front();
  if (joint.erase(kSeparatingRule) > 0) choices.push_back(std::move(joint));
  if (across) {
    const double once = clocks_of_products(variants, choices.front(), limits);
    std::set<std::string> twice = usual;
    twice.insert(kAcrossRule);
    // What mixes a few of the sums that are made again has all of them in tiles.
    std::set<std::string> separated = twice;
    if (for_products.contains(kSeparatingRule)) separated.insert(kSeparatingRule);
    double clocks = clocks_of_products(variants, twice, limits);
    if (const double of_separated = clocks_of_products(variants, separated, limits); of_separated < clocks) {
      clocks = of_separated;
      twice = std::move(separated);
    }
    if (clocks < once / 2) choices.insert(choices.begin(), std::move(twice));
  }
  if (for_products.contains(kMixedPartsRule) && !choices.front().contains(kMixedPartsRule)) {
    std::set<std::string> mixed = choices.front();
    mixed.erase(kRoundingRule);
    mixed.insert(kMixedPartsRule);
    const RuleVariant& variant = variants.at({mixed});
    std::set<std::string> plain = mixed;
    plain.erase(kMixedPartsRule);
    const bool matches = &variant != &variants.at({plain});  // it may match behind another rule alone
    // Where nothing is rounded in their place, short sums on lanes take as long.
    const auto axes = tensor_axes_after(variants, choices.front(), limits);
    const bool rounds = choices.front().contains(kRoundingRule) || (axes && axes->wide_operands > 0);
    const bool pays =
        rounds ||
        products_on_lanes(variants, choices.front(), limits) - products_on_lanes(variants, mixed, limits) >= kManyPoints;
    if (matches && pays && has_place(variants, variant, fusion_for_tensor_cores(variants, variant, limits), limits))
      choices.insert(choices.begin() + 1, std::move(mixed));
  }
  if (!for_products.contains(kPartsRule)) return choices;
  std::set<std::string> parts = usual;
  parts.insert(kPartsRule);
  // Tiles have whole rows of terms.
  if (for_products.contains(kZerosRule) && products_on_lanes(variants, parts, limits) > 0) {
    std::set<std::string> whole = parts;
    whole.insert(kZerosRule);
    if (products_on_lanes(variants, whole, limits) < products_on_lanes(variants, parts, limits) / 2) parts = std::move(whole);
  }
  const auto apart = without_composites_beside_chunks(variants, parts);
  if (!apart) return choices;
  parts = *apart;
  const double on_lanes = products_on_lanes(variants, parts, limits);
  if (products_on_lanes(variants, choices.front(), limits) - on_lanes < kManyPoints) return choices;
  choices.insert(choices.begin(), parts);
  if (!for_products.contains(kRoundingRule)) return choices;
  // Where an operand may have 16 bits, one product does for six.
  parts.insert(kRoundingRule);
  const bool fewer =
      count_contractions(variants.nest(variants.at({parts}))) < count_contractions(variants.nest(variants.at({choices.front()})));
  if (fewer && products_on_lanes(variants, parts, limits) <= on_lanes) choices.insert(choices.begin(), std::move(parts));
  return choices;
}

}  // namespace nestor
