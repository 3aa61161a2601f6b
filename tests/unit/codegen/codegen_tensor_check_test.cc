// The proof of a tensor plan: sound plans have one. What it says of mutants stands in tests/golden/codegen_tensor_mutants_test.cc.
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "support/mutants/tensor_mutants.h"
#include "support/tensor/product_nests.h"
#include "support/tensor/tensor_check_cases.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using nvptx::TensorPlan;
using ::testing::HasSubstr;

class TensorCheck : public ::testing::TestWithParam<TensorCheckCase> {};

INSTANTIATE_TEST_SUITE_P(Attention, TensorCheck, ::testing::ValuesIn(tensor_check_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(TensorCheck, a_plan_has_a_proof_and_runs) {
  const CheckedAttention attention(GetParam());
  const nvptx::TensorCertificate certificate = check_tensor_plan(attention.plan);
  EXPECT_THAT(certificate.violations, ::testing::IsEmpty());
  EXPECT_THAT(certificate.proved.front(), HasSubstr("circular buffer 0 (k)"));
  const int blocks = attention.plan.cluster();
  const std::string shared = fmt::format("of {} blocks, each of which copies its share", blocks);
  EXPECT_EQ(certificate.proved.front().find(shared) != std::string::npos, blocks > 1);
  EXPECT_EQ(fault_of(attention.plan), "");
}

TEST(TensorProofs, rows_of_a_pack_lie_where_products_read_them) {
  const PlannedTensor planned(
      tensor_program(attention_nest({.depth = 16, .grouped = true}), {.rows = 64, .columns = 32, .warpgroups = 1, .pack = 4}));
  EXPECT_THAT(check_tensor_plan(planned.plan).violations, ::testing::IsEmpty());
  const auto q = static_cast<std::size_t>(&planned.ring("q") - planned.plan.circular_buffers.data());
  for (const int index : {-1, 0, 2, 3}) {
    nvptx::TensorPlan mutant = planned.plan;
    mutant.circular_buffers[q].pack_index = index;
    EXPECT_THAT(check_tensor_plan(mutant).violations,
                ::testing::ElementsAre(::testing::HasSubstr("does not hold the rows of a pack as dot reads them")));
  }
  nvptx::TensorPlan mutant = planned.plan;
  mutant.pack = 2;
  EXPECT_THAT(check_tensor_plan(mutant).violations, ::testing::Not(::testing::IsEmpty()));
}

TEST(TensorProofs, a_thread_reads_back_what_it_has_written_itself) {
  const PlannedTensor planned(product_program({.result = ElementType::f32, .read_back = true}));
  EXPECT_THAT(check_tensor_plan(planned.plan).violations, ::testing::IsEmpty());
  const auto complaint_with = [&](const char* name, auto change) {
    nvptx::TensorPlan mutant = planned.plan;
    change(mutant.ops.at(static_cast<std::size_t>(&planned.op(name) - planned.plan.ops.data())));
    return check_tensor_plan(mutant).violations;
  };
  const auto refused = ::testing::Contains(HasSubstr("twice reads out where other threads of the same kernel write it, in out"));
  for (const std::size_t at : {0, 1}) {
    EXPECT_THAT(
        complaint_with("twice", [at](nvptx::TensorOp& op) { op.op.reads[1].index[at] = op.op.reads[1].index[at] + IntExpr(1); }),
        refused);
  }
  EXPECT_THAT(complaint_with("twice", [](nvptx::TensorOp& op) { std::swap(op.op.reads[1].index[0], op.op.reads[1].index[1]); }),
              refused);
  EXPECT_THAT(complaint_with("twice", [](nvptx::TensorOp& op) { op.op.reads[1].index[1] = IntExpr(0); }), refused);
  // Columns that nobody writes are another thread's either way, and race with nothing.
  EXPECT_THAT(complaint_with("twice", [](nvptx::TensorOp& op) { op.op.reads[1].index[1] = IntExpr(-1); }),
              ::testing::Not(refused));
  // What leaves through shared memory is stored by other threads.
  nvptx::TensorPlan staged = planned.plan;
  nvptx::TensorOp& out = staged.ops.at(static_cast<std::size_t>(&planned.op("out") - planned.plan.ops.data()));
  out.through_shared = true;
  out.stage_columns = nvptx::kBlockColumns;
  out.stage_blocks = 1;
  out.stage_pending = {-1};
  out.row_index = 0;
  out.stage_offset = (staged.shared_bytes + 1023) / 1024 * 1024;
  staged.shared_bytes = out.stage_offset + (1 << 17);
  EXPECT_THAT(check_tensor_plan(staged).violations, refused);
}

TEST(TensorProofs, a_result_has_a_place_that_is_free) {
  for (const int stages : {3, 4}) {
    const PlannedTensor planned(
        product_program({}, {.columns = 256, .depth = 64, .stages = stages, .more = {"persistent(out.io, 1)"}}));
    const nvptx::TensorOp& out = planned.op("out");
    EXPECT_EQ(out.stage_blocks, stages == 3 ? 4 : 2);
    EXPECT_TRUE(out.waits_for_place);
    const auto violations_with = [&](auto change) {
      nvptx::TensorPlan mutant = planned.plan;
      change(mutant.ops.at(static_cast<std::size_t>(&out - planned.plan.ops.data())));
      return check_tensor_plan(mutant).violations;
    };
    EXPECT_THAT(violations_with([](nvptx::TensorOp&) {}), ::testing::IsEmpty());
    EXPECT_THAT(violations_with([](nvptx::TensorOp& op) { op.waits_for_place = false; }),
                ::testing::ElementsAre("out is stored again before what it stored has left"));
    EXPECT_THAT(violations_with([](nvptx::TensorOp& op) { op.stage_pending.pop_back(); }),
                ::testing::ElementsAre(::testing::HasSubstr("waits for the places of")));
    for (std::size_t batch = 0; batch < out.stage_pending.size(); ++batch) {
      EXPECT_THAT(violations_with([&](nvptx::TensorOp& op) { ++op.stage_pending.at(batch); }),
                  ::testing::Contains(fmt::format("out writes part {} of a tile over one that may still leave", batch)));
    }
    EXPECT_THAT(violations_with([](nvptx::TensorOp& op) { op.stage_blocks = 0; }),
                ::testing::Contains("out has a place for 0 blocks of columns, and has 4"));
    EXPECT_THAT(violations_with([](nvptx::TensorOp& op) { op.stage_columns = 48; }),
                ::testing::Contains(::testing::HasSubstr("there is no swizzle")));
    EXPECT_THAT(violations_with([](nvptx::TensorOp& op) { op.stage_blocks = 5; }),
                ::testing::Contains("out has a place for 5 blocks of columns, and has 4"));
    EXPECT_THAT(violations_with([](nvptx::TensorOp& op) { op.stage_offset -= 1024; }), ::testing::Not(::testing::IsEmpty()));
  }
}

TEST(TensorProofs, an_operand_lends_its_place_to_rows_of_its_own_length_alone) {
  const PlannedTensor planned(tensor_program(attention_nest({.depth = 32})));
  EXPECT_EQ(planned.op("out").stage_offset, planned.ring("q").offset);
  EXPECT_EQ(planned.op("out").stage_columns, 64);
  nvptx::TensorPlan mutant = planned.plan;
  for (nvptx::TensorOp& op : mutant.ops) op.stage_columns = 32;
  EXPECT_THAT(check_tensor_plan(mutant).violations, ::testing::Contains(::testing::HasSubstr("in shared memory")));
}

TEST(TensorProofs, an_odd_number_of_parts_waits_for_the_last_of_the_tile_before) {
  const PlannedTensor planned(product_program(
      {}, {.rows = 64, .columns = 192, .depth = 64, .stages = 6, .more = {"persistent(out.io, 1)", "ping_pong_tiles(out.io)"}}));
  EXPECT_EQ(planned.op("out").stage_pending, (std::vector<int>{0, 2, 1}));
  EXPECT_THAT(check_tensor_plan(planned.plan).violations, ::testing::IsEmpty());
}

TEST(TensorProofs, what_earlier_proofs_have_answered_changes_no_verdict) {
  nvptx::BoundAnswers answers;
  for (const TensorCheckCase& tested : tensor_check_cases()) {
    const CheckedAttention attention(tested);
    EXPECT_THAT(check_tensor_plan(attention.plan, answers).violations, ::testing::IsEmpty()) << tested.name;
    const std::vector<TensorMutant> mutants = TensorMutator(attention.plan).all();
    for (std::size_t k = 0; k < mutants.size(); k += 150) {
      EXPECT_EQ(check_tensor_plan(mutants[k].plan, answers).violations, check_tensor_plan(mutants[k].plan).violations)
          << tested.name << ": " << mutants[k].what << " at " << mutants[k].where;
    }
  }
}

}  // namespace
}  // namespace nestor::testing
