// Kernels that keep apart what would cost each other loops: heads that are joined after their products, small tables that all rows read; and
// sums over pairs of points, whose distances need no place.
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/structure/rule_variants.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/half_values.h"
#include "support/nests/pair_nests.h"
#include "unit/autotune/candidate_steps.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <set>

namespace nestor {
namespace {

using namespace samples;
using testing::count_steps;
using testing::SearchedProblem;

/// out[i, d] = found[0, i, d] - found[1, i, d] / 2 with found[w, i, d] = sum over j of relu(q[w, i] k[j]) v[j, d].
Nest difference_of_heads(const std::string& heads = "2") {
  const std::string row = "0 <= w < " + heads + " and 0 <= i < I", pair = row + " and 0 <= j < J",
                    element = row + " and 0 <= d < 64";
  return NestBuilder("difference", {{"I", 300}, {"J", 300}})
      .tensor("q", TensorRole::input, {heads, "I", "64"}, kHalf)
      .tensor("k", TensorRole::input, {"J", "64"}, kHalf)
      .tensor("v", TensorRole::input, {"J", "64"}, kHalf)
      .tensor("score", TensorRole::temporary, {heads, "I", "J"})
      .tensor("weight", TensorRole::temporary, {heads, "I", "J"})
      .tensor("sum", TensorRole::temporary, {heads, "I", "64"})
      .tensor("found", TensorRole::temporary, {heads, "I", "64"}, kHalf)
      .tensor("out", TensorRole::output, {"I", "64"}, kHalf)
      .statement("score_init[w, i, j] : " + pair, "score[w, i, j]", {}, number(0))
      .statement("score[w, i, j, d] : " + pair + " and 0 <= d < 64", "score[w, i, j]", {"q[w, i, d]", "k[j, d]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("weight[w, i, j] : " + pair, "weight[w, i, j]", {"score[w, i, j]"},
                 ScalarExpr::make(ScalarOp::max, {read(0), number(0)}) * number(0.015625))
      .statement("sum_init[w, i, d] : " + element, "sum[w, i, d]", {}, number(0))
      .statement("sum[w, i, d, j] : " + element + " and 0 <= j < J", "sum[w, i, d]", {"weight[w, i, j]", "v[j, d]"},
                 read(0) * wide(1), ReductionOp::add)
      .statement("found[w, i, d] : " + element, "found[w, i, d]", {"sum[w, i, d]"}, ScalarExpr::cast(kHalf, read(0)))
      .statement("out[i, d] : 0 <= i < I and 0 <= d < 64", "out[i, d]", {"found[0, i, d]", "found[1, i, d]"},
                 ScalarExpr::cast(kHalf, wide(0) - wide(1) * number(0.5)))
      .build();
}

/// out[b, r, c] = (sum over t of x[b, r, t, c] w[t, c]) / (sum over t of w[t, c] squared): sums of a table of few columns, for all rows.
Nest windows_with_a_table() {
  const std::string cell = "0 <= b < B and 0 <= r < R and 0 <= c < 96", column = "0 <= c < 96", tap = " and 0 <= t < 4";
  return NestBuilder("windows", {{"B", 8}, {"R", 500}})
      .tensor("x", TensorRole::input, {"B", "R", "4", "96"})
      .tensor("w", TensorRole::input, {"4", "96"})
      .tensor("norm", TensorRole::temporary, {"96"})
      .tensor("sum", TensorRole::temporary, {"B", "R", "96"})
      .tensor("out", TensorRole::output, {"B", "R", "96"})
      .statement("norm_init[c] : " + column, "norm[c]", {}, number(0))
      .statement("norm[c, t] : " + column + tap, "norm[c]", {"w[t, c]"}, read(0) * read(0), ReductionOp::add)
      .statement("sum_init[b, r, c] : " + cell, "sum[b, r, c]", {}, number(0))
      .statement("sum[b, r, c, t] : " + cell + tap, "sum[b, r, c]", {"x[b, r, t, c]", "w[t, c]"}, read(0) * read(1),
                 ReductionOp::add)
      .statement("out[b, r, c] : " + cell, "out[b, r, c]", {"sum[b, r, c]", "norm[c]"}, read(0) / read(1))
      .build();
}

/// out[b, h] = sum over j of w[b, h, j] c[b, j] / sum over j of w[b, h, j] with w = relu(q[b, h] c[b, j]): rows of 512, too wide for one kernel.
Nest attention_to_latents() {
  const std::string row = "0 <= b < B and 0 <= h < H", pair = row + " and 0 <= j < J", element = row + " and 0 <= d < 512";
  return NestBuilder("latents", {{"B", 16}, {"H", 128}, {"J", 4096}})
      .tensor("q", TensorRole::input, {"B", "H", "512"}, kHalf)
      .tensor("c", TensorRole::input, {"B", "J", "512"}, kHalf)
      .tensor("score", TensorRole::temporary, {"B", "H", "J"})
      .tensor("weight", TensorRole::temporary, {"B", "H", "J"})
      .tensor("total", TensorRole::temporary, {"B", "H"})
      .tensor("sum", TensorRole::temporary, {"B", "H", "512"})
      .tensor("out", TensorRole::output, {"B", "H", "512"}, kHalf)
      .statement("score_init[b, h, j] : " + pair, "score[b, h, j]", {}, number(0))
      .statement("score[b, h, j, d] : " + pair + " and 0 <= d < 512", "score[b, h, j]", {"q[b, h, d]", "c[b, j, d]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("weight[b, h, j] : " + pair, "weight[b, h, j]", {"score[b, h, j]"},
                 ScalarExpr::make(ScalarOp::max, {read(0), number(0)}) + number(1))
      .statement("total_init[b, h] : " + row, "total[b, h]", {}, number(0))
      .statement("total[b, h, j] : " + pair, "total[b, h]", {"weight[b, h, j]"}, read(0), ReductionOp::add)
      .statement("sum_init[b, h, d] : " + element, "sum[b, h, d]", {}, number(0))
      .statement("sum[b, h, d, j] : " + element + " and 0 <= j < J", "sum[b, h, d]", {"weight[b, h, j]", "c[b, j, d]"},
                 read(0) * wide(1), ReductionOp::add)
      .statement("out[b, h, d] : " + element, "out[b, h, d]", {"sum[b, h, d]", "total[b, h]"},
                 ScalarExpr::cast(kHalf, read(0) / read(1)))
      .build();
}

/// out[r, o] = sum over k of x[r, k] u[o, k] / sqrt(sum over k of u[o, k] squared) with u = 2 w: rows of weights have length 1.
Nest product_with_lengths() {
  const std::string weight = "0 <= o < O and 0 <= k < K", column = "0 <= o < O", cell = "0 <= r < R and 0 <= o < O";
  return NestBuilder("lengths", {{"R", 2048}, {"O", 1024}, {"K", 512}})
      .tensor("x", TensorRole::input, {"R", "K"}, kHalf)
      .tensor("w", TensorRole::input, {"O", "K"}, kHalf)
      .tensor("u", TensorRole::temporary, {"O", "K"}, kHalf)
      .tensor("squares", TensorRole::temporary, {"O"})
      .tensor("length", TensorRole::temporary, {"O"})
      .tensor("sum", TensorRole::temporary, {"R", "O"})
      .tensor("out", TensorRole::output, {"R", "O"}, kHalf)
      .statement("u[o, k] : " + weight, "u[o, k]", {"w[o, k]"}, ScalarExpr::cast(kHalf, wide(0) * number(2)))
      .statement("squares_init[o] : " + column, "squares[o]", {}, number(0))
      .statement("squares[o, k] : " + weight, "squares[o]", {"u[o, k]"}, wide(0) * wide(0), ReductionOp::add)
      .statement("length[o] : " + column, "length[o]", {"squares[o]"}, apply(ScalarOp::sqrt, read(0)))
      .statement("sum_init[r, o] : " + cell, "sum[r, o]", {}, number(0))
      .statement("sum[r, o, k] : " + cell + " and 0 <= k < K", "sum[r, o]", {"x[r, k]", "u[o, k]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("out[r, o] : " + cell, "out[r, o]", {"sum[r, o]", "length[o]"}, ScalarExpr::cast(kHalf, read(0) / read(1)))
      .build();
}

/// out[p, h] = line[p, h] / (1 + sum over f of line[p, h, f] squared), line = x w: norms of heads, of which nobody knows how many there are.
Nest normed_heads() {
  const std::string head = "0 <= p < P and 0 <= h < H", cell = head + " and 0 <= f < 96";
  return NestBuilder("normed_heads", {{"P", 4096}, {"H", 16}, {"K", 512}})
      .tensor("x", TensorRole::input, {"P", "K"}, kHalf)
      .tensor("w", TensorRole::input, {"H", "96", "K"}, kHalf)
      .tensor("line", TensorRole::temporary, {"P", "H", "96"})
      .tensor("square", TensorRole::temporary, {"P", "H"})
      .tensor("out", TensorRole::output, {"P", "H", "96"}, kHalf)
      .statement("line_init[p, h, f] : " + cell, "line[p, h, f]", {}, number(0))
      .statement("line[p, h, f, k] : " + cell + " and 0 <= k < K", "line[p, h, f]", {"x[p, k]", "w[h, f, k]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("square_init[p, h] : " + head, "square[p, h]", {}, number(1))
      .statement("square[p, h, f] : " + cell, "square[p, h]", {"line[p, h, f]"}, read(0) * read(0), ReductionOp::add)
      .statement("out[p, h, f] : " + cell, "out[p, h, f]", {"line[p, h, f]", "square[p, h]"},
                 ScalarExpr::cast(kHalf, read(0) / read(1)))
      .build();
}

TEST(JoinedHeads, ComeAfterTheKernelOfTheirProducts) {
  for (const auto& [heads, kernels_behind] : {std::pair{"2", 0}, {"5", 1}}) {
    SearchedProblem problem(difference_of_heads(heads), {});
    const Point first = problem.space->defaults().front();
    const Candidate candidate = problem.space->candidate(first);
    ASSERT_EQ(candidate.infeasible, "");
    EXPECT_EQ(count_steps(candidate, "tensor_cores"), 1) << "both products of a head stay in one kernel, of a few heads all";
    EXPECT_EQ(count_steps(candidate, "gpu_threads"), kernels_behind) << heads;
    for (const Sizes& sizes : {Sizes{{"I", 133}, {"J", 71}}, Sizes{{"I", 1}, {"J", 8}}})
      EXPECT_EQ(problem.difference(first, sizes, 4e-3), "");
  }
}

TEST(WideRows, HaveBothProductsOnTensorCoresThoughNoKernelHasRoomForBoth) {
  SearchedProblem problem(attention_to_latents(), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_EQ(count_steps(candidate, "tensor_cores"), 2);
  for (const Sizes& sizes : {Sizes{{"B", 2}, {"H", 5}, {"J", 72}}, Sizes{{"B", 1}, {"H", 1}, {"J", 8}}})
    EXPECT_EQ(problem.difference(first, sizes, 4e-3), "");
}

TEST(LateDefinitions, LeaveAResultInTheKernelOfItsProduct) {
  SearchedProblem problem(product_with_lengths(), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_EQ(count_steps(candidate, "tensor_cores"), 1);
  EXPECT_LE(count_steps(candidate, "gpu_threads"), 2) << "nothing stands behind the product";
  for (const Sizes& sizes : {Sizes{{"R", 67}, {"O", 72}, {"K", 136}}, Sizes{{"R", 1}, {"O", 8}, {"K", 8}}})
    EXPECT_EQ(problem.difference(first, sizes, 4e-3), "");
}

TEST(RowsOfHeads, AreSomeOfThemWhereTheirNumberIsNotKnown) {
  SearchedProblem problem(normed_heads(), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_EQ(count_steps(candidate, "tensor_cores"), 1);
  EXPECT_EQ(count_steps(candidate, "gpu_threads"), 1) << "sums of squares and what they divide are one kernel";
  for (const Sizes& sizes : {Sizes{{"P", 67}, {"H", 3}, {"K", 72}}, Sizes{{"P", 1}, {"H", 17}, {"K", 8}}})
    EXPECT_EQ(problem.difference(first, sizes, 4e-3), "");
}

TEST(Tables, ThatAllRowsReadShareNoLoopsWithThem) {
  const Nest nest = windows_with_a_table();
  const Sizes sizes = complete_sizes(nest, {});
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  RuleVariants variants(schedules, sizes);
  const RuleVariant& variant = variants.at({{"reassociate"}});
  std::vector<std::vector<std::string>> kernels;
  for (const FusionGroup& group : variants.fusion_groups(variant, Fusion::careful)) {
    kernels.emplace_back();
    for (const int u : group.loop_groups)
      kernels.back().push_back(variant.structure.loop_groups[static_cast<std::size_t>(u)].first);
  }
  EXPECT_EQ(kernels, (std::vector<std::vector<std::string>>{{"norm_init", "norm"}, {"sum_init", "sum", "out"}}));
  SearchedProblem problem(nest, {});
  for (const Sizes& at : {Sizes{{"B", 3}, {"R", 37}}, Sizes{{"B", 1}, {"R", 1}}})
    EXPECT_EQ(problem.difference(problem.with({{"fusion", place_of(Fusion::careful)}, {"tile.r", 8}, {"tile.c", 0}}), at), "");
}

TEST(Pairs, DistancesNeedNoPlace) {
  for (const Nest& nest : {pulling_points(), nearest_segments()}) {
    Sizes large, small;
    for (const SizeParam& size : nest.sizes) {
      large[size.name] = size.name == "A" ? 3 : 3000;
      small[size.name] = size.name == "A" ? 3 : 37;
    }
    SearchedProblem problem(nest, large);
    int guesses = 0;
    for (const Point& point : problem.space->defaults()) {
      const Candidate candidate = problem.space->candidate(point);
      const bool recomputes = std::any_of(candidate.steps.begin(), candidate.steps.end(), [](const Step& step) {
        return step.name == "apply_rule" && step.args.at(0) == "recompute";
      });
      if (!candidate.infeasible.empty() || !recomputes) continue;
      if (++guesses > 3) break;
      EXPECT_LE(count_steps(candidate, "gpu_threads"), 2);
      EXPECT_EQ(problem.difference(point, small), "");
    }
    EXPECT_GT(guesses, 0);
  }
}

TEST(Pairs, ASumOfAllIsCutIntoPartsThoughItSharesNoAxisWithTheRestAnyMore) {
  SearchedProblem problem(normalised_pairs(), {{"N", 6000}});
  int guesses = 0;
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    const auto applies = [&](const std::string& rule, const std::string& statement) {
      return std::any_of(candidate.steps.begin(), candidate.steps.end(), [&](const Step& step) {
        return step.name == "apply_rule" && step.args.at(0) == rule && step.args.at(1) == statement;
      });
    };
    if (!candidate.infeasible.empty() || !applies("recompute", "near") || !applies("split_reduction", "total")) continue;
    ++guesses;
    for (const std::int64_t many : {37, 1}) EXPECT_EQ(problem.difference(point, {{"N", many}}), "") << many;
    if (guesses == 2) break;
  }
  EXPECT_GT(guesses, 0);
}

/// out[s, n] = a[s, n] + b[s, n + 1] with b[s, n] = a[s, n] a[s, n + 1] and a[s, n] = x[s, n] - x[s, n + 1]: steps along rows of so many elements.
Nest steps_along_rows(const std::string& row) {
  std::vector<std::pair<std::string, std::int64_t>> sizes{{"S", 4096}};
  if (row == "N") sizes.emplace_back("N", 1000);
  const auto cell = [&](int more) { return "0 <= s < S and 0 <= n < " + row + " + " + std::to_string(more); };
  return NestBuilder("steps", sizes)
      .tensor("x", TensorRole::input, {"S", row + " + 3"})
      .tensor("a", TensorRole::temporary, {"S", row + " + 2"})
      .tensor("b", TensorRole::temporary, {"S", row + " + 1"})
      .tensor("out", TensorRole::output, {"S", row})
      .statement("a[s, n] : " + cell(2), "a[s, n]", {"x[s, n]", "x[s, n + 1]"}, read(0) - read(1))
      .statement("b[s, n] : " + cell(1), "b[s, n]", {"a[s, n]", "a[s, n + 1]"}, read(0) * read(1))
      .statement("out[s, n] : " + cell(0), "out[s, n]", {"a[s, n]", "b[s, n + 1]"}, read(0) + read(1))
      .build();
}

TEST(StepsAlongRows, AreOneKernelWhoseBlocksKeepRows) {
  EXPECT_EQ(sizes_of_short_rows(steps_along_rows("N"), {{"S", 4096}, {"N", 1000}}), std::set<std::string>{"N"});
  EXPECT_EQ(sizes_of_short_rows(steps_along_rows("N"), {{"S", 4096}, {"N", 100000}}), std::set<std::string>{}) << "rows are long";
  SearchedProblem problem(steps_along_rows("1000"), {{"S", 4096}});
  const std::vector<Point> points = problem.space->defaults();
  const auto fits = [&](const Point& point) { return problem.space->candidate(point).infeasible.empty(); };
  const auto first = std::find_if(points.begin(), points.end(), fits);
  ASSERT_NE(first, points.end());
  EXPECT_EQ(count_steps(problem.space->candidate(*first), "gpu_threads"), 1);
  for (const std::int64_t rows : {5, 1}) EXPECT_EQ(problem.difference(*first, {{"S", rows}}), "") << rows;
}

/// out[i, d] = sum over j of w[i, j] (s[j, d] + x[i, d] - x[j, d]): what others say, and how far they are.
Nest pulled_points() {
  const std::string element = "0 <= i < N and 0 <= d < D";
  return NestBuilder("pulled_points", {{"N", 4096}, {"D", 64}})
      .tensor("w", TensorRole::input, {"N", "N"})
      .tensor("s", TensorRole::input, {"N", "D"})
      .tensor("x", TensorRole::input, {"N", "D"})
      .tensor("out", TensorRole::output, {"N", "D"})
      .statement("init[i, d] : " + element, "out[i, d]", {}, number(0))
      .statement("sum[i, d, j] : " + element + " and 0 <= j < N", "out[i, d]", {"w[i, j]", "s[j, d]", "x[i, d]", "x[j, d]"},
                 read(0) * (read(1) + (read(2) - read(3))), ReductionOp::add)
      .build();
}

TEST(Pairs, BlocksOfSeveralRowsShareWhatOthersSay) {
  SearchedProblem problem(pulled_points(), {{"N", 4096}, {"D", 64}});
  int guesses = 0;
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    const auto has_split = [&](const std::string& loop) {
      return std::any_of(candidate.steps.begin(), candidate.steps.end(), [&](const Step& step) {
        return step.name == "split" && step.args.at(0) == loop && step.args.at(1).get<int>() >= 16;
      });
    };
    EXPECT_TRUE(has_split("sum.i") && has_split("sum.d")) << guesses;
    EXPECT_EQ(problem.difference(point, {{"N", 37}, {"D", 19}}), "") << guesses;
    if (++guesses == 2) break;
  }
  EXPECT_EQ(guesses, 2);
}

/// near[i, j] = relu(x[i] - x[j]), all = sum over i and j of near[i, j], out[i] = sum over j of near[i, j] / all: one result, and one for each row.
Nest shares_of_all(std::int64_t rows) {
  const std::string pair = "0 <= i < N and 0 <= j < N";
  return NestBuilder("shares", {{"N", rows}})
      .tensor("x", TensorRole::input, {"N"})
      .tensor("near", TensorRole::temporary, {"N", "N"})
      .tensor("all", TensorRole::temporary, {"1"})
      .tensor("out", TensorRole::output, {"N"})
      .statement("near[i, j] : " + pair, "near[i, j]", {"x[i]", "x[j]"},
                 ScalarExpr::make(ScalarOp::max, {read(0) - read(1), number(0)}))
      .statement("all_init[z] : z = 0", "all[z]", {}, number(0))
      .statement("all[z, i, j] : z = 0 and " + pair, "all[z]", {"near[i, j]"}, read(0), ReductionOp::add)
      .statement("out_init[i] : 0 <= i < N", "out[i]", {}, number(0))
      .statement("out[i, j] : " + pair, "out[i]", {"near[i, j]", "all[0]"}, read(0) / read(1), ReductionOp::add)
      .build();
}

/// What is cut into parts beside the sum of all, over the guesses that cut that.
std::set<std::string> cut_beside_all(SearchedProblem& problem) {
  std::set<std::string> beside;
  for (const Point& point : problem.space->defaults()) {
    std::set<std::string> cut;
    for (const Step& step : problem.space->candidate(point).steps) {
      if (step.name == "apply_rule" && step.args.at(0) == "split_reduction") cut.insert(step.args.at(1).get<std::string>());
    }
    if (cut.contains("all")) beside.merge(cut);
  }
  return beside;
}

TEST(Pairs, PartsAreForSumsWithFewResultsAlone) {
  SearchedProblem many(shares_of_all(20000), {}), few(shares_of_all(1000), {});
  EXPECT_EQ(cut_beside_all(many), std::set<std::string>{"all"}) << "20,000 rows keep all threads busy by themselves";
  EXPECT_EQ(cut_beside_all(few), (std::set<std::string>{"all", "out"})) << "1,000 do not";
}

/// No dim runs along memory where points lie in two coordinates: threads share the sum all the same.
TEST(Pairs, SumsAcrossMemoryAreSharedByThreadsWhereNothingElseIs) {
  const Nest nest =
      NestBuilder("spread", {{"N", 500}})
          .tensor("x", TensorRole::input, {"N", "2"})
          .tensor("out", TensorRole::output, {"1"})
          .statement("out_init[z] : z = 0", "out[z]", {}, number(0))
          .statement("out[z, i] : z = 0 and 0 <= i < N", "out[z]", {"x[i, 0]", "x[i, 1]"}, read(0) * read(1), ReductionOp::add)
          .build();
  SearchedProblem problem(nest, {});
  const Point point = problem.space->baseline();
  const std::string plan =
      describe_kernels(build_tile_program(problem.schedules.replay(problem.space->candidate(point).steps)), {.sm = 90});
  EXPECT_NE(plan.find("out_i column"), std::string::npos) << plan;
  for (const std::int64_t points : {1, 31, 500}) EXPECT_EQ(problem.difference(point, {{"N", points}}), "") << points;
}

/// out[b] = how many of x[i, j], i < j, lie in bin b.
Nest counts_of_keys() {
  const std::string pair = "0 <= i < N and i < j < N";
  const auto number_of = [](double value) { return ScalarExpr::constant(value, ElementType::i32); };
  const ScalarExpr key = ScalarExpr::cast(ElementType::i32, read(0) * number(50));
  return NestBuilder("counts", {{"N", 2000}, {"B", 100}})
      .tensor("x", TensorRole::input, {"N", "N"})
      .tensor("out", TensorRole::output, {"B"}, ElementType::i32)
      .statement("out_init[b] : 0 <= b < B", "out[b]", {}, number_of(0))
      .statement("out[b, i, j] : 0 <= b < B and " + pair, "out[b]", {"x[i, j]"},
                 ScalarExpr::make(ScalarOp::select,
                                  {ScalarExpr::make(ScalarOp::eq, {key, ScalarExpr::index(0)}), number_of(1), number_of(0)}),
                 ReductionOp::add, {"b"})
      .build();
}

TEST(Counts, AThreadHasSumsOfManyBinsAndBlocksHavePartsOfAllKeys) {
  SearchedProblem problem(counts_of_keys(), {});
  const Point point = problem.space->defaults().front();
  const std::string plan =
      describe_kernels(build_tile_program(problem.schedules.replay(problem.space->candidate(point).steps)), {.sm = 90});
  EXPECT_NE(plan.find("32 lanes x 1 groups, vectors of 1; out_part_b_i row"), std::string::npos) << plan;
  EXPECT_NE(plan.find("grid out_part_i_p"), std::string::npos) << plan;
  for (const std::int64_t keys : {1, 2, 45}) EXPECT_EQ(problem.difference(point, {{"N", keys}, {"B", 40}}), "") << keys;
}

}  // namespace
}  // namespace nestor
