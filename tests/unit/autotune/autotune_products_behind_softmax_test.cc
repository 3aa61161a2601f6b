// Products whose operands come from a softmax: gradients of a cross entropy, scores of features that are two softmaxes side by side, and a softmax
// over two sources. The
// first guess has them on tensor cores, each in a kernel that fits.
#include "autotune/space/gpu/tensor_fusion.h"
#include "autotune/space/structure/rule_steps.h"
#include "support/nests/half_values.h"
#include "support/nests/two_sources.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using testing::SearchedProblem;

constexpr double kTolerance = 4e-3;  ///< of operands that are rounded to 16 bits

/// out = (softmax(x w') - hit) w, from a linear layer and a cross entropy back to x.
Nest loss_gradient() {
  const std::string row = "0 <= t < T", score = row + " and 0 <= v < V", cell = row + " and 0 <= d < D";
  const ScalarExpr hit =
      ScalarExpr::make(ScalarOp::select, {ScalarExpr::make(ScalarOp::eq, {read(3), read(4)}), number(1), number(0)});
  return NestBuilder("loss_gradient", {{"T", 256}, {"V", 512}, {"D", 128}})
      .tensor("x", TensorRole::input, {"T", "D"}, kHalf)
      .tensor("w", TensorRole::input, {"V", "D"}, kHalf)
      .tensor("hit", TensorRole::input, {"T"})
      .tensor("place", TensorRole::input, {"V"})
      .tensor("s", TensorRole::temporary, {"T", "V"})
      .tensor("m", TensorRole::temporary, {"T"})
      .tensor("l", TensorRole::temporary, {"T"})
      .tensor("sum", TensorRole::temporary, {"T", "D"})
      .tensor("out", TensorRole::output, {"T", "D"}, kHalf)
      .statement("s_init[t, v] : " + score, "s[t, v]", {}, number(0))
      .statement("s_sum[t, v, d] : " + score + " and 0 <= d < D", "s[t, v]", {"x[t, d]", "w[v, d]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("m_init[t] : " + row, "m[t]", {}, number(-infinity()))
      .statement("m_max[t, v] : " + score, "m[t]", {"s[t, v]"}, read(0), ReductionOp::max)
      .statement("l_init[t] : " + row, "l[t]", {}, number(0))
      .statement("l_sum[t, v] : " + score, "l[t]", {"s[t, v]", "m[t]"}, apply(ScalarOp::exp, read(0) - read(1)), ReductionOp::add)
      .statement("sum_init[t, d] : " + cell, "sum[t, d]", {}, number(0))
      .statement("sum[t, d, v] : " + cell + " and 0 <= v < V", "sum[t, d]",
                 {"s[t, v]", "m[t]", "l[t]", "hit[t]", "place[v]", "w[v, d]"},
                 (apply(ScalarOp::exp, read(0) - read(1)) / read(2) - hit) * wide(5), ReductionOp::add)
      .statement("out[t, d] : " + cell, "out[t, d]", {"sum[t, d]"}, ScalarExpr::cast(kHalf, read(0)))
      .build();
}

/// out[i, d] = sum over j of (sum over sign, e of f(q)[i, sign, e] f(k)[j, sign, e]) v[j, d], f a mapping, and beside it its opposite.
Nest signed_features(const std::string& mask = "") {
  NestBuilder builder("signed_features", {{"I", 200}, {"J", 200}});
  const auto add = [&](const std::string& x, const std::string& size) {
    const std::string cell = fmt::format("0 <= i < {} and 0 <= d < 32", size), both = cell + " and 0 <= s < 2",
                      mapped = x + "_mapped", sum = x + "_sum", weight = x + "_weight", features = x + "_features";

    builder.tensor(x, TensorRole::input, {size, "32"}, kHalf)
        .tensor(weight, TensorRole::input, {"32", "32"}, kHalf)
        .tensor(sum, TensorRole::temporary, {size, "32"})
        .tensor(mapped, TensorRole::temporary, {size, "32"}, kHalf)
        .tensor(features, TensorRole::temporary, {size, "2", "32"}, kHalf)
        .statement(sum + "_init[i, d] : " + cell, sum + "[i, d]", {}, number(0))
        .statement(sum + "[i, d, e] : " + cell + " and 0 <= e < 32", sum + "[i, d]", {x + "[i, e]", weight + "[d, e]"},
                   wide(0) * wide(1), ReductionOp::add)
        .statement(mapped + "[i, d] : " + cell, mapped + "[i, d]", {sum + "[i, d]"}, ScalarExpr::cast(kHalf, read(0)))
        .statement(features + "[i, s, d] : " + both, features + "[i, s, d]", {mapped + "[i, d]", "sign[s]"},
                   ScalarExpr::cast(kHalf, apply(ScalarOp::tanh, wide(0) * read(1))));
  };
  builder.tensor("sign", TensorRole::input, {"2"});
  add("q", "I");
  add("k", "J");
  const std::string score = "0 <= i < I and 0 <= j < J" + mask, cell = "0 <= i < I and 0 <= c < 32";
  return builder.tensor("v", TensorRole::input, {"J", "32"}, kHalf)
      .tensor("a", TensorRole::temporary, {"I", "J"})
      .tensor("found", TensorRole::temporary, {"I", "32"})
      .tensor("out", TensorRole::output, {"I", "32"}, kHalf)
      .statement("a_init[i, j] : " + score, "a[i, j]", {}, number(0))
      .statement("a[i, j, s, e] : " + score + " and 0 <= s < 2 and 0 <= e < 32", "a[i, j]",
                 {"q_features[i, s, e]", "k_features[j, s, e]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("found_init[i, c] : " + cell, "found[i, c]", {}, number(0))
      .statement("found[i, c, j] : " + cell + " and 0 <= j < J" + mask, "found[i, c]", {"a[i, j]", "v[j, c]"}, read(0) * wide(1),
                 ReductionOp::add)
      .statement("out[i, c] : " + cell, "out[i, c]", {"found[i, c]"}, ScalarExpr::cast(kHalf, read(0)))
      .build();
}

int kernels_on_tensor_cores(const std::vector<Step>& steps) {
  return static_cast<int>(
      std::count_if(steps.begin(), steps.end(), [](const Step& step) { return step.name == "tensor_cores"; }));
}

int applications(const std::vector<Step>& steps, const std::string& rule) {
  return static_cast<int>(std::count_if(steps.begin(), steps.end(),
                                        [&](const Step& step) { return step.name == "apply_rule" && step.args.at(0) == rule; }));
}

TEST(ProductsBehindSoftmax, TheWayBackFromACrossEntropyHasBothProductsOnTensorCores) {
  SearchedProblem problem(loss_gradient(), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_EQ(kernels_on_tensor_cores(candidate.steps), 2);
  EXPECT_EQ(applications(candidate.steps, "online"), 1);
  EXPECT_EQ(applications(candidate.steps, "materialize_factor"), 1);
  EXPECT_EQ(applications(candidate.steps, "round_operand"), 1);
  for (const Sizes& sizes : {Sizes{{"T", 65}, {"V", 200}, {"D", 72}}, Sizes{{"T", 1}, {"V", 8}, {"D", 8}}})
    EXPECT_EQ(problem.difference(first, sizes, kTolerance), "");
}

TEST(ProductsBehindSoftmax, FeaturesAlongTwoDimsAreTermsOfOneProduct) {
  for (const std::string mask : {"", " and j <= i"}) {
    SearchedProblem problem(signed_features(mask), {});
    const Point first = problem.space->defaults().front();
    const Candidate candidate = problem.space->candidate(first);
    ASSERT_EQ(candidate.infeasible, "");
    EXPECT_EQ(kernels_on_tensor_cores(candidate.steps), 3) << "both mappings, and scores with what they weigh";
    EXPECT_EQ(applications(candidate.steps, "gather_terms"), 1);
    for (const Sizes& sizes : {Sizes{{"I", 130}, {"J", 130}}, Sizes{{"I", 3}, {"J", 3}}})
      EXPECT_EQ(problem.difference(first, sizes, kTolerance), "");
  }
}

TEST(ProductsBehindSoftmax, EachOfTwoSourcesHasAnOnlineSoftmaxOnTensorCores) {
  for (const bool causal : {false, true}) {
    SearchedProblem problem(attention_to_two(causal), {});
    const Point first = problem.space->defaults().front();
    const Candidate candidate = problem.space->candidate(first);
    ASSERT_EQ(candidate.infeasible, "");
    EXPECT_EQ(applications(candidate.steps, "local_extremum"), 1);
    EXPECT_EQ(applications(candidate.steps, "online"), 2);
    EXPECT_EQ(kernels_on_tensor_cores(candidate.steps), 2);
    for (const Sizes& sizes : {Sizes{{"C", 200}, {"N", 72}}, Sizes{{"C", 8}, {"N", 3}}})
      EXPECT_EQ(problem.difference(first, sizes, kTolerance), "");
    EXPECT_EQ(problem.difference(problem.with({{"num_splits", 2}}), {{"C", 300}, {"N", 40}}, kTolerance), "");
  }
}

TEST(ProductsBehindSoftmax, AResultAlongAnAxisThatItsKernelDoesNotShareHasNoPlaceInTiles) {
  BaseSchedules schedules(nest_for_tuning(signed_features(), {}));
  const Sizes sizes = complete_sizes(signed_features(), {});
  RuleVariants variants(schedules, sizes);
  const RuleVariant& variant = variants.at({{"reassociate"}});
  int with_features = 0, products = 0;
  for (const Fusion fusion : {Fusion::careful, Fusion::alike}) {
    for (const FusionGroup& group : variants.fusion_groups(variant, fusion)) {
      const auto has = [&](const std::string& name) {
        return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
          const auto& names = variant.structure.loop_groups[static_cast<std::size_t>(u)].statements;
          return std::find(names.begin(), names.end(), name) != names.end();
        });
      };
      if (!has("q_sum")) continue;
      const bool fits = tensor_axes_of(variants, variant, group, 90).has_value();
      EXPECT_EQ(fits, !has("q_features"));
      with_features += has("q_features") ? 1 : 0;
      products += fits ? 1 : 0;
    }
  }
  EXPECT_GT(with_features, 0);
  EXPECT_GT(products, 0);
}

}  // namespace
}  // namespace nestor
