// Inputs are drawn where the definition has results.
#include "autotune/tensors/input_ranges.h"

#include "autotune/oracle/oracle.h"
#include "autotune/oracle/reference.h"
#include "autotune/tensors/host_tensor.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

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

/// What has no place in it is left alone.
TEST(InputRanges, OthersAreNormal) {
  EXPECT_EQ(ranges_of(read(0) + read(1) * read(2)), "");
  EXPECT_EQ(ranges_of(root(difference(read(0), read(1)))), "a>=0, and NaN") << "a difference of two inputs";
}

}  // namespace
}  // namespace nestor
