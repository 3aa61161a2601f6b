// Rule nest_sums: which sums it takes, what it makes of them, and that infinities and NaN stay where they are.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/factor_chain.h"
#include "support/error_text.h"
#include "support/nests/chained_products.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using Target = std::vector<std::string>;

constexpr const char* kName = "nest_sums";

std::vector<Target> targets(const Nest& nest) {
  std::vector<Target> found;
  for (const RuleMatch& match : rule(kName).find(nest)) found.push_back(match.target);
  return found;
}

Nest nested(const Nest& nest, const Target& target) {
  Nest result = rule(kName).apply(nest, target).nest;
  validate(result);
  return result;
}

/// out[n, c, o] = sum over l, r of mix[l, r, o] x[n, c, l] y[n, r], a tensor product.
Nest tensor_product(const std::string& channels = "64") {
  const std::string element = "0 <= n < N and 0 <= c < C and 0 <= o < O";
  return NestBuilder("tensor_product", {{"N", 100}, {"C", std::stoll(channels)}, {"L", 9}, {"R", 16}, {"O", 9}})
      .tensor("mix", TensorRole::input, {"L", "R", "O"})
      .tensor("x", TensorRole::input, {"N", "C", "L"})
      .tensor("y", TensorRole::input, {"N", "R"})
      .tensor("out", TensorRole::output, {"N", "C", "O"})
      .statement("init[n, c, o] : " + element, "out[n, c, o]", {}, number(0))
      .statement("sum[n, c, o, l, r] : " + element + " and 0 <= l < L and 0 <= r < R", "out[n, c, o]",
                 {"mix[l, r, o]", "x[n, c, l]", "y[n, r]"}, read(0) * read(1) * read(2), ReductionOp::add)
      .build();
}

TEST(NestSums, InnerSumsServeAllResultsThatShareThem) {
  const Nest nest = nested(chained_matrices(), {"sum", "i"});
  EXPECT_THAT(statement_names(nest), ElementsAre("init", "out_inner_init", "out_inner_update", "out_least_init",
                                                 "out_least_update", "out_most_init", "out_most_update", "out_sign", "sum"));
  const auto dims = [&](const std::string& name) { return nest.statement(name).dims; };
  EXPECT_THAT(dims("out_inner_init"), ElementsAre("u", "j"));
  EXPECT_THAT(dims("out_inner_update"), ElementsAre("u", "i", "j"));
  EXPECT_THAT(dims("sum"), ElementsAre("u", "k", "j"));
  EXPECT_TRUE(targets(nest).empty()) << "two factors are left";
}

TEST(NestSums, TheFewestTermsComeFirst) {
  // x m first leaves 64 48 40 + 64 56 40 points, m y first 48 40 56 + 64 48 56.
  EXPECT_THAT(targets(chained_matrices()), ElementsAre(Target{"sum", "i"}, Target{"sum", "j"}));
  EXPECT_EQ(targets(chained_matrices(ElementType::f16)).size(), 2U);
  EXPECT_THAT(targets(tensor_product()), ElementsAre(Target{"sum", "r"}));
  EXPECT_TRUE(targets(tensor_product("4")).empty()) << "little is left out";
  EXPECT_TRUE(targets(quadratic_form({.left = 512, .right = 512})).empty()) << "no results share an inner sum";
  EXPECT_TRUE(targets(matmul(512, 512, 512)).empty());
}

