// Rule masked_product: which sums it takes, what it makes of them, and that infinities and NaN stay where they are.
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

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

Nest masked(const Nest& nest) { return rule("masked_product").apply(nest, {"sum"}).nest; }

std::size_t matches(const Nest& nest) { return rule("masked_product").find(nest).size(); }

TEST(MaskedProduct, TheFactorThatTheConditionGoesWithIsMasked) {
  const Nest nest = masked(adapted_products());
  validate(nest);
  EXPECT_THAT(statement_names(nest),
              ElementsAre("sums_product_init", "sums_product_sum", "init", "sum", "sums_kept_copied", "out"));
  const Statement& product = nest.statement("sums_product_sum");
  EXPECT_THAT(product.dims, ElementsAre("t", "o", "a", "r"));
  ASSERT_EQ(product.value.op(), ScalarOp::mul);
  EXPECT_EQ(product.value.args()[0].op(), ScalarOp::select);
  EXPECT_EQ(product.value.args()[1].op(), ScalarOp::cast) << "of what the condition has nothing to do with";
  EXPECT_EQ(nest.statement("sum").dims.size(), 3U) << "one dim of terms for two";
  EXPECT_EQ(matches(nest), 0U) << "once";
  EXPECT_EQ(masked(adapted_products(ElementType::f16, "1")).statement("sum").dims.size(), 3U);
}

TEST(MaskedProduct, OtherSumsStayAsTheyAre) {
  EXPECT_EQ(matches(adapted_products()), 1U);
  const auto with = [&](const std::function<void(Statement&)>& change) {
    return matches(with_statement(adapted_products(), "sum", change));
  };
  const auto read_at = [](int read, const char* relation) {
    return [=](Statement& sum) { sum.reads[static_cast<std::size_t>(read)].relation = parse_map(relation, "test"); };
  };
  EXPECT_EQ(with([](Statement& sum) { sum.value = sum.value.args()[1]; }), 0U) << "nothing is hidden";
  EXPECT_EQ(with([](Statement& sum) {
              sum.value = ScalarExpr::make(ScalarOp::select, {sum.value.args()[0], sum.value.args()[1], number(1)});
            }),
            0U)
      << "what is hidden is not 0";
  EXPECT_EQ(with([](Statement& sum) { sum.reduction = ReductionOp::max; }), 0U) << "no sum";
  EXPECT_EQ(with(read_at(2, "[T, O, A] -> { sum[t, o, a, r] -> up[a, 0, r] }")), 0U) << "no columns";
  EXPECT_EQ(matches(with_statement(adapted_products(), "init", [](Statement& init) { init.value = number(1); })), 0U);
  Nest free = adapted_products(ElementType::bf16, "A");
  EXPECT_EQ(matches(free), 0U) << "the inner one of two dims of terms has no known length";
}

TEST(MaskedProduct, InfinitiesAndNaNStayWhereTheyAre) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  const Nest before = adapted_products(), after = masked(before);
  const Sizes sizes{{"T", 6}, {"O", 5}, {"A", 3}};
  int hidden = 0;
  for (const double special : {kInfinity, -kInfinity, kNaN, 0.0}) {
    Memory expected;
    for (std::int64_t t = 0; t < 6; ++t) {
      expected["user"][{t}] = static_cast<double>(t % 4);  // 3 is nobody
      for (std::int64_t r = 0; r < 4; ++r) expected["low"][{t, r}] = static_cast<double>(t - r);
    }
    for (std::int64_t a = 0; a < 3; ++a) {
      for (std::int64_t o = 0; o < 5; ++o) {
        for (std::int64_t r = 0; r < 4; ++r)
          expected["up"][{a, o, r}] = a == 1 && o == 2 && r == 3 ? special : static_cast<double>(a + o * r);
      }
    }
    Memory actual = expected;
    Interpreter(before, sizes).run(expected);
    Interpreter(after, sizes).run(actual);
    for (const auto& [index, value] : expected.at("out")) {
      const double got = actual.at("out").at(index);
      EXPECT_TRUE(std::isnan(value) ? std::isnan(got) : got == value)
          << index[0] << ", " << index[1] << ": " << got << ", not " << value;
      hidden += std::isfinite(value) && index[1] == 2 && !std::isfinite(special) ? 1 : 0;
    }
  }
  EXPECT_EQ(hidden, 12) << "tokens of others, or of nobody, do not see what one user's matrix has";
}

}  // namespace
}  // namespace nestor
