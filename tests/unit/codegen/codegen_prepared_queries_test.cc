// Products with queries that are made in registers before the loop over keys, where keys are the values too.
#include "codegen/gpu/backend.h"
#include "support/nests/half_values.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor::testing {
namespace {

using namespace samples;

/// out[h, i] = sum over j of relu(a[h, i] c[h, j]) c[h, j] with a = q * q: rows of `width` elements, which lie at multiples of 8.
Nest squared_queries(int width) {
  const std::string columns = std::to_string(width), place = std::to_string((width + 7) / 8 * 8),
                    row = "0 <= h < H and 0 <= i < Q", pair = row + " and 0 <= j < K", deep = row + " and 0 <= e < " + columns,
                    dense = row + " and 0 <= d < " + columns;
  return NestBuilder("squared_queries", {{"H", 2}, {"Q", 200}, {"K", 200}})
      .tensor("q", TensorRole::input, {"H", "Q", place}, kHalf)
      .tensor("c", TensorRole::input, {"H", "K", place}, kHalf)
      .tensor("a", TensorRole::temporary, {"H", "Q", columns}, kHalf)
      .tensor("dot", TensorRole::temporary, {"H", "Q", "K"})
      .tensor("weight", TensorRole::temporary, {"H", "Q", "K"})
      .tensor("sum", TensorRole::temporary, {"H", "Q", columns})
      .tensor("out", TensorRole::output, {"H", "Q", columns}, kHalf)
      .statement("a[h, i, e] : " + deep, "a[h, i, e]", {"q[h, i, e]"}, ScalarExpr::cast(kHalf, wide(0) * wide(0)))
      .statement("dot_init[h, i, j] : " + pair, "dot[h, i, j]", {}, number(0))
      .statement("dot[h, i, j, e] : " + pair + " and 0 <= e < " + columns, "dot[h, i, j]", {"a[h, i, e]", "c[h, j, e]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("weight[h, i, j] : " + pair, "weight[h, i, j]", {"dot[h, i, j]"},
                 ScalarExpr::make(ScalarOp::max, {read(0), number(0)}))
      .statement("sum_init[h, i, d] : " + dense, "sum[h, i, d]", {}, number(0))
      .statement("sum[h, i, d, j] : " + dense + " and 0 <= j < K", "sum[h, i, d]", {"weight[h, i, j]", "c[h, j, d]"},
                 read(0) * wide(1), ReductionOp::add)
      .statement("out[h, i, d] : " + dense, "out[h, i, d]", {"sum[h, i, d]"}, ScalarExpr::cast(kHalf, read(0)))
      .build();
}

class PreparedQueries : public ::testing::TestWithParam<int> {};

// Of 97 columns the product takes 112: zeros stand in the rest, where every iteration finds them.
INSTANTIATE_TEST_SUITE_P(Widths, PreparedQueries, ::testing::Values(64, 104, 97));

TEST_P(PreparedQueries, MeetKeysAndValuesOfTwoIterationsAtOnce) {
  const Nest nest = squared_queries(GetParam());
  const TileProgram program = tensor_program(
      nest, {.rules = {}, .rows = 64, .columns = 32, .warpgroups = 1, .more = {"intra_warpgroup_overlap(out.io)"}});
  const PlannedTensor planned(program);
  EXPECT_LT(planned.op("dot").a_ring, 0);
  EXPECT_TRUE(planned.op("sum").late);
  EXPECT_NE(planned.op("dot").b_ring, planned.op("sum").b_ring);
  const CompiledNvptx compiled = compile_nvptx(program, {});
  const TileProgram meaning = build_tile_program(Schedule(nest));
  for (const std::int64_t keys : {1, 32, 70, 200})
    EXPECT_EQ(run_emulated(compiled, meaning, {{"H", 2}, {"Q", 67}, {"K", keys}}, {.tolerance = 2e-2}, {1}), "") << keys;
}

TEST(PreparedQueries, ShareTilesOfKeysWhereProductsAreInOneIteration) {
  const PlannedTensor planned(tensor_program(squared_queries(64), {.rules = {}, .rows = 64, .columns = 32, .warpgroups = 1}));
  EXPECT_EQ(planned.op("dot").b_ring, planned.op("sum").b_ring);
}

}  // namespace
}  // namespace nestor::testing
