// What the trees of kernels with tensor cores are rewritten to: conditions inside of loops, loops of loops as one; and that launches of
// what has been rewritten wrongly have no proof.
#include "codegen/gpu/kernel/kernel_split.h"
#include "codegen/gpu/kernel/product_loops.h"
#include "codegen/gpu/simt/proof/launch_check.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "support/simt/simt_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

TileTree on(const IntExpr& condition, TileTree child) {
  auto node = std::make_shared<TileNode>();
  node->kind = TileNode::Kind::condition;
  node->condition = condition;
  node->children = {std::move(child)};
  return node;
}

IntExpr at_least(const char* name, std::int64_t value) { return IntExpr::make(IntOp::ge, {var(name), IntExpr(value)}); }

TileOp scaled(const std::vector<IntExpr>& index) {
  return make_op(OpKind::map, "scaled", {parallel_dim("i", 0, 64)}, {1, index}, {{0, index}});
}

TEST(TileLoops, ConditionsMoveIntoLoopsAndOps) {
  const TileTree tree = nvptx::with_conditions_inside(
      on(at_least("n", 5),
         sequence({loop("k", 0, var("n"), on(at_least("k", 2), leaf(scaled({var("i")})))), leaf(scaled({var("i")}))})));
  ASSERT_EQ(tree->kind, TileNode::Kind::sequence);
  const TileNode &tiles = *tree->children.at(0), &op = *tree->children.at(1);
  ASSERT_EQ(tiles.kind, TileNode::Kind::loop);
  ASSERT_EQ(tiles.children.at(0)->kind, TileNode::Kind::condition);
  EXPECT_EQ(tiles.children[0]->condition.str(), (at_least("n", 5) && at_least("k", 2)).str());
  EXPECT_FALSE(tiles.children[0]->children.at(0)->op.guard.defined());
  EXPECT_EQ(op.op.guard.str(), at_least("n", 5).str());
}

TEST(TileLoops, OpsThatWriteWhereTheyFailKeepTheirConditions) {
  TileOp fills = scaled({var("i")});
  fills.guard = at_least("i", 3);
  fills.fill = 0;
  const TileTree tree = nvptx::with_conditions_inside(on(at_least("n", 5), leaf(fills)));
  ASSERT_EQ(tree->kind, TileNode::Kind::condition);
  EXPECT_EQ(tree->children.at(0)->op.guard.str(), fills.guard.str());
}

TEST(TileLoops, LoopsOfLoopsBecomeOne) {
  const std::vector<IntExpr> index{var("h"), var("k"), var("t"), var("i")};
  const TileTree tree = nvptx::with_merged_loops(loop("h", 0, var("n"), loop("k", 1, 4, loop("t", 0, 2, leaf(scaled(index))))));
  ASSERT_EQ(tree->kind, TileNode::Kind::loop);
  EXPECT_THAT(tree->merged, ElementsAre("h", "k", "t"));
  EXPECT_EQ(tree->upper.evaluate([](const std::string&) { return 5; }), 30);
  const TileOp& op = tree->children.at(0)->op;
  std::int64_t step = 0;
  for (std::int64_t h = 0; h < 5; ++h) {
    for (std::int64_t k = 1; k < 4; ++k) {
      for (std::int64_t t = 0; t < 2; ++t, ++step) {
        std::vector<std::int64_t> found;
        for (const IntExpr& expr : op.write.index)
          found.push_back(expr.evaluate([&](const std::string& name) { return name == "i" ? 7 : step; }));
        EXPECT_THAT(found, ElementsAre(h, k, t, 7));
      }
    }
  }
}

TEST(TileLoops, OfUnknownLengthInsideStayTwo) {
  const TileTree tree = nvptx::with_merged_loops(loop("h", 0, 3, loop("k", 0, var("n"), leaf(scaled({var("i")})))));
  EXPECT_EQ(tree->var, "h");
  EXPECT_THAT(tree->merged, IsEmpty());
}

/// out[b, h, k, i] = x[b, h, k, i], in blocks that say that they have tensor cores.
TileProgram nested_program() {
  ProgramMaker m("nested");
  m.size("n");
  const std::vector<IntExpr> extents{var("n"), var("n"), 4, 64};
  const int x = m.input("x", ElementType::f32, extents), out = m.output("out", ElementType::f32, extents);
  const std::vector<IntExpr> index{var("b"), var("h"), var("k"), var("i")};
  TileOp op = make_op(OpKind::copy, "u", {parallel_dim("i", 0, 64)}, {out, index}, {{x, index}});
  op.value = m.read(op, 0);
  const TileTree body = loop("h", 0, var("n"), loop("k", 1, 4, leaf(op)));
  auto blocks = std::make_shared<TileNode>(*loop("b", 0, var("n"), body, LoopKind::gpu_block));
  GridShape shape;
  shape.warpgroups = 1;
  blocks->knobs = loop_knobs(shape);
  return m.finish(blocks);
}

TEST(TileLoops, LaunchesOfMergedLoopsAreThoseOfTheProgram) {
  const nvptx::LaunchPlan plan = nvptx::plan_launches(nested_program(), 256);
  const TileTree& body = plan.kernels.at(0).body;
  ASSERT_THAT(body->merged, ElementsAre("h", "k"));
  EXPECT_THAT(nvptx::check_launches(plan), IsEmpty());
  const std::vector<std::function<void(TileNode&)>> changes{
      [](TileNode& node) { node.upper = node.upper - IntExpr(1); },
      [](TileNode& node) { node.lower = node.lower + IntExpr(1); },
      [](TileNode& node) { std::swap(node.merged[0], node.merged[1]); },
      [](TileNode& node) { node.merged.pop_back(); },
      [](TileNode& node) { node.merged.clear(); },
      [](TileNode& node) { node.merged[1] = "i"; },
      [](TileNode& node) { node.step = 2; },
      [](TileNode& node) {
        node.children = {nvptx::rewrite(node.children[0], [&](const IntExpr& expr) {
          return expr.substitute(node.var, IntExpr::variable(node.var) + IntExpr(1));
        })};
      }};
  for (std::size_t k = 0; k < changes.size(); ++k) {
    nvptx::LaunchPlan spoilt = plan;
    auto node = std::make_shared<TileNode>(*body);
    changes[k](*node);
    spoilt.kernels[0].body = node;
    EXPECT_THAT(nvptx::check_launches(spoilt), Not(IsEmpty())) << k;
  }
}

}  // namespace
}  // namespace nestor::testing
