// Every rule keeps what a nest computes: the nest before and after, evaluated in double on random data and random sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "poly/algebra/all_rules.h"
#include "poly/algebra/reprove.h"
#include "poly/algebra/rules/online.h"
#include "poly/nest/nest_json.h"
#include "support/nests/added_convolutions.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/chained_products.h"
#include "support/nests/gathered_nests.h"
#include "support/nests/heads_in_columns.h"
#include "support/nests/masked_scores.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/nested_sums.h"
#include "support/nests/operand_nests.h"
#include "support/nests/periodic_nests.h"
#include "support/nests/prefix_nests.h"
#include "support/nests/sample_nests.h"
#include "support/nests/scored_rows.h"
#include "support/nests/sliced_results.h"
#include "support/nests/two_sources.h"
#include "support/nests/unrolled_sums.h"
#include "support/nests/window_of_distances.h"

namespace nestor {
namespace {

using samples::Interpreter;
using samples::Mask;
using samples::Memory;

constexpr double kTolerance =
    1e-6;  // constants in nests are exact to about 7 digits only where a test says so; doubles elsewhere

const std::vector<Nest>& nests() {
  static const std::vector<Nest> kNests{
      samples::matmul(),
      samples::row_norm(),
      samples::scores_softmax_values(),
      samples::scores_softmax_values(Mask::domain),
      samples::scores_softmax_values(Mask::select),
      samples::windowed_attention(),
      samples::masked_scores({.hidden = -1000}),
      samples::masked_scores({.seen = samples::sees_near(), .quotients = true}),
      samples::inlined_softmax_sum(),
      samples::inlined_softmax_sum(0.5),
      samples::softmax(),
      samples::softmax_over_two(),
      samples::softmax_over_two({.infinite = false}),
      samples::nearest_points(),
      samples::normalised_attention(),
      samples::late_division_norm(),
      samples::late_division_norm(TensorRole::output),
      samples::channel_norm(),
      samples::channel_norm("3"),
      samples::channel_norm("N"),
      samples::biased_scores(),
      samples::biased_scores(true),
      samples::capped_scores(),
      samples::with_positive_scalars(samples::scores_softmax_values()),
      samples::with_positive_scalars(samples::scores_softmax_values(Mask::select)),
      samples::with_positive_scalars(samples::biased_scores(true)),
      samples::with_positive_scalars(samples::capped_scores()),
      samples::limited_scores(),
      samples::early_denominator(),
      samples::copied_twice(),
      samples::quotients_by_roots(),
      samples::summed_pairs(),
      samples::summed_pairs({.mask = " and j <= i", .reduction = ReductionOp::max}),
      samples::running_values(),
      samples::running_in_place(),
      samples::running_from_zero(),
      samples::largest_others({.op = ReductionOp::mul, .start = 1}),
      samples::largest_others({.seen = "(k < c - 1 or k > c + 1)", .op = ReductionOp::add, .start = 0}),
      samples::unrolled_convolution(),
      samples::interleaved_products(),
      samples::heads_in_columns(),
      samples::window_of_distances(),
      samples::running_sum_of_distances(),
      samples::running_sum_of_distances("i + a", ReductionOp::max),
      samples::sliced_results(),
      samples::nested_sums(),
      samples::nested_sums(true),
      samples::taps_at_edges(2),
      samples::outer_products(),
      rule("join_rows").apply(samples::outer_products(), {"sum"}).nest,
      samples::rolled_windows("2", "8", "2", false),
      samples::many_indices("2", "2", "2", "2", false),
      samples::grouped_filters("2", "", "3"),
      samples::weighed_steps(),
      samples::mixed_products(),
      samples::mixed_products("4", "1"),
      samples::squared_distances(),
      samples::squared_distances(ElementType::f16, " and j <= i"),
      samples::distance_attention("q"),
      samples::recurrent_gates(),
      samples::recurrent_gates(true),
      samples::added_convolutions({.tiny = true}),
      samples::added_convolutions({.gates = 2, .third = true, .second_taps = "t, s", .channels = "K", .tiny = true}),
      samples::quadratic_form(),
      samples::quadratic_form({.mask = " and j <= i"}),
      samples::quadratic_form({.type = ElementType::bf16, .mask = " and i <= j + u", .rows = "x"}),
      samples::batched_forms(),
      samples::products_of_four(),
      samples::chained_matrices(),
      samples::weights_first(ElementType::f16),
      samples::chained_matrices(ElementType::f16, " and j <= i"),
      samples::directional_messages(),
      samples::directional_messages({.mask = " and o <= e"}),
      samples::strided_convolution(3, 2, 2),
      samples::patches(2),
      samples::product_of_rows(),
      rule("narrow_copies").apply(samples::strided_convolution(3, 2, 2), {"sum"}).nest,
      rule("narrow_copies").apply(samples::strided_convolution(16, 2, 2), {"sum"}).nest,
      samples::shared_scores(),
      samples::returned_weights(),
      samples::returned_weights(true),
      samples::crossed_rows(),
      samples::crossed_rows(true),
      samples::corners_of_cells(),
      samples::periodic_neighbours(),
      samples::periodic_neighbours(" and (x + y) mod 2 = 0")};
  return kNests;
}

Sizes random_sizes(const Nest& nest, std::mt19937_64& random) {
  Sizes sizes;
  for (const SizeParam& size : nest.sizes) sizes[size.name] = 1 + static_cast<std::int64_t>(random() % 7);
  return sizes;
}

/// Compares outputs of two nests, the second one run by `run`.
void expect_same(const Nest& before, const Nest& after, const Sizes& sizes, std::uint64_t seed,
                 const std::function<void(Interpreter&, Memory&)>& run, const std::string& what) {
  Memory expected = Interpreter::random_inputs(before, sizes, seed);
  Memory actual = expected;
  Interpreter(before, sizes).run(expected);
  Interpreter interpreter(after, sizes);
  run(interpreter, actual);
  for (const Tensor& tensor : before.tensors) {
    if (tensor.role != TensorRole::output) continue;
    EXPECT_LT(samples::difference(expected[tensor.name], actual[tensor.name]), kTolerance) << what << ", " << tensor.name << "\n"
                                                                                           << describe(after);
  }
}

bool has_short_results(const Nest& nest) {
  return std::any_of(nest.tensors.begin(), nest.tensors.end(), [](const Tensor& tensor) {
    return tensor.role == TensorRole::output && (tensor.type == ElementType::f16 || tensor.type == ElementType::bf16);
  });
}

void run_plainly(Interpreter& interpreter, Memory& memory) { interpreter.run(memory); }

TEST(AlgebraProperty, EveryMatchOfEveryRuleKeepsTheResult) {
  std::mt19937_64 random(7);
  int tried = 0;
  for (const Nest& nest : nests()) {
    ASSERT_NO_THROW(validate(nest)) << nest.op;
    for (const RuleMatch& match : find_matches(nest)) {
      // Its rounding (2^-15) can be a step of a result of 16 bits.
      if (match.rule == "bf16x3" && has_short_results(nest)) continue;
      const RuleResult result = rule(match.rule).apply(nest, match.target);
      const std::string what = nest.op + ": " + match.rule + " " + (match.target.empty() ? "" : match.target[0]);
      ASSERT_NO_THROW(validate(result.nest)) << what << "\n" << describe(result.nest);
      for (int round = 0; round < 3; ++round)
        expect_same(nest, result.nest, random_sizes(nest, random), random(), run_plainly, what);
      ++tried;
    }
  }
  EXPECT_GT(tried, 40);
}

TEST(AlgebraProperty, CompositesRunTileByTile) {
  std::mt19937_64 random(8);
  int tried = 0;
  for (const Nest& nest : nests()) {
    for (const RuleMatch& match : find_matches(nest)) {
      if (match.rule != "online" && match.rule != "moments") continue;
      const RuleResult result = rule(match.rule).apply(nest, match.target);
      ASSERT_EQ(result.composites.size(), 1U);
      for (const std::int64_t tile : {1, 2, 3, 100}) {
        expect_same(
            nest, result.nest, random_sizes(nest, random), random(),
            [&](Interpreter& interpreter, Memory& memory) { interpreter.run(memory, result.composites[0], tile); },
            nest.op + " by tiles of " + std::to_string(tile));
        ++tried;
      }
    }
  }
  EXPECT_GE(tried, 40);
}

/// A maximum that stays behind while terms grow by less than a threshold gives the same results as one that never does.
TEST(AlgebraProperty, CompositesWithAThresholdRunTileByTile) {
  std::mt19937_64 random(12);
  int tried = 0;
  for (const Nest& nest : nests()) {
    for (const RuleMatch& match : rule("online").find(nest)) {
      if (!may_stay_behind(nest, match.target[0])) continue;
      for (const char* threshold : {"1", "2.5", "14"}) {
        const RuleResult result = rule("online").apply(nest, {match.target[0], threshold});
        for (const std::int64_t tile : {1, 2}) {
          expect_same(
              nest, result.nest, random_sizes(nest, random), random(),
              [&](Interpreter& interpreter, Memory& memory) { interpreter.run(memory, result.composites.at(0), tile); },
              nest.op + " by tiles of " + std::to_string(tile) + " and a threshold of " + threshold);
          ++tried;
        }
      }
    }
  }
  EXPECT_GE(tried, 50);
}

TEST(AlgebraProperty, SplitsOfAnySizeKeepTheResult) {
  std::mt19937_64 random(9);
  for (const Nest& nest : nests()) {
    for (const RuleMatch& match : find_matches(nest)) {
      if (match.rule != "split_reduction") continue;
      for (const char* size : {"1", "2", "3", "4"}) {
        std::vector<std::string> target = match.target;
        target[3] = size;
        const RuleResult result = rule(match.rule).apply(nest, target);
        const std::string what = nest.op + ": split " + target[0] + " by " + size;
        ASSERT_NO_THROW(validate(result.nest)) << what << "\n" << describe(result.nest);
        expect_same(nest, result.nest, random_sizes(nest, random), random(), run_plainly, what);
        for (const Composite& composite : result.composites) {
          expect_same(
              nest, result.nest, random_sizes(nest, random), random(),
              [&](Interpreter& interpreter, Memory& memory) { interpreter.run(memory, composite, 2); },
              what + ", fused at " + composite.lead);
        }
      }
    }
  }
}

/// Applies random rules one after the other, as a search does.
TEST(AlgebraProperty, SequencesOfRulesKeepTheResultAndTheirComposites) {
  std::mt19937_64 random(10);
  int composites_run = 0;
  for (int round = 0; round < 90; ++round) {
    const std::vector<Nest>& all = nests();
    const Nest& nest = all[random() % all.size()];
    Nest current = nest;
    std::vector<Composite> composites;
    std::string what = nest.op;
    for (int step = 0; step < 4; ++step) {
      auto matches = find_matches(current);
      // It rounds by 2^-15, which may be a step of a result in f16.
      std::erase_if(matches, [](const RuleMatch& match) { return match.rule == "bf16x3"; });
      if (matches.empty()) break;
      const RuleMatch& match = matches[random() % matches.size()];
      std::vector<std::string> target = match.target;
      if (match.rule == "split_reduction") target[3] = "3";
      what += "; " + match.rule + (target.empty() ? "" : " " + target[0]);
      RuleResult result = rule(match.rule).apply(current, target);
      current = result.nest;
      composites = reprove(current, composites);
      for (const Composite& composite : result.composites) composites.push_back(composite);
    }
    ASSERT_NO_THROW(validate(current)) << what << "\n" << describe(current);
    const Sizes sizes = random_sizes(nest, random);
    expect_same(nest, current, sizes, random(), run_plainly, what);
    for (const Composite& composite : composites) {
      if (!Interpreter(current, sizes).can_run(composite)) continue;
      ++composites_run;
      expect_same(
          nest, current, sizes, random(),
          [&](Interpreter& interpreter, Memory& memory) { interpreter.run(memory, composite, 2); },
          what + " (composite of " + composite.lead + ")");
    }
    EXPECT_EQ(digest(nest_from_json(nest_to_json(current))), digest(current)) << what;
  }
  EXPECT_GT(composites_run, 10);
}

}  // namespace
}  // namespace nestor
