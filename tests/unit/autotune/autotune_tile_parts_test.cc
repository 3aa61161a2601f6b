// Reductions along the columns of products whose own sums are streamed: each tile leaves its part of them, and no score goes to memory.
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "codegen/proof/program_proof.h"
#include "support/mutants/tensor_value_mutants.h"
#include "support/nests/nest_runs.h"
#include "support/nests/scored_rows.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <tuple>

namespace nestor {
namespace {

using namespace samples;

constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

/// Guesses whose tiles are parts: the first ones.
struct Guesses {
  explicit Guesses(const Nest& nest)
      : sizes(complete_sizes(nest, {})),
        schedules(nest_for_tuning(nest, sizes)),
        space(make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132))) {
    const std::vector<Point> defaults = space->defaults();
    const std::int64_t columns = split_axis(defaults.front());
    for (const Point& point : defaults) {
      const bool multiplies = value_or(named_values(*space, point), "warpgroups", 0) > 0;
      if (columns >= 0 && multiplies && split_axis(point) == columns) points.push_back(point);
    }
  }

  std::int64_t split_axis(const Point& point) const { return value_or(named_values(*space, point), "split_axis", -1); }

  Schedule schedule(const Point& point) {
    const Candidate candidate = space->candidate(point);
    EXPECT_EQ(candidate.infeasible, "");
    return schedules.replay(candidate.steps);
  }

  /// The same point with other values.
  Point with(const Point& point, const NamedValues& changes) const {
    NamedValues values = named_values(*space, point);
    for (const auto& [name, value] : changes) values[name] = value;
    return point_from(*space, values).value();
  }

  Sizes sizes;
  BaseSchedules schedules;
  std::unique_ptr<Space> space;
  std::vector<Point> points;
};

/// Elements of memory that the kernels leave for each other.
std::vector<std::string> workspace(const TileProgram& program) {
  std::vector<std::string> names;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.memory == nestor::Memory::workspace) names.push_back(buffer.name);
  }
  return names;
}

struct ScoredCase {
  const char* name;
  Scored kind;
  ElementType type;
  std::vector<std::string> stored;  ///< in memory
};

