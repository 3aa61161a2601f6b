// Numbers made of many short rows: a block has a part of the rows, several at a time. What stands beside the main work keeps the chip busy.
#include "autotune/space/gpu/known_sizes.h"
#include "support/nests/sample_nests.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace nestor::testing {
namespace {

using namespace samples;

/// mean[i] = the sum over j of exp(-s[i, j]), s[i, j] = x[i, j] or the running sum of x[i] up to j; out = the sum over i of max(mean[i], 1).
Nest number_of_rows(bool running) {
  const std::string point = "0 <= i < R and 0 <= j < 40";
  NestBuilder nest("number_of_rows", {{"R", 100000}});
  nest.context("R >= 1")
      .tensor("x", TensorRole::input, {"R", "40"})
      .tensor("s", TensorRole::temporary, {"R", "40"})
      .tensor("mean", TensorRole::temporary, {"R"})
      .tensor("out", TensorRole::output, {});
  if (running) {
    nest.statement("start[i, j] : " + point, "s[i, j]", {}, number(0))
        .statement("s[i, j, k] : " + point + " and 0 <= k <= j", "s[i, j]", {"x[i, k]"}, read(0), ReductionOp::add);
  } else {
    nest.statement("s[i, j] : " + point, "s[i, j]", {"x[i, j]"}, read(0));
  }
  return nest.statement("init[i] : 0 <= i < R", "mean[i]", {}, number(0))
      .statement("mean[i, j] : " + point, "mean[i]", {"s[i, j]"}, apply(ScalarOp::exp, number(0) - read(0)), ReductionOp::add)
      .statement("zero[]", "out[]", {}, number(0))
      .statement("out[i] : 0 <= i < R", "out[]", {"mean[i]"}, ScalarExpr::make(ScalarOp::max, {read(0), number(1)}),
                 ReductionOp::add)
      .build();
}

/// Threads of a block, and blocks of a cluster, of the kernel whose grid begins with a loop of the statement; 0: it has none.
std::int64_t threads_at(const Candidate& candidate, const std::string& statement) {
  std::int64_t threads = 0, cluster = 1;
  for (const Step& step : candidate.steps) {
    const bool of_it =
        !step.args.empty() && step.args.front().is_string() && step.args.front().get<std::string>().starts_with(statement + ".");
    if (of_it && step.name == "gpu_threads") threads = step.args.at(1).get<std::int64_t>();
    if (of_it && step.name == "cluster") cluster = step.args.at(1).get<std::int64_t>();
  }
  return threads * cluster;
}

/// The rows of a part that are taken at a time; 1 where no loop over a part's rows is split.
std::int64_t rows_at_once(const Candidate& candidate) {
  for (const Step& step : candidate.steps) {
    if (step.name == "split" && step.args.front().get<std::string>().ends_with("_i")) return step.args.at(1).get<std::int64_t>();
  }
  return 1;
}

class PartRows : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Sums, PartRows, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "running" : "plain"); });

TEST_P(PartRows, SeveralShortRowsOfAPartShareABlock) {
  SearchedProblem problem(number_of_rows(GetParam()), {});
  std::size_t tried = 0;
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    if (!candidate.infeasible.empty() || rows_at_once(candidate) == 1) continue;
    // Rows of 40 elements: fewer than a warp for each of them.
    EXPECT_GT(rows_at_once(candidate) * 32, threads_at(candidate, "out_part")) << "idle lanes";
    // Less than a tile, a tile and one row more, several parts.
    for (const std::int64_t rows : {1, 33, 1061}) EXPECT_EQ(problem.difference(point, {{"R", rows}}), "") << rows;
    if (++tried == 3) break;
  }
  EXPECT_EQ(tried, 3U);
}

TEST(PartsOfRunningSums, ComeFirst) {
  SearchedProblem problem(number_of_rows(true), {});
  const Point first = problem.space->defaults().front();
  EXPECT_GT(rows_at_once(problem.space->candidate(first)), 1);
}

