// Rule factor_exponential: which sums it takes, what it makes of them, and that terms without room, infinities and NaN are as defined.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/exponential_nests.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

std::size_t matches(const Nest& nest) { return rule("factor_exponential").find(nest).size(); }

Nest factored(Nest nest) {
  for (const char* sum : {"total", "mean"}) nest = rule("factor_exponential").apply(nest, {sum}).nest;
  return nest;
}

std::string value_text(const Nest& nest, const std::string& name) {
  const Statement& s = nest.statement(name);
  return s.value.str([&](int k) { return s.reads.at(static_cast<std::size_t>(k)).tensor; }, [](int) { return "index"; });
}

/// Matches where one statement is another one.
std::size_t with(const std::string& name, const std::function<void(Statement&)>& change) {
  return matches(with_statement(exponential_sums(), name, change));
}

TEST(FactorExponential, TermsAreProductsOfHalves) {
  const Nest nest = factored(exponential_sums());
  validate(nest);
  EXPECT_THAT(statement_names(nest),
              ElementsAre("total_left_1", "total_left_2", "total_left_3", "total_right_1", "total_right_2", "total_right_3",
                          "total_product_init", "total_product_sum", "total_valued", "total_kept_init", "total_kept_sum", "total",
                          "mean_left_1", "mean_left_2", "mean_left_3", "mean_product_init", "mean_product_sum", "mean_valued",
                          "mean_kept_init", "mean_kept_sum", "mean", "out"))
      << "both sums have one side in common";
  EXPECT_EQ(value_text(nest, "total_right_1"), "bf16(select((w <= 20), exp(w), inf))");
  EXPECT_EQ(value_text(nest, "mean_left_1"),
            "bf16(select((f32(k) <= 20), select((abs(f32(v)) <= 65536), (exp(f32(k)) * f32(v)), inf), inf))");
  EXPECT_EQ(nest.statement("mean_product_sum").reads.at(1).tensor, "total_right");
  EXPECT_THAT(nest.statement("total_product_sum").dims, ElementsAre("b", "i", "c", "j_half"));
  EXPECT_EQ(shape_at(nest.tensor("total_left"), {{"B", 2}, {"N", 5}, {"C", 3}}), (std::vector<std::int64_t>{2, 15, 3}));
  EXPECT_EQ(matches(nest), 0U) << "once";
  const Nest of_f16 = factored(exponential_sums(ElementType::f16, ScalarOp::exp2));
  validate(of_f16);
  EXPECT_EQ(value_text(of_f16, "total_right_1"), "bf16(select((w <= 28), exp2(w), inf))");
  EXPECT_EQ(value_text(of_f16, "mean_left_1"), "bf16(select((f32(k) <= 28), (exp2(f32(k)) * f32(v)), inf))")
      << "numbers of f16 are small enough";
}

TEST(FactorExponential, SidesAreSharedWhereTheyStandBefore) {
  Nest nest = exponential_sums();
  for (const char* sum : {"mean", "total"}) nest = rule("factor_exponential").apply(nest, {sum}).nest;
  validate(nest);
  EXPECT_EQ(nest.statement("total_product_sum").reads.at(1).tensor, "total_right") << "the other sum's is written later";
  Nest written = factored(exponential_sums());
  EXPECT_EQ(written.find_statement("mean_right_1"), nullptr);
  // What w holds when the second sum begins is something else.
  Nest changed = exponential_sums();
  changed.tensors[2].role = TensorRole::temporary;
  const auto fill = [&](const char* name, double value) {
    Statement statement = NestBuilder("fill", {{"B", 2}, {"N", 512}, {"C", 256}})
                              .tensor("w", TensorRole::temporary, {"N", "N"})
                              .statement(std::string(name) + "[i, j] : 0 <= i < N and 0 <= j < N", "w[i, j]", {}, number(value))
                              .build()
                              .statements.front();
    return statement;
  };
  insert_statement(changed, 0, fill("first", 1));
  insert_statement(changed, position_of(changed, "mean_init"), fill("second", 2));
  validate(changed);
  changed = factored(changed);
  validate(changed);
  EXPECT_NE(changed.find_statement("mean_right_1"), nullptr);
}

