// Rule bf16x3: which sums it takes, what it makes of them, how exact that is, and that infinities and NaN stay where they are.
#include "poly/algebra/all_rules.h"
#include "support/nests/chained_products.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/operand_nests.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/tensor_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

std::size_t matches(const Nest& nest) { return rule("bf16x3").find(nest).size(); }

/// f32_product with y of another type; `turned`: y is the first factor.
Nest mixed_product(ElementType type = ElementType::f16, bool turned = false) {
  Nest nest = with_statement(f32_product(), "sum", [&](Statement& sum) {
    const ScalarExpr y = ScalarExpr::cast(ElementType::f32, read(1, type));
    sum.value = turned ? y * read(0) : read(0) * y;
  });
  for (Tensor& tensor : nest.tensors) {
    if (tensor.name == "y") tensor.type = type;
  }
  validate(nest);
  return nest;
}

Nest in_parts(const Nest& nest) { return rule("bf16x3").apply(nest, {"sum"}).nest; }

TEST(Bf16x3, AProductIsThreeOfParts) {
  for (const bool turned : {false, true}) {
    const Nest nest = in_parts(mixed_product(ElementType::f16, turned));
    validate(nest);
    EXPECT_THAT(statement_names(nest), ElementsAre("x_high", "x_low", "y_high", "y_low", "init", "sum", "out"));
    for (const char* part : {"x_high", "x_low", "y_high", "y_low"}) EXPECT_EQ(nest.tensor(part).type, ElementType::bf16);
    const Statement& sum = nest.statement("sum");
    std::string factors;
    sum.value.visit([&](const ScalarExpr& node) {
      if (node.op() == ScalarOp::read) factors += " " + sum.reads[static_cast<std::size_t>(node.ordinal())].tensor;
    });
    EXPECT_EQ(factors, " x_low y_high x_high y_low x_high y_high") << "small terms first";
    EXPECT_EQ(matches(nest), 0U) << "once";
  }
}

TEST(Bf16x3, OtherSumsStayAsTheyAre) {
  EXPECT_EQ(matches(mixed_product()), 1U);
  EXPECT_EQ(matches(mixed_product(ElementType::bf16)), 0U) << "bf16 has the exponents of f32: f32 in halves does";
  EXPECT_EQ(matches(f32_product()), 0U);
  EXPECT_EQ(matches(matmul()), 0U);
  EXPECT_EQ(matches(linear_attention()), 1U);
  EXPECT_EQ(matches(linear_attention(ElementType::bf16)), 0U);
  EXPECT_EQ(matches(testing::attention_nest({.result = ElementType::f32})), 0U) << "f16 has the largest weight of a softmax";
  const Nest few = with_statement(mixed_product(), "sum", [](Statement& sum) {
    sum.domain = sum.domain.intersect(parse_set("[M, N, K] -> { sum[i, j, k] : j < 64 }", "test"));
  });
  EXPECT_EQ(matches(few), 0U) << "elements of x are multiplied 64 times each";
}

TEST(Bf16x3, LongSumsAreOperandsInPartsBesideBf16) {
  const Nest before = long_chain(), nest = in_parts(before);
  EXPECT_EQ(matches(before), 1U);
  validate(nest);
  EXPECT_THAT(statement_names(nest), ElementsAre("t_init", "t", "t_high", "t_low", "y_high", "y_low", "init", "sum", "out"));
  EXPECT_EQ(differences(before, nest, {{"N", 2}, {"I", 3}, {"J", 3}, {"K", 2}}, 400), 0);
  EXPECT_EQ(matches(long_chain(ElementType::bf16, false, "512")), 0U) << "short sums stay in registers";
  Nest named = with_statement(before, "sum",
                              [](Statement& sum) { sum.reads[0] = {"named", sum.reads[0].relation.set_range_tuple("named")}; });
  Tensor copy = named.tensor("t");
  copy.name = "named";
  named.tensors.push_back(copy);
  isl::map to_sum;
  Statement store = element_statement(named, named.statement("t"), "named", to_sum);
  store.reads = {{"t", store.write.relation.set_range_tuple("t")}};
  store.value = read(0);
  store.write.relation = store.write.relation.set_range_tuple("named");
  store.write.tensor = "named";
  insert_statement(named, group_end(named, "t"), store);
  validate(named);
  EXPECT_EQ(matches(named), 0U) << "what has a name may be rounded to 16 bits";
}

/// Rows of one special value, or of one among ordinary ones.
double special_value(const std::vector<double>& specials, std::int64_t row, std::int64_t k, double ordinary) {
  return row % 2 == 0 || k == 1 ? specials[static_cast<std::size_t>(row / 2)] : ordinary;
}

TEST(Bf16x3, ResultsAreThoseOfF32) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> wide{kInfinity,      -kInfinity,     kNaN,           0,        -0.0, 1, 0x1.921fb6p1,
                                 0x1.fffffep-40, -0x1.abcdep100, 0x1.fffffep127, -0x1p-126},
      half{kInfinity, -kInfinity, kNaN, 0, -0.0, 1, 0x1.004p0, 0x1.ffcp-3, -65504, 0x1p-24, 0x1.ffcp-14};
  const auto count = static_cast<std::int64_t>(2 * wide.size());
  const Nest before = mixed_product(), after = in_parts(before);
  const Sizes sizes{{"M", count}, {"N", count}, {"K", 67}};
  samples::Memory expected;
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t k = 0; k < 67; ++k) {
      expected["x"][{row, k}] =
          special_value(wide, row, k, static_cast<double>(static_cast<float>(0.37 * static_cast<double>(row + k) - 4)));
      expected["y"][{row, k}] =
          special_value(half, row, k, std::ldexp(static_cast<double>((row * 31 + k * 17) % 4095 - 2047), -11));
    }
  }
  samples::Memory actual = expected;
  Interpreter(before, sizes).run(expected);
  Interpreter(after, sizes).run(actual);
  for (const auto& [index, value] : expected.at("out")) {
    double terms = 0, columns = 0;
    for (std::int64_t k = 0; k < 67; ++k) {
      const double y = expected.at("y").at({index[1], k});
      terms += std::fabs(expected.at("x").at({index[0], k}) * y);
      columns += std::fabs(y);
    }
    const double got = actual.at("out").at(index);
    if (std::isfinite(terms) && terms >= 0x1p127) continue;  // docs/values.md, range
    if (std::isfinite(value)) {
      EXPECT_LE(std::fabs(got - value), 0x1p-15 * terms + 0x1p-134 * columns) << ::testing::PrintToString(index);
    } else {
      EXPECT_TRUE(std::isnan(value) ? std::isnan(got) : got == value) << ::testing::PrintToString(index) << ": " << got;
    }
  }
}

TEST(Bf16x3, NumbersOfF16AreTwoOfBf16Exactly) {
  const Nest nest = in_parts(mixed_product());
  samples::Memory memory;
  memory["x"][{0, 0}] = 1;
  constexpr std::int64_t kDigits = 2048;
  for (std::int64_t row = 0; row < kDigits; ++row) memory["y"][{row, 0}] = static_cast<double>(row);
  for (const int exponent : {0, -24, 5}) {
    for (auto& [index, y] : memory["y"]) y = std::ldexp(static_cast<double>(index[0]), exponent);
    Interpreter(nest, {{"M", 1}, {"N", kDigits}, {"K", 1}}).run(memory);
    for (const auto& [index, y] : memory["y"]) ASSERT_EQ(memory["y_high"].at(index) + memory["y_low"].at(index), y);
  }
}

}  // namespace
}  // namespace nestor
