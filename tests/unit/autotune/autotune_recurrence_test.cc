// Running sums and recurrences on GPUs: what is guessed first, and that its code is right.
#include "autotune/space/gpu/known_sizes.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/error.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/sample_nests.h"
#include "unit/autotune/searched_problem.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using samples::operator+, samples::operator*, samples::read;
using testing::SearchedProblem;

/// y[r, s] = sum of x[r, k] over the k that `order` relates to s.
Nest running_sum(const std::string& order, ReductionOp combine = ReductionOp::add) {
  const std::string row = "0 <= r < rows and 0 <= s < cols";
  const double neutral = neutral_element(combine, ElementType::f32);
  return samples::NestBuilder("running", {{"rows", 512}, {"cols", 640}})
      .context("rows >= 1 and cols >= 1")
      .tensor("x", TensorRole::input, {"rows", "cols"})
      .tensor("sums", TensorRole::temporary, {"rows", "cols"})
      .tensor("y", TensorRole::output, {"rows", "cols"})
      .statement("sums_init[r, s] : " + row, "sums[r, s]", {}, ScalarExpr::constant(neutral))
      .statement("sums[r, s, k] : " + row + " and 0 <= k < cols and " + order, "sums[r, s]", {"x[r, k]"}, read(0), combine)
      .statement("y[r, s] : " + row, "y[r, s]", {"sums[r, s]"}, read(0))
      .build();
}

std::string first_plan(SearchedProblem& problem) {
  const Candidate first = problem.space->candidate(problem.space->defaults().front());
  EXPECT_EQ(first.infeasible, "");
  return describe_kernels(build_tile_program(problem.schedules.replay(first.steps)), {.sm = 90});
}

TEST(GpuRecurrences, RunningSumsTakeOnePassOverEachRowInOneKernel) {
  for (const char* order : {"k <= s", "k >= s", "k < s", "k > s"}) {
    SearchedProblem problem(fix_sizes(running_sum(order), {{"cols", 640}}), {});
    const std::string plan = first_plan(problem);
    EXPECT_NE(plan.find("sums of all"), std::string::npos) << order << "\n" << plan;
    EXPECT_EQ(plan.find("nestor_running__1:"), std::string::npos) << order;
    EXPECT_EQ(problem.difference(problem.space->defaults().front(), {{"rows", 3}, {"cols", 640}}), "") << order;
  }
}

TEST(GpuRecurrences, RunningExtremaAndRaggedRowsAreRight) {
  for (const std::int64_t cols : {5, 37, 1000}) {
    SearchedProblem problem(fix_sizes(running_sum("k <= s", ReductionOp::max), {{"cols", cols}}), {{"cols", cols}});
    EXPECT_EQ(problem.difference(problem.space->defaults().front(), {{"rows", 5}, {"cols", cols}}), "") << cols;
  }
}

TEST(GpuRecurrences, LengthsOfRowsOfRunningSumsAreKnown) {
  EXPECT_EQ(sizes_of_short_rows(running_sum("k <= s"), {{"rows", 512}, {"cols", 640}}), std::set<std::string>{"cols"});
  EXPECT_EQ(sizes_of_short_rows(running_sum("k <= s"), {{"rows", 512}, {"cols", 1 << 20}}), std::set<std::string>{});
  EXPECT_EQ(sizes_of_short_rows(running_sum("r <= s"), {{"rows", 512}, {"cols", 640}}), std::set<std::string>{})
      << "whole sums of some elements";
}

TEST(GpuRecurrences, RunningSumsDownColumnsAreRight) {
  const std::string point = "0 <= t < times and 0 <= c < cols";
  const Nest nest =
      samples::NestBuilder("down", {{"times", 40}, {"cols", 96}})
          .context("times >= 1 and cols >= 1")
          .tensor("x", TensorRole::input, {"times", "cols"})
          .tensor("sums", TensorRole::temporary, {"times", "cols"})
          .tensor("y", TensorRole::output, {"times", "cols"})
          .statement("sums_init[t, c] : " + point, "sums[t, c]", {}, ScalarExpr::constant(0.0))
          .statement("sums[t, c, k] : " + point + " and 0 <= k <= t", "sums[t, c]", {"x[k, c]"}, read(0), ReductionOp::add)
          .statement("y[t, c] : " + point, "y[t, c]", {"sums[t, c]"}, read(0))
          .build();
  SearchedProblem problem(fix_sizes(nest, {{"times", 40}}), {});
  EXPECT_NE(first_plan(problem).find("sums of all"), std::string::npos) << first_plan(problem);
  EXPECT_EQ(problem.difference(problem.space->defaults().front(), {{"times", 40}, {"cols", 37}}), "");
}

