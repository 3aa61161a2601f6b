// Squared distances as products on tensor cores, with direct sums where the expansion cancels: the emitted code, on rows of all kinds.
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "codegen/gpu/mma/tensor_kernel.h"
#include "codegen/proof/program_proof.h"
#include "support/tensor/distance_nests.h"

#include <gtest/gtest.h>

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
  const Schedule schedule = distance_schedule(distance_nest(test.type), test.steps);
  const TileProgram program = build_tile_program(schedule);
  EXPECT_EQ(to_string(prove_program(program, schedule).verdict), "proved");
  NvptxTarget target;
  target.sm = test.sm;
  EXPECT_EQ(run(program, test, target), "");
}

std::vector<DistanceCase> cases() {
  std::vector<DistanceCase> all;
  for (const auto& [name, rows] : {std::pair("random", Rows::random), std::pair("same", Rows::same), std::pair("near", Rows::near),
                                   std::pair("special", Rows::special)}) {
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

}  // namespace
}  // namespace nestor::testing
