// Rule bf16x6: which sums it takes, what it makes of them, how exact that is, and that infinities and NaN stay where they are.
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

Nest in_parts(const Nest& nest) { return rule("bf16x6").apply(nest, {"sum"}).nest; }

std::size_t matches(const Nest& nest) { return rule("bf16x6").find(nest).size(); }

TEST(Bf16x6, AProductIsSixOfPartsInChunksOfTerms) {
  const Nest nest = in_parts(f32_product());
  validate(nest);
  EXPECT_THAT(statement_names(nest),
              ElementsAre("x_high", "x_middle", "x_low", "y_high", "y_middle", "y_low", "sums_chunks_init", "sums_chunks_sum",
                          "sums_chunks_sum_2", "sums_chunks_sum_3", "sums_chunks_sum_4", "sums_chunks_sum_5", "sums_chunks_sum_6",
                          "sums_product_init", "sums_product_sum", "init", "sum", "sums_kept_copied", "out"));
  for (const char* part : {"x_high", "x_middle", "x_low", "y_low"}) EXPECT_EQ(nest.tensor(part).type, ElementType::bf16);
  EXPECT_THAT(nest.statement("sums_chunks_sum").dims, ElementsAre("i", "j", "k_chunk", "k"));
  EXPECT_THAT(nest.statement("sums_product_sum").dims, ElementsAre("i", "j", "k_chunk"));
  EXPECT_EQ(nest.statement("sums_chunks_sum").reads[0].tensor, "x_middle") << "small terms first";
  EXPECT_EQ(nest.statement("sums_chunks_sum_6").reads[1].tensor, "y_high");
  EXPECT_EQ(matches(nest), 0U) << "once";
  const Nest of_one = in_parts(with_statement(f32_product(), "sum", [](Statement& sum) {
    sum.reads[1] = {"x", parse_map("[M, N, K] -> { sum[i, j, k] -> x[j, k] }", "test")};
  }));
  EXPECT_EQ(of_one.find_statement("y_high"), nullptr) << "parts of one tensor serve both operands";
  EXPECT_EQ(of_one.statement("sums_chunks_sum_2").reads[1].tensor, "x_low");
}

TEST(Bf16x6, OtherSumsStayAsTheyAre) {
  EXPECT_EQ(matches(f32_product()), 1U);
  EXPECT_EQ(matches(squared_distances(ElementType::f32)), 0U) << "no product";
  EXPECT_EQ(matches(matmul()), 0U) << "its result is no temporary";
  EXPECT_EQ(matches(f32_product({}, " and k <= i")), 1U) << "rows of other lengths";
  EXPECT_EQ(matches(f32_product({}, " and k + 1 <= i")), 0U) << "a row without terms";
  const auto with = [&](const std::string& name, const std::function<void(Statement&)>& change) {
    return matches(with_statement(f32_product(), name, change));
  };
  EXPECT_EQ(with("init", [](Statement& init) { init.value = number(1); }), 0U) << "it starts from 1";
  EXPECT_EQ(with("sum", [](Statement& sum) { sum.reduction = ReductionOp::max; }), 0U) << "no sum";
  EXPECT_EQ(with("sum", [](Statement& sum) { sum.value = read(0) * read(0); }), 0U) << "a square";
  EXPECT_EQ(with("sum", [](Statement& sum) { sum.value = read(0) + read(1); }), 0U);
  const auto reading = [&](const char* access) {
    return with("sum", [&](Statement& sum) { sum.reads[1].relation = parse_map(access, "test"); });
  };
  EXPECT_EQ(reading("[M, N, K] -> { sum[i, j, k] -> y[j, 0] }"), 0U) << "one operand is the same for all terms";
  EXPECT_EQ(reading("[M, N, K] -> { sum[i, j, k] -> y[i, k] }"), 0U) << "no columns";
  EXPECT_THROW(rule("bf16x6").apply(f32_product(), {"out"}), std::exception);
  const std::string pair = "0 <= i < M and 0 <= j < M";
  const Nest diagonal = NestBuilder("diagonal", {{"M", 2048}, {"K", 2048}})
                            .tensor("x", TensorRole::input, {"M", "K"})
                            .tensor("sums", TensorRole::temporary, {"M", "M", "M"})
                            .tensor("out", TensorRole::output, {"M", "M"})
                            .statement("init[i, j] : " + pair, "sums[i, i, j]", {}, number(0))
                            .statement("sum[i, j, k] : " + pair + " and 0 <= k < K", "sums[i, i, j]", {"x[i, k]", "x[j, k]"},
                                       read(0) * read(1), ReductionOp::add)
                            .statement("out[i, j] : " + pair, "out[i, j]", {"sums[i, i, j]"}, read(0))
                            .build();
  EXPECT_EQ(matches(diagonal), 0U) << "two indices are one dim";
}

/// Rows of one special value, or of one among ordinary ones, against each other; and values that bf16 does not hold.
TEST(Bf16x6, ResultsAreThoseOfF32) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> specials{kInfinity,  -kInfinity, kNaN,  0,      -0.0,           1,
                                     3.14159274, 1e-30,      -1e30, 3.4e38, 0x1.fffffep127, 16777213};
  const auto count = static_cast<std::int64_t>(2 * specials.size());
  for (const char* mask : {"", " and k <= i + 1"}) {
    const Nest before = f32_product({}, mask), after = in_parts(before);
    const Sizes sizes{{"M", count}, {"N", count}, {"K", 67}};
    Memory expected;
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t k = 0; k < 67; ++k) {
        const double special = specials[static_cast<std::size_t>(row / 2)];
        const double value = row % 2 == 0 || k == 1 ? special : static_cast<double>(static_cast<float>(0.37 * (row + k) - 4));
        expected["x"][{row, k}] = expected["y"][{row, k}] = static_cast<double>(static_cast<float>(value));
      }
    }
    Memory actual = expected;
    Interpreter(before, sizes).run(expected);
    Interpreter(after, sizes).run(actual);
    for (const auto& [index, value] : expected.at("out")) {
      const double got = actual.at("out").at(index);
      if (std::isfinite(value)) {
        double terms = 0;
        for (std::int64_t k = 0; k < 67; ++k)
          terms += std::fabs(expected.at("x").at({index[0], k}) * expected.at("y").at({index[1], k}));
        EXPECT_LE(std::fabs(got - value), 0x1p-23 * terms) << index[0] << ", " << index[1];
      } else {
        EXPECT_TRUE(std::isnan(value) ? std::isnan(got) : got == value) << index[0] << ", " << index[1] << ": " << got;
      }
    }
  }
}

}  // namespace
}  // namespace nestor