TEST(GpuRecurrences, RunningSumsAlongBothDimsOfAnImageArePassesOverIt) {
  const std::string point = "0 <= y < high and 0 <= z < across";
  const Nest nest =
      samples::NestBuilder("image", {{"high", 64}, {"across", 96}})
          .tensor("x", TensorRole::input, {"high", "across"})
          .tensor("rows", TensorRole::temporary, {"high", "across"})
          .tensor("sums", TensorRole::output, {"high", "across"})
          .statement("rows_init[y, z] : " + point, "rows[y, z]", {}, ScalarExpr::constant(0.0))
          .statement("rows[y, z, k] : " + point + " and 0 <= k <= z", "rows[y, z]", {"x[y, k]"}, read(0), ReductionOp::add)
          .statement("sums_init[y, z] : " + point, "sums[y, z]", {}, ScalarExpr::constant(0.0))
          .statement("sums[y, z, k] : " + point + " and 0 <= k <= y", "sums[y, z]", {"rows[k, z]"}, read(0), ReductionOp::add)
          .build();
  SearchedProblem problem(fix_sizes(nest, {{"high", 64}, {"across", 96}}), {});
  int passes = 0;
  for (const Point& point_of_space : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point_of_space);
    if (!candidate.infeasible.empty() || candidate.cut) continue;
    std::string plan;
    try {
      plan = describe_kernels(build_tile_program(problem.schedules.replay(candidate.steps)), {.sm = 90});
    } catch (const UserError&) {  // blocks of a cluster would have to share rows
      continue;
    }
    std::size_t found = 0, at = 0;
    for (; (at = plan.find("sums of all", at)) != std::string::npos; ++at) ++found;
    if (found < 2) continue;
    ++passes;
    EXPECT_EQ(problem.difference(point_of_space, {{"high", 64}, {"across", 96}}), "") << plan;
  }
  EXPECT_GT(passes, 0) << "in no guess both are passes";
}

/// h[b, t, c, m] = f(a[b, t, c] h[b, t - 1, c, m] + x[b, t, m]), and its sum over m.
Nest states() {
  const std::string place = "0 <= b < batch and 0 <= c < cols", state = place + " and 0 <= m < 4";
  return samples::NestBuilder("states", {{"batch", 4}, {"times", 64}, {"cols", 256}})
      .context("batch >= 1 and times >= 1 and cols >= 1")
      .tensor("a", TensorRole::input, {"batch", "times", "cols"})
      .tensor("x", TensorRole::input, {"batch", "times", "4"})
      .tensor("h", TensorRole::temporary, {"batch", "times", "cols", "4"})
      .tensor("y", TensorRole::output, {"batch", "times", "cols"})
      .statement("first[b, t, c, m] : t = 0 and " + state, "h[b, t, c, m]", {"x[b, t, m]"}, read(0))
      .statement("later[b, t, c, m] : 0 <= t < times - 1 and " + state, "h[b, t + 1, c, m]",
                 {"a[b, t + 1, c]", "h[b, t, c, m]", "x[b, t + 1, m]"}, read(0) * read(1) + read(2))
      .statement("y_init[b, t, c] : 0 <= t < times and " + place, "y[b, t, c]", {}, ScalarExpr::constant(0.0))
      .statement("y[b, t, c, m] : 0 <= t < times and " + state, "y[b, t, c]", {"h[b, t, c, m]"}, read(0), ReductionOp::add)
      .build();
}

/// Guesses with serial loops inside; right at several sizes.
int guesses_inside(SearchedProblem& problem, const std::vector<Sizes>& sizes, const std::string& wanted) {
  int found = 0;
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    std::string plan;
    try {
      plan = describe_kernels(build_tile_program(problem.schedules.replay(candidate.steps)), {.sm = 90});
    } catch (const UserError&) {
      continue;
    }
    if (plan.find(wanted) == std::string::npos) continue;
    if (++found > 2) continue;
    for (const Sizes& at : sizes) EXPECT_EQ(problem.difference(point, at), "") << plan;
  }
  return found;
}

