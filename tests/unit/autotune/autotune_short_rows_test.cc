// Many short rows: a softmax over some taps and what it weighs, in one kernel of blocks with many rows. Rows of taps fill no vectors, rows of
// elements do.
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/simt/proof/block_check.h"
#include "support/nests/sample_nests.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

namespace nestor {
namespace {

using namespace samples;
using testing::SearchedProblem;

/// out[t, h, f] = sum over taps p of softmax(raw[t, h, .])[p] x[t + p, h, f].
Nest weighed_taps() {
  const std::string row = "0 <= t < T and 0 <= h < H", tap = row + " and 0 <= p < 7", element = row + " and 0 <= f < 32";
  return NestBuilder("weighed_taps", {{"T", 2048}, {"H", 16}})
      .tensor("raw", TensorRole::input, {"T", "H", "7"})
      .tensor("x", TensorRole::input, {"T + 6", "H", "32"})
      .tensor("top", TensorRole::temporary, {"T", "H"})
      .tensor("power", TensorRole::temporary, {"T", "H", "7"})
      .tensor("total", TensorRole::temporary, {"T", "H"})
      .tensor("sums", TensorRole::temporary, {"T", "H", "32"})
      .tensor("out", TensorRole::output, {"T", "H", "32"})
      .statement("top_init[t, h] : " + row, "top[t, h]", {}, number(-std::numeric_limits<double>::infinity()))
      .statement("top[t, h, p] : " + tap, "top[t, h]", {"raw[t, h, p]"}, read(0), ReductionOp::max)
      .statement("power[t, h, p] : " + tap, "power[t, h, p]", {"raw[t, h, p]", "top[t, h]"},
                 ScalarExpr::make(ScalarOp::exp, {read(0) - read(1)}))
      .statement("total_init[t, h] : " + row, "total[t, h]", {}, number(0))
      .statement("total[t, h, p] : " + tap, "total[t, h]", {"power[t, h, p]"}, read(0), ReductionOp::add)
      .statement("sums_init[t, h, f] : " + element, "sums[t, h, f]", {}, number(0))
      .statement("sums[t, h, f, p] : " + element + " and 0 <= p < 7", "sums[t, h, f]", {"power[t, h, p]", "x[t + p, h, f]"},
                 read(0) * read(1), ReductionOp::add)
      .statement("out[t, h, f] : " + element, "out[t, h, f]", {"sums[t, h, f]", "total[t, h]"}, read(0) / read(1))
      .build();
}

/// The first guess whose blocks have rows of several places.
Point tall(const SearchedProblem& problem) {
  for (const Point& point : problem.space->defaults()) {
    const NamedValues values = named_values(*problem.space, point);
    const bool many = value_or(values, "tile.t", 0) > 1 && value_or(values, "tile.h", 0) > 1;
    if (many && problem.space->candidate(point).infeasible.empty()) return point;
  }
  ADD_FAILURE() << "no blocks of many rows";
  return problem.space->defaults().front();
}

TEST(ShortRows, BlocksHaveManyOfThem) {
  SearchedProblem problem(weighed_taps(), {});
  const Point point = tall(problem);
  const NamedValues values = named_values(*problem.space, point);
  EXPECT_EQ(value_or(values, "tile.t", 0) * value_or(values, "tile.h", 0), 128) << "16 results for each of 256 threads";
  for (const auto& [places, heads] : {std::pair(37, 13), std::pair(16, 8), std::pair(1, 1)})
    EXPECT_EQ(problem.difference(point, {{"T", places}, {"H", heads}}), "") << places << " " << heads;
  for (const std::int64_t threads : {64, 128}) {
    for (const std::int64_t staging : {0, 1}) {
      NamedValues changed = values;
      changed.insert_or_assign("threads", threads);
      changed.insert_or_assign("staging", staging);
      changed.insert_or_assign("tile.t", 2);
      const auto other = point_from(*problem.space, changed);
      ASSERT_TRUE(other);
      EXPECT_EQ(problem.difference(*other, {{"T", 7}, {"H", 11}}), "") << threads << " " << staging;
    }
  }
}

TEST(ShortRows, OpsOfOtherColumnsHaveVectorsOfTheirOwn) {
  SearchedProblem problem(weighed_taps(), {});
  const Candidate candidate = problem.space->candidate(tall(problem));
  const TileProgram program = build_tile_program(problem.schedules.replay(candidate.steps));
  const auto plans = plan_kernels(program, {});
  ASSERT_EQ(plans->kernels.size(), 1U);
  const nvptx::BlockPlan& plan = plans->kernels.front().bodies.front();
  std::map<std::string, int> vectors;
  std::set<std::pair<int, int>> shapes;
  for (const nvptx::BlockOp& op : plan.ops) {
    vectors[op.op.name] = op.layout.vector;
    shapes.insert({op.layout.lanes, op.layout.groups});
  }
  EXPECT_EQ(vectors.at("power"), 1) << "seven taps";
  EXPECT_GT(vectors.at("out"), 1) << "32 elements";
  EXPECT_EQ(vectors.at("out"), vectors.at("sums"));
  EXPECT_EQ(shapes.size(), 1U) << "the same threads have the same rows";
  EXPECT_TRUE(nvptx::check_block_plan(plan).holds());
  // Threads that hold other columns of a tile than those that wrote it are refused.
  for (const char* name : {"out", "sums", "power"}) {
    nvptx::BlockPlan changed = plan;
    const auto op = std::find_if(changed.ops.begin(), changed.ops.end(), [&](const auto& each) { return each.op.name == name; });
    op->layout.vector = op->layout.vector == 1 ? 2 : op->layout.vector / 2;
    EXPECT_FALSE(nvptx::check_block_plan(changed).holds()) << name;
    op->layout.lanes *= 2;
    op->layout.groups /= 2;
    EXPECT_FALSE(nvptx::check_block_plan(changed).holds()) << name;
  }
}

}  // namespace
}  // namespace nestor