class TileParts : public ::testing::TestWithParam<ScoredCase> {};
INSTANTIATE_TEST_SUITE_P(
    Rows, TileParts,
    ::testing::Values(ScoredCase{"weighted", Scored::weighted, ElementType::f16, {"sum_part"}},
                      ScoredCase{"weighted_bf16", Scored::weighted, ElementType::bf16, {"sum_part"}},
                      ScoredCase{"largest", Scored::largest, ElementType::f16, {"top_part"}},
                      ScoredCase{"down", Scored::down, ElementType::f16, {"top_part"}},
                      ScoredCase{"exponential", Scored::exponential, ElementType::f16, {"top_part", "total_part", "chosen_part"}},
                      ScoredCase{
                          "exponential_bf16", Scored::exponential, ElementType::bf16, {"top_part", "total_part", "chosen_part"}},
                      ScoredCase{"two_sums", Scored::two_sums, ElementType::bf16, {"sum_part", "squares_part"}},
                      ScoredCase{"apart", Scored::apart, ElementType::f16, {"a", "b", "sum_part"}},
                      ScoredCase{"norm", Scored::norm, ElementType::f16, {"p", "squares_part"}},
                      ScoredCase{"norm_bf16", Scored::norm, ElementType::bf16, {"p", "squares_part"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(TileParts, GuessesOfEachKindAreRight) {
  const ScoredCase& test = GetParam();
  Guesses guesses(scored_rows(test.kind, test.type));
  ASSERT_GE(guesses.points.size(), 4U);
  std::vector<Point> points = guesses.points;
  points.insert(points.begin(), guesses.with(points.front(), {{"columns", 64}, {"row_tiles", 1}, {"warpgroups", 1}}));
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>> seen;
  const TileProgram meaning = build_tile_program(guesses.schedules.base({}));
  for (const Point& point : points) {
    const NamedValues values = named_values(*guesses.space, point);
    if (!seen.emplace(values.at("columns"), values.at("cluster"), values.at("ping_pong_tiles"), values.at("row_tiles")).second ||
        seen.size() > 5)
      continue;
    const Schedule schedule = guesses.schedule(point);
    const TileProgram program = build_tile_program(schedule);
    EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
    EXPECT_THAT(workspace(program), ::testing::UnorderedElementsAreArray(test.stored));
    const CompiledNvptx compiled = compile_nvptx(program, {});  // its plans are proved
    const auto& kernels = compiled.plans->kernels;
    EXPECT_EQ(
        std::count_if(kernels.begin(), kernels.end(), [](const PlannedKernel& kernel) { return kernel.tensor.has_value(); }), 1);
    // Whole tiles, and rows and columns that end within one; a second part of one column.
    for (const Sizes& sizes : {Sizes{{"M", 128}, {"N", 256}, {"K", 64}}, Sizes{{"M", 72}, {"N", 264}, {"K", 80}},
                               Sizes{{"M", 9}, {"N", 129}, {"K", 8}}}) {
      EXPECT_EQ(testing::run_emulated(compiled, meaning, sizes, {.tolerance = 6e-3}, {1}), "")
          << ::testing::PrintToString(values) << ::testing::PrintToString(sizes);
    }
  }
  EXPECT_GE(seen.size(), 3U);
}

/// Below a diagonal, tiles of a part have other rows than others: they are no parts, and what is guessed is right.
TEST(TilePartsOfTriangles, AreNotGuessed) {
  Guesses guesses(scored_rows(Scored::below));
  const Point first = guesses.space->defaults().front();
  EXPECT_EQ(guesses.split_axis(first), -1);
  const CompiledNvptx compiled = compile_nvptx(build_tile_program(guesses.schedule(first)), {});
  EXPECT_EQ(testing::run_emulated(compiled, build_tile_program(guesses.schedules.base({})), {{"M", 40}, {"N", 70}, {"K", 16}},
                                  {.tolerance = 6e-3}, {1}),
            "");
  const Point parts = guesses.with(first, {{"split_axis", 1}, {"fusion", 2}, {"columns", 128}});
  EXPECT_EQ(guesses.space->candidate(parts).infeasible, "tiles of a part have other rows than its sums");
}

/// A grid of batches, rows and columns.
TEST(TilePartsOfBatches, AreRight) {
  Guesses guesses(scored_batches());
  ASSERT_GE(guesses.points.size(), 2U);
  const Schedule schedule = guesses.schedule(guesses.points.front());
  const TileProgram program = build_tile_program(schedule);
  EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
  EXPECT_THAT(workspace(program), ::testing::ElementsAre("sum_part"));
  const CompiledNvptx compiled = compile_nvptx(program, {});
  const TileProgram meaning = build_tile_program(guesses.schedules.base({}));
  for (const Sizes& sizes : {Sizes{{"B", 3}, {"M", 72}, {"N", 264}, {"K", 80}}, Sizes{{"B", 1}, {"M", 5}, {"N", 16}, {"K", 8}}})
    EXPECT_EQ(testing::run_emulated(compiled, meaning, sizes, {.tolerance = 6e-3}, {1}), "");
}

/// Two products, each with the parts of its reductions.
TEST(CrossedParts, RowsAndColumnsHaveAProductEach) {
  for (const bool named : {false, true}) {
    Guesses guesses(crossed_rows(named, 4096, 2048, 512, named ? ElementType::bf16 : ElementType::f16));
    ASSERT_GE(guesses.points.size(), 4U);
    std::set<std::pair<std::int64_t, std::int64_t>> seen;
    const TileProgram meaning = build_tile_program(guesses.schedules.base({}));
    for (const Point& point : guesses.points) {
      const NamedValues values = named_values(*guesses.space, point);
      if (!seen.emplace(values.at("columns"), values.at("ping_pong_tiles")).second) continue;
      EXPECT_EQ(values.at("rule.product_across"), 1);
      const Schedule schedule = guesses.schedule(point);
      const TileProgram program = build_tile_program(schedule);
      EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
      EXPECT_THAT(workspace(program), ::testing::UnorderedElementsAre("top_part", "total_part", "down_part", "sums_part"));
      const CompiledNvptx compiled = compile_nvptx(program, {});
      const auto& kernels = compiled.plans->kernels;
      EXPECT_EQ(kernels.size(), 4U) << "one more combines the rows' parts, another one those of columns";
      EXPECT_EQ(
          std::count_if(kernels.begin(), kernels.end(), [](const PlannedKernel& kernel) { return kernel.tensor.has_value(); }),
          2);
      for (const Sizes& sizes : {Sizes{{"M", 128}, {"N", 256}, {"K", 64}}, Sizes{{"M", 264}, {"N", 72}, {"K", 80}}}) {
        EXPECT_EQ(testing::run_emulated(compiled, meaning, sizes, {.tolerance = 6e-3}, {1}), "")
            << ::testing::PrintToString(values);
      }
    }
  }
}

/// Rows of a tile's width are reduced in it, and what follows stays in the kernel.
TEST(WholeRows, StayInTheKernelOfTheirProduct) {
  for (const Scored kind :
       {Scored::weighted, Scored::largest, Scored::exponential, Scored::two_sums, Scored::norm, Scored::below}) {
    for (const std::string width : {"64", "200"}) {
      const Nest nest = scored_rows(kind, kind == Scored::largest ? ElementType::bf16 : ElementType::f16, "K", width);
      const Sizes sizes = complete_sizes(nest, {});
      BaseSchedules schedules(nest_for_tuning(nest, sizes));
      const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132));
      std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> seen;
      const TileProgram meaning = build_tile_program(schedules.base({}));
      for (const Point& point : space->defaults()) {
        const NamedValues values = named_values(*space, point);
        if (value_or(values, "warpgroups", 0) == 0) break;
        if (value_or(values, "split_axis", -1) >= 0 || seen.size() > 3) continue;
        if (!seen.emplace(values.at("cluster"), values.at("ping_pong_tiles"), values.at("row_tiles")).second) continue;
        const Candidate candidate = space->candidate(point);
        ASSERT_EQ(candidate.infeasible, "");
        const Schedule schedule = schedules.replay(candidate.steps);
        const TileProgram program = build_tile_program(schedule);
        EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
        EXPECT_THAT(workspace(program), ::testing::IsEmpty()) << static_cast<int>(kind);
        const CompiledNvptx compiled = compile_nvptx(program, {});
        EXPECT_EQ(compiled.plans->kernels.size(), 1U);
        for (const Sizes& ragged : {Sizes{{"M", 130}, {"N", 1}, {"K", 72}}, Sizes{{"M", 7}, {"N", 1}, {"K", 640}}}) {
          EXPECT_EQ(testing::run_emulated(compiled, meaning, ragged, {.tolerance = 6e-3}, {1}), "")
              << static_cast<int>(kind) << ::testing::PrintToString(values);
        }
      }
      EXPECT_GE(seen.size(), 2U);
    }
  }
}

/// The same with products of single warps.
TEST(TilePartsOfWarps, AreRightOnComputeCapability8) {
  NvptxTarget target;
  target.sm = 80;
  target.shared_limit = 163 << 10;
  for (const Nest& nest : {scored_rows(Scored::exponential), scored_rows(Scored::norm, ElementType::bf16),
                           crossed_rows(true, 4096, 2048, 1024), scored_rows(Scored::two_sums, ElementType::f16, "K", "96")}) {
    const Sizes sizes = complete_sizes(nest, {});
    BaseSchedules schedules(nest_for_tuning(nest, sizes));
    const auto space = make_nest_space(schedules, sizes, gpu_space_limits(target.sm, target.shared_limit, 108));
    const Candidate first = space->candidate(space->defaults().front());
    ASSERT_EQ(first.infeasible, "");
    const Schedule schedule = schedules.replay(first.steps);
    const TileProgram program = build_tile_program(schedule);
    EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
    const CompiledNvptx compiled = compile_nvptx(program, target);
    EXPECT_TRUE(compiled.plans->kernels.front().tensor) << nest.op;
    EXPECT_THAT(workspace(program), ::testing::Not(::testing::Contains("s")));
    const TileProgram meaning = build_tile_program(schedules.base({}));
    for (const Sizes& ragged : {Sizes{{"M", 136}, {"N", 200}, {"K", 72}}, Sizes{{"M", 8}, {"N", 129}, {"K", 40}}})
      EXPECT_EQ(testing::run_emulated(compiled, meaning, ragged, {.tolerance = 6e-3}, {1}), "");
  }
}

/// Where all terms of a score fit a block, its columns are streamed in parts, also behind squares of rows and columns.
TEST(StreamedParts, StandBehindAPreparation) {
  const Nest nest = scored_rows(Scored::apart, ElementType::f16, "64");
  const Sizes sizes = complete_sizes(nest, {});
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132));
  const Candidate first = space->candidate(space->defaults().front());
  ASSERT_EQ(first.infeasible, "");
  const Schedule schedule = schedules.replay(first.steps);
  const TileProgram program = build_tile_program(schedule);
  EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
  EXPECT_THAT(workspace(program), ::testing::UnorderedElementsAre("a", "b", "sum_part"));
  const CompiledNvptx compiled = compile_nvptx(program, {});
  const TileProgram meaning = build_tile_program(schedules.base({}));
  for (const Sizes& ragged : {Sizes{{"M", 130}, {"N", 1100}}, Sizes{{"M", 7}, {"N", 1025}}, Sizes{{"M", 64}, {"N", 30}}})
    EXPECT_EQ(testing::run_emulated(compiled, meaning, ragged, {.tolerance = 6e-3}, {1}), "");
}

