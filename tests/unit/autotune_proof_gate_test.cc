// No candidate runs without a proof of its tile program: what is refuted is wrong, and the row says why.
#include "autotune/measure/proof_gate.h"
#include "support/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using ::testing::HasSubstr;

TEST(ProofGate, ProvedProgramsPass) {
  const Schedule schedule(samples::matmul());
  EXPECT_FALSE(outcome_without_proof(build_tile_program(schedule), schedule, 1.0));
}

TEST(ProofGate, RefutedProgramsAreWrongWithACounterexample) {
  const Schedule schedule(samples::matmul());
  TileProgram program = build_tile_program(schedule);
  program.root = std::make_shared<const TileNode>();  // runs nothing
  const auto outcome = outcome_without_proof(program, schedule, 1.0);
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
  const auto outcome = outcome_without_proof(program, schedule, 1.0);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->status, TrialStatus::unproved) << outcome->reason;
  EXPECT_THAT(outcome->reason, HasSubstr("is not affine"));
}

}  // namespace
}  // namespace nestor
