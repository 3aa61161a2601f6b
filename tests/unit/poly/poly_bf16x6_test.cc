// Rule bf16x6: which sums it takes, what it makes of them, how exact that is, and that infinities and NaN stay where they are.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/element_codec.h"
#include "support/nests/apply_steps.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/operand_nests.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/tensor_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

Nest in_parts(const Nest& nest, const std::string& sum = "sum") { return rule("bf16x6").apply(nest, {sum}).nest; }

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

Nest f32_attention(testing::Seen seen = testing::Seen::all) {
  return testing::attention_nest({.seen = seen, .type = ElementType::f32, .result = ElementType::f32});
}

TEST(Bf16x6, ShortSumsAndThoseOfWhatComesFromProductsStayInPlace) {
  const Nest before = f32_attention();
  EXPECT_EQ(rule("bf16x6").find(before).size(), 2U);
  const Schedule schedule =
      testing::scheduled(before, {"apply_rule(online, largest)", "apply_rule(bf16x6, dot)", "apply_rule(bf16x6, weighted)"});
  const Nest& nest = schedule.nest();
  validate(nest);
  EXPECT_THAT(statement_names(nest),
              ElementsAre("q_high", "q_middle", "q_low", "k_high", "k_middle", "k_low", "dot_init", "dot", "score",
                          "largest_init", "largest", "power", "power_high", "power_middle", "power_low", "v_high", "v_middle",
                          "v_low", "weighted_init", "weighted", "total_init", "total", "out"));
  EXPECT_EQ(nest.statement("weighted").reads.size(), 6U);
  EXPECT_EQ(nest.statement("weighted").reads[0].tensor, "power_middle") << "small terms first";
  EXPECT_EQ(rule("bf16x6").find(nest).size(), 0U) << "once";
  // What is known to be at most 1 has no choices, which would decide by the leading value.
  EXPECT_EQ(nest.statement("power_middle").value.args()[0].op(), ScalarOp::sub);
  ASSERT_EQ(schedule.composites().size(), 1U);
  EXPECT_THAT(schedule.composites()[0].mediators, ElementsAre("power", "power_high", "power_middle", "power_low"));
  EXPECT_EQ(schedule.composites()[0].followers.size(), 2U);
  // Weights that may be infinite have choices.
  const Nest open =
      in_parts(with_statement(before, "power",
                              [](Statement& power) { power.value = ScalarExpr::make(ScalarOp::exp, {read(0) + read(1)}); }),
               "weighted");
  EXPECT_EQ(open.statement("power_middle").value.args()[0].op(), ScalarOp::select);
}

/// out[i, l] = sum over j of h[i, j] times columns[l, j], h[i, j] = |sum over k < K of x[i, k] y[j, k]|; `columns` may be h itself.
Nest product_of_product(const std::string& columns, std::int64_t terms) {
  const std::string pair = "0 <= i < M and 0 <= j < M";
  return NestBuilder("product_of_product", {{"M", 2048}, {"K", terms}})
      .tensor("x", TensorRole::input, {"M", "K"})
      .tensor("y", TensorRole::input, {"M", "K"})
      .tensor("z", TensorRole::input, {"M", "M"})
      .tensor("first", TensorRole::temporary, {"M", "M"})
      .tensor("h", TensorRole::temporary, {"M", "M"})
      .tensor("sums", TensorRole::temporary, {"M", "M"})
      .tensor("out", TensorRole::output, {"M", "M"})
      .statement("first_init[i, j] : " + pair, "first[i, j]", {}, number(0))
      .statement("first[i, j, k] : " + pair + " and 0 <= k < K", "first[i, j]", {"x[i, k]", "y[j, k]"}, read(0) * read(1),
                 ReductionOp::add)
      .statement("h[i, j] : " + pair, "h[i, j]", {"first[i, j]"}, apply(ScalarOp::abs, read(0)))
      .statement("init[i, l] : 0 <= i < M and 0 <= l < M", "sums[i, l]", {}, number(0))
      .statement("sum[i, l, j] : 0 <= l < M and " + pair, "sums[i, l]", {"h[i, j]", columns + "[l, j]"}, read(0) * read(1),
                 ReductionOp::add)
      .statement("out[i, l] : 0 <= i < M and 0 <= l < M", "out[i, l]", {"sums[i, l]"}, read(0))
      .build();
}