TEST(TilePartsProof, RefusesWrongMasksNeutralElementsAndIterations) {
  for (const Scored kind : {Scored::weighted, Scored::largest, Scored::exponential, Scored::two_sums, Scored::norm}) {
    Guesses guesses(scored_rows(kind));
    const auto plans = plan_kernels(build_tile_program(guesses.schedule(guesses.points.front())), {});
    const nvptx::TensorPlan& plan = plans->kernels.front().tensor.value();
    EXPECT_THAT(check_tensor_plan(plan).violations, ::testing::IsEmpty());
    // The columns of a part that ends within a tile are left out by each reduction, or by what makes its terms.
    const auto chosen = std::count_if(plan.ops.begin(), plan.ops.end(), [](const nvptx::TensorOp& op) { return op.select; });
    EXPECT_EQ(chosen, kind == Scored::exponential ? 3 : kind == Scored::two_sums ? 2 : 1);
    int refuted = 0;
    for (const testing::ValueMutant& mutant : testing::ValueMutator(plan).all()) {
      if (mutant.what == "call full tiles partial" || mutant.what == "infinities of rows") continue;  // right here
      EXPECT_FALSE(check_tensor_plan(mutant.plan).violations.empty()) << mutant.what << " of " << mutant.where;
      ++refuted;
    }
    EXPECT_GE(refuted, 8);
  }
}

