// The same operator, written otherwise: casts and terms in temporaries of their own, a definition twice, weights by a logarithm.
#include "poly/algebra/all_rules.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

const Sizes kSizes{{"N", 4}, {"M", 5}, {"D", 3}};
const std::string kPair = " : 0 <= i < N and 0 <= j < M", kElement = " : 0 <= i < N and 0 <= d < D",
                  kTerm = kElement + " and 0 <= j < M";

NestBuilder of(const std::string& name) { return NestBuilder(name, {{"N", 4}, {"M", 5}, {"D", 3}}); }

bool applies(const Nest& nest, const std::string& name) { return !rule(name).find(nest).empty(); }

std::vector<std::string> reads_of(const Nest& nest, const std::string& statement) {
  std::vector<std::string> tensors;
  for (const Access& read : nest.statement(statement).reads) tensors.push_back(read.tensor);
  return tensors;
}

Nest simplified(const Nest& nest) {
  const Nest result = rule("simplify").apply(nest, {}).nest;
  validate(result);
  EXPECT_EQ(differences(nest, result, kSizes, 200), 0);
  return result;
}

/// A product of what is made of two tensors of 16 bits first.
Nest product_of_copies(ElementType kept,
                       const ScalarExpr& value = ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16))) {
  return of("copies")
      .tensor("a", TensorRole::input, {"N", "M"}, ElementType::f16)
      .tensor("b", TensorRole::input, {"M", "D"}, ElementType::f16)
      .tensor("wide", TensorRole::temporary, {"N", "M"}, kept)
      .tensor("out", TensorRole::output, {"N", "D"})
      .statement("wide[i, j]" + kPair, "wide[i, j]", {"a[i, j]"}, value)
      .statement("init[i, d]" + kElement, "out[i, d]", {}, number(0))
      .statement(
          "sum[i, d, j]" + kTerm, "out[i, d]", {"wide[i, j]", "b[j, d]"},
          ScalarExpr::cast(ElementType::f32, read(0, kept)) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16)),
          ReductionOp::add)
      .build();
}

TEST(Simplify, ReadersOfACopyInF32ReadThe16Bits) {
  const Nest nest = product_of_copies(ElementType::f32);
  EXPECT_THAT(reads_of(simplified(nest), "sum"), ElementsAre("a", "b"));
  const ScalarExpr doubled = ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)) * number(2);
  EXPECT_THAT(reads_of(simplified(product_of_copies(ElementType::f32, doubled)), "sum"), ElementsAre("wide", "b")) << "no copy";
}

/// Two sums of the same terms, of which one meets the other; `second`: what the second adds up, from `start` on.
Nest sums_twice(const std::vector<std::string>& second = {"a[i, j]"}, double start = 0, bool written_between = false) {
  NestBuilder nest = of("twice");
  nest.tensor("a", TensorRole::input, {"N", "M"})
      .tensor("b", TensorRole::input, {"N", "M"})
      .tensor("s", TensorRole::temporary, {"N"})
      .tensor("t", TensorRole::temporary, {"N"})
      .tensor("c", TensorRole::temporary, {"N"})
      .tensor("out", TensorRole::output, {"N"})
      .statement("c_first[i] : 0 <= i < N", "c[i]", {"a[i, 0]"}, read(0) + number(3))
      .statement("s_init[i] : 0 <= i < N", "s[i]", {}, number(0))
      .statement("s[i, j]" + kPair, "s[i]", {"a[i, j]", "c[i]"}, read(0) * read(1), ReductionOp::add);
  if (written_between) nest.statement("c_second[i] : 0 <= i < N", "c[i]", {"a[i, 0]"}, read(0) - number(1));
  std::vector<std::string> reads = second;
  reads.emplace_back("c[i]");
  return nest.statement("t_init[i] : 0 <= i < N", "t[i]", {}, number(start))
      .statement("t[i, j]" + kPair, "t[i]", reads, read(0) * read(1), ReductionOp::add)
      .statement("out[i] : 0 <= i < N", "out[i]", {"s[i]", "t[i]"}, read(0) * read(0) + read(1))
      .build();
}

TEST(Simplify, OfEqualDefinitionsOneIsLeft) {
  const Nest nest = simplified(sums_twice());
  EXPECT_THAT(reads_of(nest, "out"), Contains("s"));
  EXPECT_THAT(reads_of(nest, "out"), Not(Contains("t")));
  EXPECT_EQ(nest.find_tensor("t"), nullptr);
}