TEST(Bf16x6, PartsOfWhatComesFromLongSumsOrIsRowsAndColumnsAreInChunks) {
  const auto chunks = [](const Nest& nest) { return in_parts(nest).find_statement("sums_chunks_sum") != nullptr; };
  EXPECT_FALSE(chunks(product_of_product("z", 512)));
  EXPECT_TRUE(chunks(product_of_product("z", 513))) << "no kernel has whole rows of it";
  EXPECT_TRUE(chunks(product_of_product("h", 64))) << "rows and columns of one product";
  EXPECT_TRUE(chunks(in_parts(product_of_product("z", 512), "first"))) << "its first sum is in chunks itself";
  for (const char* columns : {"z", "h"}) {
    const Nest before = product_of_product(columns, 64), after = in_parts(before);
    validate(after);
    EXPECT_EQ(differences(before, after, {{"M", 3}, {"K", 2}}, 20), 0) << columns;
  }
}

std::size_t count_of(const Nest& nest, const std::string& start) {
  return static_cast<std::size_t>(std::count_if(nest.statements.begin(), nest.statements.end(), [&](const Statement& statement) {
    return statement.name.starts_with(start + "_high") || statement.name.starts_with(start + "_middle") ||
           statement.name.starts_with(start + "_low");
  }));
}

TEST(Bf16x6, ProductsShareThePartsOfAMatrixThatIsComplete) {
  const Nest nest = in_parts(in_parts(in_parts(f32_chain(), "square"), "half"), "sums");
  validate(nest);
  EXPECT_EQ(count_of(nest, "square"), 3U);
  EXPECT_EQ(nest.statement("half_chunks_sum").reads[1].tensor, "square_middle");
  EXPECT_EQ(nest.statement("sums_chunks_sum").reads[1].tensor, "square_middle");
  EXPECT_EQ(differences(f32_chain(), nest, {{"M", 5}}, 20), 0);
  // Fewer elements than the second product reads: they are made again.
  const auto partial = [](const std::string& first, const std::string& second) {
    Nest changed = f32_chain();
    for (const auto& [name, mask] : {std::pair{"half", first}, std::pair{"sums", second}}) {
      changed = with_statement(changed, name, [&](Statement& sum) {
        sum.domain = sum.domain.intersect(parse_set(fmt::format("[M] -> {{ {}[i, j, k] : {} }}", name, mask), "test"));
      });
    }
    return in_parts(in_parts(changed, "half"), "sums");
  };
  EXPECT_EQ(count_of(partial("k <= j", "k <= j"), "square"), 3U);
  EXPECT_EQ(count_of(partial("k <= M", "k <= j"), "square"), 3U) << "all serve some";
  const Nest more = partial("k <= j", "k <= M");
  EXPECT_EQ(count_of(more, "square"), 6U) << "some serve not all";
  EXPECT_EQ(more.statement("sums_chunks_sum").reads[1].tensor, "square_middle_2");
  EXPECT_EQ(differences(more, partial("k <= j", "k <= M"), {{"M", 4}}, 1), 0);
}

/// A copy that looks like parts of an operand, but is made before the operand is complete, is none.
TEST(Bf16x6, PartsOfWhatChangesLaterAreMadeAgain) {
  Nest nest = in_parts(in_parts(f32_chain(), "half"), "sums");
  ASSERT_EQ(count_of(nest, "square"), 3U);
  Nest early = in_parts(f32_chain(), "half");
  Statement change = early.statement("square_init");
  change.name = "change";
  change.domain = parse_set("[M] -> { change[i, j] : 0 <= i < M and 0 <= j < M }", "test");
  change.write = {"square", parse_map("[M] -> { change[i, j] -> square[i, j] }", "test")};
  change.value = number(2);
  insert_statement(early, group_end(early, "half_kept_copied"), change);
  validate(early);
  const Nest again = in_parts(early, "sums");
  EXPECT_EQ(count_of(again, "square"), 6U);
  EXPECT_EQ(differences(early, again, {{"M", 4}}, 20), 0);
}