TEST(FactorExponential, AddendsGoToTheSideThatFollowsTheirDims) {
  const auto text_of = [](const std::function<void(Statement&)>& change, const std::string& name) {
    Nest nest = exponential_sums();
    Statement statement = nest.statement("total");
    change(statement);
    replace_statement(nest, statement);
    if (matches(nest) != 2) return std::string("no match");
    nest = rule("factor_exponential").apply(nest, {"total"}).nest;
    validate(nest);
    return value_text(nest, name);
  };
  const auto exponent = [](const ScalarExpr& value) {
    return [value](Statement& sum) {
      sum.reads.push_back({"w", parse_map("[B, N, C] -> { total[b, i, c, j] -> w[i, 0] }", "test")});
      sum.value = ScalarExpr::make(ScalarOp::exp, {value});
    };
  };
  const ScalarExpr k = ScalarExpr::cast(ElementType::f32, read(0, ElementType::bf16)), w = read(1), row = read(2);
  const auto negative = [](const ScalarExpr& value) { return ScalarExpr::make(ScalarOp::neg, {value}); };
  EXPECT_EQ(text_of(exponent(w + k), "total_right_1"), "bf16(select((w <= 20), exp(w), inf))");
  EXPECT_EQ(text_of(exponent(k - w), "total_right_1"), "bf16(select((-w <= 20), exp(-w), inf))");
  EXPECT_EQ(text_of(exponent((k + w) - row), "total_right_1"), "bf16(select(((w - w) <= 20), exp((w - w)), inf))");
  EXPECT_EQ(text_of(exponent(number(0.5) * (k - (w - row))), "total_right_1"),
            "bf16(select(((0.5 * -(w - w)) <= 20), exp((0.5 * -(w - w))), inf))");
  EXPECT_EQ(text_of(exponent(negative(w + k)), "total_left_1"), "bf16(select((-f32(k) <= 20), exp(-f32(k)), inf))");
  EXPECT_EQ(text_of(exponent((k + w) + (row + row)), "total_left_1"), "no match") << "more than two addends of a side";
  EXPECT_EQ(text_of(exponent(k * w), "total_left_1"), "no match");
}

TEST(FactorExponential, OtherSumsStayAsTheyAre) {
  EXPECT_EQ(matches(exponential_sums()), 2U);
  EXPECT_EQ(matches(exponential_sums(ElementType::f32)), 0U) << "no input of 16 bits";
  EXPECT_EQ(matches(exponential_sums(ElementType::bf16, ScalarOp::tanh)), 0U);
  EXPECT_EQ(matches(exponential_sums(ElementType::bf16, ScalarOp::exp, ElementType::f32, " and j <= i")), 0U) << "rows of terms";
  EXPECT_EQ(with("total_init", [](Statement& init) { init.value = number(1); }), 1U) << "it starts from 1";
  EXPECT_EQ(with("total", [](Statement& sum) { sum.reduction = ReductionOp::max; }), 1U) << "no sum";
  EXPECT_EQ(with("mean", [](Statement& sum) { sum.value = sum.value + number(1); }), 1U) << "no product";
  EXPECT_EQ(
      with("total",
           [](Statement& sum) { sum.reads[1].relation = parse_map("[B, N, C] -> { total[b, i, c, j] -> w[0, j] }", "test"); }),
      1U)
      << "one side for all rows";
  EXPECT_EQ(
      with("total",
           [](Statement& sum) { sum.reads[0].relation = parse_map("[B, N, C] -> { total[b, i, c, j] -> k[b, 0, c] }", "test"); }),
      1U)
      << "one side is the same for all terms";
  EXPECT_EQ(
      with("mean",
           [](Statement& sum) { sum.reads[2].relation = parse_map("[B, N, C] -> { mean[b, i, c, j] -> v[b, i, c] }", "test"); }),
      1U)
      << "a factor of both sides' dims";
  Nest apart = exponential_sums();
  apart.tensors[0].role = TensorRole::output;
  EXPECT_EQ(matches(apart), 1U) << "total has no input of 16 bits any more";
}

/// Results of the definition and of the rewritten nest at inputs.
void expect_same(const Nest& before, const Nest& after, const Memory& inputs, const Sizes& sizes, double tolerance) {
  Memory expected = inputs, actual = inputs;
  Interpreter(before, sizes).run(expected);
  Interpreter(after, sizes).run(actual);
  for (const char* tensor : {"total", "mean"}) {
    for (const auto& [index, value] : expected.at(tensor)) {
      const double got = actual.at(tensor).at(index), scale = expected.at("total").at(index);
      if (std::isfinite(value) && std::isfinite(scale)) {
        EXPECT_LE(std::fabs(got - value), tolerance * (tensor == std::string("total") ? scale : 8 * scale))
            << tensor << " " << index[0] << ", " << index[1] << ", " << index[2] << ": " << got << " " << value;
      } else {
        EXPECT_TRUE(std::isnan(value) ? std::isnan(got) : got == value)
            << tensor << " " << index[0] << ", " << index[1] << ", " << index[2] << ": " << got << " " << value;
      }
    }
  }
}

