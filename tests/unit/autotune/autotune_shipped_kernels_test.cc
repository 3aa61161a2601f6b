// Shipped schedules, compiled as they would be today and emulated at small, ragged sizes, give what their operator means, and do so without races,
// whatever the order of threads, copies and products. By default some kernels of tensor cores; NESTOR_EMULATE_SHIPPED=tensor runs all of
// these, =all every record's, =<part of a name> those of that name. GTEST_TOTAL_SHARDS and GTEST_SHARD_INDEX share them out.
#include "autotune/trial/trial_steps.h"
#include "codegen/tile/tile_program.h"
#include "support/emulated_check.h"
#include "support/nests/shipped_schedules.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace nestor::testing {
namespace {

constexpr std::size_t kByDefault = 8;

/// Of each operator and variant on tensor cores one, spread over them.
std::vector<ShippedSchedule> chosen() {
  const char* given = std::getenv("NESTOR_EMULATE_SHIPPED");
  const std::string which = given == nullptr ? "" : given;
  std::vector<ShippedSchedule> all = shipped_schedules(NESTOR_SHIPPED_RECORDS), result;
  std::set<std::string> ops;
  for (ShippedSchedule& schedule : all) {
    const bool wanted = which.empty()       ? schedule.tensor && ops.insert(schedule.op).second
                        : which == "tensor" ? schedule.tensor
                        : which == "all"    ? true
                                            : schedule.name.find(which) != std::string::npos;
    if (wanted) result.push_back(std::move(schedule));
  }
  if (!which.empty() || result.size() <= kByDefault) return result;
  std::vector<ShippedSchedule> some;
  for (std::size_t k = 0; k < kByDefault; ++k) some.push_back(std::move(result[k * result.size() / kByDefault]));
  return some;
}

class ShippedKernels : public ::testing::TestWithParam<ShippedSchedule> {};

TEST_P(ShippedKernels, give_what_their_operator_means_at_small_sizes) {
  const ShippedSchedule& shipped = GetParam();
  const Nest nest = nest_from_json(shipped.nest);
  const Schedule schedule = replay_trial_steps(nest, shipped.sizes, shipped.steps);
  const CompiledNvptx compiled = compile_nvptx(build_tile_program(schedule), {});
  const LaunchRecipe& recipe = compiled.kernel.recipe;
  EmulatedKernel kernel(recipe, compiled.ir);
  std::int64_t fixed = 1;
  for (const auto& [name, value] : recipe.fixed_sizes) fixed *= value;
  const std::int64_t rows = std::clamp<std::int64_t>(400000 / fixed, 3, 37);
  for (const std::int64_t length : shipped.tensor ? std::vector<std::int64_t>{331, 70} : std::vector<std::int64_t>{rows}) {
    const Sizes sizes = small_sizes(shipped, nest, recipe, length);
    std::string why;
    ASSERT_TRUE(is_valid_for(recipe.valid, sizes, &why)) << why;
    EXPECT_EQ(EmulatedProblem(nest, sizes, recipe).run(kernel, {1, 2}), "") << "length " << length;
  }
}

INSTANTIATE_TEST_SUITE_P(records, ShippedKernels, ::testing::ValuesIn(chosen()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nestor::testing
