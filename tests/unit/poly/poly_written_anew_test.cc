// Elements of temporaries that are written anew before anything reads them: rule neutral_terms leaves them out.
#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>

#include <utility>

namespace nestor {
namespace {

/// y[t] = sum over k < 4 of (k <= t ? x[t - k] : x[t]) (k <= t ? 1 : 0): a place that is always there, and a mask for what does not count.
Nest clamped_taps() {
  using samples::operator*, samples::read, samples::number;
  const std::string element = "0 <= t < T", term = element + " and 0 <= k < 4";
  const ScalarExpr seen = ScalarExpr::make(
      ScalarOp::select, {ScalarExpr::make(ScalarOp::le, {ScalarExpr::index(0), ScalarExpr::index(1)}), number(1), number(0)});
  return samples::NestBuilder("clamped_taps", {{"T", 9}})
      .tensor("x", TensorRole::input, {"T"})
      .tensor("part", TensorRole::temporary, {"T", "4"})
      .tensor("y", TensorRole::output, {"T"})
      .statement("part_else[t, k] : " + term, "part[t, k]", {"x[t]"}, read(0))
      .statement("part[t, k] : " + term + " and k <= t", "part[t, k]", {"x[t - k]"}, read(0))
      .statement("y_init[t] : " + element, "y[t]", {}, number(0))
      .statement("y[t, k] : " + term, "y[t]", {"part[t, k]"}, read(0) * seen, ReductionOp::add, {"k", "t"})
      .build();
}

TEST(NeutralTerms, WhatIsWrittenAnewBeforeItIsReadIsNoLongerComputed) {
  const Nest nest = rule("neutral_terms").apply(clamped_taps(), {}).nest;
  EXPECT_EQ(nest.statements.size(), 2U) << "what is left of the temporary is computed where it is read";
  EXPECT_TRUE(nest.statement("y").domain.is_subset(parse_set("[T] -> { y[t, k] : k <= t }", "test")));
  for (const std::int64_t length : {2, 9}) {
    samples::Memory expected;
    for (std::int64_t t = 0; t < length; ++t) expected["x"][{t}] = static_cast<double>(t + 1);
    samples::Memory actual = expected;
    samples::Interpreter(clamped_taps(), {{"T", length}}).run(expected);
    samples::Interpreter(nest, {{"T", length}}).run(actual);
    EXPECT_EQ(actual.at("y"), expected.at("y"));
  }
  Nest read_between = clamped_taps();
  std::swap(read_between.statements[1], read_between.statements[2]);
  read_between.statements[1].reads = {{"part", parse_map("[T] -> { y_init[t] -> part[t, 0] }", "test")}};
  read_between.statements[1].value = samples::read(0);
  for (int k = 0; k < 4; ++k) read_between.statements[static_cast<std::size_t>(k)].group = k;
  EXPECT_NE(rule("neutral_terms").apply(read_between, {}).nest.find_statement("part_else"), nullptr);
}

}  // namespace
}  // namespace nestor
