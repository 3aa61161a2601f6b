// Rule materialize_factor: what is computed anew for each column is computed once.
#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_json.h"
#include "poly/nest/nest_sets.h"
#include "support/nests/masked_images.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

/// out[i, d] = sum over j of weight(s[i, j]) v[j, d], causal or not.
Nest weighted(const ScalarExpr& weight, const std::string& mask = "", ElementType type = ElementType::f16) {
  const std::string element = "0 <= i < Q and 0 <= d < D", points = element + " and 0 <= j < K" + mask;
  return NestBuilder("weighted", {{"Q", 5}, {"K", 7}, {"D", 4}})
      .tensor("s", TensorRole::input, {"Q", "K"})
      .tensor("v", TensorRole::input, {"K", "D"}, type)
      .tensor("out", TensorRole::output, {"Q", "D"})
      .statement("init[i, d] : " + element, "out[i, d]", {}, number(0))
      .statement("sum[i, d, j] : " + points, "out[i, d]", {"s[i, j]", "v[j, d]"},
                 weight * ScalarExpr::cast(ElementType::f32, read(1, type)), ReductionOp::add)
      .build();
}

ScalarExpr squared() { return read(0) * read(0); }

TEST(MaterializeFactor, AComputedWeightGetsATemporaryOverItsOwnDims) {
  const Nest nest = rule("materialize_factor").apply(weighted(squared(), " and j <= i"), {"sum"}).nest;
  const Statement& factor = nest.statement("out_factor");
  EXPECT_EQ(factor.dims, (std::vector<std::string>{"i", "j"}));
  EXPECT_FALSE(factor.reduction.has_value());
  EXPECT_EQ(nest.tensor("out_factor").role, TensorRole::temporary);
  EXPECT_EQ(nest.tensor("out_factor").type, ElementType::f32);
  ASSERT_EQ(factor.reads.size(), 1U);
  EXPECT_EQ(factor.reads[0].tensor, "s");
  EXPECT_LT(factor.group, nest.statement("sum").group);
  std::vector<std::string> read;
  for (const Access& access : nest.statement("sum").reads) read.push_back(access.tensor);
  EXPECT_THAT(read, testing::UnorderedElementsAre("out_factor", "v"));
  EXPECT_TRUE(rule("materialize_factor").find(nest).empty()) << "once";
}

/// out[i, d] = sum over j of (s[i, j] a[i]) (v[j, d] b[d]), with s in `left` and v in f16.
Nest scaled_on_both_sides(ElementType left) {
  const std::string element = "0 <= i < Q and 0 <= d < D";
  const auto wide = [](int k, ElementType type) {
    return type == ElementType::f32 ? read(k) : ScalarExpr::cast(ElementType::f32, read(k, type));
  };
  return NestBuilder("scaled", {{"Q", 5}, {"K", 7}, {"D", 4}})
      .tensor("s", TensorRole::input, {"Q", "K"}, left)
      .tensor("v", TensorRole::input, {"K", "D"}, ElementType::f16)
      .tensor("a", TensorRole::input, {"Q"})
      .tensor("b", TensorRole::input, {"D"})
      .tensor("out", TensorRole::output, {"Q", "D"})
      .statement("init[i, d] : " + element, "out[i, d]", {}, number(0))
      .statement("sum[i, d, j] : " + element + " and 0 <= j < K", "out[i, d]", {"s[i, j]", "v[j, d]", "a[i]", "b[d]"},
                 (wide(0, left) * read(2)) * (wide(1, ElementType::f16) * read(3)), ReductionOp::add)
      .build();
}

TEST(MaterializeFactor, FactorsOfBothSidesGetTemporaries) {
  const Nest before = scaled_on_both_sides(ElementType::f16), nest = rule("materialize_factor").apply(before, {"sum"}).nest;
  validate(nest);
  EXPECT_EQ(nest.statement("out_factor").dims, (std::vector<std::string>{"i", "j"}));
  EXPECT_EQ(nest.statement("out_factor_2").dims, (std::vector<std::string>{"j", "d"})) << "as the rows of v lie";
  EXPECT_EQ(nest.statement("sum").reads.size(), 2U);
  EXPECT_EQ(differences(before, nest, {{"Q", 2}, {"K", 3}, {"D", 2}}, 40), 0);
  EXPECT_TRUE(rule("materialize_factor").find(scaled_on_both_sides(ElementType::f32)).empty()) << "no product of 16 bits";
}

