// Dims of one value: they order the statements of a step, and are no dims of ops outside of blocks.
#include "codegen/proof/program_proof.h"
#include "codegen/tile/tile_program.h"
#include "support/nests/apply_steps.h"
#include "support/nests/recurrence_nests.h"

#include <gtest/gtest.h>

#include <map>

namespace nestor {
namespace {

void add_ops(const TileNode& node, std::map<std::string, TileOp>& ops) {
  if (node.kind == TileNode::Kind::op) ops.emplace(node.op.name, node.op);
  for (const TileTree& child : node.children) add_ops(*child, ops);
}

std::map<std::string, TileOp> ops_of(const Schedule& schedule) {
  const TileProgram program = build_tile_program(schedule);
  EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
  std::map<std::string, TileOp> ops;
  add_ops(*program.root, ops);
  return ops;
}

const std::vector<std::string> kApart{"fission(start.r, m)",    "fission(start.s, m)",    "fission(start.p, m)",
                                      "fission(start.r, left)", "fission(start.s, left)", "fission(start.p, left)",
                                      "fission(start.r, sum)",  "fission(start.s, sum)",  "fission(start.p, sum)"};

TEST(SingleDims, SumsOfAStepAreProductsAndTheRestAreMaps) {
  const auto ops = ops_of(testing::scheduled(samples::corrected_matrix(), kApart));
  EXPECT_EQ(ops.at("sum").kind, OpKind::contract);
  EXPECT_EQ(ops.at("sum").dims.size(), 2u) << "columns, and the sum's terms";
  EXPECT_TRUE(ops.at("sum").initialize) << "its start is folded into it";
  EXPECT_EQ(ops.at("left").kind, OpKind::map);
  EXPECT_EQ(ops.at("left").dims.size(), 1u);
  EXPECT_EQ(ops.at("m").kind, OpKind::map);
  EXPECT_EQ(ops.at("m").dims.size(), 2u);
}

TEST(SingleDims, StepsWithinABlockHaveNoneEither) {
  auto steps = kApart;
  steps.emplace_back("gpu_blocks(start.b)");
  const auto ops = ops_of(testing::scheduled(samples::corrected_matrix(), steps));
  EXPECT_EQ(ops.at("left").dims.size(), 1u);
  EXPECT_TRUE(ops.at("sum").initialize) << "its start is folded into it";
}

TEST(SingleDims, StayWhereABlockPlansThem) {
  const Nest nest =
      samples::NestBuilder("first", {{"rows", 4}, {"cols", 7}})
          .tensor("x", TensorRole::input, {"rows", "cols"})
          .tensor("y", TensorRole::output, {"rows", "2", "cols"})
          .statement("y[i, k, j] : 0 <= i < rows and k = 1 and 0 <= j < cols", "y[i, k, j]", {"x[i, j]"}, samples::read(0))
          .build();
  EXPECT_EQ(ops_of(testing::scheduled(nest, {"gpu_blocks(y.i)"})).at("y").dims.size(), 2u);
}

/// Sums start where they are taken, whatever of other tensors stands between.
TEST(SingleDims, StartsAreFoldedPastOpsOfOtherTensors) {
  const auto nest = [](bool meets) {
    return samples::NestBuilder("two", {{"rows", 4}, {"cols", 7}})
        .tensor("x", TensorRole::input, {"rows", "cols"})
        .tensor("a", TensorRole::output, {"rows"})
        .tensor("b", TensorRole::output, {"rows"})
        .statement("a0[i] : 0 <= i < rows", "a[i]", {}, samples::number(0))
        .statement("b0[i] : 0 <= i < rows", "b[i]", {meets ? "a[i]" : "x[i, 0]"}, samples::read(0))
        .statement("a1[i, j] : 0 <= i < rows and 0 <= j < cols", "a[i]", {"x[i, j]"}, samples::read(0), ReductionOp::add)
        .build();
  };
  EXPECT_TRUE(ops_of(Schedule(nest(false))).at("a1").initialize);
  EXPECT_FALSE(ops_of(Schedule(nest(true))).at("a1").initialize) << "what starts it is read before";
}

/// Where sizes decide whether there is one value, the dim stays.
TEST(SingleDims, ASizeMayBeOne) {
  const Nest nest = samples::NestBuilder("scaled", {{"rows", 1}, {"cols", 1}})
                        .tensor("x", TensorRole::input, {"rows", "cols"})
                        .tensor("y", TensorRole::output, {"rows", "cols"})
                        .statement("y[i, j] : 0 <= i < rows and 0 <= j < cols", "y[i, j]", {"x[i, j]"},
                                   samples::operator+(samples::read(0), samples::number(1)))
                        .build();
  EXPECT_EQ(ops_of(Schedule(nest)).at("y").dims.size(), 2u);
}

}  // namespace
}  // namespace nestor
