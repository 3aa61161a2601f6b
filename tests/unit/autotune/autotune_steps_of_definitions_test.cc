// Definitions in steps, each of which has a tensor of its own: the first guess has the kernels of the definition in one.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

/// A batch norm of images with channels first. `steps`: what is centred and what is scaled are tensors.
Nest batch_norm(bool steps) {
  const ScalarExpr points =
      ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0)) * ScalarExpr::cast(ElementType::f32, ScalarExpr::index(1));
  const std::string channel = "0 <= c < C", all = " : 0 <= n < N and 0 <= c < C and 0 <= s < S",
                    terms = " : 0 <= c < C and 0 <= n < N and 0 <= s < S";
  const ScalarExpr root = apply(ScalarOp::sqrt, read(1) / points + number(1e-5)), centred = read(0) - read(1);
  NestBuilder builder("batch_norm", {{"N", 32}, {"C", 128}, {"S", 3136}});
  builder.tensor("x", TensorRole::input, {"N", "C", "S"})
      .tensor("total", TensorRole::temporary, {"C"})
      .tensor("mean", TensorRole::temporary, {"C"})
      .tensor("squares", TensorRole::temporary, {"C"})
      .tensor("y", TensorRole::output, {"N", "C", "S"})
      .statement("total_init[c] : " + channel, "total[c]", {}, number(0))
      .statement("total[c, n, s]" + terms, "total[c]", {"x[n, c, s]"}, read(0), ReductionOp::add)
      .statement("mean[c] : " + channel, "mean[c]", {"total[c]"}, read(0) / points, std::nullopt, {"N", "S"});
  if (!steps) {
    return builder.statement("squares_init[c] : " + channel, "squares[c]", {}, number(0))
        .statement("squares[c, n, s]" + terms, "squares[c]", {"x[n, c, s]", "mean[c]"}, centred * centred, ReductionOp::add)
        .statement("y[n, c, s]" + all, "y[n, c, s]", {"x[n, c, s]", "squares[c]", "mean[c]"}, (read(0) - read(2)) / root,
                   std::nullopt, {"N", "S"})
        .build();
  }
  return builder.tensor("apart", TensorRole::temporary, {"N", "C", "S"})
      .tensor("scaled", TensorRole::temporary, {"N", "C", "S"})
      .statement("apart[n, c, s]" + all, "apart[n, c, s]", {"x[n, c, s]", "mean[c]"}, centred)
      .statement("squares_init[c] : " + channel, "squares[c]", {}, number(0))
      .statement("squares[c, n, s]" + terms, "squares[c]", {"apart[n, c, s]"}, read(0) * read(0), ReductionOp::add)
      .statement("scaled[n, c, s]" + all, "scaled[n, c, s]", {"apart[n, c, s]", "squares[c]"}, read(0) / root, std::nullopt,
                 {"N", "S"})
      .statement("y[n, c, s]" + all, "y[n, c, s]", {"scaled[n, c, s]"}, read(0))
      .build();
}

std::size_t kernels_of_first_guess(const Nest& nest) {
  testing::SpaceGuesses guesses(nest, {{"N", 32}, {"C", 128}, {"S", 3136}});
  for (const Point& point : guesses.points) {
    if (!guesses.space->candidate(point).infeasible.empty()) continue;
    return compile_nvptx(guesses.program(point), {}).plans->kernels.size();
  }
  return 0;
}

TEST(StepsOfDefinitions, ABatchNormIsOneKernel) {
  EXPECT_EQ(kernels_of_first_guess(batch_norm(false)), 1U);
  EXPECT_EQ(kernels_of_first_guess(batch_norm(true)), 1U);
}

}  // namespace
}  // namespace nestor
