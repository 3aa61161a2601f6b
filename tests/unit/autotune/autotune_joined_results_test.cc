// Products whose rows and columns lie along two indices of their operands and results each: one kernel computes and stores them, where
// tensor copies can write whole periods, through shared memory.
#include "autotune/space/nest/nest_space.h"
#include "autotune/space/structure/group_search.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "codegen/proof/program_proof.h"
#include "support/nests/operand_nests.h"
#include "support/simt/simt_image.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace nestor {
namespace {

using namespace samples;

const Sizes kLarge{{"V", 512}, {"N", 384}};

struct JoinedCase {
  int rows, columns;  ///< periods
  int copy_rows;      ///< of one tensor copy; 0: results are stored from registers
  Sizes ragged;       ///< that kernels run at
};

/// Guesses for large sizes, with joined rows and results where wide columns would do without, too.
struct Guesses {
  explicit Guesses(const Nest& nest, const Sizes& large = kLarge)
      : schedules(nest_for_tuning(nest, complete_sizes(nest, large))),
        space(make_nest_space(schedules, complete_sizes(nest, large), gpu_space_limits(90, NvptxTarget{}.shared_limit, 132))) {
    for (const Point& point : space->defaults()) {
      NamedValues values = named_values(*space, point);
      if (value_or(values, "warpgroups", 0) == 0) continue;
      values["rule.join_rows"] = values["rule.join_results"] = 1;
      values["fusion"] = static_cast<std::int64_t>(Fusion::careful);
      if (const auto joined = point_from(*space, values)) points.push_back(*joined);
    }
  }

  BaseSchedules schedules;
  std::unique_ptr<Space> space;
  std::vector<Point> points;
};

class JoinedResults : public ::testing::TestWithParam<JoinedCase> {};
INSTANTIATE_TEST_SUITE_P(
    Periods, JoinedResults,
    ::testing::Values(JoinedCase{32, 32, 64, {{"V", 70}, {"N", 9}}}, JoinedCase{16, 64, 64, {{"V", 72}, {"N", 5}}},
                      JoinedCase{64, 32, 64, {{"V", 64}, {"N", 5}}}, JoinedCase{128, 96, 64, {{"V", 33}, {"N", 3}}},
                      JoinedCase{48, 32, 16, {{"V", 130}, {"N", 6}}}, JoinedCase{24, 64, 8, {{"V", 40}, {"N", 11}}},
                      JoinedCase{32, 16, 0, {{"V", 40}, {"N", 9}}}, JoinedCase{20, 32, 0, {{"V", 40}, {"N", 10}}}),
    [](const auto& info) { return fmt::format("rows_{}_columns_{}", info.param.rows, info.param.columns); });

TEST_P(JoinedResults, GuessesOfEachKindAreRight) {
  const JoinedCase& test = GetParam();
  const Nest nest = outer_products("", test.rows, test.columns);
  Guesses guesses(nest);
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  const TileProgram meaning = build_tile_program(guesses.schedules.base({}));
  for (const Point& point : guesses.points) {
    const NamedValues values = named_values(*guesses.space, point);
    if (!seen.emplace(value_or(values, "cluster", 1), value_or(values, "ping_pong_tiles", 0)).second) continue;
    const Candidate candidate = guesses.space->candidate(point);
    ASSERT_EQ(candidate.infeasible, "");
    const Schedule schedule = guesses.schedules.replay(candidate.steps);
    const TileProgram program = build_tile_program(schedule);
    EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
    const CompiledNvptx compiled = compile_nvptx(program, {});  // its plans are proved
    const auto& kernels = compiled.plans->kernels;
    ASSERT_TRUE(kernels.back().tensor) << "the last kernel";
    const nvptx::TensorPlan& plan = *kernels.back().tensor;
    EXPECT_EQ(plan.buffer(plan.ops.back().op.write.buffer).name, "out");
    EXPECT_EQ(plan.ops.back().through_shared ? copied_rows(plan, plan.ops.back()).rows : 0, test.copy_rows);
    EXPECT_EQ(testing::run_emulated(compiled, meaning, test.ragged, {.tolerance = 4e-3}, {1}), "")
        << ::testing::PrintToString(values);
  }
  EXPECT_GE(seen.size(), 3U);
}

/// Heads of 32 columns each, in rows of tokens or of channels; values that follow one of the two indices take part.
Nest heads_of_products(bool tokens_first) {
  const ScalarExpr wide[] = {ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)),
                             ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16))};
  const std::string cell = "0 <= i < T and 0 <= h < N and 0 <= d < 32", dims = tokens_first ? "i, h, d" : "h, d, i";
  const std::vector<std::string> extents =
      tokens_first ? std::vector<std::string>{"T", "N", "32"} : std::vector<std::string>{"N", "32", "T"};
  const auto element = [&](const std::string& name) { return name + "[" + dims + "]"; };
  return NestBuilder("heads_of_products", {{"V", 512}, {"N", 384}, {"T", 4096}})
      .tensor("a", TensorRole::input, {"V", "T"}, ElementType::f16)
      .tensor("b", TensorRole::input, {"V", "N", "32"}, ElementType::f16)
      .tensor("bias", TensorRole::input, {"N", "32"})
      .tensor("gain", TensorRole::input, {"32"})
      .tensor("gate", TensorRole::input, {"T", "N"}, ElementType::f16)
      .tensor("sums", TensorRole::temporary, extents)
      .tensor("out", TensorRole::output, extents, ElementType::f16)
      .statement(element("init") + " : " + cell, element("sums"), {}, number(0))
      .statement("sum[" + dims + ", v] : " + cell + " and 0 <= v < V", element("sums"), {"a[v, i]", "b[v, h, d]"},
                 wide[0] * wide[1], ReductionOp::add)
      .statement(element("out") + " : " + cell, element("out"), {element("sums"), "gate[i, h]", "bias[h, d]", "gain[d]"},
                 ScalarExpr::cast(ElementType::f16, (read(0) * number(0.25) + read(2)) * wide[1] * read(3)))
      .build();
}

