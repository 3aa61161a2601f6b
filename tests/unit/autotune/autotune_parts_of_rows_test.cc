// Products over parts of rows: a layer of two inputs that lie one after the other along its weights.
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;

/// out[m, o] = sum over a of x[m, a] w[o, a] + sum over b of y[m, b] w[o, A + b]
Nest layer_of_two_inputs() {
  const std::string cell = "0 <= m < M and 0 <= o < O";
  const auto half = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  return NestBuilder("two_inputs", {{"M", 512}, {"O", 512}, {"A", 256}, {"B", 128}})
      .tensor("x", TensorRole::input, {"M", "A"}, ElementType::f16)
      .tensor("y", TensorRole::input, {"M", "B"}, ElementType::f16)
      .tensor("w", TensorRole::input, {"O", "A + B"}, ElementType::f16)
      .tensor("s", TensorRole::temporary, {"M", "O"})
      .tensor("t", TensorRole::temporary, {"M", "O"})
      .tensor("out", TensorRole::output, {"M", "O"}, ElementType::f16)
      .statement("s_init[m, o] : " + cell, "s[m, o]", {}, number(0))
      .statement("s[m, o, a] : " + cell + " and 0 <= a < A", "s[m, o]", {"x[m, a]", "w[o, a]"}, half(0) * half(1),
                 ReductionOp::add)
      .statement("t_init[m, o] : " + cell, "t[m, o]", {}, number(0))
      .statement("t[m, o, b] : " + cell + " and 0 <= b < B", "t[m, o]", {"y[m, b]", "w[o, A + b]"}, half(0) * half(1),
                 ReductionOp::add)
      .statement("out[m, o] : " + cell, "out[m, o]", {"s[m, o]", "t[m, o]"},
                 ScalarExpr::cast(ElementType::f16, read(0) + read(1)))
      .build();
}

TEST(PartsOfRows, SizesBehindWhichAPartStartsAreKnownWhereCopiesCanStartThere) {
  const Nest nest = layer_of_two_inputs();
  const auto known = [&](std::int64_t first) {
    return sizes_known_to_products(nest, complete_sizes(nest, {{"A", first}, {"B", 128}}));
  };
  EXPECT_TRUE(known(256).contains("A"));
  EXPECT_TRUE(known(256).contains("B"));
  EXPECT_FALSE(known(256).contains("M"));
}

/// Sums of one length share a loop over their terms, others have loops of their own: either way on tensor cores, and right.
TEST(PartsOfRows, LayersOfTwoInputsAreOneKernelOnTensorCores) {
  for (const std::int64_t second : {256, 128}) {
    const Sizes sizes = complete_sizes(layer_of_two_inputs(), {{"M", 512}, {"O", 512}, {"A", 256}, {"B", second}});
    const TrialProblem problem =
        trial_problem(layer_of_two_inputs(), sizes, false, sizes_known_to_products(layer_of_two_inputs(), sizes));
    BaseSchedules schedules(problem.start);
    const auto space = make_nest_space(schedules, problem.sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132));
    const Candidate candidate = space->candidate(space->defaults().front());
    ASSERT_EQ(candidate.infeasible, "") << second;
    const CompiledNvptx compiled = compile_nvptx(build_tile_program(schedules.replay(candidate.steps)), {});
    const auto& kernels = compiled.plans->kernels;
    EXPECT_EQ(
        std::count_if(kernels.begin(), kernels.end(), [](const PlannedKernel& kernel) { return kernel.tensor.has_value(); }), 1);
    const TileProgram meaning = build_tile_program(schedules.base({}));
    EXPECT_EQ(testing::run_emulated(compiled, meaning, {{"M", 70}, {"O", 72}}, {.tolerance = 4e-3}, {1}), "") << second;
  }
}

}  // namespace
}  // namespace nestor