TEST(NestSums, OtherSumsStayAsTheyAre) {
  const ScalarExpr x = read(0), m = read(1), y = read(2);
  const auto with = [](const ScalarExpr& value) { return targets(chained_matrices(ElementType::f32, "", value)).size(); };
  EXPECT_EQ(with(x * m * y), 2U);
  EXPECT_EQ(with(number(2) * (y * m) * x), 2U);
  EXPECT_EQ(with(x * apply(ScalarOp::exp, m) * y), 2U) << "any factor may be computed";
  EXPECT_EQ(with(apply(ScalarOp::exp, x * m) * y), 1U) << "and be a part of a chain: x and m together";
  EXPECT_EQ(with(apply(ScalarOp::exp, x * m * y)), 0U) << "no chain";
  EXPECT_EQ(with(x * m + y), 0U);
  EXPECT_EQ(targets(chained_matrices(ElementType::f32, " and j <= i")).size(), 2U) << "inner points follow what inner sums do";
  EXPECT_EQ(targets(chained_matrices(ElementType::f32, " and i <= k")), std::vector<Target>({{"sum", "j"}}))
      << "sums over i have other points for other k";
  EXPECT_TRUE(targets(chained_matrices(ElementType::f32, " and i <= k and u <= j")).empty());
  Nest largest = chained_matrices();
  for (Statement& statement : largest.statements) {
    if (statement.reduction) statement.reduction = ReductionOp::max;
  }
  EXPECT_TRUE(targets(largest).empty()) << "no sum";
  Nest integers =
      chained_matrices(ElementType::i32, "", read(0, ElementType::i32) * read(1, ElementType::i32) * read(2, ElementType::i32));
  EXPECT_TRUE(targets(integers).empty());
  const auto refusal = [](const Nest& nest, const Target& target) {
    return test::message_of([&] { rule(kName).apply(nest, target); });
  };
  EXPECT_EQ(refusal(matmul(), {"C_update", "k"}),
            "rule nest_sums does not apply to C_update: it is no sum of products over two dims or more, in f32");
  EXPECT_EQ(refusal(chained_matrices(), {"sum", "k"}),
            "rule nest_sums does not apply to sum: no inner sum over k serves several results");
  EXPECT_EQ(refusal(quadratic_form(), {"sum", "i"}),
            "rule nest_sums does not apply to sum: no factors of its terms have the same inner sum for several results");
  EXPECT_EQ(refusal(chained_matrices(), {"sum"}), "rule nest_sums takes a statement and dims of its inner sum");
}

TEST(NestSums, FactorsThatAreFiniteNeedNoSigns) {
  const Nest nest =
      nested(chained_matrices(ElementType::f32, "", read(0) * read(1) * apply(ScalarOp::tanh, read(2))), {"sum", "i"});
  EXPECT_EQ(nest.find_statement("out_sign"), nullptr);
}

TEST(NestSums, InfinitiesAndNaNStayWhereTheyAre) {
  const Sizes chain{{"N", 3}, {"I", 3}, {"J", 2}, {"K", 2}}, product{{"N", 2}, {"C", 2}, {"L", 2}, {"R", 3}, {"O", 2}};
  const ScalarExpr x = read(0), m = read(1), y = read(2);
  const std::vector<std::pair<Nest, Sizes>> nests{
      {chained_matrices(), chain},
      {chained_matrices(ElementType::f16), chain},
      {chained_matrices(ElementType::f32, " and j <= i"), chain},
      {chained_matrices(ElementType::f32, " and i <= k"), chain},
      {chained_matrices(ElementType::f32, "", number(-0.5) * y * (x * apply(ScalarOp::abs, m))), chain},
      {chained_matrices(ElementType::f32, "", x * m * apply(ScalarOp::tanh, y)), chain},
      {tensor_product(), product}};
  for (const auto& [nest, at] : nests) {
    ASSERT_FALSE(targets(nest).empty());
    for (const Target& target : targets(nest))
      EXPECT_EQ(differences(nest, nested(nest, target), at, 20), 0) << nest.op << " " << target[1];
  }
}

TEST(NestSums, WrongRewritesAreSeen) {
  const Sizes sizes{{"N", 3}, {"I", 3}, {"J", 2}, {"K", 2}};
  const Nest before = chained_matrices(ElementType::f32, " and j <= i"), right = nested(before, {"sum", "i"});
  const auto mutant = [&](const std::string& name, const std::function<void(Statement&)>& change) {
    return differences(before, with_statement(right, name, change), sizes, 40);
  };
  EXPECT_EQ(mutant("sum", [](Statement&) {}), 0);
  EXPECT_GT(mutant("out_sign", [](Statement& sign) { sign.value = number(1); }), 0) << "signs are not looked at";
  EXPECT_GT(mutant("out_sign", [](Statement& sign) { sign.value = number(0); }), 0) << "no infinity is one";
  EXPECT_GT(mutant("out_sign",
                   [](Statement& sign) {
                     sign.value = ScalarExpr::make(ScalarOp::select, {sign.value.args()[0].args()[0], number(1), number(0)});
                   }),
            0)
      << "terms below 0";
  EXPECT_GT(mutant("out_least_update", [](Statement& least) { least.reduction = ReductionOp::max; }), 0);
  EXPECT_GT(mutant("out_inner_update",
                   [](Statement& sum) {
                     sum.domain = parse_set(
                         "[N, I, J, K] -> { out_inner_update[u, i, j] : 0 <= u < N and 0 <= i < I and 0 <= j < J }", "test");
                   }),
            0)
      << "beyond the triangle";
}

}  // namespace
}  // namespace nestor