TEST(JoinedResults, OneSideAloneAndValuesAlongOneIndex) {
  for (const bool tokens_first : {true, false}) {
    const Nest nest = heads_of_products(tokens_first);
    Guesses guesses(nest);
    const Candidate first = guesses.space->candidate(guesses.points.at(0));
    ASSERT_EQ(first.infeasible, "");
    const Schedule schedule = guesses.schedules.replay(first.steps);
    const TileProgram program = build_tile_program(schedule);
    EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
    const CompiledNvptx compiled = compile_nvptx(program, {});
    ASSERT_TRUE(compiled.plans->kernels.back().tensor);
    EXPECT_TRUE(compiled.plans->kernels.back().tensor->ops.back().through_shared);
    EXPECT_EQ(testing::run_emulated(compiled, build_tile_program(guesses.schedules.base({})), {{"V", 72}, {"N", 11}, {"T", 304}},
                                    {.tolerance = 4e-3}, {1}),
              "")
        << tokens_first;
  }
}

/// Channels first: out[b, f, y, z] = sum over k of w[f, k] x[b, k, y, z], of 256 channels.
Nest mixed_channels(std::int64_t side) {
  const std::string length = std::to_string(side),
                    cell = "0 <= b < B and 0 <= f < 64 and 0 <= y < " + length + " and 0 <= z < " + length;
  return NestBuilder("mixed_channels", {{"B", 32}})
      .tensor("w", TensorRole::input, {"64", "256"}, ElementType::f16)
      .tensor("x", TensorRole::input, {"B", "256", length, length}, ElementType::f16)
      .tensor("sums", TensorRole::temporary, {"B", "64", length, length})
      .tensor("out", TensorRole::output, {"B", "64", length, length}, ElementType::f16)
      .statement("init[b, f, y, z] : " + cell, "sums[b, f, y, z]", {}, number(0))
      .statement("sum[b, f, y, z, k] : " + cell + " and 0 <= k < 256", "sums[b, f, y, z]", {"w[f, k]", "x[b, k, y, z]"},
                 product_of_halves(), ReductionOp::add)
      .statement("out[b, f, y, z] : " + cell, "out[b, f, y, z]", {"sums[b, f, y, z]"},
                 ScalarExpr::cast(ElementType::f16, read(0)))
      .build();
}

/// Images of 56 x 56 have rows that fill most of a tile: copying them would cost more than it saves. Rows of 8 are joined.
TEST(JoinedResults, CopiesThatCostMoreThanEmptyTilesAreNotGuessedFirst) {
  const auto first_joins = [](std::int64_t side) {
    const Nest nest = mixed_channels(side);
    const Sizes sizes = complete_sizes(nest, {});
    BaseSchedules schedules(nest_for_tuning(nest, sizes));
    const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132));
    const NamedValues first = named_values(*space, space->defaults().front());
    EXPECT_GT(value_or(first, "warpgroups", 0), 0) << side;
    return value_or(first, "rule.join_rows", 0) == 1;
  };
  EXPECT_FALSE(first_joins(56));
  EXPECT_TRUE(first_joins(8));
}

