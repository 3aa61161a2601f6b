// Products with rows that tensor copies cannot read: operands are copied into rows that they can, so that the first guess is on tensor cores
// and computes what the nest defines.
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_problem.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/half_values.h"
#include "support/nests/sample_nests.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int kUnits = 132;

/// out[b, i, j] = sum over k of a[b, i, k] w[j, k], or of what `a` and `w` say; with the sizes of a problem.
Nest product(const std::string& a, const std::string& w) {
  const std::string cell = "0 <= b < B and 0 <= i < M and 0 <= j < N";
  const auto shape = [](const std::string& access) {
    std::vector<std::string> extents;
    for (const char index : access.substr(access.find('[')))
      if (const auto at = std::string("bijk").find(index); at != std::string::npos) extents.push_back({"BMNK"[at]});
    return extents;
  };
  return NestBuilder("ragged_product", {{"B", 2}, {"M", 200}, {"N", 200}, {"K", 200}})
      .tensor("a", TensorRole::input, shape(a), kHalf)
      .tensor("w", TensorRole::input, shape(w), kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "M", "N"})
      .tensor("out", TensorRole::output, {"B", "M", "N"}, kHalf)
      .statement("sum_init[b, i, j] : " + cell, "sum[b, i, j]", {}, number(0))
      .statement("sum[b, i, j, k] : " + cell + " and 0 <= k < K", "sum[b, i, j]", {a, w}, wide(0) * wide(1), ReductionOp::add)
      .statement("out[b, i, j] : " + cell, "out[b, i, j]", {"sum[b, i, j]"}, ScalarExpr::cast(kHalf, read(0) * number(0.05)))
      .build();
}

