// Rule nest_products: which sums it takes, what it makes of them, and that infinities and NaN stay where they are.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
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

constexpr const char* kName = "nest_products";

std::vector<Target> targets(const Nest& nest) {
  std::vector<Target> found;
  for (const RuleMatch& match : rule(kName).find(nest)) found.push_back(match.target);
  return found;
}

std::size_t matches(const Nest& nest) { return targets(nest).size(); }

Nest nested(const Nest& nest, const Target& target) {
  Nest result = rule(kName).apply(nest, target).nest;
  validate(result);
  return result;
}

TEST(NestProducts, AProductOfMatricesHasASumOfItsOwn) {
  const Nest nest = nested(quadratic_form(), {"sum", "i"});
  EXPECT_THAT(statement_names(nest), ElementsAre("init", "sums_inner_init", "sums_inner_sum", "sums_valued", "sums_kept_init",
                                                 "sums_kept_sum", "sum", "out"));
  const auto dims = [&](const std::string& name) { return nest.statement(name).dims; };
  EXPECT_THAT(dims("sums_inner_init"), ElementsAre("u", "j"));
  EXPECT_THAT(dims("sums_inner_sum"), ElementsAre("u", "i", "j"));
  EXPECT_THAT(dims("sum"), ElementsAre("u", "j"));
  EXPECT_EQ(nest.tensor("sums_inner").shape.size(), 2U);
  EXPECT_EQ(nest.statement("sum").reduction, ReductionOp::add);
  EXPECT_EQ(nest.statement("sums_kept_sum").value.op(), ScalarOp::select);
  EXPECT_EQ(matches(nest), 0U) << "once";
}

TEST(NestProducts, TheSmallestTemporaryComesFirst) {
  EXPECT_THAT(targets(quadratic_form()), ElementsAre(Target{"sum", "i"}, Target{"sum", "j"}));
  EXPECT_THAT(targets(quadratic_form({.left = 6, .right = 7})), ElementsAre(Target{"sum", "j"}, Target{"sum", "i"}));
  EXPECT_THAT(targets(quadratic_form({.left = 6})), ElementsAre(Target{"sum", "i"}, Target{"sum", "j"})) << "as it is multiplied";
  const ElementType f16 = ElementType::f16;
  EXPECT_THAT(targets(quadratic_form({.value = wide(0, f16) * (wide(1, f16) * wide(2, f16)), .left = 6})),
              ElementsAre(Target{"sum", "j"}, Target{"sum", "i"}));
  EXPECT_THAT(targets(quadratic_form({.mask = " and j <= i"})), ElementsAre(Target{"sum", "i"}, Target{"sum", "j"}));
  EXPECT_EQ(matches(quadratic_form({.rows = "x"})), 2U) << "one tensor twice";
  EXPECT_THAT(targets(products_of_four()), ElementsAre(Target{"sum", "s"}, Target{"sum", "t"}, Target{"sum", "q"}));
  EXPECT_THAT(targets(batched_forms()), ElementsAre(Target{"sum", "i"}, Target{"sum", "j"}));
}