constexpr std::int64_t kRows = 66, kColumns = 140, kDepth = 16;

testing::NestInputs inputs_of(Scored kind) {
  testing::NestInputs inputs{{{"M", kRows}, {"N", kColumns}, {"K", kDepth}}, {}, {}};
  std::mt19937 random(5);
  const auto fill = [&](const char* name, std::int64_t count, double low) {
    for (std::int64_t n = 0; n < count; ++n)
      inputs.tensors[name].push_back(round_to(ElementType::f16, std::uniform_real_distribution<double>(low, 1)(random)));
  };
  // Rows of one sign give infinite columns scores of one sign.
  fill("x", kRows * kDepth, 0.1);
  fill("w", kColumns * kDepth, -1);
  if (kind == Scored::weighted || kind == Scored::exponential) fill("y", kRows * kColumns, -1);
  return inputs;
}

/// All of row `row` of w, or its first element: a column of scores.
void put(testing::NestInputs& inputs, std::int64_t row, double value, bool all = true) {
  for (std::int64_t d = 0; d < (all ? kDepth : 1); ++d) inputs.tensors["w"][static_cast<std::size_t>(row * kDepth + d)] = value;
}

TEST(TilePartsSpecialValues, AreThoseOfTheDefinition) {
  const std::vector<std::pair<std::string, std::function<void(testing::NestInputs&)>>> cases{
      {"ordinary", [](auto&) {}},
      {"a column of NaN", [](auto& x) { put(x, 3, kNaN); }},
      {"the last column is NaN", [](auto& x) { put(x, kColumns - 1, kNaN, false); }},
      {"a row of NaN", [](auto& x) { x.tensors["x"][5 * kDepth] = kNaN; }},
      {"a column of infinity", [](auto& x) { put(x, 70, kInf); }},
      {"a column of minus infinity", [](auto& x) { put(x, 139, -kInf); }},
      {"the first tile is minus infinity",
       [](auto& x) {
         for (std::int64_t j = 0; j < 128; ++j) put(x, j, -kInf);
       }},
      {"the last tile is minus infinity",
       [](auto& x) {
         for (std::int64_t j = 128; j < kColumns; ++j) put(x, j, -kInf);
       }},
      {"all columns are minus infinity",
       [](auto& x) {
         for (std::int64_t j = 0; j < kColumns; ++j) put(x, j, -kInf);
       }},
      {"large scores", [](auto& x) {
         for (double& value : x.tensors["w"]) value = value < 0 ? -60000 : 60000;
       }}};
  for (const Scored kind :
       {Scored::weighted, Scored::largest, Scored::down, Scored::exponential, Scored::two_sums, Scored::norm}) {
    const Nest nest = scored_rows(kind);
    Guesses guesses(nest);
    ASSERT_FALSE(guesses.points.empty());
    const TileProgram program = build_tile_program(guesses.schedule(guesses.with(guesses.points.front(), {{"columns", 128}})));
    const CompiledNvptx compiled = compile_nvptx(program, {});
    for (const auto& [name, change] : cases) {
      testing::NestInputs inputs = inputs_of(kind);
      change(inputs);
      EXPECT_EQ(testing::special_difference(testing::run_emulated(compiled, program, inputs).at("out"),
                                            testing::run_oracle(nest, inputs, false).at("out")),
                "")
          << name << " " << static_cast<int>(kind);
    }
  }
}

}  // namespace
}  // namespace nestor
