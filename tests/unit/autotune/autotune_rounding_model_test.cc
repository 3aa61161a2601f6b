// Which sums may have operands of 16 bits: products of matrices, however the definition's indices show them.
#include "autotune/oracle/rounding_model.h"

#include "support/nests/heads_in_columns.h"

#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using namespace samples;

/// Of the statement `sum`: the type that its computed operand may be rounded to.
std::optional<ElementType> narrow(const Nest& nest) {
  const RoundingModel model = rounding_model(nest);
  for (std::size_t k = 0; k < nest.statements.size(); ++k) {
    if (nest.statements[k].name == "sum") return model.statements[k].narrow;
  }
  return std::nullopt;
}

/// out[i, d] = sum over j of w[i, j] v[j, d], its terms in a tensor of their own if `stored`; w is 2 a, `of_v`: what v is read along.
Nest weighted_values(bool stored, const std::string& of_v = "j, d") {
  const std::string element = " : 0 <= i < N and 0 <= d < D", each = element + " and 0 <= j < N";
  const ScalarExpr product = read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16));
  NestBuilder builder("weighted_values", {{"N", 5}, {"D", 4}});
  builder.tensor("a", TensorRole::input, {"N", "N"})
      .tensor("v", TensorRole::input, {"N", "N + D"}, ElementType::f16)
      .tensor("w", TensorRole::temporary, {"N", "N"})
      .tensor("term", TensorRole::temporary, {"N", "D", "N"})
      .tensor("out", TensorRole::output, {"N", "D"})
      .statement("w[i, j] : 0 <= i < N and 0 <= j < N", "w[i, j]", {"a[i, j]"}, read(0) * number(2))
      .statement("term[i, d, j]" + each, "term[i, d, j]", {"w[i, j]", "v[" + of_v + "]"}, product)
      .statement("start[i, d]" + element, "out[i, d]", {}, number(0));
  if (stored) return builder.statement("sum[i, d, j]" + each, "out[i, d]", {"term[i, d, j]"}, read(0), ReductionOp::add).build();
  return builder.statement("sum[i, d, j]" + each, "out[i, d]", {"w[i, j]", "v[" + of_v + "]"}, product, ReductionOp::add).build();
}

TEST(RoundingModel, SeesProductsOfMatrices) {
  EXPECT_EQ(narrow(weighted_values(false)), ElementType::f16);
  EXPECT_EQ(narrow(weighted_values(false, "j, i")), std::nullopt) << "v has no dim that w lacks";
}

TEST(RoundingModel, SeesThemInHeadsSideBySide) {
  EXPECT_EQ(narrow(heads_in_columns()), ElementType::f16);
  EXPECT_EQ(narrow(heads_in_columns("4 H", "floor(c / 4)", "j, 4 * (floor(c / 4))")), std::nullopt)
      << "v has no columns of its own";
}

TEST(RoundingModel, SeesThemInTermsThatAreStored) {
  EXPECT_EQ(narrow(weighted_values(true)), ElementType::f16);
  EXPECT_EQ(narrow(weighted_values(true, "j, i")), std::nullopt);
}

}  // namespace
}  // namespace nestor::testing