TEST(Simplify, OtherDefinitionsStay) {
  EXPECT_FALSE(applies(sums_twice({"b[i, j]"}), "simplify")) << "of another tensor";
  EXPECT_FALSE(applies(sums_twice({"a[i, 0]"}), "simplify")) << "of other elements";
  EXPECT_FALSE(applies(sums_twice({"a[i, j]"}, 1), "simplify")) << "from another start";
  EXPECT_FALSE(applies(sums_twice({"a[i, j]"}, 0, true), "simplify")) << "what it reads is written between them";
}

/// A sum over products that have a tensor of their own; `results`: their sum and the product itself.
Nest stored_terms(bool results = false, const std::string& left = "a[i, j]") {
  NestBuilder nest = of("terms");
  nest.tensor("a", TensorRole::input, {"N", "M"})
      .tensor("b", TensorRole::input, {"M", "D"})
      .tensor("term", results ? TensorRole::output : TensorRole::temporary, {"N", "M", "D"})
      .tensor("out", TensorRole::output, {"N", "D"})
      .statement("term[i, j, d]" + kTerm, "term[i, j, d]", {left, "b[j, d]"}, read(0) * read(1))
      .statement("init[i, d]" + kElement, "out[i, d]", {}, number(0))
      .statement("sum[i, d, j]" + kTerm, "out[i, d]", {"term[i, j, d]"}, read(0), ReductionOp::add);
  return nest.build();
}

TEST(Simplify, ASumComputesTermsThatAreMoreThanTheirOperands) {
  EXPECT_THAT(reads_of(simplified(stored_terms()), "sum"), ElementsAre("a", "b"));
  EXPECT_FALSE(applies(stored_terms(true), "simplify")) << "a result";
}

/// Weights w_ij of rows, exp(a - top - log(total)) or with another divisor or exponent, times b.
Nest weights_by_logarithm(const ScalarExpr& exponent, const std::string& total = "total[i]", const std::string& summed = kPair) {
  return of("logarithm")
      .tensor("a", TensorRole::input, {"N", "M"})
      .tensor("b", TensorRole::input, {"M", "D"})
      .tensor("top", TensorRole::temporary, {"N"})
      .tensor("total", TensorRole::temporary, {"N"})
      .tensor("logarithm", TensorRole::temporary, {"N"})
      .tensor("out", TensorRole::output, {"N", "D"})
      .statement("top_init[i] : 0 <= i < N", "top[i]", {}, number(-infinity()))
      .statement("top[i, j]" + kPair, "top[i]", {"a[i, j]"}, read(0), ReductionOp::max)
      .statement("total_init[i] : 0 <= i < N", "total[i]", {}, number(0))
      .statement("total[i, j]" + summed, "total[i]", {"a[i, j]", "top[i]"}, apply(ScalarOp::exp, read(0) - read(1)),
                 ReductionOp::add)
      .statement("logarithm[i] : 0 <= i < N", "logarithm[i]", {total, "top[i]"}, read(1) + apply(ScalarOp::log, read(0)))
      .statement("init[i, d]" + kElement, "out[i, d]", {}, number(0))
      .statement("sum[i, d, j]" + kTerm, "out[i, d]", {"a[i, j]", "logarithm[i]", "b[j, d]"},
                 apply(ScalarOp::exp, exponent) * read(2), ReductionOp::add)
      .build();
}

TEST(LogQuotient, WeightsByALogarithmAreQuotients) {
  const Nest nest = weights_by_logarithm(read(0) - read(1));
  const Nest result = rule("log_quotient").apply(nest, {"sum"}).nest;
  validate(result);
  EXPECT_EQ(result.find_tensor("logarithm"), nullptr);
  EXPECT_THAT(reads_of(result, "sum"), testing::UnorderedElementsAre("out_term", "total", "b"));
  EXPECT_THAT(result.statement("out_term").dims, ElementsAre("i", "j"));
  EXPECT_EQ(differences(nest, result, kSizes, 400), 0);
  EXPECT_FALSE(applies(result, "log_quotient")) << "once";
  EXPECT_TRUE(applies(result, "online"));
}

TEST(LogQuotient, OnlyTermsOfTheRowsSumAreKnownToBeAtMostIt) {
  EXPECT_FALSE(applies(weights_by_logarithm(number(2) * read(0) - read(1)), "log_quotient")) << "another term";
  EXPECT_FALSE(applies(weights_by_logarithm(read(0) + read(1)), "log_quotient")) << "a product";
  EXPECT_FALSE(applies(weights_by_logarithm(read(0) - read(1), "total[N - 1 - i]"), "log_quotient")) << "another row's sum";
  EXPECT_FALSE(applies(weights_by_logarithm(read(0) - read(1), "total[i]", kPair + " and j <= i"), "log_quotient"))
      << "the sum may be less than one of the terms";
}