/// Few results of many terms can be cut into parts then.
TEST(Bf16x6, TallSumsStayInPlace) {
  const auto chunks = [](std::int64_t rows, std::int64_t terms) {
    Nest nest = f32_product();
    for (SizeParam& size : nest.sizes) size.default_value = size.name == "K" ? terms : rows;
    return in_parts(nest).find_statement("sums_chunks_sum") != nullptr;
  };
  EXPECT_FALSE(chunks(256, 8192));
  EXPECT_TRUE(chunks(257, 8192)) << "more results";
  EXPECT_TRUE(chunks(256, 8191)) << "fewer terms";
}

TEST(Bf16x6, TermsOfSeveralDimsStayInPlace) {
  const Nest before = f32_taps(), after = in_parts(before);
  validate(after);
  EXPECT_EQ(after.find_statement("sums_chunks_sum"), nullptr);
  EXPECT_EQ(after.statement("sum").dims, before.statement("sum").dims);
  EXPECT_EQ(after.statement("sum").reads.size(), 6U);
  EXPECT_EQ(differences(before, after, {{"M", 4}, {"N", 3}, {"K", 5}}, 20), 0);
  EXPECT_EQ(matches(f32_taps("l + 1")), 0U) << "terms below 0";
  const auto deep = [](std::int64_t terms) {
    Nest nest = f32_taps();
    nest.sizes.back().default_value = terms;
    return matches(nest);
  };
  EXPECT_EQ(deep(16), 1U);
  EXPECT_EQ(deep(15), 0U) << "few terms along the innermost dim";
}

/// Rows of one special value, or of one among ordinary ones, against each other; and values that bf16 does not hold.
const std::vector<double>& special_values() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  static const std::vector<double> kValues{kInfinity,  -kInfinity, kNaN,  0,      -0.0,           1,
                                           3.14159274, 1e-30,      -1e30, 3.4e38, 0x1.fffffep127, 16777213};
  return kValues;
}

double special_value(std::int64_t row, std::int64_t k) {
  const double special = special_values()[static_cast<std::size_t>(row / 2)];
  const double value = row % 2 == 0 || k == 1 ? special : static_cast<double>(static_cast<float>(0.37 * (row + k) - 4));
  return static_cast<double>(static_cast<float>(value));
}

/// The sum at `index` beside the definition's, `magnitude` being the sum of the magnitudes of its terms. Those of finite numbers that overflow
/// are not compared (docs/values.md, range).
void expect_same(double got, double value, double magnitude, const std::vector<std::int64_t>& index) {
  if (std::isfinite(magnitude) && magnitude >= 0x1p127) return;
  if (std::isfinite(value)) {
    EXPECT_LE(std::fabs(got - value), 0x1p-23 * magnitude) << ::testing::PrintToString(index);
  } else {
    EXPECT_TRUE(std::isnan(value) ? std::isnan(got) : got == value) << ::testing::PrintToString(index) << ": " << got;
  }
}