TEST(NestProducts, OtherSumsStayAsTheyAre) {
  const ElementType f16 = ElementType::f16;
  const ScalarExpr x = wide(0, f16), m = wide(1, f16), y = wide(2, f16);
  const auto with = [](const ScalarExpr& value) { return matches(quadratic_form({.value = value})); };
  EXPECT_EQ(with(x * m * y), 2U);
  EXPECT_EQ(with(number(0.5) * y * (m * x)), 2U) << "any order, constants";
  EXPECT_EQ(with(x * apply(ScalarOp::exp, y) * m), 1U) << "computed outside";
  EXPECT_EQ(with(apply(ScalarOp::exp, x * m) * y), 0U) << "no chain";
  EXPECT_EQ(with(apply(ScalarOp::neg, x * m) * y), 0U) << "no chain";
  EXPECT_EQ(with(x * m + y), 0U);
  EXPECT_EQ(with(x * m / y), 0U) << "a quotient";
  EXPECT_EQ(with(ScalarExpr::cast(ElementType::f32, ScalarExpr::cast(f16, x * m)) * y), 0U) << "rounded before";
  EXPECT_EQ(with(x * m), 0U) << "two factors";
  EXPECT_EQ(with(x * y), 0U) << "a product of two sums: no matrix";
  EXPECT_EQ(with(x * m * y * m), 0U) << "another factor has both dims";
  EXPECT_EQ(with(x * m * y * ScalarExpr::cast(ElementType::f32, ScalarExpr::make(ScalarOp::lt, {x, y}))), 0U) << "a condition";
  for (const ReductionOp reduction : {ReductionOp::max, ReductionOp::min, ReductionOp::mul})
    EXPECT_EQ(matches(quadratic_form({.reduction = reduction})), 0U) << "no sum";
  EXPECT_EQ(matches(quadratic_form({.type = ElementType::f32})), 0U) << "no 16-bit tensors";
  EXPECT_EQ(matches(quadratic_form({.mask = " and i = j"})), 2U) << "a diagonal";
  const auto changed = [](const std::function<void(Nest&, Statement&)>& change) {
    Nest nest = quadratic_form();
    Statement sum = nest.statement("sum");
    change(nest, sum);
    replace_statement(nest, sum);
    return matches(nest);
  };
  const auto reads = [](const std::string& element) {
    return parse_map("[N, I, J] -> { sum[u, i, j] -> " + element + " }", "test");
  };
  EXPECT_EQ(changed([&](Nest&, Statement& sum) { sum.reads[2].relation = reads("y[u, 0]"); }), 0U) << "one sum over both";
  EXPECT_EQ(changed([&](Nest&, Statement& sum) { sum.reads[2].relation = reads("y[i, j]"); }), 0U) << "both dims twice";
  EXPECT_EQ(changed([&](Nest&, Statement& sum) { sum.reads[1].relation = reads("m[i, 0]"); }), 0U) << "a matrix times a row";
  EXPECT_EQ(changed([&](Nest& nest, Statement&) { nest.tensors[3].type = ElementType::f16; }), 0U) << "sums of 16 bits";
  EXPECT_EQ(changed([&](Nest&, Statement& sum) {
              sum.reads.push_back({"sums", reads("sums[u]")});
              sum.value = sum.value * read(3);
            }),
            0U)
      << "its own result";
  const auto matrix = [](const std::string& element) {  // out[u, k] = sum of x[u, i] m[i, j] y[k, j]
    return NestBuilder("chain", {{"N", 4}, {"I", 5}, {"J", 3}})
        .tensor("x", TensorRole::input, {"N", "I"}, ElementType::f16)
        .tensor("m", TensorRole::input, {"I", "J"}, ElementType::f16)
        .tensor("y", TensorRole::input, {"N", "J"}, ElementType::f16)
        .tensor("out", TensorRole::output, {"N", "N"})
        .statement("init[u, k] : 0 <= u < N and 0 <= k < N", "out[u, k]", {}, number(0))
        .statement("sum[u, k, i, j] : 0 <= u < N and 0 <= k < N and 0 <= i < I and 0 <= j < J", "out[u, k]",
                   {"x[u, i]", "m[i, j]", element},
                   wide(0, ElementType::f16) * wide(1, ElementType::f16) * wide(2, ElementType::f16), ReductionOp::add)
        .build();
  };
  EXPECT_EQ(matches(matrix("y[k, j]")), 0U) << "results of the inner sum would be computed for each k";
}

TEST(NestProducts, IntegersAreRefused) {
  Nest nest = quadratic_form(
      {.type = ElementType::i32, .value = read(0, ElementType::i32) * read(1, ElementType::i32) * read(2, ElementType::i32)});
  EXPECT_EQ(matches(nest), 0U);
}

TEST(NestProducts, RefusalsSayWhy) {
  const auto refusal = [](const Nest& nest, const Target& target) {
    return test::message_of([&] { rule(kName).apply(nest, target); });
  };
  EXPECT_EQ(
      refusal(matmul(), {"C_update", "k"}),
      "rule nest_products does not apply to C_update: it is no sum of products of three factors or more over two dims or more, "
      "in f32");
  EXPECT_EQ(refusal(quadratic_form(), {"sum", "u"}),
            "rule nest_products does not apply to sum: no two of its factors alone follow u");
  EXPECT_EQ(refusal(quadratic_form(), {"sum", "i", "j"}),
            "rule nest_products does not apply to sum: no two of its factors alone follow i, j");
  EXPECT_EQ(
      refusal(quadratic_form({.type = ElementType::f32}), {"sum", "i"}),
      "rule nest_products does not apply to sum: no two of its factors are rows and columns of 16 bits, with reduced dims that "
      "the other factors do not follow");
  EXPECT_EQ(refusal(quadratic_form(), {"sum"}), "rule nest_products takes a statement and dims of its inner sum");
}

TEST(FactorChain, KnowsWhatTheDefinitionMultipliesFirst) {
  const ElementType f16 = ElementType::f16;
  const ScalarExpr x = wide(0, f16), m = wide(1, f16), y = wide(2, f16);
  const auto regroups = [](const ScalarExpr& value) {
    std::vector<bool> found;
    for (const SumNesting& nesting : nestings_of(quadratic_form({.value = value}).statement("sum")))
      found.push_back(nesting.regroups);
    return found;
  };
  EXPECT_THAT(regroups(x * m * y), ElementsAre(false, true));
  EXPECT_THAT(regroups(x * (m * y)), ElementsAre(true, false));
  EXPECT_THAT(regroups(x * y * m), ElementsAre(true, true));
  EXPECT_EQ(product_in_order(factors_of(x * (m * y))).equals(x * m * y), true);
  EXPECT_EQ(factors_of(apply(ScalarOp::neg, x * m)).size(), 1U);
}

