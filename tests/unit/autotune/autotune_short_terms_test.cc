// Sums of products over several dims, of which the innermost is short: with terms side by side in copies they fill tiles. Guesses have them
// both ways, the better one first, and compute what the nest defines.
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/half_values.h"
#include "support/nests/operand_nests.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

/// out[r, c] = sum over u and t of exp(-(x[r, u] - t)^2) w[c, u, t]: 8 terms t for each of 40 inputs.
Nest radial_layer() {
  const std::string cell = "0 <= r < R and 0 <= c < N", term = "0 <= u < 40 and 0 <= t < 8";
  const ScalarExpr near = wide(0) - read(1);
  return NestBuilder("radial_layer", {{"R", 200}, {"N", 200}})
      .tensor("x", TensorRole::input, {"R", "40"}, kHalf)
      .tensor("w", TensorRole::input, {"N", "40", "8"}, kHalf)
      .tensor("centre", TensorRole::input, {"8"})
      .tensor("feature", TensorRole::temporary, {"R", "40", "8"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"R", "N"})
      .tensor("out", TensorRole::output, {"R", "N"}, kHalf)
      .statement("feature[r, u, t] : 0 <= r < R and " + term, "feature[r, u, t]", {"x[r, u]", "centre[t]"},
                 ScalarExpr::cast(kHalf, apply(ScalarOp::exp, number(0) - near * near)))
      .statement("sum_init[r, c] : " + cell, "sum[r, c]", {}, number(0))
      .statement("sum[r, c, u, t] : " + cell + " and " + term, "sum[r, c]", {"feature[r, u, t]", "w[c, u, t]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("out[r, c] : " + cell, "out[r, c]", {"sum[r, c]"}, ScalarExpr::cast(kHalf, read(0) * number(0.1)))
      .build();
}

/// A convolution of 3 x 3 taps and 8 channels: copies would hold each element nine times.
Nest convolution() {
  const std::string place = "0 <= n < B and 0 <= y < Y and 0 <= z < Y and 0 <= m < N";
  return NestBuilder("convolution", {{"B", 2}, {"Y", 20}, {"N", 64}})
      .tensor("x", TensorRole::input, {"B", "Y + 2", "Y + 2", "8"}, kHalf)
      .tensor("w", TensorRole::input, {"N", "3", "3", "8"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "Y", "Y", "N"})
      .tensor("out", TensorRole::output, {"B", "Y", "Y", "N"}, kHalf)
      .statement("sum_init[n, y, z, m] : " + place, "sum[n, y, z, m]", {}, number(0))
      .statement("sum[n, y, z, m, s, t, c] : " + place + " and 0 <= s < 3 and 0 <= t < 3 and 0 <= c < 8", "sum[n, y, z, m]",
                 {"x[n, y + s, z + t, c]", "w[m, s, t, c]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("out[n, y, z, m] : " + place, "out[n, y, z, m]", {"sum[n, y, z, m]"},
                 ScalarExpr::cast(kHalf, read(0) * number(0.1)))
      .build();
}

struct ShortCase {
  const char* name;
  Nest nest;
  Sizes sizes;         ///< that guesses are made for
  Sizes ragged;        ///< that kernels run at
  bool gathers_first;  ///< the first guess has terms side by side
};

class ShortTerms : public ::testing::TestWithParam<ShortCase> {};
INSTANTIATE_TEST_SUITE_P(
    Nests, ShortTerms,
    ::testing::Values(
        ShortCase{"radial_layer", radial_layer(), {{"R", 4096}, {"N", 1024}}, {{"R", 70}, {"N", 88}}, true},
        ShortCase{"convolution", convolution(), {{"B", 32}, {"Y", 112}, {"N", 64}}, {{"B", 2}, {"Y", 5}, {"N", 40}}, false}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(ShortTerms, AreGuessedBothWaysAndBothAreRight) {
  const ShortCase& test = GetParam();
  const Sizes sizes = complete_sizes(test.nest, test.sizes);
  BaseSchedules schedules(nest_for_tuning(test.nest, sizes));
  const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132));
  std::vector<std::int64_t> seen;
  const TileProgram meaning = build_tile_program(schedules.base({}));
  for (const Point& point : space->defaults()) {
    const NamedValues values = named_values(*space, point);
    const std::int64_t gathers = value_or(values, "rule.gather_terms", 0);
    if (value_or(values, "warpgroups", 0) == 0 || std::find(seen.begin(), seen.end(), gathers) != seen.end()) continue;
    seen.push_back(gathers);
    const Candidate candidate = space->candidate(point);
    ASSERT_EQ(candidate.infeasible, "");
    const CompiledNvptx compiled = compile_nvptx(build_tile_program(schedules.replay(candidate.steps)), {});
    EXPECT_TRUE(std::any_of(compiled.plans->kernels.begin(), compiled.plans->kernels.end(),
                            [](const PlannedKernel& kernel) { return kernel.tensor.has_value(); }));
    EXPECT_EQ(testing::run_emulated(compiled, meaning, test.ragged, {.tolerance = 4e-3}, {1}), "") << gathers;
  }
  EXPECT_EQ(seen, test.gathers_first ? std::vector<std::int64_t>({1, 0}) : std::vector<std::int64_t>({0, 1}));
}

}  // namespace
}  // namespace nestor
