// A projection whose halves are normed together and turned by angles: each half has a sum of its own, and one kernel on tensor cores has all.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;

constexpr ElementType bf16 = ElementType::bf16;

/// Rows of x times the weights of each head: two halves, divided by how long both are, and turned.
Nest turned_heads() {
  const std::string row = "0 <= i < M and 0 <= h < H", each = row + " and 0 <= e < 2 and 0 <= f < 32";
  const auto wide = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, bf16)); };
  const ScalarExpr first = read(0) * read(2), second = read(1) * read(2);
  const ScalarExpr is_first = ScalarExpr::make(ScalarOp::eq, {ScalarExpr::index(0), ScalarExpr::constant(0, ElementType::i32)});
  const ScalarExpr turned =
      ScalarExpr::make(ScalarOp::select, {is_first, first * read(3) - second * read(4), second * read(3) + first * read(4)});
  return NestBuilder("turned_heads", {{"M", 512}, {"H", 4}, {"K", 1024}})
      .tensor("x", TensorRole::input, {"M", "K"}, bf16)
      .tensor("w", TensorRole::input, {"H", "2", "32", "K"}, bf16)
      .tensor("cosine", TensorRole::input, {"M", "32"})
      .tensor("sine", TensorRole::input, {"M", "32"})
      .tensor("line", TensorRole::temporary, {"M", "H", "2", "32"})
      .tensor("long", TensorRole::temporary, {"M", "H"})
      .tensor("inverse", TensorRole::temporary, {"M", "H"})
      .tensor("out", TensorRole::output, {"M", "H", "2", "32"}, bf16)
      .statement("line_init[i, h, e, f] : " + each, "line[i, h, e, f]", {}, number(0))
      .statement("line[i, h, e, f, k] : " + each + " and 0 <= k < K", "line[i, h, e, f]", {"x[i, k]", "w[h, e, f, k]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("long_init[i, h] : " + row, "long[i, h]", {}, number(0))
      .statement("long[i, h, e, f] : " + each, "long[i, h]", {"line[i, h, e, f]"}, read(0) * read(0), ReductionOp::add)
      .statement("inverse[i, h] : " + row, "inverse[i, h]", {"long[i, h]"},
                 samples::apply(ScalarOp::rsqrt, read(0) + number(0.001)))
      .statement("out[i, h, e, f] : " + each, "out[i, h, e, f]",
                 {"line[i, h, 0, f]", "line[i, h, 1, f]", "inverse[i, h]", "cosine[i, f]", "sine[i, f]"},
                 ScalarExpr::cast(bf16, turned), std::nullopt, {"e"})
      .build();
}

TEST(PartsThatMeet, OneKernelOnTensorCoresHasProductsNormsAndWhatIsMadeOfThem) {
  const Sizes sizes{{"M", 512}, {"H", 4}, {"K", 1024}};
  testing::SpaceGuesses guesses(turned_heads(), sizes);
  ASSERT_TRUE(guesses.has_rule(0, "separate_sums"));
  ASSERT_EQ(guesses.space->candidate(guesses.points.at(0)).infeasible, "");
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
  ASSERT_EQ(compiled.plans->kernels.size(), 1U);
  EXPECT_TRUE(compiled.plans->kernels.front().tensor.has_value());
  for (const std::int64_t rows : {1, 130})
    EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"M", rows}, {"H", 2}, {"K", 192}}, {.tolerance = 1e-2}, {1}),
              "")
        << rows;
}

}  // namespace
}  // namespace nestor