TEST(GpuRecurrences, ThreadsRunThroughTimeForElementsOfTheirOwn) {
  SearchedProblem problem(states(), {});
  EXPECT_GT(guesses_inside(problem, {{{"batch", 2}, {"times", 7}, {"cols", 37}}, {{"batch", 1}, {"times", 1}, {"cols", 3}}},
                           "later_c_i row, later_m column, later_t serial"),
            0);
}

/// Triangular systems whose matrices are products: x[b, t, w] = v[b, t, w] - sum over u < t of (sum over e of k[b, t, e] k[b, u, e]) x[b, u, w].
TEST(GpuRecurrences, ThreadsSolveTriangularSystemsBesideProducts) {
  const std::string row = "0 <= b < batch and 0 <= t < 16", pair = row + " and 0 <= u < t", element = row + " and 0 <= w < cols";
  const Nest nest =
      samples::NestBuilder("triangular", {{"batch", 256}, {"cols", 128}})
          .context("batch >= 1 and cols >= 1")
          .tensor("k", TensorRole::input, {"batch", "16", "32"})
          .tensor("v", TensorRole::input, {"batch", "16", "cols"})
          .tensor("lower", TensorRole::temporary, {"batch", "16", "16"})
          .tensor("x", TensorRole::output, {"batch", "16", "cols"})
          .statement("lower_init[b, t, u] : " + pair, "lower[b, t, u]", {}, ScalarExpr::constant(0.0))
          .statement("lower[b, t, u, e] : " + pair + " and 0 <= e < 32", "lower[b, t, u]", {"k[b, t, e]", "k[b, u, e]"},
                     read(0) * read(1) * ScalarExpr::constant(-0.125), ReductionOp::add)
          .statement("start[b, t, w] : " + element, "x[b, t, w]", {"v[b, t, w]"}, read(0))
          .statement("solve[b, t, u, w] : " + pair + " and 0 <= w < cols", "x[b, t, w]", {"lower[b, t, u]", "x[b, u, w]"},
                     read(0) * read(1), ReductionOp::add)
          .build();
  SearchedProblem problem(nest, {});
  const std::string plan = first_plan(problem);
  EXPECT_EQ(plan.find("nestor_triangular__1:"), std::string::npos) << "one kernel\n" << plan;
  EXPECT_NE(plan.find("lower: shared memory"), std::string::npos) << plan;
  EXPECT_NE(plan.find("15 neighbouring sums in registers, terms loaded by vectors"), std::string::npos) << plan;
  EXPECT_GT(guesses_inside(problem, {{{"batch", 3}, {"cols", 37}}, {{"batch", 1}, {"cols", 1}}}, "solve_t serial"), 0);
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    EXPECT_NO_THROW(describe_kernels(build_tile_program(problem.schedules.replay(candidate.steps)), {.sm = 90}))
        << "what no plan can do is not guessed";
  }
}

/// x[b, t, w] = v[b, t, w] - sum over u < t of a[b, t, u] x[b, u, w], rounded to 16 bits at the end.
TEST(GpuRecurrences, SizesOfSystemsThatABlockKeepsAreKnown) {
  const std::string element = "0 <= b < batch and 0 <= t < 32 and 0 <= w < cols";
  const Nest nest =
      samples::NestBuilder("rounded", {{"batch", 300}, {"cols", 96}})
          .context("batch >= 1 and cols >= 1")
          .tensor("a", TensorRole::input, {"batch", "32", "32"})
          .tensor("v", TensorRole::input, {"batch", "32", "cols"})
          .tensor("x", TensorRole::temporary, {"batch", "32", "cols"})
          .tensor("y", TensorRole::output, {"batch", "32", "cols"})
          .statement("start[b, t, w] : " + element, "x[b, t, w]", {"v[b, t, w]"}, read(0))
          .statement("solve[b, t, u, w] : " + element + " and 0 <= u < t", "x[b, t, w]", {"a[b, t, u]", "x[b, u, w]"},
                     read(0) * read(1) * ScalarExpr::constant(-0.125), ReductionOp::add)
          .statement("y[b, t, w] : " + element, "y[b, t, w]", {"x[b, t, w]"}, read(0))
          .build();
  EXPECT_EQ(sizes_of_short_rows(nest, {{"batch", 300}, {"cols", 96}}), std::set<std::string>{"cols"});
  for (const std::int64_t cols : {96, 5}) {
    SearchedProblem problem(fix_sizes(nest, {{"cols", cols}}), {{"cols", cols}});
    EXPECT_NE(first_plan(problem).find("16 neighbouring sums in registers"), std::string::npos) << first_plan(problem);
    EXPECT_EQ(problem.difference(problem.space->defaults().front(), {{"batch", 3}, {"cols", cols}}), "") << cols;
  }
}

