// Rule expand_squares: which sums it takes, what it makes of them, and that infinities and NaN stay where they are.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/operand_nests.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

Nest expanded(const Nest& nest) { return rule("expand_squares").apply(nest, {"sum"}).nest; }

std::size_t matches(const Nest& nest) { return rule("expand_squares").find(nest).size(); }

TEST(ExpandSquares, ASumOfProductsIsChosenWhereItIsAsGood) {
  const Nest nest = expanded(squared_distances());
  validate(nest);
  EXPECT_THAT(statement_names(nest),
              ElementsAre("sums_left_init", "sums_left_sum", "sums_right_init", "sums_right_sum", "sums_product_init",
                          "sums_product_sum", "sums_choice_made", "init", "sum", "sums_kept_copied", "out"));
  EXPECT_THAT(nest.statement("sums_left_sum").dims, ElementsAre("i", "k"));
  EXPECT_THAT(nest.statement("sums_right_sum").dims, ElementsAre("j", "k"));
  EXPECT_THAT(nest.statement("sums_product_sum").dims, ElementsAre("i", "j", "k"));
  EXPECT_EQ(nest.tensor("sums_left").shape.size(), 1U);
  EXPECT_EQ(nest.statement("init").write.tensor, "sums_kept");
  EXPECT_EQ(nest.statement("sum").value.op(), ScalarOp::select);
  EXPECT_EQ(matches(nest), 0U) << "once";
  const auto apart = distance_attention();
  EXPECT_EQ(matches(apart), 1U);
  EXPECT_THAT(expanded(apart).statement("sums_right_sum").dims, ElementsAre("h", "j", "e"));
  EXPECT_EQ(matches(distance_attention("q")), 1U) << "rows of one tensor";
  validate(expanded(squared_distances(ElementType::f16, " and j <= i")));
}

/// The same distances, with squares written out; `mixed` times both elements.
Nest written_out(double mixed = -2) {
  return with_statement(squared_distances(), "sum", [&](Statement& sum) {
    const ScalarExpr a = ScalarExpr::cast(ElementType::f32, read(0, ElementType::bf16)),
                     b = ScalarExpr::cast(ElementType::f32, read(1, ElementType::bf16));
    sum.value = a * a + number(mixed) * a * b + b * b;
  });
}

TEST(ExpandSquares, SquaresMayBeWrittenOut) {
  EXPECT_EQ(matches(written_out()), 1U);
  EXPECT_EQ(statement_names(expanded(written_out())), statement_names(expanded(squared_distances())));
  EXPECT_EQ(matches(written_out(2)), 0U) << "squares of sums";
  EXPECT_EQ(matches(written_out(-1)), 0U);
}