// ---- values

TEST(NestProducts, InfinitiesAndNaNStayWhereTheyAre) {
  const Sizes sizes{{"N", 4}, {"I", 3}, {"J", 2}}, batched{{"B", 2}, {"R", 3}, {"I", 3}, {"J", 2}},
      four{{"P", 2}, {"Q", 2}, {"T", 2}, {"S", 3}, {"U", 2}};
  const std::vector<std::pair<Nest, Sizes>> nests{{quadratic_form(), sizes},
                                                  {quadratic_form({.type = ElementType::bf16}), sizes},
                                                  {quadratic_form({.mask = " and j <= i"}), sizes},
                                                  {quadratic_form({.mask = " and i <= j and i < u"}), sizes},
                                                  {quadratic_form({.rows = "x"}), {{"N", 4}, {"I", 3}, {"J", 3}}},
                                                  {batched_forms(), batched},
                                                  {products_of_four(), four}};
  for (const auto& [nest, at] : nests) {
    ASSERT_GT(matches(nest), 0U);
    for (const Target& target : targets(nest))
      EXPECT_EQ(differences(nest, nested(nest, target), at, 20), 0) << nest.op << " " << target[1];
  }
}

TEST(NestProducts, NumbersThatOverflowOnTheWayAreSummedUpDirectly) {
  // As f32 has it: a product of x and m that is infinite, beside a y of 0, and one that only another grouping has.
  const ElementType bf16 = ElementType::bf16;
  const Nest nest = nested(quadratic_form({.type = bf16}), {"sum", "j"});
  EXPECT_EQ(nest.statement("sums_valued").value.op(), ScalarOp::select) << "m y comes first: x is tested";
  EXPECT_EQ(nested(quadratic_form({.type = bf16}), {"sum", "i"}).statement("sums_valued").value.op(), ScalarOp::mul);
  EXPECT_EQ(nested(quadratic_form(), {"sum", "j"}).statement("sums_valued").value.op(), ScalarOp::mul)
      << "numbers of f16 are small";
  // m y is infinite, x m y is not.
  const Nest before = quadratic_form({.type = bf16});
  const Sizes sizes{{"N", 2}, {"I", 2}, {"J", 2}};
  Memory expected;
  for (std::int64_t k = 0; k < 4; ++k) {
    const Index at{k / 2, k % 2};
    expected["x"][at] = k == 0 ? 0 : 1e-30;
    expected["m"][at] = expected["y"][at] = 1e30;
  }
  Memory actual = expected, unguarded = expected;
  Interpreter(before, sizes).run(expected);
  Interpreter(nest, sizes).run(actual);
  const Nest mutant = with_statement(nest, "sums_kept_init", [](Statement& start) { start.value = start.value.args()[1]; });
  Interpreter(mutant, sizes).run(unguarded);
  for (std::int64_t u = 0; u < 2; ++u) {
    EXPECT_TRUE(same_value(actual.at("out").at({u}), expected.at("out").at({u}))) << actual.at("out").at({u});
    EXPECT_FALSE(same_value(unguarded.at("out").at({u}), expected.at("out").at({u})))
        << "no guard: " << expected.at("out").at({u});
  }
}

/// A nest in which one thing is wrong gives other results: the comparison above can fail.
TEST(NestProducts, WrongRewritesAreSeen) {
  const Sizes sizes{{"N", 4}, {"I", 3}, {"J", 2}};
  const Nest before = quadratic_form({.mask = " and j <= i"}), right = nested(before, {"sum", "i"});
  const auto mutant = [&](const std::string& name, const std::function<void(Statement&)>& change) {
    return differences(before, with_statement(right, name, change), sizes, 30);
  };
  EXPECT_EQ(mutant("sum", [](Statement&) {}), 0);
  EXPECT_GT(mutant("sums_kept_sum", [](Statement& sum) { sum.value = number(0); }), 0) << "no direct sum";
  EXPECT_GT(mutant("sums_kept_sum", [](Statement& sum) { sum.value = sum.value.args()[2]; }), 0) << "always";
  EXPECT_GT(mutant("sums_kept_init", [](Statement& start) { start.value = number(0); }), 0) << "no product";
  EXPECT_GT(mutant("sums_valued", [](Statement& value) { value.value = value.value.args()[0]; }), 0) << "a factor is lost";
  EXPECT_GT(mutant("sums_inner_sum",
                   [](Statement& sum) {
                     sum.domain =
                         parse_set("[N, I, J] -> { sums_inner_sum[u, i, j] : 0 <= u < N and 0 <= i < I and 0 <= j < J }", "test");
                   }),
            0)
      << "beyond the triangle";
  EXPECT_GT(mutant("sum",
                   [](Statement& sum) {
                     sum.domain = parse_set("[N, I, J] -> { sum[u, j] : 0 <= u < N and 0 <= j < J - 1 }", "test");
                   }),
            0)
      << "a term is lost";
}

}  // namespace
}  // namespace nestor