/// w = sums of x in windows of 3 x 3; usual[g] = the mean of w[g]; out = w - usual.
Nest window_and_mean() {
  const std::string place = "0 <= g < G and 0 <= y < 300 and 0 <= z < 320";
  return NestBuilder("window_and_mean", {{"G", 6}})
      .context("G >= 1")
      .tensor("x", TensorRole::input, {"G", "302", "322"})
      .tensor("w", TensorRole::temporary, {"G", "300", "320"})
      .tensor("usual", TensorRole::temporary, {"G"})
      .tensor("out", TensorRole::output, {"G", "300", "320"})
      .statement("start[g, y, z] : " + place, "w[g, y, z]", {}, number(0))
      .statement("w[g, y, z, s, t] : " + place + " and 0 <= s < 3 and 0 <= t < 3", "w[g, y, z]", {"x[g, y + s, z + t]"}, read(0),
                 ReductionOp::add)
      .statement("init[g] : 0 <= g < G", "usual[g]", {}, number(0))
      .statement("usual[g, y, z] : " + place, "usual[g]", {"w[g, y, z]"}, read(0), ReductionOp::add)
      .statement("out[g, y, z] : " + place, "out[g, y, z]", {"w[g, y, z]", "usual[g]"}, read(0) - read(1) * number(1.0 / 96000))
      .build();
}

TEST(IdleUnits, SumsBesideTheMainWorkAreNotLeftToAFewThreads) {
  SearchedProblem problem(window_and_mean(), {});
  std::size_t tried = 0;
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    const std::int64_t threads = std::max(threads_at(candidate, "usual"), threads_at(candidate, "out"));
    if (!candidate.infeasible.empty() || threads_at(candidate, "w") == 0 || threads == 0) continue;
    EXPECT_GE(threads, 512) << "96,000 terms";
    ++tried;
  }
  EXPECT_GT(tried, 0U);
}

