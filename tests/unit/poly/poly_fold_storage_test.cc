// Rule fold_storage: which states are kept in place, and that everybody still reads the value it read.
#include "poly/algebra/all_rules.h"
#include "support/error_text.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

constexpr const char* kName = "fold_storage";

std::vector<std::string> targets(const Nest& nest) {
  std::vector<std::string> found;
  for (const RuleMatch& match : rule(kName).find(nest)) found.push_back(match.target.at(0));
  return found;
}

/// s[t + 1, x] = `value` of s at `before` and x[t, x], from start[x]; out[x] is the value of `last`.
Nest recurrence(const std::string& before = "s[t, i]", const std::string& last = "s[T, i]",
                const std::string& points = "0 <= t < T and 0 <= i < N", const std::string& first = "0 <= i < N") {
  return NestBuilder("recurrence", {{"T", 5}, {"N", 7}})
      .tensor("x", TensorRole::input, {"T", "N"})
      .tensor("start", TensorRole::input, {"N"})
      .tensor("s", TensorRole::temporary, {"T + 1", "N"})
      .tensor("out", TensorRole::output, {"N"})
      .statement("begin[t, i] : t = 0 and " + first, "s[t, i]", {"start[i]"}, read(0))
      .statement("step[t, i] : " + points, "s[t + 1, i]", {before, "x[t, i]"}, number(0.5) * read(0) + read(1))
      .statement("out[i] : 0 <= i < N", "out[i]", {last}, read(0))
      .build();
}

TEST(FoldStorage, AStateThatTheNextStepNeedsIsKeptInPlace) {
  const Nest nest = recurrence();
  EXPECT_THAT(targets(nest), ElementsAre("step"));
  const Nest folded = rule(kName).apply(nest, {"step"}).nest;
  ASSERT_NO_THROW(validate(folded));
  EXPECT_EQ(folded.find_tensor("s"), nullptr);
  EXPECT_EQ(folded.tensor("s_now").shape.size(), 1U);
  EXPECT_TRUE(targets(folded).empty());
  for (const Sizes& sizes : {Sizes{{"T", 1}, {"N", 1}}, Sizes{{"T", 4}, {"N", 3}}})
    EXPECT_EQ(differences(nest, folded, sizes, 50), 0);
}

TEST(FoldStorage, WhatOtherStepsReadStaysWhereItIs) {
  EXPECT_TRUE(targets(recurrence("s[t, i]", "s[T - 1, i]", "0 <= t < T and 0 <= i < N and T >= 2")).empty())
      << "one before the last";
  EXPECT_TRUE(targets(recurrence("s[t, i - 1]", "s[T, i]", "0 <= t < T and 1 <= i < N", "0 <= i < N")).empty())
      << "a neighbour that this step has overwritten, and elements that no step writes";
  EXPECT_TRUE(targets(recurrence("s[0, i]")).empty()) << "the first state, in each step";
  Nest returned = recurrence();
  for (Tensor& tensor : returned.tensors) {
    if (tensor.name == "s") tensor.role = TensorRole::output;
  }
  EXPECT_TRUE(targets(returned).empty()) << "a result";
  EXPECT_THAT(test::message_of([&] { rule(kName).apply(returned, {"step"}); }), testing::HasSubstr("no state of a recurrence"));
}

/// A neighbour behind is read before this step overwrites it; but points of a step would have to wait for each other.
TEST(FoldStorage, NeighboursAreNotOverwritten) {
  const Nest nest = NestBuilder("upwind", {{"T", 4}, {"N", 6}})
                        .tensor("start", TensorRole::input, {"N + 4"})
                        .tensor("s", TensorRole::temporary, {"T + 1", "N + 4"})
                        .tensor("out", TensorRole::output, {"N"})
                        .statement("begin[t, i] : t = 0 and 0 <= i < N + 4", "s[t, i]", {"start[i]"}, read(0))
                        .statement("step[t, i] : 0 <= t < T and T <= 4 and 0 <= i < N + 3 - t", "s[t + 1, i]",
                                   {"s[t, i]", "s[t, i + 1]"}, read(0) - read(1))
                        .statement("out[i] : 0 <= i < N and T <= 4 and T >= 1", "out[i]", {"s[T, i]"}, read(0))
                        .build();
  EXPECT_TRUE(targets(nest).empty());
  EXPECT_FALSE(test::message_of([&] { rule(kName).apply(nest, {"step"}); }).empty());
}

/// A mutant: were the condition ignored, values would differ.
TEST(FoldStorage, AFoldThatTheConditionForbidsIsSeen) {
  const Nest nest = recurrence();
  const Nest late =
      with_statement(rule(kName).apply(nest, {"step"}).nest, "out", [](Statement& out) { out.value = out.value + number(1); });
  EXPECT_GT(differences(nest, late, {{"T", 2}, {"N", 3}}, 5), 0);
}

}  // namespace
}  // namespace nestor