/// Windows of a series without their means: both factors are differences in f32, each of which serves many results.
TEST(MaterializeFactor, FactorsInF32ThatServeManyResultsGetTemporaries) {
  const auto windows = [](std::int64_t count) {
    const std::string pair = "0 <= i < N and 0 <= j < N";
    return NestBuilder("windows", {{"N", count}})
        .tensor("x", TensorRole::input, {"N + 3"})
        .tensor("m", TensorRole::input, {"N"})
        .tensor("out", TensorRole::output, {"N", "N"})
        .statement("init[i, j] : " + pair, "out[i, j]", {}, number(0))
        .statement("sum[i, j, k] : " + pair + " and 0 <= k < 4", "out[i, j]", {"x[i + k]", "m[i]", "x[j + k]", "m[j]"},
                   (read(0) - read(1)) * (read(2) - read(3)), ReductionOp::add)
        .build();
  };
  const Nest before = windows(200), nest = rule("materialize_factor").apply(before, {"sum"}).nest;
  validate(nest);
  EXPECT_EQ(nest.statement("sum").reads.size(), 2U);
  EXPECT_EQ(differences(before, nest, {{"N", 3}}, 20), 0);
  EXPECT_TRUE(rule("materialize_factor").find(windows(50)).empty()) << "few results of each";
}

TEST(MaterializeFactor, TheFactorStandsBeforeWhatTheSumStartsFrom) {
  // Else the start would be left to a kernel of its own, and tensor cores would have to read what it wrote.
  const Nest nest = rule("materialize_factor").apply(weighted(squared()), {"sum"}).nest;
  EXPECT_LT(nest.statement("out_factor").group, nest.statement("init").group);
}

TEST(MaterializeFactor, AFactorThatReadsTheSumItselfDoesNotMatch) {
  Nest nest = weighted(squared());
  for (Statement& statement : nest.statements) {
    for (Access& access : statement.reads) {
      if (access.tensor != "s") continue;
      access.tensor = "out";
      access.relation = access.relation.set_range_tuple("out");
    }
  }
  EXPECT_TRUE(rule("materialize_factor").find(nest).empty());
}

TEST(MaterializeFactor, OnlyFactorsOfMatrixProductsMatch) {
  const auto matches = [](const Nest& nest) { return rule("materialize_factor").find(nest).size(); };
  EXPECT_EQ(matches(weighted(squared())), 1U);
  EXPECT_EQ(matches(weighted(read(0))), 0U) << "nothing is computed";
  EXPECT_EQ(matches(weighted(squared(), "", ElementType::f32)), 1U) << "made of inputs";
  Nest computed = weighted(squared(), "", ElementType::f32);
  std::find_if(computed.tensors.begin(), computed.tensors.end(), [](const Tensor& tensor) { return tensor.name == "s"; })->role =
      TensorRole::temporary;
  EXPECT_EQ(matches(computed), 0U) << "many temporaries";
  // A weight that changes along the columns as well is no operand of a product of matrices.
  EXPECT_EQ(matches(weighted(squared() * ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16)))), 0U);
}

/// Values of rows or columns are computed before in any case, so that a factor of f32 may be made of them, beside inputs.
TEST(MaterializeFactor, FactorsBesideTensorsOfF32AreMadeOfInputsAndOfValuesOfRows) {
  const auto matches = [](const ScalarExpr& weight, const std::string& row) {
    Nest nest = weighted(weight, "", ElementType::f32);
    nest.tensors.push_back({"r", ElementType::f32, TensorRole::temporary, {nest.tensor("v").shape[0]}});
    Statement& sum = nest.statements.back();
    sum.reads.push_back({"r", parse_map("[Q, K, D] -> { sum[i, d, j] -> r[" + row + "] }", "test")});
    return rule("materialize_factor").find(nest).size();
  };
  EXPECT_EQ(matches(read(0) * read(2), "j"), 1U);
  EXPECT_EQ(matches(read(0) * read(2), "i"), 1U);
  EXPECT_EQ(matches(read(0) * read(2), "i + j"), 0U) << "as many as there are elements of the factor";
  EXPECT_EQ(matches(read(2) * read(2), "j"), 0U) << "no input";
}