/// The rule's result beside the definition's, with rows of special values, those of y rounded to its type.
void expect_results_of_f32(const Nest& before, ElementType of_y) {
  const auto count = static_cast<std::int64_t>(2 * special_values().size());
  const Nest after = in_parts(before);
  const Sizes sizes{{"M", count}, {"N", count}, {"K", 67}};
  samples::Memory expected;
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t k = 0; k < 67; ++k) {
      const double value = special_value(row, k);
      expected["x"][{row, k}] = value;
      expected["y"][{row, k}] = of_y == ElementType::f32 ? value : round_to(of_y, value);
    }
  }
  samples::Memory actual = expected;
  Interpreter(before, sizes).run(expected);
  Interpreter(after, sizes).run(actual);
  for (const auto& [index, value] : expected.at("out")) {
    double terms = 0;
    for (std::int64_t k = 0; k < 67; ++k)
      terms += std::fabs(expected.at("x").at({index[0], k}) * expected.at("y").at({index[1], k}));
    expect_same(actual.at("out").at(index), value, terms, index);
  }
}

TEST(Bf16x6, ResultsAreThoseOfF32) {
  for (const char* mask : {"", " and k <= i + 1"}) expect_results_of_f32(f32_product({}, mask), ElementType::f32);
}

Nest product_by_bf16(const std::string& mask = "") {
  Nest nest = with_statement(f32_product({}, mask), "sum", [](Statement& sum) {
    sum.value = read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::bf16));
  });
  for (Tensor& tensor : nest.tensors) {
    if (tensor.name == "y") tensor.type = ElementType::bf16;
  }
  return nest;
}

TEST(Bf16x6, AProductByBf16IsFourOfParts) {
  const Nest nest = in_parts(product_by_bf16());
  validate(nest);
  EXPECT_THAT(statement_names(nest),
              ElementsAre("x_high", "x_middle", "x_low", "y_high", "y_low", "sums_chunks_init", "sums_chunks_sum",
                          "sums_chunks_sum_2", "sums_chunks_sum_3", "sums_chunks_sum_4", "sums_product_init", "sums_product_sum",
                          "init", "sum", "sums_kept_copied", "out"));
  const Nest swapped = with_statement(product_by_bf16(), "sum", [](Statement& sum) {
    sum.value = ScalarExpr::make(ScalarOp::mul, {sum.value.args()[1], sum.value.args()[0]});
  });
  EXPECT_EQ(matches(swapped), 1U);
  const Nest halves = with_statement(product_by_bf16(), "sum", [](Statement& sum) {
    sum.reads[0] = {"y", parse_map("[M, N, K] -> { sum[i, j, k] -> y[i, k] }", "test")};
    sum.value = ScalarExpr::cast(ElementType::f32, read(0, ElementType::bf16)) *
                ScalarExpr::cast(ElementType::f32, read(1, ElementType::bf16));
  });
  EXPECT_EQ(matches(halves), 0U) << "tensor cores take these as they are";
}

TEST(Bf16x6, ResultsByBf16AreThoseOfF32) {
  for (const char* mask : {"", " and k <= i + 1"}) expect_results_of_f32(product_by_bf16(mask), ElementType::bf16);
}

/// Without direct sums: an infinite element has one infinite term.
TEST(Bf16x6, SpecialValuesInPlaceAreThoseOfF32) {
  const auto count = static_cast<std::int64_t>(2 * special_values().size());
  const Nest before = f32_attention();
  const Nest after = in_parts(in_parts(before, "dot"), "weighted");
  const Sizes sizes{{"H", 1}, {"Q", count}, {"K", count}};
  samples::Memory expected;
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t k = 0; k < 64; ++k) {
      for (const char* tensor : {"q", "k"}) expected[tensor][{0, row, k}] = special_value(row, k);
      expected["v"][{0, row, k}] = special_value(row, k);
    }
  }
  samples::Memory actual = expected;
  const std::map<std::string, double> scalars{{"scale", 0.5}};
  Interpreter(before, sizes, scalars).run(expected);
  Interpreter(after, sizes, scalars).run(actual);
  for (const auto& [index, value] : expected.at("dot")) {
    double terms = 0;
    for (std::int64_t e = 0; e < 64; ++e)
      terms += std::fabs(expected.at("q").at({0, index[1], e}) * expected.at("k").at({0, index[2], e}));
    expect_same(actual.at("dot").at(index), value, terms, index);
  }
}

}  // namespace
}  // namespace nestor