/// The cheapest way to each place of a table, from above and from the left.
TEST(GpuRecurrences, ThreadsShareTheWavefrontsOfATable) {
  const std::string word = "0 <= w < words and ";
  const Nest nest =
      samples::NestBuilder("table", {{"words", 64}, {"high", 48}, {"wide", 40}})
          .context("words >= 1 and high >= 1 and wide >= 1")
          .tensor("cost", TensorRole::input, {"words", "high", "wide"})
          .tensor("y", TensorRole::output, {"words", "high", "wide"})
          .statement("border[w, i, j] : " + word + "i = 0 and 0 <= j < wide", "y[w, i, j]", {"cost[w, i, j]"}, read(0))
          .statement("side[w, i] : " + word + "1 <= i < high", "y[w, i, 0]", {"cost[w, i, 0]"}, read(0))
          .statement("inner[w, i, j] : " + word + "0 <= i < high - 1 and 0 <= j < wide - 1", "y[w, i + 1, j + 1]",
                     {"cost[w, i + 1, j + 1]", "y[w, i, j + 1]", "y[w, i + 1, j]", "y[w, i, j]"},
                     read(0) + ScalarExpr::make(ScalarOp::min, {ScalarExpr::make(ScalarOp::min, {read(1), read(2)}), read(3)}))
          .build();
  SearchedProblem problem(nest, {});
  EXPECT_GT(guesses_inside(problem, {{{"words", 3}, {"high", 9}, {"wide", 14}}, {{"words", 2}, {"high", 40}, {"wide", 3}}},
                           "for inner_j in"),
            0);
}

/// v[t + 1, r, c] = max(v[t, r, c] + v[t, r, c + 1], x[r]), a row shorter in each step: sequences r share nothing, points c of a step do.
Nest shrinking_rows() {
  const std::string row = "0 <= r < R", step = row + " and 0 <= t < T and 0 <= c < T - t";
  return samples::NestBuilder("shrinking_rows", {{"R", 512}, {"T", 200}})
      .context("R >= 1 and T >= 1")
      .tensor("x", TensorRole::input, {"R"})
      .tensor("v", TensorRole::temporary, {"T + 1", "R", "T + 1"})
      .tensor("out", TensorRole::output, {"R"})
      .statement("first[r, c] : " + row + " and 0 <= c <= T", "v[0, r, c]", {"x[r]"}, read(0))
      .statement("step[t, r, c] : " + step, "v[t + 1, r, c]", {"v[t, r, c]", "v[t, r, c + 1]", "x[r]"},
                 ScalarExpr::make(ScalarOp::max, {(read(0) + read(1)) * samples::number(0.5), read(2)}))
      .statement("out[r] : " + row, "out[r]", {"v[T, r, 0]"}, read(0))
      .build();
}

