// Rule chain_order: which products it takes in another order, what it makes of them, and that infinities and NaN stay where they are.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/error_text.h"
#include "support/nests/chained_products.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kName = "chain_order";

Nest reordered(const Nest& nest) {
  Nest result = rule(kName).apply(nest, {"sum"}).nest;
  validate(result);
  return result;
}

std::string refusal(const Nest& nest) {
  return test::message_of([&] { rule(kName).apply(nest, {"sum"}); });
}

TEST(ChainOrder, TheProductOfWeightsIsForDirectSumsAlone) {
  ASSERT_EQ(rule(kName).find(weights_first()).size(), 1U);
  const Nest nest = reordered(weights_first());
  EXPECT_THAT(statement_names(nest),
              ElementsAre("w_init", "w", "sums_bounded", "sums_inner_init", "sums_inner_update", "sums_product_init",
                          "sums_product_sum", "init", "sum", "sums_kept_copied", "out"));
  const auto dims = [&](const std::string& name) { return nest.statement(name).dims; };
  EXPECT_THAT(dims("sums_inner_update"), ElementsAre("u", "i", "j"));
  EXPECT_THAT(dims("sums_product_sum"), ElementsAre("u", "k", "j"));
  EXPECT_EQ(nest.tensor("sums_bounded").type, ElementType::bf16);
  EXPECT_TRUE(rule(kName).find(nest).empty()) << "once";
  const Nest bounded = reordered(weights_first(ElementType::f16));
  EXPECT_EQ(bounded.find_tensor("sums_bounded"), nullptr) << "its type bounds it";
}

TEST(ChainOrder, InfinitiesAndNaNStayWhereTheyAre) {
  for (const ElementType type : {ElementType::bf16, ElementType::f16}) {
    const Nest before = weights_first(type), after = reordered(before);
    for (const Sizes& sizes : {Sizes{{"N", 3}, {"I", 4}, {"J", 2}, {"K", 3}}, Sizes{{"N", 2}, {"I", 1}, {"J", 3}, {"K", 4}}})
      EXPECT_EQ(differences(before, after, sizes, 60), 0);
  }
}

TEST(ChainOrder, OtherProductsStayAsTheyAre) {
  EXPECT_TRUE(rule(kName).find(weights_first(ElementType::bf16, 1024)).empty()) << "few terms are left out";
  const std::string no_chain = "no factor is a sum of products, with which another order has fewer terms";
  EXPECT_THAT(refusal(weights_first(ElementType::f32)), HasSubstr(no_chain));
  const auto with = [&](const std::string& name, const std::function<void(Statement&)>& change) {
    return refusal(with_statement(weights_first(), name, change));
  };
  EXPECT_THAT(with("w_init", [](Statement& start) { start.value = number(1); }), HasSubstr(no_chain));
  EXPECT_THAT(with("w", [](Statement& sum) { sum.reduction = ReductionOp::max; }), HasSubstr(no_chain));
  EXPECT_THAT(with("sum", [](Statement& sum) { sum.value = sum.value * read(1); }), HasSubstr(no_chain)) << "squares";
  EXPECT_THAT(with("init", [](Statement& start) { start.value = number(1); }),
              HasSubstr("it does not add up to a temporary of f32"));
  Nest rewritten = weights_first();
  for (Tensor& tensor : rewritten.tensors) tensor.role = tensor.name == "m" ? TensorRole::temporary : tensor.role;
  Statement again = renamed(rewritten.statement("w_init"), "again");
  again.write = {"m", isl::map(isl_context(), "[N, I, J, K] -> { again[k, i] -> m[i, 0] : k = 0 }")};
  insert_statement(rewritten, position_of(rewritten, "init"), again);
  EXPECT_THAT(refusal(rewritten), HasSubstr(no_chain)) << "m changes between";
}

}  // namespace
}  // namespace nestor
