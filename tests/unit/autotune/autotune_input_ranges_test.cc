// Inputs are drawn where the definition has results.
#include "autotune/tensors/input_ranges.h"

#include "autotune/oracle/oracle.h"
#include "autotune/oracle/reference.h"
#include "autotune/tensors/host_tensor.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace nestor {
namespace {

using namespace samples;

/// out[i] = value of a[i], b[i], and t[i] = a[i] b[i].
Nest made_of(const ScalarExpr& value) {
  return NestBuilder("made_of", {{"N", 200}})
      .tensor("a", TensorRole::input, {"N"})
      .tensor("b", TensorRole::input, {"N"})
      .tensor("t", TensorRole::temporary, {"N"})
      .tensor("out", TensorRole::output, {"N"})
      .statement("t[i] : 0 <= i < N", "t[i]", {"a[i]", "b[i]"}, read(0) * read(1))
      .statement("o[i] : 0 <= i < N", "out[i]", {"a[i]", "b[i]", "t[i]", "a[i]", "a[N - 1 - i]"}, value)
      .build();
}

ScalarExpr root(const ScalarExpr& of) { return ScalarExpr::make(ScalarOp::sqrt, {of}); }
ScalarExpr difference(const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::sub, {a, b}); }

/// "a>=0 b<=0.5", and whether all results are numbers.
std::string ranges_of(const ScalarExpr& value) {
  const Nest nest = made_of(value);
  std::string text;
  for (const auto& [name, range] : input_ranges(nest)) {
    text += (text.empty() ? "" : " ") + name + (range.nonnegative ? ">=0" : "");
    if (std::isfinite(range.most)) text += fmt::format("<={}", range.most);
  }
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_inputs(nest, sizes, 3);
  Reference reference(nest, sizes, {}, inputs);
  reference.evaluate_all(1e9);
  for (const OracleSample& sample : all_samples(reference, nest, 1000)) {
    if (!std::isfinite(sample.value)) return text + ", and NaN";
  }
  return text;
}

TEST(InputRanges, WhatStandsUnderARootIsNotNegative) {
  EXPECT_EQ(ranges_of(root(read(0))), "a>=0");
  EXPECT_EQ(ranges_of(root(read(0) * number(0.5) + read(1))), "a>=0 b>=0");
  EXPECT_EQ(ranges_of(root(read(2))), "a>=0 b>=0") << "of what it is made";
  EXPECT_EQ(ranges_of(ScalarExpr::make(ScalarOp::log, {read(1) + number(1)})), "b>=0");
  EXPECT_EQ(ranges_of(ScalarExpr::make(ScalarOp::pow, {read(1), number(1.5)})), "b>=0");
  EXPECT_EQ(ranges_of(ScalarExpr::make(ScalarOp::pow, {read(1), number(2)})), "");
}

TEST(InputRanges, SquaresMayBeOfAnything) {
  EXPECT_EQ(ranges_of(root(read(0) * read(0) + number(1e-3))), "");
  EXPECT_EQ(ranges_of(root(read(0) * read(3))), "") << "the same element, read twice";
  EXPECT_EQ(ranges_of(root(read(0) * read(4))), "a>=0") << "another element";
  EXPECT_EQ(ranges_of(root(ScalarExpr::make(ScalarOp::max, {read(0), number(0)}))), "");
}

TEST(InputRanges, WhatIsTakenFromAConstantIsNoLarger) {
  EXPECT_EQ(ranges_of(root(difference(number(0.5), read(0)))), "a<=0.5");
  EXPECT_EQ(ranges_of(root(difference(number(1), read(0) * read(0)))), "a<=1");
  EXPECT_EQ(ranges_of(ScalarExpr::make(ScalarOp::log1p, {number(4) * read(1)})), "b<=0.25");
}

/// Elements of i32 inputs, at 12 rows of 300 keys: words whose fourth four bits are told, lengths of rows, and a number that is added.
std::vector<double> integers_of(const std::string& tensor) {
  const auto whole = [](double value) { return ScalarExpr::constant(value, ElementType::i32); };
  const auto make = [](ScalarOp op, const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(op, {a, b}); };
  const ScalarExpr level =
      make(ScalarOp::bit_and, make(ScalarOp::shift_right_logical, read(0, ElementType::i32), whole(12)), whole(15));
  const ScalarExpr sees = make(ScalarOp::lt, ScalarExpr::index(0), make(ScalarOp::add, read(1, ElementType::i32), whole(2)));
  const ScalarExpr value = ScalarExpr::cast(ElementType::f32, make(ScalarOp::add, level, read(2, ElementType::i32)));
  const Nest nest = NestBuilder("unpacked", {{"R", 12}, {"K", 300}})
                        .tensor("word", TensorRole::input, {"R", "K"}, ElementType::i32)
                        .tensor("length", TensorRole::input, {"R"}, ElementType::i32)
                        .tensor("plain", TensorRole::input, {"R", "K"}, ElementType::i32)
                        .tensor("out", TensorRole::output, {"R", "K"})
                        .statement("o[r, k] : 0 <= r < R and 0 <= k < K", "out[r, k]", {"word[r, k]", "length[r]", "plain[r, k]"},
                                   ScalarExpr::make(ScalarOp::select, {sees, value, number(0)}), std::nullopt, {"k"})
                        .build();
  const HostTensors inputs = make_inputs(nest, complete_sizes(nest, {}), 3);
  std::vector<double> values;
  for (std::int64_t k = 0; k < inputs.at(tensor).elements(); ++k) values.push_back(inputs.at(tensor).get(k));
  return values;
}

TEST(InputRanges, BitsThatAreToldApartAreAnyBits) {
  std::set<std::uint32_t> levels;
  for (const double word : integers_of("word")) levels.insert(static_cast<std::uint32_t>(static_cast<std::int32_t>(word)) >> 28);
  EXPECT_EQ(levels.size(), 16U) << "of the highest four bits";
}

TEST(InputRanges, WhatIsComparedWithIndicesIsAPlaceAmongThem) {
  const std::vector<double> lengths = integers_of("length");
  EXPECT_THAT(lengths, testing::Each(testing::AllOf(testing::Ge(-1), testing::Le(301))));
  EXPECT_THAT(lengths, testing::Contains(testing::Gt(100)));
  EXPECT_THAT(integers_of("plain"), testing::Each(testing::AllOf(testing::Ge(-8), testing::Le(8))));
}

/// What has no place in it is left alone.
TEST(InputRanges, OthersAreNormal) {
  EXPECT_EQ(ranges_of(read(0) + read(1) * read(2)), "");
  EXPECT_EQ(ranges_of(root(difference(read(0), read(1)))), "a>=0, and NaN") << "a difference of two inputs";
}

}  // namespace
}  // namespace nestor