/// out[q, m] = the largest over b of the sum of sequence[q, b + t, n] motif[m, t, n]: taps of 4 neighbours, which copies gather.
Nest best_places() {
  const std::string place = "0 <= q < Q and 0 <= b < 501 and 0 <= m < M";
  const auto wide = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  return NestBuilder("best_places", {{"Q", 64}, {"M", 256}})
      .context("Q >= 1 and M >= 1")
      .tensor("sequence", TensorRole::input, {"Q", "516", "4"}, ElementType::f16)
      .tensor("motif", TensorRole::input, {"M", "16", "4"}, ElementType::f16)
      .tensor("fit", TensorRole::temporary, {"Q", "501", "M"})
      .tensor("out", TensorRole::output, {"Q", "M"})
      .statement("start[q, b, m] : " + place, "fit[q, b, m]", {}, number(0))
      .statement("fit[q, b, m, t, n] : " + place + " and 0 <= t < 16 and 0 <= n < 4", "fit[q, b, m]",
                 {"sequence[q, b + t, n]", "motif[m, t, n]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("init[q, m] : 0 <= q < Q and 0 <= m < M", "out[q, m]", {}, number(-1e30))
      .statement("out[q, m, b] : " + place, "out[q, m]", {"fit[q, b, m]"}, read(0), ReductionOp::max)
      .build();
}

TEST(UnrelatedCopies, HaveKernelsOfTheirOwn) {
  SearchedProblem problem(best_places(), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_GT(value_or(named_values(*problem.space, first), "warpgroups", 0), 0) << "on tensor cores";
  EXPECT_GT(threads_at(candidate, "sequence_terms"), 0);
  EXPECT_GT(threads_at(candidate, "motif_terms"), 0);
  EXPECT_EQ(problem.difference(first, {{"Q", 2}, {"M", 130}}, 4e-3), "");
}

/// share[r] = the softmax of x[r]; out[p] = the sum over r of share[r, p]; mean[p, a] = the sum over r of share[r, p] y[r, a].
Nest shares_of_parts() {
  const std::string row = "0 <= r < R", element = row + " and 0 <= p < P", part = "0 <= p < P", pair = part + " and 0 <= a < 16";
  const ScalarExpr power = apply(ScalarOp::exp, read(0) - read(1));
  return NestBuilder("shares_of_parts", {{"R", 65536}, {"P", 40}})
      .context("R >= 1 and P >= 1")
      .tensor("x", TensorRole::input, {"P", "R"})
      .tensor("y", TensorRole::input, {"R", "16"})
      .tensor("top", TensorRole::temporary, {"R"})
      .tensor("total", TensorRole::temporary, {"R"})
      .tensor("share", TensorRole::temporary, {"R", "P"})
      .tensor("out", TensorRole::output, {"P"})
      .tensor("mean", TensorRole::output, {"P", "16"})
      .statement("top_init[r] : " + row, "top[r]", {}, number(-1e30))
      .statement("top[r, p] : " + element, "top[r]", {"x[p, r]"}, read(0), ReductionOp::max)
      .statement("total_init[r] : " + row, "total[r]", {}, number(0))
      .statement("total[r, p] : " + element, "total[r]", {"x[p, r]", "top[r]"}, power, ReductionOp::add)
      .statement("share[r, p] : " + element, "share[r, p]", {"x[p, r]", "top[r]", "total[r]"},
                 apply(ScalarOp::exp, read(0) - read(1)) / read(2))
      .statement("out_init[p] : " + part, "out[p]", {}, number(0))
      .statement("out[p, r] : " + element, "out[p]", {"share[r, p]"}, read(0), ReductionOp::add)
      .statement("mean_init[p, a] : " + pair, "mean[p, a]", {}, number(0))
      .statement("mean[p, a, r] : " + pair + " and " + row, "mean[p, a]", {"share[r, p]", "y[r, a]"}, read(0) * read(1),
                 ReductionOp::add)
      .build();
}

TEST(RowsOfShares, AreAsLongAsKnown) {
  const Nest nest = shares_of_parts();
  const auto known = [&](std::int64_t parts) { return sizes_of_short_rows(nest, {{"R", 65536}, {"P", parts}}); };
  EXPECT_EQ(known(40), std::set<std::string>{"P"}) << "a block keeps a row, and its part of the sums";
  EXPECT_EQ(known(4096), std::set<std::string>{});
}

/// out[i, j] = x[i, 0, j] x[i, 1, j]; sum[j] = the sum over i of x[i, 0, j] - x[i, 1, j] and out[i, j].
Nest halves_of_rows() {
  const std::string element = "0 <= i < R and 0 <= j < 512";
  return NestBuilder("halves_of_rows", {{"R", 8192}})
      .context("R >= 1")
      .tensor("x", TensorRole::input, {"R", "2", "512"})
      .tensor("out", TensorRole::output, {"R", "512"})
      .tensor("sum", TensorRole::output, {"512"})
      .statement("out[i, j] : " + element, "out[i, j]", {"x[i, 0, j]", "x[i, 1, j]"}, read(0) * read(1))
      .statement("init[j] : 0 <= j < 512", "sum[j]", {}, number(0))
      .statement("sum[i, j] : " + element, "sum[j]", {"x[i, 0, j]", "x[i, 1, j]"}, read(0) - read(1), ReductionOp::add)
      .build();
}

TEST(HalvesOfRows, AreNotCopiedAhead) {
  // Threads keep what is copied ahead in registers, where each has the same elements for all that read them.
  SearchedProblem problem(halves_of_rows(), {});
  std::size_t tried = 0, staged = 0;
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    for (const Step& step : candidate.steps) staged += step.name == "stage" ? 1 : 0;
    EXPECT_EQ(problem.difference(point, {{"R", 37}}), "");
    if (++tried == 4) break;
  }
  EXPECT_GT(staged, 0U);
}

}  // namespace
}  // namespace nestor::testing
