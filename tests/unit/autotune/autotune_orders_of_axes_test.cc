// Products whose results have their axes in several orders: kernels of their own, in each of which tiles share both operands.
#include "support/nests/tensor_nests.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace nestor {
namespace {

using namespace samples;
using testing::SearchedProblem;

/// out[a, b, c] = x[a, b] y[c] + x[a, c] y[b] + x[b, c] y[a], each summed up over k; `orders`: of which so many are there.
Nest sums_in_orders(int orders) {
  const std::string cell = "0 <= a < N and 0 <= b < N and 0 <= c < N";
  NestBuilder builder("orders", {{"N", 96}});
  builder.tensor("x", TensorRole::input, {"N", "N", "64"}).tensor("y", TensorRole::input, {"N", "64"});
  const std::vector<std::pair<std::string, std::string>> operands{
      {"x[a, b, k]", "y[c, k]"}, {"x[a, c, k]", "y[b, k]"}, {"x[b, c, k]", "y[a, k]"}};
  std::vector<std::string> sums;
  ScalarExpr all = read(0);
  for (int k = 0; k < orders; ++k) {
    const std::string sum = "s" + std::to_string(k);
    builder.tensor(sum, TensorRole::temporary, {"N", "N", "N"})
        .statement(sum + "_init[a, b, c] : " + cell, sum + "[a, b, c]", {}, number(0))
        .statement(sum + "[a, b, c, k] : " + cell + " and 0 <= k < 64", sum + "[a, b, c]",
                   {operands[static_cast<std::size_t>(k)].first, operands[static_cast<std::size_t>(k)].second}, read(0) * read(1),
                   ReductionOp::add);
    sums.push_back(sum + "[a, b, c]");
    if (k > 0) all = all + read(k);
  }
  return builder.tensor("out", TensorRole::output, {"N", "N", "N"})
      .statement("out[a, b, c] : " + cell, "out[a, b, c]", sums, all)
      .build();
}

/// Of the sum: axes that the first guess has tiles of.
std::set<std::string> sides_of(const Candidate& candidate, const std::string& sum) {
  std::set<std::string> sides;
  for (const Step& step : candidate.steps) {
    const std::string loop = step.args.empty() ? "" : step.args.at(0).get<std::string>();
    if (step.name == "split" && loop.starts_with(sum + ".")) sides.insert(loop.substr(sum.size() + 1));
  }
  return sides;
}

TEST(OrdersOfAxes, TilesHaveRowsOfOneOperandAndColumnsOfTheOther) {
  using Sides = std::set<std::string>;
  SearchedProblem problem(sums_in_orders(3), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_EQ(sides_of(candidate, "s0"), (Sides{"b", "c"}));
  EXPECT_EQ(sides_of(candidate, "s1"), (Sides{"b", "c"})) << "the same tiles serve both";
  EXPECT_TRUE(sides_of(candidate, "s2").contains("a")) << "rows of b and c, and columns of a";
  EXPECT_EQ(sides_of(candidate, "s2").size(), 2U);
  for (const std::int64_t size : {1, 13}) EXPECT_EQ(problem.difference(first, {{"N", size}}), "") << size;
}

TEST(OrdersOfAxes, OneKernelHasProductsWithTheSameSides) {
  SearchedProblem problem(sums_in_orders(2), {});
  const Candidate candidate = problem.space->candidate(problem.space->defaults().front());
  ASSERT_EQ(candidate.infeasible, "");
  const auto kernels =
      std::count_if(candidate.steps.begin(), candidate.steps.end(), [](const Step& step) { return step.name == "gpu_threads"; });
  EXPECT_EQ(kernels, 1);
}

}  // namespace
}  // namespace nestor
