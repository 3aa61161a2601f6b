// Random nests around the shape that each algebra rule looks for: its sample nests in many forms, changed in places.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "support/nests/added_convolutions.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/bordered_steps.h"
#include "support/nests/chained_products.h"
#include "support/nests/dice.h"
#include "support/nests/exponential_nests.h"
#include "support/nests/gathered_nests.h"
#include "support/nests/heads_in_columns.h"
#include "support/nests/hidden_rows.h"
#include "support/nests/integer_nests.h"
#include "support/nests/masked_images.h"
#include "support/nests/masked_scores.h"
#include "support/nests/nest_mutations.h"
#include "support/nests/operand_nests.h"
#include "support/nests/pair_nests.h"
#include "support/nests/periodic_nests.h"
#include "support/nests/prefix_nests.h"
#include "support/nests/rule_forms.h"
#include "support/nests/scattered_frames.h"
#include "support/nests/scored_rows.h"
#include "support/nests/two_sources.h"
#include "support/nests/unrolled_sums.h"
#include "support/nests/window_of_distances.h"

namespace nestor::samples {

/// Nests of which most match a rule.
struct RuleNests {
  std::string rule;
  Nest (*draw)(Dice& dice);
};

inline const std::vector<RuleNests>& rule_nests() {
  using Text = std::string;
  static const auto half = [](Dice& dice) { return dice.of<ElementType>({ElementType::f16, ElementType::bf16}); };
  static const auto any_float = [](Dice& dice) {
    return dice.of<ElementType>({ElementType::f32, ElementType::f16, ElementType::bf16});
  };
  static const auto pair_mask = [](Dice& dice) {
    return dice.of<Text>({"", "", " and j <= i", " and j < i", " and i <= j + 1"});
  };
  static const std::vector<RuleNests> all{
      {"prefix_reduction", [](Dice& dice) { return some_running_values(dice); }},
      {"leave_out", [](Dice& dice) { return some_others(dice); }},
      {"reroll_sums",
       [](Dice& dice) {
         return unrolled_convolution({.taps = some_taps(dice),
                                      .edges = dice.chance(0.5),
                                      .type = any_float(dice),
                                      .one_sum = dice.chance(0.3),
                                      .other_tap = dice.of<Text>({"", "", "", "2"})});
       }},
      {"reroll_terms", [](Dice& dice) { return filter_by_taps(some_taps(dice)); }},
      {"forward_pieces",
       [](Dice& dice) {
         return periodic_neighbours(dice.of<Text>({"", "", " and (x + y) mod 2 = 0", " and x >= y"}),
                                    dice.chance(0.8) ? ElementType::f32 : ElementType::f16);
       }},
      {"skip_neutral",
       [](Dice& dice) {
         const bool weighted = dice.chance(0.4);
         return padded_windows(
             weighted ? ReductionOp::add : dice.of<ReductionOp>({ReductionOp::add, ReductionOp::max, ReductionOp::min}),
             weighted);
       }},
      {"skip_zeros", [](Dice& dice) { return strided_convolution(1 + dice.below(3), 2, 1 + dice.below(2)); }},
      {"narrow_copies", [](Dice& dice) { return strided_convolution(1 + dice.below(3), 2, 1 + dice.below(2)); }},
      {"gather_terms", [](Dice& dice) { return patches(1 + dice.below(3), dice.of<double>({0, 0, 1})); }},
      {"log_quotient", [](Dice& dice) { return some_weights_by_logarithm(dice); }},
      {"local_extremum", [](Dice& dice) { return some_sources(dice); }},
      {"start_extremum", [](Dice& dice) { return some_sources(dice); }},
      {"finite_masks", [](Dice& dice) { return some_finite_masks(dice); }},
      {"neutral_terms", [](Dice& dice) { return some_finite_masks(dice); }},
      {"slice_product", [](Dice& dice) { return forgetting_scores(dice.chance(0.3)); }},
      {"split_dims",
       [](Dice& dice) {
         return heads_in_columns(dice.of<Text>({"4 H", "4 H", "2 H"}),
                                 dice.of<Text>({"floor(c / 4)", "floor(c / 4)", "H - 1 - floor(c / 4)"}),
                                 dice.of<Text>({"j, c", "j, c", "N - 1 - j, c"}));
       }},
      {"unskew_dims",
       [](Dice& dice) {
         return window_of_distances(dice.of<Text>({"i - a", "i + a - 3", "i + a", "i - a + 2", "i - 2a"}), "40",
                                    dice.of<Text>({"i, a", "i, a", "i, a"}));
       }},
      {"gather_sums",
       [](Dice& dice) {
         return scattered({.hop = 1 + dice.below(3),
                           .window = 2 + dice.below(4),
                           .mask = dice.of<Text>({"", "", " and t <= a", " and (a + t) mod 2 = 0"}),
                           .op = dice.chance(0.3) ? ReductionOp::max : ReductionOp::add});
       }},
      {"join_dims", [](Dice& dice) { return image_attention(1 + dice.below(3)); }},
      {"split_terms", [](Dice& dice) { return some_complex_product(dice); }},
      {"nest_operands",
       [](Dice& dice) {
         const ElementType type = half(dice);
         return directional_messages({.type = type, .mask = dice.of<Text>({"", " and o <= e", " and t <= i", " and j != o"})});
       }},
      {"chain_order", [](Dice& dice) { return weights_first(half(dice), 64); }},
      {"nest_sums",
       [](Dice& dice) {
         return chained_matrices(any_float(dice), dice.of<Text>({"", " and j <= i", " and i <= j + u", " and k <= i"}));
       }},
      {"nest_products", [](Dice& dice) { return dice.chance(0.5) ? products_of_four(half(dice)) : batched_forms(half(dice)); }},
      {"nest_extrema", [](Dice& dice) { return some_scales(dice); }},
      {"integer_product",
       [](Dice& dice) { return integer_products(dice.of<Text>({"3", "5", "64"}), dice.of<Text>({"", " and i <= j"})); }},
      {"row_reduction",
       [](Dice& dice) {
         return summed_pairs({.type = any_float(dice),
                              .mask = pair_mask(dice),
                              .reduction = dice.of<ReductionOp>({ReductionOp::add, ReductionOp::max, ReductionOp::min}),
                              .element = dice.of<Text>({"loss[b, i, j]", "product[b, i, j]"})});
       }},
      {"early_definitions", [](Dice& dice) { return dice.chance(0.3) ? bordered_steps() : some_stepped_row(dice); }},
      {"online",
       [](Dice& dice) {
         if (dice.chance(0.5))
           return hidden_weights(dice.of<double>({-1e30, -1e30, -infinity()}), dice.of<Text>({"c[j]", "c[j]", "c[0]"}));
         const ScalarExpr infinite = ScalarExpr::make(ScalarOp::eq, {read(0), number(-infinity())});
         return safe_rows(ScalarExpr::make(ScalarOp::select, {infinite, number(dice.of<double>({0, 3, -infinity()})), read(0)}));
       }},
      {"dense_terms",
       [](Dice& dice) {
         return spread_filter(2 + dice.below(4), dice.below(5),
                              dice.of<ReductionOp>({ReductionOp::add, ReductionOp::max, ReductionOp::min}));
       }},
      {"scalars_first", [](Dice& dice) { return bounded_step(any_float(dice), dice.chance(0.5)); }},
      {"repeat_elements", [](Dice& dice) { return some_enlarged_row(dice); }},
      {"terms_last", [](Dice& dice) { return channels_first(1 + dice.below(2)); }},
      {"columns_last", [](Dice& dice) { return some_filter_gradient(dice); }},
      {"batch_first", [](Dice& dice) { return interleaved_products(any_float(dice)); }},
      {"repeat_product", [](Dice& dice) { return shared_scores(dice.chance(0.2), 2, 2); }},
      {"join_rows",
       [](Dice& dice) { return outer_products(dice.of<Text>({"", "", " and i <= j", " and g <= i"}), 1 + dice.below(3), 2); }},
      {"join_results",
       [](Dice& dice) { return outer_products(dice.of<Text>({"", "", " and i <= j"}), 2 + dice.below(2), 1 + dice.below(2)); }},
      {"join_short_rows",
       [](Dice& dice) { return grouped_filters(dice.of<Text>({"2", "3"}), dice.of<Text>({"", "", " and s <= g"}), "3"); }},
      {"join_sums",
       [](Dice& dice) {
         if (dice.chance(0.5)) return recurrent_gates(dice.chance(0.5), dice.of<double>({0, 0, 1}));
         return added_convolutions({.gates = 1 + dice.below(2),
                                    .third = dice.chance(0.3),
                                    .second_taps = dice.of<Text>({"s, t", "t, s"}),
                                    .weight_at = dice.of<Text>({"s, t", "s, t", "t, s"}),
                                    .scale = dice.of<double>({1, 1, 2}),
                                    .channels = dice.of<Text>({"P", "K"}),
                                    .tiny = true});
       }},
      {"keep_sums", [](Dice& dice) { return recurrent_gates(dice.chance(0.5)); }},
      {"copy_rows", [](Dice& dice) { return product_of_rows(9 + dice.below(3), 9); }},
      {"gather_rows",
       [](Dice& dice) {
         return dice.chance(0.5) ? rolled_windows("2", "8", "2", dice.chance(0.5))
                                 : many_indices("2", "2", "2", "2", dice.chance(0.5));
       }},
      {"product_across", [](Dice& dice) { return crossed_rows(dice.chance(0.5), 5, 6, 4, half(dice)); }},
      {"product_again", [](Dice& dice) { return returned_weights(dice.chance(0.5), 2); }},
      {"separate_sums",
       [](Dice& dice) {
         return mixed_products(dice.of<Text>({"1", "2", "3", "4"}), dice.of<Text>({"0", "0", "1"}), half(dice));
       }},
      {"bf16x6", [](Dice& dice) { return f32_product({}, dice.of<Text>({"", "", " and k <= i", " and k <= j + i"})); }},
      {"bf16x3", [](Dice& dice) { return some_mixed_product(dice); }},
      {"zero_terms", [](Dice& dice) { return dice.chance(0.7) ? triangular_product(dice.chance(0.3)) : banded_product(); }},
      {"round_operand", [](Dice& dice) { return computed_weights(pair_mask(dice)); }},
      {"materialize_factor", [](Dice& dice) { return some_computed_factor(dice); }},
      {"late_definitions", [](Dice& dice) { return early_denominator(dice.chance(0.7)); }},
      {"recompute",
       [](Dice& dice) {
         switch (dice.below(6)) {
           case 0:
             return nearest_points(dice.of<Text>({"2", "3", "5"}), dice.chance(0.8) ? ElementType::f32 : ElementType::f16);
           case 1:
             return pulling_points(dice.of<Text>({"2", "3"}));
           case 2:
             return nearest_segments();
           case 3:
             return weighed_steps(dice.of<Text>({"2", "3"}), dice.chance(0.3));
           case 4:
             return turned_vectors(dice.of<Text>({"2", "3"}), dice.chance(0.3));
           default:
             return normalised_pairs();
         }
       }},
      {"expand_squares", [](Dice& dice) { return squared_distances(half(dice), pair_mask(dice)); }},
      {"masked_product", [](Dice& dice) { return adapted_products(half(dice), dice.of<Text>({"1", "2", "4"})); }},
      {"factor_exponential",
       [](Dice& dice) {
         return exponential_sums(half(dice), dice.of<ScalarOp>({ScalarOp::exp, ScalarOp::exp2}), ElementType::f32,
                                 dice.of<Text>({"", " and j <= i", " and j != i"}), dice.of<Text>({"", " and c <= i"}));
       }},
      {"factor_extremum", [](Dice& dice) { return with_positive_scalars(biased_scores(dice.chance(0.5))); }},
      {"fixed_extremum", [](Dice& dice) { return limited_scores(dice.of<double>({2, 20, 40})); }},
      {"moments", [](Dice& dice) { return dice.chance(0.5) ? late_division_norm() : channel_norm(dice.of<Text>({"S", "3"})); }},
      {"reciprocal", [](Dice& dice) { return dice.chance(0.5) ? quotients_by_roots() : softmax(); }},
      {"defer_factor", [](Dice&) { return normalised_attention(); }},
      {"simplify", [](Dice&) { return copied_twice(); }},
  };
  return all;
}

/// One of those nests with up to two changes, without what it does not use.
inline Nest some_rule_nest(const RuleNests& nests, Dice& dice) {
  const Nest drawn = nests.draw(dice);
  Nest nest = mutated(drawn, dice, dice.below(3));
  const auto has_points = [&](const Statement& statement) { return !domain_in(nest, statement).is_empty(); };
  if (!std::all_of(nest.statements.begin(), nest.statements.end(), has_points)) nest = drawn;
  for (Statement& statement : nest.statements) compact(statement);
  drop_unused(nest);
  return nest;
}

/// Sizes that the nest's context allows: small ones, or the defaults.
inline Sizes some_sizes(const Nest& nest, Dice& dice) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    Sizes sizes;
    for (const SizeParam& size : nest.sizes) sizes[size.name] = 1 + dice.below(attempt < 10 ? 4 : 8);
    if (!at_sizes(nest.context, sizes).is_empty()) return sizes;
  }
  return complete_sizes(nest, {});
}