/// Corners of cells in space: rows along three indices, columns along four, in one kernel with what is added to them.
TEST(JoinedResults, LieAlongSeveralIndicesInTurn) {
  Guesses guesses(corners_of_cells(), {{"V", 512}, {"R", 64}});
  const Candidate first = guesses.space->candidate(guesses.points.at(0));
  ASSERT_EQ(first.infeasible, "");
  const Schedule schedule = guesses.schedules.replay(first.steps);
  const TileProgram program = build_tile_program(schedule);
  EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
  const CompiledNvptx compiled = compile_nvptx(program, {});
  ASSERT_TRUE(compiled.plans->kernels.back().tensor);
  const nvptx::TensorPlan& plan = *compiled.plans->kernels.back().tensor;
  EXPECT_EQ(plan.buffer(plan.ops.back().op.write.buffer).name, "out");
  for (const Sizes& sizes : {Sizes{{"V", 24}, {"R", 9}}, Sizes{{"V", 64}, {"R", 4}}})
    EXPECT_EQ(testing::run_emulated(compiled, build_tile_program(guesses.schedules.base({})), sizes, {.tolerance = 4e-3}, {1}),
              "");
}

TEST(JoinedResults, CopiesOfOtherRowsOrColumnsHaveNoProof) {
  for (const auto& [rows, columns] : {std::pair{32, 32}, {16, 64}, {48, 32}}) {
    Guesses guesses(outer_products("", rows, columns));
    const Candidate first = guesses.space->candidate(guesses.points.at(0));
    const auto plans = plan_kernels(build_tile_program(guesses.schedules.replay(first.steps)), {});
    const nvptx::TensorPlan& plan = plans->kernels.back().tensor.value();
    EXPECT_THAT(check_tensor_plan(plan).violations, ::testing::IsEmpty());
    const std::size_t store = plan.ops.size() - 1;
    ASSERT_TRUE(plan.ops[store].through_shared);
    const auto refuted = [&](auto change) {
      nvptx::TensorPlan mutant = plan;
      change(mutant.ops[store]);
      return !check_tensor_plan(mutant).violations.empty();
    };
    const nvptx::CopiedRows copy = copied_rows(plan, plan.ops[store]);
    for (const int period : {0, 1, 2, 8, 24, 96, 64, 128}) {
      nvptx::TensorOp changed = plan.ops[store];
      changed.joined_rows.period = period;
      const nvptx::CopiedRows other = copied_rows(plan, changed);
      const bool same =
          other.rows == copy.rows && other.outer == copy.outer && other.inner == copy.inner && other.per_outer == copy.per_outer;
      // Copies of fewer rows, all of one period, are right.
      const bool right = same || (other.rows > 0 && other.inner < 0 && other.outer == 2 && rows % other.rows == 0);
      EXPECT_EQ(refuted([&](auto& op) { op.joined_rows.period = period; }), !right) << rows << " " << period;
    }
    EXPECT_TRUE(refuted([&](auto& op) { std::swap(op.joined_rows.quotient, op.joined_rows.remainder); }));
    EXPECT_TRUE(refuted([&](auto& op) { op.joined_rows = op.joined_columns = {}; }));
    EXPECT_EQ(refuted([&](auto& op) { op.stage_columns = 64; }), columns == 32);
    for (const int index : {0, 1, 2, 3}) {
      const nvptx::JoinedIndex& joined = plan.ops[store].joined_rows;
      EXPECT_EQ(refuted([&](auto& op) { op.joined_rows.quotient = index; }), copy.inner >= 0 && index != joined.quotient)
          << index;
      EXPECT_EQ(refuted([&](auto& op) { op.joined_rows.remainder = index; }), index != joined.remainder) << index;
      for (const int by : {-1, 1}) {
        EXPECT_TRUE(refuted([&](auto& op) {
          IntExpr& at = op.op.write.index[static_cast<std::size_t>(index)];
          at = at + IntExpr(by);
        })) << index;
      }
    }
  }
}

}  // namespace
}  // namespace nestor