/// A product of two computed tensors, of inputs of these types.
Nest product_of_computed(ElementType left, ElementType right) {
  return of("computed")
      .tensor("x", TensorRole::input, {"N", "M"}, left)
      .tensor("y", TensorRole::input, {"M", "D"}, right)
      .tensor("left", TensorRole::temporary, {"N", "M"})
      .tensor("right", TensorRole::temporary, {"M", "D"})
      .tensor("out", TensorRole::output, {"N", "D"})
      .statement("left[i, j]" + kPair, "left[i, j]", {"x[i, j]"}, ScalarExpr::cast(ElementType::f32, read(0, left)) * number(0.3))
      .statement("right[j, d] : 0 <= j < M and 0 <= d < D", "right[j, d]", {"y[j, d]"},
                 ScalarExpr::cast(ElementType::f32, read(0, right)) * number(1.5))
      .statement("init[i, d]" + kElement, "out[i, d]", {}, number(0))
      .statement("sum[i, d, j]" + kTerm, "out[i, d]", {"left[i, j]", "right[j, d]"}, read(0) * read(1), ReductionOp::add)
      .build();
}

TEST(RoundOperand, BothOperandsAreRoundedWhereBothAreComputed) {
  const Nest nest = rule("round_operand").apply(product_of_computed(ElementType::bf16, ElementType::bf16), {"sum"}).nest;
  validate(nest);
  EXPECT_THAT(reads_of(nest, "sum"), testing::UnorderedElementsAre("left_rounded", "right_rounded"));
  EXPECT_EQ(nest.tensor("right_rounded").type, ElementType::bf16);
  EXPECT_FALSE(applies(nest, "round_operand"));
  EXPECT_FALSE(applies(product_of_computed(ElementType::bf16, ElementType::f16), "round_operand")) << "which of the two?";
  EXPECT_FALSE(applies(product_of_computed(ElementType::f32, ElementType::f32), "round_operand")) << "all is f32";
}

/// A sum of products x w, times a number for each column, which nobody knows, in the sum.
Nest scaled_in_the_sum(bool product) {
  return of("scaled")
      .tensor("x", TensorRole::input, {"N", "M"})
      .tensor("w", TensorRole::input, {"M", "D"})
      .tensor("scale", TensorRole::input, {"D"})
      .tensor("out", TensorRole::output, {"N", "D"})
      .statement("init[i, d]" + kElement, "out[i, d]", {}, number(0))
      .statement("sum[i, d, j]" + kTerm, "out[i, d]", {"x[i, j]", product ? "w[j, d]" : "x[i, 0]", "scale[d]"},
                 read(0) * (read(1) * read(2)), ReductionOp::add)
      .build();
}

TEST(DeferFactor, AFactorWithoutARangeStaysInAProductOfMatrices) {
  EXPECT_FALSE(applies(scaled_in_the_sum(true), "defer_factor"));
  EXPECT_TRUE(applies(scaled_in_the_sum(false), "defer_factor")) << "no product that a test would spoil";
}

/// Scores of heads that lie side by side in rows, by parts of so many elements, of which sums take four.
Nest heads_in_rows(const std::string& step) {
  const ScalarExpr left = ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)),
                   right = ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16));
  const std::string points = " : 0 <= d < D and 0 <= i < N and 0 <= j < M";
  return of("heads")
      .tensor("x", TensorRole::input, {"N", step + " * D + 4"}, ElementType::f16)
      .tensor("y", TensorRole::input, {"M", step + " * D + 4"}, ElementType::f16)
      .tensor("out", TensorRole::output, {"D", "N", "M"})
      .statement("init[d, i, j]" + points, "out[d, i, j]", {}, number(0))
      .statement("sum[d, i, j, e]" + points + " and 0 <= e < 4", "out[d, i, j]",
                 {"x[i, " + step + " * d + e]", "y[j, " + step + " * d + e]"}, left * right, ReductionOp::add)
      .build();
}

TEST(GatherRows, PartsOfRowsAreCopied) {
  const Nest nest = heads_in_rows("4");
  const Nest result = rule("gather_rows").apply(nest, {"sum"}).nest;
  validate(result);
  EXPECT_THAT(result.statement("x_gathered").dims, ElementsAre("d", "i", "e"));
  EXPECT_THAT(reads_of(result, "sum"), testing::UnorderedElementsAre("x_gathered", "y_gathered"));
  EXPECT_EQ(differences(nest, result, kSizes, 100), 0);
  EXPECT_FALSE(applies(heads_in_rows("2"), "gather_rows")) << "parts that overlap";
}

}  // namespace
}  // namespace nestor