TEST(GpuRecurrences, ABlockGoesThroughTheStepsOfASequence) {
  SearchedProblem problem(shrinking_rows(), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  const std::string plan = first_plan(problem);
  EXPECT_NE(plan.find("grid step_r"), std::string::npos) << plan;
  EXPECT_EQ(plan.find("launch loop"), std::string::npos) << plan;
  EXPECT_EQ(problem.difference(first, {{"R", 3}, {"T", 5}}), "");
}

/// g[t + 1, b, y + 1, x + 1] = (g[t, b, y, x] + g[t, b, y + 2, x + 2]) / 2 inside of B pictures.
Nest smoothed_pictures() {
  const std::string picture = "0 <= b < B and 0 <= y < H and 0 <= x < W";
  return samples::NestBuilder("smoothed_pictures", {{"B", 2}, {"T", 4}, {"H", 256}, {"W", 256}})
      .context("B >= 1 and T >= 1 and H >= 3 and W >= 3")
      .tensor("p", TensorRole::input, {"B", "H", "W"})
      .tensor("g", TensorRole::output, {"T + 1", "B", "H", "W"})
      .statement("first[t, b, y, x] : 0 <= t <= T and " + picture, "g[t, b, y, x]", {"p[b, y, x]"}, read(0))
      .statement("step[t, b, y, x] : 0 <= t < T and 0 <= b < B and 0 <= y < H - 2 and 0 <= x < W - 2",
                 "g[t + 1, b, y + 1, x + 1]", {"g[t, b, y, x]", "g[t, b, y + 2, x + 2]"},
                 (read(0) + read(1)) * samples::number(0.5))
      .build();
}

/// A block for each of two pictures would leave most multiprocessors idle.
TEST(GpuRecurrences, FewLongSequencesAreNotGuessedFirst) {
  const auto blocks_of_steps = [](std::int64_t pictures) {
    SearchedProblem problem(smoothed_pictures(), {{"B", pictures}});
    const Candidate first = problem.space->candidate(problem.space->defaults().front());
    EXPECT_EQ(first.infeasible, "");
    return std::count_if(first.steps.begin(), first.steps.end(),
                         [](const Step& step) { return describe(step).starts_with("gpu_blocks(step."); });
  };
  EXPECT_NE(blocks_of_steps(2), 1) << "pictures alone";
  EXPECT_EQ(blocks_of_steps(64), 1);
}

std::ptrdiff_t count_fused(const Candidate& candidate) {
  return std::count_if(candidate.steps.begin(), candidate.steps.end(), [](const Step& step) { return step.name == "fuse_with"; });
}

/// Steps over a picture whose border is given: u and v each take the other's last step.
Nest given_borders() {
  const std::string step = "0 <= t < T and ", picture = "0 <= y < H and 0 <= x < W", inner = "0 <= y < H - 2 and 0 <= x < W - 2";
  samples::NestBuilder nest("given_borders", {{"T", 33}, {"H", 512}, {"W", 512}});
  nest.context("T >= 1 and H >= 3 and W >= 3");
  for (const char* name : {"u", "v"}) {
    const std::string u = name;
    nest.tensor("first_" + u, TensorRole::input, {"H", "W"}).tensor(u, TensorRole::output, {"T + 1", "H", "W"});
    nest.statement(u + "_0[k, y, x] : k = 0 and " + picture, u + "[k, y, x]", {"first_" + u + "[y, x]"}, read(0));
  }
  int stage = 0;
  const auto add = [&](const std::string& name, const std::string& where, const std::string& write,
                       const std::vector<std::string>& reads, const ScalarExpr& value) {
    nest.statement(fmt::format("{}[t, s, y, x] : s = {} and {}{}", name, stage, step, where), write, reads, value);
    if (stage++ > 0) nest.join_last();
  };
  for (const std::string u : {"u", "v"}) {
    const std::vector<std::string> given{"first_" + u + "[y, x]"};
    add(u + "_top", picture + " and y = 0", u + "[t + 1, y, x]", given, read(0));
    add(u + "_bottom", picture + " and y = H - 1", u + "[t + 1, y, x]", given, read(0));
    add(u + "_left", "0 < y < H - 1 and x = 0", u + "[t + 1, y, x]", given, read(0));
    add(u + "_right", "0 < y < H - 1 and x = W - 1", u + "[t + 1, y, x]", given, read(0));
  }
  for (const auto& [u, v] : {std::pair<std::string, std::string>{"u", "v"}, {"v", "u"}})
    add(u + "_step", inner, u + "[t + 1, y + 1, x + 1]", {u + "[t, y, x + 1]", u + "[t, y + 2, x + 1]", v + "[t, y + 1, x + 1]"},
        (read(0) + read(1)) * samples::number(0.25) + read(2) * samples::number(0.5));
  return nest.build();
}

/// Borders of all steps are one kernel, whose blocks are known to write elements of their own: bounds of its loops are where two ranges start.
TEST(GpuRecurrences, BordersAreNoPartOfTheSteps) {
  SearchedProblem problem(given_borders(), {});
  bool found = false;
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    if (found || !candidate.infeasible.empty() || count_fused(candidate) < 8) continue;
    const TileProgram program = build_tile_program(problem.schedules.replay(candidate.steps));
    const auto plans = plan_kernels(program, {});
    EXPECT_TRUE(compile_nvptx(program, {}).certificate.unproved.empty());
    EXPECT_LE(plans->kernels.size(), 3U) << "borders, and a kernel for each of two statements, or one for both";
    EXPECT_EQ(problem.difference(point, {{"T", 2}, {"H", 7}, {"W", 5}}), "");
    found = true;
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace nestor