/// Neighbouring results read the same elements of a masked image: each is stored once, not for each tap of the filter.
TEST(MaterializeFactor, WhatNeighboursShareIsStoredOnce) {
  const Nest before = masked_images();
  const Nest nest = rule("materialize_factor").apply(before, {"sum"}).nest;
  validate(nest);
  const Statement& factor = nest.statement("sums_factor");
  EXPECT_EQ(factor.dims, (std::vector<std::string>{"n", "k", "y", "z"}));
  EXPECT_EQ(nest.tensor("sums_factor").shape.size(), 4U);
  EXPECT_TRUE(
      domain_in(nest, factor)
          .is_equal(
              parse_set(
                  "[B, C, F, Y] -> { sums_factor[n, k, y, z] : 0 <= n < B and 0 <= k < C and 0 <= y < Y + 2 and 0 <= z < Y + 2 }",
                  "test")
                  .intersect_params(full_context(nest))));
  for (const std::int64_t side : {1, 4})
    EXPECT_EQ(differences(before, nest, {{"B", 2}, {"C", 3}, {"F", 2}, {"Y", side}}, 3), 0) << side;
}

TEST(MaterializeFactor, PlacesWithGapsAndNumbersOfTapsAreNotShared) {
  // Of one row every second place is read alone; a tap's number is another one for each.
  for (const Nest& before : {masked_images(2), masked_images(1, true)}) {
    const Nest nest = rule("materialize_factor").apply(before, {"sum"}).nest;
    validate(nest);
    EXPECT_EQ(nest.statement("sums_factor").dims.size(), 6U);
    EXPECT_EQ(differences(before, nest, {{"B", 1}, {"C", 2}, {"F", 2}, {"Y", 3}}, 2), 0);
  }
}

/// out[i, d] = sum over j of the value where the label of d is j's number in f32: what a class has, for each of many that name it.
Nest of_classes(const ScalarExpr& value, double otherwise = 0) {
  const ScalarExpr named = ScalarExpr::make(ScalarOp::eq, {read(1), read(2)});
  return NestBuilder("of_classes", {{"Q", 5}, {"K", 7}, {"D", 4}})
      .tensor("s", TensorRole::input, {"Q", "K"})
      .tensor("label", TensorRole::input, {"D"})
      .tensor("number", TensorRole::input, {"K"})
      .tensor("out", TensorRole::output, {"Q", "D"})
      .statement("init[i, d] : 0 <= i < Q and 0 <= d < D", "out[i, d]", {}, number(0))
      .statement("sum[i, d, j] : 0 <= i < Q and 0 <= d < D and 0 <= j < K", "out[i, d]", {"s[i, j]", "label[d]", "number[j]"},
                 ScalarExpr::make(ScalarOp::select, {named, value, number(otherwise)}), ReductionOp::add)
      .build();
}

TEST(MaterializeFactor, WhatAConditionTakesIsComputedOnce) {
  const ScalarExpr power = apply(ScalarOp::exp, read(0));
  const Nest before = of_classes(power), nest = rule("materialize_factor").apply(before, {"sum"}).nest;
  validate(nest);
  EXPECT_EQ(nest.statement("out_factor").dims, (std::vector<std::string>{"i", "j"}));
  EXPECT_EQ(nest.statement("sum").value.op(), ScalarOp::select);
  EXPECT_EQ(differences(before, nest, {{"Q", 3}, {"K", 5}, {"D", 4}}, 3), 0);
  EXPECT_TRUE(rule("materialize_factor").find(nest).empty()) << "once";
  EXPECT_TRUE(rule("materialize_factor").find(of_classes(read(0))).empty()) << "nothing is computed";
  EXPECT_TRUE(rule("materialize_factor").find(of_classes(power, 1)).empty()) << "what is left out counts";
  Nest partly = before;
  for (Statement& statement : partly.statements) {
    if (statement.name == "sum")
      statement.reads[0].relation = parse_map("[Q, K, D] -> { sum[i, d, j] -> s[i, j - 1] : j >= 1 }", "test");
  }
  EXPECT_TRUE(rule("materialize_factor").find(partly).empty()) << "what it reads is not there at the first point";
}

}  // namespace
}  // namespace nestor