/// x + w' max(w x, 0): both operands beside x have rows of P, or x has.
Nest mixed(const std::string& x, const std::string& up) {
  const std::string cell = "0 <= n < B and 0 <= h < H and 0 <= m < C", out = "0 <= n < B and 0 <= p < P and 0 <= m < C";
  return NestBuilder("ragged_mixing", {{"B", 2}, {"P", 200}, {"C", 200}, {"H", 200}})
      .tensor("x", TensorRole::input, {"B", "P", "C"}, kHalf)
      .tensor("up", TensorRole::input, {"H", "P"}, kHalf)
      .tensor("down", TensorRole::input, {"P", "H"}, kHalf)
      .tensor("lifted", TensorRole::temporary, {"B", "H", "C"})
      .tensor("active", TensorRole::temporary, {"B", "H", "C"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "P", "C"})
      .tensor("out", TensorRole::output, {"B", "P", "C"}, kHalf)
      .statement("lifted_init[n, h, m] : " + cell, "lifted[n, h, m]", {}, number(0))
      .statement("lifted[n, h, m, p] : " + cell + " and 0 <= p < P", "lifted[n, h, m]", {up, x}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("active[n, h, m] : " + cell, "active[n, h, m]", {"lifted[n, h, m]"},
                 ScalarExpr::cast(kHalf, ScalarExpr::make(ScalarOp::max, {read(0), number(0)})))
      .statement("sum_init[n, p, m] : " + out, "sum[n, p, m]", {}, number(0))
      .statement("sum[n, p, m, h] : " + out + " and 0 <= h < H", "sum[n, p, m]", {"down[p, h]", "active[n, h, m]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("out[n, p, m] : " + out, "out[n, p, m]", {"sum[n, p, m]", x},
                 ScalarExpr::cast(kHalf, read(0) * number(0.05) + wide(1)))
      .build();
}

struct RaggedCase {
  const char* name;
  Nest nest;
  Sizes sizes;   ///< that the guess is made for
  Sizes others;  ///< that its kernels run at, beside those which are fixed
  int tensor;    ///< kernels on tensor cores
  int copies;    ///< operands that are copied
  int sm = 90;
};

std::vector<RaggedCase> ragged_cases() {
  const std::string rows = "a[b, i, k]", columns = "w[j, k]";
  const auto attention = [](bool biased) { return testing::attention_nest({.depth = 50, .biased = biased}); };
  const Sizes few{{"B", 2}, {"M", 70}, {"N", 88}, {"K", 72}};
  return {{"depth_of_196", product(rows, columns), {{"B", 4}, {"M", 4096}, {"N", 4096}, {"K", 196}}, few, 1, 2},
          {"depth_of_197", product(rows, columns), {{"B", 4}, {"M", 4096}, {"N", 4096}, {"K", 197}}, few, 1, 2},
          {"depth_of_50", product(rows, columns), {{"B", 4}, {"M", 4096}, {"N", 4096}, {"K", 50}}, few, 1, 2},
          {"depth_of_9", product(rows, columns), {{"B", 4}, {"M", 4096}, {"N", 4096}, {"K", 9}}, few, 1, 2},
          {"depth_of_7", product(rows, columns), {{"B", 4}, {"M", 4096}, {"N", 4096}, {"K", 7}}, few, 0, 0},
          {"depth_of_1", product(rows, columns), {{"B", 4}, {"M", 4096}, {"N", 4096}, {"K", 1}}, few, 0, 0},
          {"columns_of_197", product(rows, "w[k, j]"), {{"B", 4}, {"M", 4096}, {"N", 197}, {"K", 4096}}, few, 1, 1},
          {"transposed", product("a[b, k, i]", "w[k, j]"), {{"B", 64}, {"M", 50}, {"N", 197}, {"K", 4096}}, few, 1, 2},
          {"batches", product(rows, "w[b, k, j]"), {{"B", 512}, {"M", 196}, {"N", 50}, {"K", 49}}, few, 1, 2},
          {"one_operand", product(rows, "w[k, j]"), {{"B", 4}, {"M", 4096}, {"N", 1024}, {"K", 100}}, few, 1, 1},
          {"sm_80", product(rows, columns), {{"B", 4}, {"M", 4096}, {"N", 4096}, {"K", 196}}, few, 1, 2, 80},
          {"token_mixing",
           mixed("x[n, p, m]", "up[h, p]"),
           {{"B", 64}, {"P", 196}, {"C", 768}, {"H", 384}},
           {{"B", 2}, {"C", 72}, {"H", 88}},
           1,
           1},
          {"channels_of_50",
           mixed("x[n, p, m]", "up[h, p]"),
           {{"B", 512}, {"P", 64}, {"C", 50}, {"H", 384}},
           {{"B", 2}, {"P", 40}, {"H", 88}},
           1,
           1},
          {"attention", attention(false), {{"H", 64}, {"Q", 1024}, {"K", 1024}}, {{"H", 2}, {"Q", 70}, {"K", 90}}, 1, 3},
          {"attention_with_a_bias", attention(true), {{"H", 64}, {"Q", 1024}, {"K", 197}}, {{"H", 2}, {"Q", 70}}, 1, 3}};
}

class RaggedRows : public ::testing::TestWithParam<RaggedCase> {};
INSTANTIATE_TEST_SUITE_P(Products, RaggedRows, ::testing::ValuesIn(ragged_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(RaggedRows, AreCopiedAndTheFirstGuessIsRight) {
  const RaggedCase& test = GetParam();
  NvptxTarget target;
  target.sm = test.sm;
  Nest nest = test.nest;
  specialize_product_sizes(nest);  // as wherever a nest is loaded
  const TrialProblem problem =
      trial_problem(nest, test.sizes, false, sizes_known_to_products(nest, complete_sizes(nest, test.sizes)));
  BaseSchedules schedules(problem.start);
  const auto space = make_nest_space(schedules, problem.sizes, gpu_space_limits(target.sm, target.shared_limit, kUnits));
  Candidate candidate;  // the first guess that fits: none of the others is tried
  for (const Point& point : space->defaults()) {
    candidate = space->candidate(point);
    if (candidate.infeasible.empty()) break;
  }
  ASSERT_EQ(candidate.infeasible, "");
  int copies = 0;
  for (const Step& step : candidate.steps) copies += step.name == "apply_rule" && step.args.at(0) == "copy_rows" ? 1 : 0;
  EXPECT_EQ(copies, test.copies);
  const CompiledNvptx compiled = compile_nvptx(build_tile_program(schedules.replay(candidate.steps)), target);
  int tensor = 0;
  for (const PlannedKernel& kernel : compiled.plans->kernels) tensor += kernel.tensor ? 1 : 0;
  EXPECT_EQ(tensor, test.tensor);
  Sizes sizes = test.others;
  for (const auto& [name, value] : compiled.kernel.recipe.fixed_sizes) sizes.erase(name);
  EXPECT_EQ(testing::run_emulated(compiled, build_tile_program(schedules.base({})), sizes, {.tolerance = 4e-3}, {1}), "");
}

TEST(RaggedRows, TheirLengthsAreKnownWhenCompiling) {
  const Nest nest = product("a[b, i, k]", "w[k, j]");
  const auto known = [&](std::int64_t n, std::int64_t k) {
    return sizes_known_to_products(nest, {{"B", 4}, {"M", 100}, {"N", n}, {"K", k}});
  };
  EXPECT_THAT(known(64, 128), IsEmpty());
  EXPECT_THAT(known(64, 100), UnorderedElementsAre("K"));
  EXPECT_THAT(known(50, 128), UnorderedElementsAre("N")) << "of an operand, and of the result";
  EXPECT_THAT(known(50, 100), UnorderedElementsAre("K", "N"));
}

}  // namespace
}  // namespace nestor
