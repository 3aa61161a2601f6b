// Conditions with quotients, one beside the other: what they leave has ever more pieces, which rules do not follow.
#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

namespace nestor {
namespace {

using namespace samples;

/// weight[i, j] = sum over levels l of select(i / 2^l is odd and j / 2^l is the one before, share[i, l], 0), out[i] = sum over j <= i of
/// weight[i, j] x[j]: buckets of a Fenwick tree.
Nest levels_of_buckets(int levels) {
  const std::string pair = "0 <= i < N and 0 <= j <= i";
  std::vector<std::string> reads;
  for (int l = 0; l < levels; ++l) reads.push_back("share[i, " + std::to_string(l) + "]");
  Nest nest = NestBuilder("levels_of_buckets", {{"N", 64}})
                  .tensor("share", TensorRole::input, {"N", std::to_string(levels)})
                  .tensor("x", TensorRole::input, {"N"})
                  .tensor("weight", TensorRole::temporary, {"N", "N"})
                  .tensor("out", TensorRole::output, {"N"})
                  .statement("weight[i, j] : " + pair, "weight[i, j]", reads, read(0))
                  .statement("out_init[i] : 0 <= i < N", "out[i]", {}, number(0))
                  .statement("out[i, j] : " + pair, "out[i]", {"weight[i, j]", "x[j]"}, read(0) * read(1), ReductionOp::add)
                  .build();
  Statement& weight = nest.statements.front();
  ScalarExpr all = number(0);
  for (int l = 0; l < levels; ++l) {
    const std::string size = std::to_string(1 << l), twice = std::to_string(2 << l);
    for (const std::string& index : {"floor(i/" + size + ")", "2*floor(i/" + twice + ") + 1", "floor(j/" + size + ") + 1"})
      weight.indices.push_back(parse_pw_aff("[N] -> { weight[i, j] -> [(" + index + ")] }", "test"));
    const auto same = [&](int a, int b) {
      return ScalarExpr::make(ScalarOp::eq, {ScalarExpr::index(3 * l + a), ScalarExpr::index(3 * l + b)});
    };
    all = all + ScalarExpr::make(ScalarOp::select,
                                 {ScalarExpr::make(ScalarOp::logical_and, {same(0, 1), same(0, 2)}), read(l), number(0)});
  }
  weight.value = all;
  return nest;
}

TEST(ManyConditions, AreNotFollowedPieceByPiece) {
  const Nest nest = levels_of_buckets(11);
  validate(nest);
  const std::clock_t start = std::clock();
  EXPECT_TRUE(rule("neutral_terms").find(nest).empty());
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 8) << "seconds; each level takes a multiple otherwise";
}

TEST(ManyConditions, AFewAreLoopBounds) {
  const Nest nest = levels_of_buckets(1);
  EXPECT_EQ(rule("neutral_terms").find(nest).size(), 1U);
}

}  // namespace
}  // namespace nestor
