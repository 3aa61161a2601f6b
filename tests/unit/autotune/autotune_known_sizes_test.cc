// Sizes that are fixed before a search on a GPU: those without which its first guess has kernels that cannot be planned.
#include "autotune/sizes_that_help.h"
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/target/target.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

std::set<std::string> sizes_for(const Nest& nest) {
  const Sizes sizes = complete_sizes(nest, {});
  std::set<std::string> fixed = sizes_known_to_products(nest, sizes);
  fixed.merge(sizes_of_short_rows(nest, sizes));
  FixedSpaces spaces(nest, sizes, false);
  return sizes_that_help(spaces, fixed, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132), true);
}

/// Can the kernels of the first guess be planned with these sizes fixed?
bool starts(const Nest& nest, const std::set<std::string>& fixed) {
  Sizes numbers;
  for (const std::string& name : fixed) numbers[name] = complete_sizes(nest, {}).at(name);
  testing::SpaceGuesses guesses(fix_sizes(nest, numbers), complete_sizes(nest, {}));
  for (const Point& point : guesses.points) {
    const Candidate candidate = guesses.space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    try {
      plan_kernels(target_program(guesses.schedules.replay(candidate.steps), true), {.sm = 90});
      return true;
    } catch (const UserError&) {
      return false;
    }
  }
  return false;
}

/// u[t + 1, i] = u[t, i] + x[t, i] v[t, i] and v[t + 1, i] = v[t, i] u[t, i] / 2: a block keeps both for all times.
Nest oscillators() {
  const std::string row = "0 <= i < N", step = "0 <= t < T and " + row;
  return NestBuilder("oscillators", {{"T", 64}, {"N", 65536}})
      .tensor("x", TensorRole::input, {"T", "N"})
      .tensor("u", TensorRole::temporary, {"T + 1", "N"})
      .tensor("v", TensorRole::temporary, {"T + 1", "N"})
      .tensor("out", TensorRole::output, {"N"})
      .statement("u_first[one, i] : one = 0 and " + row, "u[one, i]", {}, number(1))
      .statement("v_first[one, i] : one = 0 and " + row, "v[one, i]", {}, number(0.5))
      .statement("u_next[t, stage, i] : stage = 0 and " + step, "u[t + 1, i]", {"u[t, i]", "x[t, i]", "v[t, i]"},
                 read(0) + read(1) * read(2))
      .statement("v_next[t, stage, i] : stage = 1 and " + step, "v[t + 1, i]", {"v[t, i]", "u[t, i]"},
                 number(0.5) * read(0) * read(1))
      .join_last()
      .statement("out[i] : " + row, "out[i]", {"u[T, i]"}, read(0))
      .build();
}

TEST(KnownSizes, OfStatesThatABlockKeepsTheNumberOfStepsIsFixed) {
  const Nest nest = oscillators();
  const std::set<std::string> fixed = sizes_for(nest);
  EXPECT_EQ(fixed, std::set<std::string>{"T"});
  EXPECT_TRUE(starts(nest, fixed));
}

/// out[k, n] = sum over m of left[m, k] x[m, n], times what is left of right[k, n] by the sum over l of gram[k, l] right[l, n]: as many columns
/// of the second product's operand as there are factors.
Nest factors(std::int64_t columns) {
  const std::string result = "0 <= k < K and 0 <= n < N", pair = "0 <= k < K and 0 <= l < K", terms = " and 0 <= m < M";
  const auto wide = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  return NestBuilder("factors", {{"M", 2048}, {"N", columns}, {"K", 64}})
      .tensor("x", TensorRole::input, {"M", "N"}, ElementType::f16)
      .tensor("left", TensorRole::input, {"M", "K"}, ElementType::f16)
      .tensor("right", TensorRole::input, {"K", "N"}, ElementType::f16)
      .tensor("above", TensorRole::temporary, {"K", "N"})
      .tensor("sum", TensorRole::temporary, {"K", "K"})
      .tensor("gram", TensorRole::temporary, {"K", "K"}, ElementType::f16)
      .tensor("below", TensorRole::temporary, {"K", "N"})
      .tensor("out", TensorRole::output, {"K", "N"})
      .statement("above_init[k, n] : " + result, "above[k, n]", {}, number(0))
      .statement("above[k, n, m] : " + result + terms, "above[k, n]", {"left[m, k]", "x[m, n]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("sum_init[k, l] : " + pair, "sum[k, l]", {}, number(0))
      .statement("sum[k, l, m] : " + pair + terms, "sum[k, l]", {"left[m, k]", "left[m, l]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("gram[k, l] : " + pair, "gram[k, l]", {"sum[k, l]"}, ScalarExpr::cast(ElementType::f16, read(0)))
      .statement("below_init[k, n] : " + result, "below[k, n]", {}, number(0))
      .statement("below[k, n, l] : " + result + " and 0 <= l < K", "below[k, n]", {"gram[k, l]", "right[l, n]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("out[k, n] : " + result, "out[k, n]", {"above[k, n]", "below[k, n]"}, read(0) * read(1))
      .build();
}

TEST(KnownSizes, ColumnsOfAProductsOperandAreFixed) {
  const Nest nest = factors(512);
  const std::set<std::string> fixed = sizes_for(nest);
  EXPECT_TRUE(fixed.contains("K"));
  EXPECT_TRUE(starts(nest, fixed));
  // More columns than a block keeps are for a kernel of their own.
  const Nest wide = factors(8192);
  EXPECT_TRUE(sizes_for(wide).empty());
  EXPECT_TRUE(starts(wide, {}));
}

}  // namespace
}  // namespace nestor