/// How many points all statements have.
inline std::size_t count_points(const Nest& nest, const Sizes& sizes) {
  std::size_t points = 0;
  for (const Statement& statement : nest.statements) points += integer_points(statement.domain, sizes).size();
  return points;
}

/// Inputs of few numbers, whose sums are exact, and special values among them. Those in `finite` have neither infinities nor NaN.
inline Memory rule_inputs(const Nest& nest, const Sizes& sizes, Dice& dice, const std::set<std::string>& finite) {
  Memory memory = Interpreter::random_inputs(nest, sizes, dice.seed());
  const double inf = infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double rate = dice.of<double>({0, 0.03, 0.1, 0.3, 0.7});
  const bool one_sign = dice.chance(0.5);
  for (auto& [name, elements] : memory) {
    const ElementType type = nest.tensor(name).type;
    const bool whole = type == ElementType::i32 || type == ElementType::i64;
    const std::vector<double> numbers = whole ? std::vector<double>{1, 2, -3, 17, 127} : std::vector<double>{1, 2, -3, 0.5, -1};
    std::vector<double> specials{0, -0.0, 1024, -1024};
    if (whole) specials = {0, 255, 256, -257, 32768, 2147483647, -2147483648.0};
    if (!whole && !finite.contains(name)) specials.insert(specials.end(), {inf, -inf, -inf, nan});
    const double same = dice.of(specials), sign = dice.chance(0.5) ? 1 : -1;
    const std::int64_t special_row = dice.chance(0.3) ? dice.below(4) : -1;
    for (const Index& index : indices_of(elements)) {
      double& value = elements.at(index);
      value = dice.of(numbers);
      if (one_sign && !whole) value = sign * std::fabs(value);
      if (dice.chance(rate)) value = dice.of(specials);
      if (!index.empty() && index[0] == special_row) value = same;
    }
  }
  return memory;
}

}  // namespace nestor::samples
