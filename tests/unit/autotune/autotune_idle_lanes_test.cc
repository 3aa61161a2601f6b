// Blocks of a point for each lane: what stands beside windows, and steps that need what their neighbours have left.
#include "support/nests/sample_nests.h"
#include "unit/autotune/candidate_steps.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace nestor::testing {
namespace {

using namespace samples;

/// left = f - (the sum of x around each place); out[i, j] = the mean of left over windows of 3 x 3 at every other place.
Nest thinned_residual() {
  const std::string fine = "0 <= y < 2 * N + 1 and 0 <= z < 2 * N + 1", coarse = "0 <= i < N and 0 <= j < N";
  return NestBuilder("thinned_residual", {{"N", 256}})
      .context("N >= 1")
      .tensor("x", TensorRole::input, {"2 * N + 3", "2 * N + 3"})
      .tensor("left", TensorRole::temporary, {"2 * N + 1", "2 * N + 1"})
      .tensor("sum", TensorRole::temporary, {"N", "N"})
      .tensor("out", TensorRole::output, {"N", "N"})
      .statement("left[y, z] : " + fine, "left[y, z]", {"x[y, z + 1]", "x[y + 2, z + 1]", "x[y + 1, z]", "x[y + 1, z + 2]"},
                 read(0) + read(1) + read(2) + read(3))
      .statement("init[i, j] : " + coarse, "sum[i, j]", {}, number(0))
      .statement("sum[i, j, s, t] : " + coarse + " and 0 <= s < 3 and 0 <= t < 3", "sum[i, j]", {"left[2 * i + s, 2 * j + t]"},
                 read(0), ReductionOp::add)
      .statement("out[i, j] : " + coarse, "out[i, j]", {"sum[i, j]"}, read(0) * number(0.125))
      .build();
}

TEST(IdleLanes, WhatStandsBesideWindowsHasTilesOfItsOwn) {
  SearchedProblem problem(fix_sizes(thinned_residual(), {{"N", 256}}), {});
  std::size_t tried = 0;
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    const auto has = [&](const std::string& name, const std::string& loop) {
      return std::any_of(candidate.steps.begin(), candidate.steps.end(),
                         [&](const Step& step) { return step.name == name && !step.args.empty() && step.args.at(0) == loop; });
    };
    EXPECT_FALSE(has("gpu_blocks", "left.y") && has("gpu_blocks", "left.z")) << "a block for each point";
    ++tried;
  }
  EXPECT_GT(tried, 0U);
  SearchedProblem small(fix_sizes(thinned_residual(), {{"N", 9}}), {{"N", 9}});
  EXPECT_EQ(small.difference(small.space->defaults().front(), {{"N", 9}}), "");
}

/// d[k + 1, r, q] = min(d[k, r, q], d[k, r, k] + d[k, k, q]): ways between all pairs through more and more of all places.
Nest shortest_ways() {
  const std::string pair = "0 <= r < N and 0 <= q < N";
  return NestBuilder("shortest_ways", {{"N", 192}})
      .context("N >= 1")
      .tensor("x", TensorRole::input, {"N", "N"})
      .tensor("d", TensorRole::output, {"N + 1", "N", "N"})
      .statement("first[k, r, q] : k = 0 and " + pair, "d[k, r, q]", {"x[r, q]"}, read(0))
      .statement("next[k, r, q] : 0 <= k < N and " + pair, "d[k + 1, r, q]", {"d[k, r, q]", "d[k, r, k]", "d[k, k, q]"},
                 ScalarExpr::make(ScalarOp::min, {read(0), read(1) + read(2)}))
      .build();
}

TEST(IdleLanes, AStepOfPointsHasTilesForAllUnits) {
  SearchedProblem problem(shortest_ways(), {});
  const std::vector<Point> points = problem.space->defaults();
  std::size_t tiled = 0;
  for (std::size_t k = 0; k < 4; ++k) {
    const Candidate candidate = problem.space->candidate(points.at(k));
    EXPECT_EQ(candidate.infeasible, "") << k;
    const auto cuts = [](const Step& step) { return step.name == "gpu_blocks" && step.args.at(0) == "next.q_o"; };
    tiled += std::any_of(candidate.steps.begin(), candidate.steps.end(), cuts) ? 1 : 0;
  }
  EXPECT_GE(tiled, 2U) << "tiles of rows and columns";
  for (const std::size_t k : {0U, 1U, 2U}) {
    for (const std::int64_t places : {1, 2, 37})
      EXPECT_EQ(problem.difference(points.at(k), {{"N", places}}), "") << k << " " << places;
  }
}

/// out[t, i, j] = sum over f of m[f, t] x[i, f, t] x[j, f, t], or without m: products of few rows for each place along memory.
Nest place_products(bool weighed) {
  const std::string element = "0 <= t < T and 0 <= i < E and 0 <= j < E";
  std::vector<std::string> reads{"x[i, f, t]", "x[j, f, t]"};
  if (weighed) reads.insert(reads.begin(), "m[f, t]");
  NestBuilder builder("place_products", {{"E", 8}, {"F", 1000}, {"T", 257}});
  if (weighed) builder.tensor("m", TensorRole::input, {"F", "T"});
  return builder.tensor("x", TensorRole::input, {"E", "F", "T"})
      .tensor("sum", TensorRole::temporary, {"T", "E", "E"})
      .tensor("out", TensorRole::output, {"T", "E", "E"})
      .statement("init[t, i, j] : " + element, "sum[t, i, j]", {}, number(0))
      .statement("sum[t, i, j, f] : " + element + " and 0 <= f < F", "sum[t, i, j]", reads,
                 weighed ? read(0) * read(1) * read(2) : read(0) * read(1), ReductionOp::add)
      .statement("out[t, i, j] : " + element, "out[t, i, j]", {"sum[t, i, j]"}, read(0))
      .build();
}

TEST(IdleLanes, ProductsForEachPlaceAlongMemoryAreReadAlongIt) {
  for (const bool weighed : {true, false}) {
    SearchedProblem problem(place_products(weighed), {});
    const std::vector<Point> points = problem.space->defaults();
    const auto reads_along = [&](const Point& point) {
      const Candidate candidate = problem.space->candidate(point);
      const auto cuts = [](const Step& step) {
        return step.name == "split" && step.args.at(0) == "out.t" && step.args.at(1).get<std::int64_t>() >= 16;
      };
      const bool stores = std::any_of(candidate.steps.begin(), candidate.steps.end(), [](const Step& step) {
        return step.name == "apply_rule" && step.args.at(0) == "materialize_factor";
      });
      return candidate.infeasible.empty() && !stores && std::any_of(candidate.steps.begin(), candidate.steps.end(), cuts);
    };
    const auto found = std::find_if(points.begin(), points.end(), reads_along);
    ASSERT_NE(found, points.end()) << weighed;
    EXPECT_LT(found - points.begin(), 2) << weighed;
    EXPECT_EQ(problem.difference(*found, {{"E", 3}, {"F", 70}, {"T", 37}}), "") << weighed;
  }
}

}  // namespace
}  // namespace nestor::testing
