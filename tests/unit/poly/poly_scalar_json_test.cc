// Expressions that use large parts more than once keep them once: in memory, in JSON, and back.
#include <gtest/gtest.h>

#include <set>

#include "poly/nest/nest_json.h"
#include "poly/nest/scalar_json.h"
#include "poly/nest/scalar_share.h"
#include "support/nests/sample_nests.h"

namespace nestor {
namespace {

using samples::read;
using samples::operator*;
using samples::operator+;

int distinct_nodes(const ScalarExpr& expr) {
  std::set<const void*> nodes;
  expr.visit([&](const ScalarExpr& node) { nodes.insert(node_identity(node)); });
  return static_cast<int>(nodes.size());
}

/// ((a + b)^2)^2 ..., spelled out: a tree of 2^(doublings + 2) - 1 nodes of which doublings + 3 differ.
ScalarExpr spelled_out(int doublings) {
  if (doublings == 0) return read(0) + read(1);
  return spelled_out(doublings - 1) * spelled_out(doublings - 1);
}

TEST(SharedNodes, EqualPartsBecomeOneNode) {
  const ScalarExpr tree = spelled_out(6);
  EXPECT_EQ(distinct_nodes(tree), 255);
  const ScalarExpr shared = share_nodes(tree);
  EXPECT_EQ(distinct_nodes(shared), 9);
  EXPECT_TRUE(shared.equals(tree));
}

TEST(SharedNodes, DifferentConstantsStayApart) {
  const ScalarExpr sum = ScalarExpr::constant(0.0) + ScalarExpr::constant(-0.0) * ScalarExpr::constant(0, ElementType::f16);
  EXPECT_EQ(distinct_nodes(share_nodes(sum)), 5);
}

TEST(SharedNodes, RewritingKeepsThemShared) {
  int calls = 0;
  const ScalarExpr rewritten = share_nodes(spelled_out(6)).rewrite([&](const ScalarExpr& node) {
    ++calls;
    return node.op() == ScalarOp::read ? read(node.ordinal() + 1) : node;
  });
  EXPECT_EQ(calls, 9);
  EXPECT_EQ(distinct_nodes(rewritten), 9);
  EXPECT_TRUE(rewritten.reads(2));
}

TEST(ScalarJson, WritesLargePartsOnce) {
  const ScalarExpr tree = spelled_out(8);
  const nlohmann::json json = scalar_expr_to_json(tree);
  EXPECT_EQ(json.at("shared").size(), 5U) << "parts below 16 nodes are repeated";
  const ScalarExpr back = scalar_expr_from_json(json);
  EXPECT_TRUE(back.equals(tree));
  EXPECT_EQ(distinct_nodes(back), 11);
  EXPECT_EQ(scalar_expr_to_json(back), json);
}

TEST(ScalarJson, SmallExpressionsArePlainTrees) {
  const nlohmann::json json = scalar_expr_to_json(spelled_out(1));
  EXPECT_EQ(json.at("op"), "mul");
  EXPECT_TRUE(scalar_expr_from_json(json).equals(spelled_out(1)));
}

}  // namespace
}  // namespace nestor
