// Squared distances as products on tensor cores, with direct sums where the expansion cancels: the emitted code, on rows of all kinds.
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "codegen/gpu/mma/tensor_kernel.h"
#include "codegen/proof/program_proof.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/tensor/distance_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace nestor::testing {
namespace {

struct DistanceCase {
  std::string name;
  ElementType type = ElementType::bf16;
  Rows rows = Rows::random;
  std::int64_t m = 70, n = 52, k = 40;
  int sm = 90;
  DistanceSteps steps{};
};

std::ostream& operator<<(std::ostream& out, const DistanceCase& test) { return out << test.name; }

/// What is wrong with the emulated kernel's results; empty: nothing.
std::string run(const TileProgram& program, const DistanceCase& test, const NvptxTarget& target) {
  const CompiledNvptx compiled = compile_nvptx(program, target);
  EXPECT_TRUE(compiled.certificate.unproved.empty());
  const LaunchRecipe& recipe = compiled.kernel.recipe;
  const Sizes sizes{{"M", test.m}, {"N", test.n}, {"K", test.k}};
  CheckData data = make_data(program, recipe, sizes, {});
  std::map<std::string, std::vector<double>> rows{{"x", distance_rows(test.rows, test.m, test.k, test.type, false)},
                                                  {"y", distance_rows(test.rows, test.n, test.k, test.type, true)}};
  for (std::size_t a = 0; a < recipe.arguments.size(); ++a) {
    if (!recipe.arguments[a].output) data.arguments[a].values = rows.at(recipe.arguments[a].name);
  }
  EmulatedKernel kernel(recipe, compiled.ir);
  for (const unsigned seed : {1U, 2U}) {
    HostImage image(recipe, data, {});
    const EmulationResult result = kernel.run(sizes, image.arguments, {.seed = seed});
    if (!result.passed()) return result.problem;
    for (std::size_t a = 0; a < recipe.arguments.size(); ++a) {
      if (!recipe.arguments[a].output) continue;
      std::vector<double> got;
      for (std::int64_t n = 0; n < test.m * test.n; ++n)
        got.push_back(read_element(image.memory[a]->data() + data.arguments[a].offset_of(n) * 4, ElementType::f32));
      if (std::string wrong = wrong_distance(rows["x"], rows["y"], got, test.k); !wrong.empty()) return wrong;
    }
  }
  return "";
}

class ExpandedSquares : public ::testing::TestWithParam<DistanceCase> {};

TEST_P(ExpandedSquares, are_as_near_as_the_rule_says_and_infinite_where_the_direct_sum_is) {
  const DistanceCase& test = GetParam();
  const Schedule schedule = distance_schedule(expanded_distances(test.type), test.steps);
  const TileProgram program = build_tile_program(schedule);
  EXPECT_EQ(to_string(prove_program(program, schedule).verdict), "proved");
  NvptxTarget target;
  target.sm = test.sm;
  EXPECT_EQ(run(program, test, target), "");
}

std::vector<DistanceCase> cases() {
  std::vector<DistanceCase> all;
  for (const auto& [name, rows] : {std::pair("random", Rows::random), std::pair("same", Rows::same),
                                   std::pair("near", Rows::near), std::pair("special", Rows::special)}) {
    all.push_back({std::string("bf16_") + name, ElementType::bf16, rows});
    all.push_back({std::string("f16_") + name, ElementType::f16, rows});
    all.push_back({std::string("mma_") + name, ElementType::f16, rows, 70, 52, 40, 80});
  }
  // Two row tiles, tiles of 24 and of 160 columns, one of each warpgroup's own, pairs of blocks.
  all.push_back({"row_tiles", ElementType::bf16, Rows::same, 270, 52, 40, 90, {.rows = 256}});
  all.push_back({"narrow", ElementType::bf16, Rows::special, 70, 52, 40, 90, {.rows = 64, .columns = 24, .warpgroups = 1}});
  all.push_back({"wide", ElementType::bf16, Rows::same, 70, 200, 40, 90, {.columns = 160}});
  all.push_back({"in_turn",
                 ElementType::bf16,
                 Rows::near,
                 200,
                 52,
                 72,
                 90,
                 {.rows = 64, .more = {"persistent(out.io, 1)", "ping_pong_tiles(out.io)"}}});
  all.push_back({"pairs", ElementType::f16, Rows::same, 270, 52, 40, 90, {.rows = 256, .more = {"cluster(out.io, 2)"}}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(cases, ExpandedSquares, ::testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

/// What is wrong with results where a statement of the expanded nest is another one.
std::string run_changed(const std::string& statement, Rows rows, const std::function<void(Statement&)>& change) {
  Nest nest = expanded_distances();
  Statement changed = nest.statement(statement);
  change(changed);
  replace_statement(nest, changed);
  DistanceCase test;
  test.rows = rows;
  return run(build_tile_program(distance_schedule(nest)), test, {});
}

TEST(ExpandedSquaresMutants, AreSeenInResults) {
  using samples::number;
  const auto same = [](Statement&) {};
  for (const Rows rows : {Rows::near, Rows::special}) EXPECT_EQ(run_changed("sums_choice_made", rows, same), "");
  const auto unguarded = [](Statement& choice) { choice.value = choice.value.args()[1]; };
  for (const Rows rows : {Rows::near, Rows::special}) EXPECT_NE(run_changed("sums_choice_made", rows, unguarded), "");
  const auto other_side = [](Statement& choice) {
    const std::vector<ScalarExpr>& sides = choice.value.args()[0].args();
    choice.value = ScalarExpr::make(ScalarOp::select,
                                    {ScalarExpr::make(ScalarOp::lt, {sides[1], sides[0]}), choice.value.args()[1], number(-1)});
  };
  EXPECT_NE(run_changed("sums_choice_made", Rows::near, other_side), "");
  const auto never = [](Statement& sum) {
    sum.value = ScalarExpr::make(ScalarOp::select, {sum.value.args()[0], number(0), number(0)});
  };
  EXPECT_NE(run_changed("sum", Rows::near, never), "");
  const auto swapped = [](Statement& sum) {  // rows of x at columns
    sum.reads[0].relation = parse_map("[M, N, K] -> { sum[i, j, k] -> x[j, k] }", "test");
  };
  EXPECT_NE(run_changed("sum", Rows::near, swapped), "");
}

/// The first violation of a plan that is not as it was made.
std::string complaint(const std::function<void(nvptx::TensorOp&)>& change) {
  const TileProgram program = build_tile_program(distance_schedule(expanded_distances()));
  const nvptx::LaunchPlan launches = nvptx::plan_launches(program, 256);
  nvptx::TensorPlan plan = nvptx::plan_tensor(launches.kernels.back(), launches.program, {});
  const auto sum = std::find_if(plan.ops.begin(), plan.ops.end(),
                                [](const nvptx::TensorOp& op) { return op.kind == nvptx::TensorOp::Kind::seldom; });
  change(*sum);
  const auto violations = check_tensor_plan(plan).violations;
  return violations.empty() ? "" : violations.front();
}

TEST(ExpandedSquaresMutants, AreRefusedByTheProof) {
  using nvptx::TensorOp;
  using ::testing::HasSubstr;
  EXPECT_EQ(complaint([](TensorOp&) {}), "");
  const char* const other = "sum is another sum than its plan says";
  EXPECT_EQ(complaint([](TensorOp& op) { op.seldom->adds = false; }), other);
  EXPECT_EQ(complaint([](TensorOp& op) { op.seldom->term = samples::number(1); }), other);
  EXPECT_EQ(complaint([](TensorOp& op) { op.seldom->condition = ScalarExpr::constant(1, ElementType::boolean); }), other);
  EXPECT_EQ(complaint([](TensorOp& op) { op.op.initialize = true; }), other);
  EXPECT_THAT(complaint([](TensorOp& op) { op.seldom.reset(); }), HasSubstr("without rows, columns and terms"));
  EXPECT_THAT(complaint([](TensorOp& op) { op.form.k = op.column; }), HasSubstr("without rows, columns and terms"));
  EXPECT_THAT(complaint([](TensorOp& op) { std::swap(op.row, op.column); }), HasSubstr("rows and columns"));
  EXPECT_NE(complaint([](TensorOp& op) { op.kind = TensorOp::Kind::reduce; }), "");
  EXPECT_NE(complaint([](TensorOp& op) { op.kind = TensorOp::Kind::map; }), "");
}

/// Plans in double, with roles in some order: the events are those that the code has.
TEST(ExpandedSquares, PlansComputeTheDefinition) {
  const TileProgram program = build_tile_program(distance_schedule(expanded_distances(), {.more = {"persistent(out.io, 1)"}}));
  const nvptx::LaunchPlan launches = nvptx::plan_launches(program, 256);
  const nvptx::TensorPlan plan = nvptx::plan_tensor(launches.kernels.back(), launches.program, {});
  const std::int64_t m = 150, n = 100, k = 40;
  for (const Rows rows : {Rows::random, Rows::same}) {
    TensorMemory memory{{"x", distance_rows(rows, m, k, ElementType::bf16, false)},
                        {"y", distance_rows(rows, n, k, ElementType::bf16, true)}};
    for (const auto& [name, side] : {std::pair("sums_left", "x"), std::pair("sums_right", "y")}) {
      for (std::size_t at = 0; at < memory[side].size(); at += static_cast<std::size_t>(k)) {
        double sum = 0;
        for (std::int64_t e = 0; e < k; ++e) sum += std::pow(memory[side][at + static_cast<std::size_t>(e)], 2);
        memory[name].push_back(sum);
      }
    }
    memory["out"].assign(static_cast<std::size_t>(m * n), std::numeric_limits<double>::quiet_NaN());
    TensorInterpreter(plan, {{"M", m}, {"N", n}, {"K", k}}, {}, memory, {}).run();
    EXPECT_EQ(wrong_distance(memory["x"], memory["y"], memory["out"], k), "");
  }
}

}  // namespace
}  // namespace nestor::testing
