// Rule dense_terms: of a sum that takes every P-th value of a dim, the values are counted.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/error.h"
#include "support/nests/dice.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/rule_forms.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

TEST(DenseTerms, TapsOfATransposedConvolutionAreCounted) {
  const std::vector<std::pair<int, int>> forms{{2, 0}, {3, 1}, {8, 4}};
  for (const auto& [stride, offset] : forms) {
    for (const ReductionOp reduction : {ReductionOp::add, ReductionOp::max}) {
      const Nest nest = spread_filter(stride, offset, reduction);
      ASSERT_EQ(rule("dense_terms").find(nest).size(), 1U);
      const Nest counted = rule("dense_terms").apply(nest, {"r"}).nest;
      validate(counted);
      EXPECT_TRUE(rule("dense_terms").find(counted).empty()) << "once";
      for (const Sizes& sizes : {Sizes{{"N", 5}, {"K", 7}}, Sizes{{"N", 1}, {"K", 1}}, Sizes{{"N", 3}, {"K", 20}}})
        EXPECT_EQ(differences(nest, counted, sizes, 5), 0) << stride << ", " << offset;
      const isl::set most =
          domain_in(counted, counted.statement("r")).intersect_params(isl::set(isl_context(), "[N, K] -> { : K <= 7 }"));
      EXPECT_LE(isl_val_get_num_si(most.dim_max_val(1).get()), 6 / stride);
    }
  }
}

TEST(DenseTerms, OtherSumsStay) {
  EXPECT_TRUE(rule("dense_terms").find(matmul()).empty());
  EXPECT_TRUE(rule("dense_terms").find(spread_filter(1, 2)).empty());
  try {
    rule("dense_terms").apply(spread_filter(1, 2), {"r"});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "rule dense_terms does not apply to r: it takes no dim's every second value, or every P-th");
  }
}

}  // namespace
}  // namespace nestor
