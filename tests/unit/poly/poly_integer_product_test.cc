// Rule integer_product: which sums it takes, and that small, large and wrapping sums are as defined.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/nests/integer_nests.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

std::size_t matches(const Nest& nest) { return rule("integer_product").find(nest).size(); }

std::string value_text(const Nest& nest, const std::string& name) {
  const Statement& s = nest.statement(name);
  return s.value.str([&](int k) { return s.reads.at(static_cast<std::size_t>(k)).tensor; }, [](int) { return "index"; });
}

TEST(IntegerProduct, FactorsAreNumbersOf16BitsAndTheTermsStandBy) {
  const Nest nest = rule("integer_product").apply(integer_products(), {"dot"}).nest;
  validate(nest);
  EXPECT_THAT(statement_names(nest), ElementsAre("dot_left", "dot_right", "dot_product_init", "dot_product_sum", "dot_high_init",
                                                 "dot_high_sum", "dot_low_init", "dot_low_sum", "out"));
  EXPECT_EQ(value_text(nest, "dot_left"), "bf16(select((abs(f32(x)) <= 256), f32(x), inf))");
  EXPECT_EQ(value_text(nest, "out"), "(s * f32(((i32(dot_high) << 16) + i32(dot_low))))");
  EXPECT_EQ(matches(nest), 0U) << "once";
  const Nest of_many = rule("integer_product").apply(integer_products("200"), {"dot"}).nest;
  EXPECT_EQ(value_text(of_many, "dot_left"), "bf16(select((abs(f32(x)) <= 144), f32(x), inf))") << "144^2 200 < 2^22";
}

TEST(IntegerProduct, OtherSumsStayAsTheyAre) {
  EXPECT_EQ(matches(integer_products("256")), 1U);
  EXPECT_EQ(matches(integer_products("257")), 0U) << "factors up to 127 would have sums of more than 22 bits";
  EXPECT_EQ(matches(integer_products("K")), 0U) << "how many terms hangs on a size";
  EXPECT_EQ(matches(integer_products("64", " and j <= i")), 1U) << "a triangle of results, of which each has all terms";
  const auto with = [](const std::function<void(Statement&)>& change) {
    return matches(with_statement(integer_products(), "dot", change));
  };
  EXPECT_EQ(with([](Statement& sum) { sum.reduction = ReductionOp::max; }), 0U);
  EXPECT_EQ(with([](Statement& sum) { sum.value = ScalarExpr::make(ScalarOp::add, {sum.value, sum.value}); }), 0U);
  EXPECT_EQ(
      with([](Statement& sum) { sum.reads[1].relation = parse_map("[B, N, M] -> { dot[b, i, j, k] -> y[b, 0, k] }", "test"); }),
      0U)
      << "no product of matrices";
}

ScalarExpr whole(int ordinal) { return read(ordinal, ElementType::i32); }
ScalarExpr integer(int value) { return ScalarExpr::constant(value, ElementType::i32); }

/// Four bits of a word, with 8 taken off.
ScalarExpr four_bits(const ScalarExpr& word) {
  return ScalarExpr::make(ScalarOp::sub, {ScalarExpr::make(ScalarOp::bit_and, {word, integer(15)}), integer(8)});
}

/// Between -100 and 100.
ScalarExpr clamped(const ScalarExpr& value) {
  return ScalarExpr::make(ScalarOp::max, {ScalarExpr::make(ScalarOp::min, {value, integer(100)}), integer(-100)});
}

Nest integer_products_of(const ScalarExpr& a, const ScalarExpr& b, const std::string& terms) {
  return with_statement(integer_products(terms), "dot",
                        [&](Statement& sum) { sum.value = ScalarExpr::make(ScalarOp::mul, {a, b}); });
}

TEST(IntegerProduct, RangesThatTellBothFactorsLeaveNoOtherTerms) {
  const Nest nest =
      rule("integer_product").apply(integer_products_of(clamped(whole(0)), four_bits(whole(1)), "2048"), {"dot"}).nest;
  validate(nest);
  EXPECT_THAT(statement_names(nest), ElementsAre("dot_left", "dot_right", "dot_product_init", "dot_product_sum", "out"));
  EXPECT_EQ(value_text(nest, "dot_left"), "bf16(f32(max(min(x, 100), -100)))");
  EXPECT_EQ(value_text(nest, "out"), "(s * dot_product)");
  const auto statements = [](const std::string& terms) {
    const Nest before = integer_products_of(clamped(whole(0)), four_bits(whole(1)), terms);
    return statement_names(rule("integer_product").apply(before, {"dot"}).nest).size();
  };
  EXPECT_EQ(statements("5242"), 5U);
  EXPECT_EQ(statements("5243"), 9U) << "in chunks: 100 * 8 * 5243 > 2^22";
}