TEST(FactorExponential, ATriangleOfResultsSharesTablesOfAllRowsAndColumns) {
  const auto sums_where = [](const std::string& part) {
    return exponential_sums(ElementType::bf16, ScalarOp::exp, ElementType::f32, "", part);
  };
  const Nest triangle = sums_where(" and c <= i");
  ASSERT_EQ(matches(triangle), 2U);
  const Nest nest = factored(triangle);
  validate(nest);
  EXPECT_EQ(nest.find_statement("mean_right_1"), nullptr) << "one table of w for both sums";
  for (const std::int64_t rows : {7, 4}) {
    const Sizes sizes{{"B", 2}, {"N", rows}, {"C", 5}};
    expect_same(triangle, nest, Interpreter::random_inputs(triangle, sizes, 3), sizes, 3 * 0x1p-16);
  }
  EXPECT_EQ(matches(sums_where(" and c <= b")), 0U) << "the table of k would be a triangle itself";
}

TEST(FactorExponential, SumsAreOffByTheRestsOfHalves) {
  for (const ScalarOp op : {ScalarOp::exp, ScalarOp::exp2}) {
    const Nest nest = exponential_sums(ElementType::bf16, op);
    const Sizes sizes{{"B", 2}, {"N", 7}, {"C", 5}};
    expect_same(nest, factored(nest), Interpreter::random_inputs(nest, sizes, 3), sizes, 3 * 0x1p-16);
  }
}

/// Rows and columns whose terms have no room, alone or beside others: each kind of row meets each kind of column.
TEST(FactorExponential, TermsWithoutRoomAndInfinitiesAreAsDefined) {
  const std::vector<double> specials{kInfinity, -kInfinity, kNaN, 0, 100, -100, 19.9, 20.1, -60, 60, -1e30, 1e30, -3.4e38};
  const auto kinds = static_cast<std::int64_t>(specials.size()), terms = 2 * kinds;
  for (const auto& [op, rare] : {std::pair(ScalarOp::exp, 0), std::pair(ScalarOp::exp2, 1), std::pair(ScalarOp::exp, 2)}) {
    const Nest nest = exponential_sums(ElementType::bf16, op);
    const Sizes sizes{{"B", 1}, {"N", terms}, {"C", terms}};
    Memory inputs;
    for (std::int64_t n = 0; n < terms; ++n) {
      for (std::int64_t j = 0; j < terms; ++j) {
        const double special = specials[static_cast<std::size_t>(n / 2)], usual = std::sin(static_cast<double>(3 * n + j));
        const bool all = n % 2 == 0, one = j == 2 + rare;
        inputs["w"][{n, j}] = all || one ? special : usual;
        inputs["k"][{0, j, n}] = all || one ? special : -usual;
        inputs["v"][{0, j, n}] = rare == 2 && (all || one) ? special : 1 + usual;
      }
    }
    expect_same(nest, factored(nest), inputs, sizes, 3 * 0x1p-16);
  }
}

/// Maxima of a row and of a column that no term has together: products of exponentials underflow where their sums do not.
TEST(FactorExponential, RowsThatLoseTheirTermsTakeTheDirectSum) {
  const Nest nest = exponential_sums();
  const Sizes sizes{{"B", 1}, {"N", 2}, {"C", 1}};
  Memory inputs;
  for (std::int64_t j = 0; j < 2; ++j) {
    for (std::int64_t i = 0; i < 2; ++i) inputs["w"][{i, j}] = j == 0 ? 10 : -80;
    inputs["k"][{0, j, 0}] = j == 0 ? -80 : 10;
    inputs["v"][{0, j, 0}] = 1 + static_cast<double>(j);
  }
  Memory memory = inputs;
  Interpreter(factored(nest), sizes).run(memory);
  EXPECT_NEAR(memory.at("out").at({0, 0, 0}), 1.5, 1e-9);
}

}  // namespace
}  // namespace nestor