TEST(ExpandSquares, OtherSumsStayAsTheyAre) {
  EXPECT_EQ(matches(squared_distances()), 1U);
  EXPECT_EQ(matches(squared_distances(ElementType::f32)), 0U) << "no 16-bit tensors";
  EXPECT_EQ(matches(matmul()), 0U);
  Nest mixed = squared_distances();
  mixed.tensors[1].type = ElementType::f16;
  Statement sum_of_both = mixed.statement("sum");
  const ScalarExpr left = ScalarExpr::cast(ElementType::f32, read(0, ElementType::bf16)),
                   right = ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16));
  sum_of_both.value = (left - right) * (left - right);
  replace_statement(mixed, sum_of_both);
  EXPECT_EQ(matches(mixed), 0U) << "types that no product mixes";
  const auto with = [&](const std::string& name, const std::function<void(Statement&)>& change) {
    return matches(with_statement(squared_distances(), name, change));
  };
  EXPECT_EQ(with("init", [](Statement& init) { init.value = number(1); }), 0U) << "it starts from 1";
  EXPECT_EQ(with("sum", [](Statement& sum) { sum.reduction = ReductionOp::max; }), 0U) << "no sum";
  EXPECT_EQ(with("sum", [](Statement& sum) { sum.value = sum.value * number(2); }), 0U) << "weighted";
  EXPECT_EQ(with("sum",
                 [](Statement& sum) {
                   const std::vector<ScalarExpr>& gap = sum.value.args()[0].args();
                   sum.value = sum.value.args()[0] * (gap[1] - gap[0]);
                 }),
            0U)
      << "the opposite of a square";
  EXPECT_EQ(with("sum",
                 [](Statement& sum) {
                   const ScalarExpr gap = sum.value.args()[0];
                   sum.value = gap * ScalarExpr::make(ScalarOp::abs, {gap});
                 }),
            0U)
      << "a sign of its own";
  EXPECT_EQ(with("sum", [](Statement& sum) { sum.value = ScalarExpr::make(ScalarOp::pow, {sum.value.args()[0], number(2)}); }),
            1U)
      << "a power";
  EXPECT_EQ(with("sum", [](Statement& sum) { sum.value = ScalarExpr::make(ScalarOp::pow, {sum.value.args()[0], number(3)}); }),
            0U)
      << "another power";
  EXPECT_EQ(
      with("sum", [](Statement& sum) { sum.reads[1].relation = parse_map("[M, N, K] -> { sum[i, j, k] -> y[j, 0] }", "test"); }),
      0U)
      << "one operand is the same for all terms";
  EXPECT_EQ(
      with("sum", [](Statement& sum) { sum.reads[1].relation = parse_map("[M, N, K] -> { sum[i, j, k] -> y[i, k] }", "test"); }),
      0U)
      << "no columns";
  for (const auto& [more, count, what] : {std::tuple("k <= i", 0U, "terms of a row"), std::tuple("k <= i + j", 0U, "of a pair"),
                                          std::tuple("j <= i", 1U, "pairs are left out")}) {
    const std::string domain =
        std::string("[M, N, K] -> { sum[i, j, k] : 0 <= i < M and 0 <= j < N and 0 <= k < K and ") + more + " }";
    const std::string start =
        std::string("[M, N, K] -> { init[i, j] : 0 <= i < M and 0 <= j < N and ") + (count == 0 ? "0 = 0" : more) + " }";
    Nest nest = squared_distances();
    for (const auto& [name, set] : {std::pair("sum", domain), std::pair("init", start)}) {
      Statement statement = nest.statement(name);
      statement.domain = parse_set(set, "test");
      replace_statement(nest, statement);
    }
    EXPECT_EQ(matches(nest), count) << what;
  }
  const Nest parts = rule("split_reduction").apply(squared_distances(), {"sum", "k", "part", "3"}).nest;
  EXPECT_EQ(matches(parts), 0U) << "terms of parts";
  EXPECT_EQ(with("out",
                 [](Statement& out) {
                   out.reads.push_back({"x", parse_map("[M, N, K] -> { out[i, j] -> x[i, 0] }", "test")});
                   out.value = out.value * ScalarExpr::cast(ElementType::f32, read(1, ElementType::bf16));
                 }),
            1U)
      << "others may read operands";
}

/// Rows of one special value, or of one among ordinary ones, against each other.
void expect_same_special_values(const Nest& before) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> specials{kInfinity, -kInfinity, kNaN, 0, -0.0, 1, 1e-30, 1e30, -1e30};
  const Nest after = expanded(before);
  const auto count = static_cast<std::int64_t>(2 * specials.size());
  const Sizes sizes{{"M", count}, {"N", count}, {"K", 3}};
  Memory expected;
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t k = 0; k < 3; ++k) {
      const double special = specials[static_cast<std::size_t>(row / 2)], value = row % 2 == 0 || k == 1 ? special : 2;
      expected["x"][{row, k}] = expected["y"][{row, k}] = value;
    }
  }
  Memory actual = expected;
  Interpreter(before, sizes).run(expected);
  Interpreter(after, sizes).run(actual);
  for (const auto& [index, value] : expected.at("out")) {
    const double got = actual.at("out").at(index);
    if (std::isfinite(value)) {
      EXPECT_LE(std::fabs(got - value), 1e-12 * value) << index[0] << ", " << index[1];
    } else {
      EXPECT_TRUE(std::isnan(value) ? std::isnan(got) : got == value) << index[0] << ", " << index[1] << ": " << got;
    }
  }
}

TEST(ExpandSquares, InfinitiesAndNaNStayWhereTheyAre) {
  expect_same_special_values(squared_distances());
  expect_same_special_values(written_out());
}

}  // namespace
}  // namespace nestor