/// Byte n of a word with its sign: (x << (24 - 8 n)) >> 24, where the shift to the right fills up with the sign.
TEST(IntegerProduct, BytesWithASignAreKnown) {
  const auto make = [](ScalarOp op, const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(op, {a, b}); };
  const auto shifted = [&](const ScalarExpr& x, int bits, const ScalarExpr& sign_of) {
    const ScalarExpr sign =
        ScalarExpr::make(ScalarOp::select, {make(ScalarOp::lt, sign_of, integer(0)), integer(-1), integer(0)});
    return make(ScalarOp::bit_xor, make(ScalarOp::shift_right_logical, make(ScalarOp::bit_xor, x, sign), integer(bits)), sign);
  };
  const auto left_of = [&](const ScalarExpr& a) {
    return value_text(rule("integer_product").apply(integer_products_of(a, four_bits(whole(1)), "64"), {"dot"}).nest,
                      "dot_product_sum");
  };
  const auto known = [&](const ScalarExpr& a) {
    return statement_names(rule("integer_product").apply(integer_products_of(a, four_bits(whole(1)), "64"), {"dot"}).nest)
               .size() == 5;
  };
  const ScalarExpr byte = make(ScalarOp::shift_left, whole(0), integer(8));
  EXPECT_TRUE(known(shifted(byte, 24, byte))) << left_of(shifted(byte, 24, byte));
  EXPECT_FALSE(known(shifted(byte, 22, byte))) << "ten bits";
  EXPECT_FALSE(known(shifted(byte, 24, whole(0)))) << "another word's sign: up to 255, and less than -128";
  EXPECT_TRUE(known(make(ScalarOp::shift_left, make(ScalarOp::bit_and, whole(0), integer(15)), integer(4))));
  EXPECT_FALSE(known(make(ScalarOp::shift_left, make(ScalarOp::bit_and, whole(0), integer(15)), integer(5))));
}

TEST(IntegerProduct, RangesThatTellOneFactorLeaveMoreRoomForTheOther) {
  const Nest nest = rule("integer_product").apply(integer_products_of(whole(0), four_bits(whole(1)), "256"), {"dot"}).nest;
  EXPECT_EQ(value_text(nest, "dot_left"), "bf16(select((abs(f32(x)) <= 256), f32(x), inf))");
  EXPECT_EQ(value_text(nest, "dot_right"), "bf16(f32(((y & 15) - 8)))");
  EXPECT_EQ(matches(integer_products_of(whole(0), four_bits(whole(1)), "257")), 0U) << "halves of more terms";
  const Nest both = rule("integer_product").apply(integer_products_of(whole(0), clamped(whole(1)), "200"), {"dot"}).nest;
  EXPECT_EQ(value_text(both, "dot_left"), "bf16(select((abs(f32(x)) <= 209), f32(x), inf))") << "209 * 100 * 200 < 2^22";
}

TEST(IntegerProduct, LongSumsOfKnownFactorsAreCutIntoChunks) {
  const Nest nest =
      rule("integer_product").apply(integer_products_of(clamped(whole(0)), clamped(whole(1)), "1000"), {"dot"}).nest;
  validate(nest);
  EXPECT_THAT(statement_names(nest), ElementsAre("dot_left", "dot_right", "dot_product_init", "dot_product_sum", "dot_high_init",
                                                 "dot_high_sum", "dot_low_init", "dot_low_sum", "out"));
  EXPECT_EQ(value_text(nest, "dot_high_sum"), "floor((dot_product * 0.000244140625))");
  EXPECT_EQ(value_text(nest, "out"), "(s * f32(((i32(dot_high) << 12) + i32(dot_low))))");
  EXPECT_EQ(matches(integer_products_of(clamped(whole(0)), clamped(whole(1)), "524288")), 1U);
  EXPECT_EQ(matches(integer_products_of(clamped(whole(0)), clamped(whole(1)), "524289")), 0U) << "more than 4096 chunks";
}

