// No candidate runs without a proof of its tile program: what is refuted is wrong, and the row says why.
#include "autotune/trial/proof_gate.h"
#include "codegen/gpu/backend.h"
#include "support/nests/sample_nests.h"
#include "support/simt/simt_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using ::testing::HasSubstr;

TEST(ProofGate, ProvedProgramsPass) {
  const Schedule schedule(samples::matmul());
  EXPECT_FALSE(outcome_without_proof(prove_program(build_tile_program(schedule), schedule), 1.0));
}

TEST(ProofGate, RefutedProgramsAreWrongWithACounterexample) {
  const Schedule schedule(samples::matmul());
  TileProgram program = build_tile_program(schedule);
  program.root = std::make_shared<const TileNode>();  // runs nothing
  const auto outcome = outcome_without_proof(prove_program(program, schedule), 1.0);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->status, TrialStatus::wrong);
  EXPECT_THAT(outcome->reason, HasSubstr("the tile program is refuted: coverage: no op runs an instance of C_init, for example"));
  EXPECT_EQ(outcome->compile_ms, 1.0);
  EXPECT_FALSE(outcome->kernel);
}

TEST(ProofGate, WhatCannotBeDecidedIsUnproved) {
  const Schedule schedule =
      Schedule(samples::matmul()).apply(parse_step("fuse_with(C_init.i, C_update.i)")).apply(parse_step("parallel(C_update.i)"));
  TileProgram program = build_tile_program(schedule);
  TileNode root = *program.root;
  while (root.kind != TileNode::Kind::loop) root = *root.children.front();
  root.upper = root.upper * IntExpr::variable("N");
  program.root = std::make_shared<const TileNode>(root);
  const auto outcome = outcome_without_proof(prove_program(program, schedule), 1.0);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->status, TrialStatus::unproved) << outcome->reason;
  EXPECT_THAT(outcome->reason, HasSubstr("is not affine"));
}

/// out[b * w + c] for a width that is a size: no linear arithmetic tells its elements apart.
TileProgram program_over_products_of_sizes() {
  testing::ProgramMaker m("products");
  m.size("n").size("w");
  const IntExpr n = testing::var("n"), w = testing::var("w"), place = testing::var("b") * w + testing::var("c");
  const int out = m.output("out", ElementType::f32, {n * w});
  TileOp op = testing::make_op(OpKind::map, "fill", {testing::parallel_dim("c", 0, w)}, {out, {place}}, {});
  op.value = ScalarExpr::constant(1);
  return m.finish(testing::loop("b", 0, n, testing::leaf(op), LoopKind::gpu_block));
}

TEST(ProofGate, PlansOfKernelsThatCannotBeDecidedAreUnproved) {
  const CompiledNvptx compiled = compile_nvptx(program_over_products_of_sizes(), {});
  const auto outcome = outcome_without_plan_proof(compiled.certificate.unproved, 1.0);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->status, TrialStatus::unproved);
  EXPECT_THAT(outcome->reason,
              HasSubstr("how threads share the tile program is not proved: products_0: two blocks at fill may touch out"));
  EXPECT_FALSE(outcome->kernel);
  EXPECT_FALSE(outcome_without_plan_proof({}, 1.0));
}

}  // namespace
}  // namespace nestor
