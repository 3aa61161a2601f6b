// Rule inline_terms: which tensors of terms it leaves out, and what their readers compute then.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/error.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// out[i, j] = sum over k of finish(terms[i, j, k]), where terms[i, j, k] = value(x[i, k], y[<second>]).
Nest terms_of_pairs(const ScalarExpr& value, const ScalarExpr& finish = read(0), const std::string& second = "j, k",
                    ElementType type = ElementType::f32) {
  const std::string pair = "0 <= i < M and 0 <= j < N", all = pair + " and 0 <= k < K";
  return NestBuilder("terms_of_pairs", {{"M", 5}, {"N", 6}, {"K", 7}})
      .tensor("x", TensorRole::input, {"M", "K"})
      .tensor("y", TensorRole::input,
              second == "j, k" ? std::vector<std::string>{"N", "K"} : std::vector<std::string>{"M", "N", "K"})
      .tensor("terms", TensorRole::temporary, {"M", "N", "K"}, type)
      .tensor("sums", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"M", "N"})
      .statement("terms[i, j, k] : " + all, "terms[i, j, k]", {"x[i, k]", "y[" + second + "]"}, value)
      .statement("init[i, j] : " + pair, "sums[i, j]", {}, number(0))
      .statement("sum[i, j, k] : " + all, "sums[i, j]", {"terms[i, j, k]"}, finish, ReductionOp::add)
      .statement("out[i, j] : " + pair, "out[i, j]", {"sums[i, j]"}, read(0))
      .build();
}

std::vector<std::string> targets(const Nest& nest) {
  std::vector<std::string> found;
  for (const RuleMatch& match : rule("inline_terms").find(nest)) found.push_back(match.target.at(0));
  return found;
}

std::string refusal(const Nest& nest, const std::string& statement) {
  try {
    rule("inline_terms").apply(nest, {statement});
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

const std::vector<Sizes> kSizes{{{"M", 1}, {"N", 1}, {"K", 1}}, {{"M", 3}, {"N", 2}, {"K", 5}}};

TEST(InlineTerms, SumsComputeTheirTerms) {
  for (const ScalarExpr& value : {read(0) * read(1), read(0) - read(1), apply(ScalarOp::exp, read(0) * read(1))}) {
    for (const ScalarExpr& finish : {read(0), read(0) * read(0)}) {
      const Nest before = terms_of_pairs(value, finish);
      EXPECT_THAT(targets(before), ElementsAre("terms"));
      const Nest after = rule("inline_terms").apply(before, {"terms"}).nest;
      validate(after);
      EXPECT_EQ(after.find_tensor("terms"), nullptr);
      EXPECT_THAT(statement_names(after), ElementsAre("init", "sum", "out"));
      for (const Sizes& sizes : kSizes) EXPECT_EQ(differences(before, after, sizes, 3), 0);
    }
  }
  const Nest product = rule("inline_terms").apply(terms_of_pairs(read(0) * read(1)), {"terms"}).nest;
  EXPECT_EQ(value_text(product, "sum"), "(x * y)");
}

TEST(InlineTerms, TermsKeepTheRoundingOfTheirTensor) {
  const Nest before = terms_of_pairs(ScalarExpr::cast(ElementType::f16, read(0) * read(1)),
                                     ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)), "j, k", ElementType::f16);
  const Nest after = rule("inline_terms").apply(before, {"terms"}).nest;
  for (const Sizes& sizes : kSizes) EXPECT_EQ(differences(before, after, sizes, 4), 0);
  EXPECT_NE(differences(terms_of_pairs(read(0) * read(1)), after, kSizes.back(), 4), 0) << "the test can fail";
}

TEST(InlineTerms, WhatIsAsLargeAsTheTermsStaysStored) {
  const Nest whole = terms_of_pairs(read(0) * read(1), read(0), "i, j, k");
  EXPECT_THAT(targets(whole), IsEmpty());
  EXPECT_THAT(refusal(whole, "terms"), HasSubstr("what it is made of is as large"));
}

/// Products with a second operand: terms[i, k] = f(x[i] y[k]), out[i, j] = sum over k of terms[i, k] z[k, j].
Nest factor_of_a_product(const ScalarExpr& value) {
  const std::string pair = "0 <= i < M and 0 <= j < N";
  return NestBuilder("factor", {{"M", 5}, {"N", 6}, {"K", 7}})
      .tensor("x", TensorRole::input, {"M"})
      .tensor("y", TensorRole::input, {"K"})
      .tensor("z", TensorRole::input, {"K", "N"})
      .tensor("terms", TensorRole::temporary, {"M", "K"})
      .tensor("out", TensorRole::output, {"M", "N"})
      .statement("terms[i, k] : 0 <= i < M and 0 <= k < K", "terms[i, k]", {"x[i]", "y[k]"}, value)
      .statement("init[i, j] : " + pair, "out[i, j]", {}, number(0))
      .statement("sum[i, j, k] : " + pair + " and 0 <= k < K", "out[i, j]", {"terms[i, k]", "z[k, j]"}, read(0) * read(1),
                 ReductionOp::add)
      .build();
}

TEST(InlineTerms, OperandsOfProductsAreComputedOnce) {
  const Nest nest = factor_of_a_product(read(0) * read(1));
  EXPECT_THAT(targets(nest), IsEmpty());
  EXPECT_THAT(refusal(nest, "terms"), HasSubstr("sum reads its elements several times"));
}

/// A bias of distances, added to scores of several heads: bias[i, j] = f(a[i] b[j]), out[h, i, j] = s[h, i, j] + bias[i, j].
Nest biased_scores(const ScalarExpr& value) {
  const std::string all = "0 <= h < H and 0 <= i < M and 0 <= j < N";
  return NestBuilder("biased", {{"H", 3}, {"M", 5}, {"N", 6}})
      .tensor("a", TensorRole::input, {"M"})
      .tensor("b", TensorRole::input, {"N"})
      .tensor("s", TensorRole::input, {"H", "M", "N"})
      .tensor("bias", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"H", "M", "N"})
      .statement("bias[i, j] : 0 <= i < M and 0 <= j < N", "bias[i, j]", {"a[i]", "b[j]"}, value)
      .statement("out[h, i, j] : " + all, "out[h, i, j]", {"s[h, i, j]", "bias[i, j]"}, read(0) + read(1))
      .build();
}

TEST(InlineTerms, ElementwiseReadersComputeWhatIsCheapSeveralTimes) {
  const Nest before = biased_scores(read(0) * read(1));
  EXPECT_THAT(targets(before), ElementsAre("bias"));
  const Nest after = rule("inline_terms").apply(before, {"bias"}).nest;
  EXPECT_EQ(differences(before, after, {{"H", 2}, {"M", 3}, {"N", 4}}, 2), 0);
  EXPECT_THAT(targets(biased_scores(apply(ScalarOp::exp, read(0) * read(1)))), IsEmpty()) << "an exponential for each head";
}

}  // namespace
}  // namespace nestor