TEST(IntegerProduct, RangesOfFloatsAreThoseOfWhatIsRounded) {
  const auto is_known = [](const ScalarExpr& level) {
    const Nest nest =
        rule("integer_product")
            .apply(integer_products_of(ScalarExpr::cast(ElementType::i32, level), four_bits(whole(1)), "64"), {"dot"})
            .nest;
    return statement_names(nest).size() == 5;
  };
  const ScalarExpr x = ScalarExpr::cast(ElementType::f32, whole(0));
  const auto clamped_to = [&](double low, double high) {
    return ScalarExpr::make(ScalarOp::max, {ScalarExpr::make(ScalarOp::min, {x, number(high)}), number(low)});
  };
  EXPECT_TRUE(is_known(clamped_to(-128, 127)));
  EXPECT_TRUE(is_known(clamped_to(0, 255.5)));
  EXPECT_FALSE(is_known(clamped_to(0, 1) + number(255.9999847))) << "f32 rounds it to 257";
  EXPECT_FALSE(is_known(ScalarExpr::cast(ElementType::f16, clamped_to(0, 256.99)))) << "f16 rounds it to 257";
  const ScalarExpr vanishes = ScalarExpr::make(ScalarOp::exp, {clamped_to(-200, 0)});
  EXPECT_FALSE(is_known(ScalarExpr::make(ScalarOp::log, {vanishes}))) << "of 0";
  EXPECT_TRUE(is_known(ScalarExpr::make(ScalarOp::log, {ScalarExpr::make(ScalarOp::exp, {clamped_to(-20, 0)})})));
}

TEST(IntegerProduct, RowsByTheirLargestMagnitudeAreKnown) {
  const auto first_value = [](const Nest& nest) {
    return value_text(rule("integer_product").apply(nest, {"total"}).nest, "total_left");
  };
  EXPECT_EQ(first_value(scaled_rows("64")), "bf16(f32(level))");
  EXPECT_EQ(first_value(scaled_rows("64", ElementType::f32, 1e-6)), "bf16(f32(level))");
  EXPECT_THAT(first_value(scaled_rows("64", ElementType::f32)), ::testing::HasSubstr("inf")) << "a step may be denormal";
  EXPECT_THAT(first_value(with_statement(scaled_rows("64"), "top", [](Statement& top) { top.value = top.value.args()[0]; })),
              ::testing::HasSubstr("inf"))
      << "the largest number";
  const auto other_row = [](Statement& step) { step.reads[0].relation = parse_map("[N, M] -> { step[i] -> top[0] }", "test"); };
  EXPECT_THAT(first_value(with_statement(scaled_rows("64"), "step", other_row)), ::testing::HasSubstr("inf"));
}

/// Results of the definition and of the rewritten nest, for factors up to `most`.
void expect_same(int most, const Nest& before) {
  const Nest after = rule("integer_product").apply(before, {"dot"}).nest;
  const Sizes sizes{{"B", 1}, {"N", 4}, {"M", 3}};
  Memory inputs = Interpreter::random_inputs(before, sizes, 3);
  std::int64_t seed = 12345;
  for (const char* tensor : {"x", "y"}) {
    for (auto& [index, value] : inputs.at(tensor)) {
      seed = (seed * 1103515245 + 12345) % (std::int64_t{1} << 31);
      value = static_cast<double>(seed % (2 * most + 1) - most);
    }
  }
  Memory expected = inputs, actual = inputs;
  Interpreter(before, sizes).run(expected);
  Interpreter(after, sizes).run(actual);
  for (const auto& [index, value] : expected.at("out")) EXPECT_EQ(actual.at("out").at(index), value) << most;
}

TEST(IntegerProduct, SumsAreExactWhateverTheFactorsAre) {
  for (const int most : {1, 127, 256, 300, 100000, 2000000000}) {
    expect_same(most, integer_products("64"));
    expect_same(most, integer_products_of(clamped(whole(0)), four_bits(whole(1)), "300"));
    expect_same(most, integer_products_of(four_bits(whole(1)), whole(0), "64"));
    expect_same(most, integer_products_of(clamped(whole(0)), clamped(whole(1)), "600"));
    expect_same(most, integer_products_of(clamped(whole(0)), whole(1), "64"));
  }
  for (const int most : {128, 129, 40000}) expect_same(most, integer_products("256"));
}

}  // namespace
}  // namespace nestor
