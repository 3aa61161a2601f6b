// Blocks of a point for each lane: what stands beside windows, and steps that need what their neighbours have left.
#include "support/error.h"
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

/// out[i, j, t] = sum over f of x[i, f, t] w[f, j, t]: a matrix of its own for each place along memory, as for each mode of a field.
Nest place_matrices() {
  const std::string element = "0 <= i < I and 0 <= j < J and 0 <= t < T";
  return NestBuilder("place_matrices", {{"I", 32}, {"F", 64}, {"J", 64}, {"T", 544}})
      .tensor("x", TensorRole::input, {"I", "F", "T"})
      .tensor("w", TensorRole::input, {"F", "J", "T"})
      .tensor("out", TensorRole::output, {"I", "J", "T"})
      .statement("init[i, j, t] : " + element, "out[i, j, t]", {}, number(0))
      .statement("sum[i, j, t, f] : " + element + " and 0 <= f < F", "out[i, j, t]", {"x[i, f, t]", "w[f, j, t]"},
                 read(0) * read(1), ReductionOp::add)
      .build();
}

std::int64_t tile_of(const Candidate& candidate, const std::string& loop) {
  for (const Step& step : candidate.steps) {
    if (step.name == "split" && step.args.at(0) == loop) return step.args.at(1).get<std::int64_t>();
  }
  return std::int64_t{0};
}

TEST(IdleLanes, MatricesForEachPlaceHaveLanesAlongMemory) {
  SearchedProblem problem(place_matrices(), {});
  const std::vector<Point> points = problem.space->defaults();
  for (const std::size_t k : {0U, 1U}) {
    const Candidate candidate = problem.space->candidate(points.at(k));
    ASSERT_EQ(candidate.infeasible, "") << k;
    EXPECT_GE(tile_of(candidate, "sum.t"), 32) << k;
    EXPECT_GE(tile_of(candidate, "sum.i") * tile_of(candidate, "sum.j"), 16) << k;
    const CompiledNvptx compiled = compile_nvptx(build_tile_program(problem.schedules.replay(candidate.steps)), {});
    EXPECT_EQ(compiled.kernel.code.find(".shared"), std::string::npos) << "operands are read where they lie";
    for (const std::int64_t places : {1, 37, 64})
      EXPECT_EQ(problem.difference(points.at(k), {{"I", 11}, {"F", 5}, {"J", 9}, {"T", places}}), "") << k << " " << places;
  }
}

/// Slopes within small elements: along[e, i, j] = sum over l of d[i, l] f[e, l, j], and out[e, i, j] = f + sum over l of d[j, l] along[e, i, l].
Nest element_slopes() {
  const std::string point = "0 <= e < E and 0 <= i < 8 and 0 <= j < 8";
  return NestBuilder("element_slopes", {{"E", 8192}})
      .context("E >= 1")
      .tensor("f", TensorRole::input, {"E", "8", "8"})
      .tensor("d", TensorRole::input, {"8", "8"})
      .tensor("along", TensorRole::temporary, {"E", "8", "8"})
      .tensor("sum", TensorRole::temporary, {"E", "8", "8"})
      .tensor("out", TensorRole::output, {"E", "8", "8"})
      .statement("along_init[e, i, j] : " + point, "along[e, i, j]", {}, number(0))
      .statement("along[e, i, j, l] : " + point + " and 0 <= l < 8", "along[e, i, j]", {"d[i, l]", "f[e, l, j]"},
                 read(0) * read(1), ReductionOp::add)
      .statement("sum_init[e, i, j] : " + point, "sum[e, i, j]", {}, number(0))
      .statement("sum[e, i, j, l] : " + point + " and 0 <= l < 8", "sum[e, i, j]", {"d[j, l]", "along[e, i, l]"},
                 read(0) * read(1), ReductionOp::add)
      .statement("out[e, i, j] : " + point, "out[e, i, j]", {"f[e, i, j]", "sum[e, i, j]"}, read(0) + read(1))
      .build();
}

TEST(IdleLanes, SmallElementsAreWholeInABlock) {
  SearchedProblem problem(element_slopes(), {});
  std::size_t whole = 0;
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    const auto grid =
        std::count_if(candidate.steps.begin(), candidate.steps.end(), [](const Step& step) { return step.name == "gpu_blocks"; });
    if (grid != 1) continue;  // one kernel, and a block for some elements
    try {
      for (const std::int64_t elements : {1, 3, 37}) EXPECT_EQ(problem.difference(point, {{"E", elements}}), "") << elements;
      whole += tile_of(candidate, "sum.e") == 2 ? 1 : 0;
    } catch (const UserError&) {  // rows ahead have no room in registers
    }
  }
  EXPECT_GE(whole, 1U) << "128 threads have the 64 results of two elements";
}

}  // namespace
}  // namespace nestor::testing
