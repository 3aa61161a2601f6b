// Products whose operands tensor copies cannot step along, or that have few rows along an index: first guesses copy them, are on tensor cores
// and compute what the nest defines. Sums across memory: blocks have neighbouring columns.
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_problem.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/gathered_nests.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace nestor {
namespace {

using namespace samples;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// The first guess that fits, with the sizes fixed that a tuner fixes.
struct FirstGuess {
  explicit FirstGuess(const Nest& nest, const Sizes& given)
      : problem(trial_problem(nest, given, false, fixed(nest, complete_sizes(nest, given)))),
        schedules(problem.start),
        space(make_nest_space(schedules, problem.sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132))) {
    for (const Point& point : space->defaults()) {
      values = named_values(*space, point);
      candidate = space->candidate(point);
      if (candidate.infeasible.empty()) break;
    }
  }

  static std::set<std::string> fixed(const Nest& nest, const Sizes& sizes) {
    std::set<std::string> all = sizes_known_to_products(nest, sizes);
    all.merge(sizes_of_short_rows(nest, sizes));
    return all;
  }

  int applications(const std::string& rule) const {
    return static_cast<int>(std::count_if(candidate.steps.begin(), candidate.steps.end(), [&](const Step& step) {
      return step.name == "apply_rule" && step.args.at(0) == rule;
    }));
  }

  /// Kernels on tensor cores, after the kernels' results at the sizes were those of the nest.
  int tensor_kernels(Sizes sizes) {
    const CompiledNvptx compiled = compile_nvptx(build_tile_program(schedules.replay(candidate.steps)), {});
    for (const auto& [name, value] : compiled.kernel.recipe.fixed_sizes) sizes.erase(name);
    EXPECT_EQ(testing::run_emulated(compiled, build_tile_program(schedules.base({})), sizes, {.tolerance = 4e-3}, {1}), "");
    return static_cast<int>(std::count_if(compiled.plans->kernels.begin(), compiled.plans->kernels.end(),
                                          [](const PlannedKernel& kernel) { return kernel.tensor.has_value(); }));
  }

  TrialProblem problem;
  BaseSchedules schedules;
  std::unique_ptr<Space> space;
  NamedValues values;
  Candidate candidate;
};

TEST(GatheredRows, WindowsOfARolledLineAreCopied) {
  FirstGuess guess(rolled_windows(), {{"B", 512}, {"H", 8}});
  ASSERT_EQ(guess.candidate.infeasible, "");
  EXPECT_EQ(guess.applications("gather_rows"), 2) << "of both products";
  EXPECT_EQ(guess.tensor_kernels({{"B", 3}, {"H", 5}}), 1);
  EXPECT_EQ(guess.tensor_kernels({{"B", 1}, {"H", 1}}), 1);
}

TEST(GatheredRows, NeighbouringIndicesShareOneWhereThereAreMoreThanFive) {
  FirstGuess guess(many_indices(), {{"B", 128}, {"H", 8}});
  ASSERT_EQ(guess.candidate.infeasible, "");
  EXPECT_EQ(guess.applications("gather_rows"), 2);
  EXPECT_EQ(guess.tensor_kernels({{"B", 2}, {"H", 3}}), 1);
  EXPECT_THAT(sizes_known_to_products(many_indices("2", "H"), {{"B", 128}, {"H", 8}}), IsEmpty()) << "two is known";
  const Nest unknown = many_indices("B", "H");
  EXPECT_THAT(sizes_known_to_products(unknown, {{"B", 32}, {"H", 6}}), UnorderedElementsAre("H"))
      << "it stands inside of another";
  FirstGuess fixed(unknown, {{"B", 32}, {"H", 6}});
  ASSERT_EQ(fixed.candidate.infeasible, "");
  EXPECT_EQ(fixed.tensor_kernels({{"B", 2}}), 1);
}

TEST(GatheredRows, OtherRowsAreReadWhereTheyLie) {
  const Nest plain = window_products({{"b", "B"}, {"h", "H"}, {"w", "4"}}, "b, h, w, %", {"B", "H", "4", "7"});
  FirstGuess guess(plain, {{"B", 512}, {"H", 8}});
  EXPECT_EQ(guess.applications("gather_rows"), 0);
  EXPECT_EQ(guess.tensor_kernels({{"B", 3}, {"H", 5}}), 1);
  EXPECT_THAT(sizes_known_to_products(plain, {{"B", 512}, {"H", 8}}), IsEmpty());
}

TEST(WeighedVectors, AreSumsOfTheProductsOwnKernel) {
  FirstGuess guess(weighed_vector(), {{"B", 64}, {"N", 2048}});
  ASSERT_EQ(guess.candidate.infeasible, "");
  EXPECT_EQ(guess.tensor_kernels({{"B", 2}, {"N", 197}}), 1);
  EXPECT_EQ(guess.tensor_kernels({{"B", 1}, {"N", 1}}), 1);
  const CompiledNvptx compiled = compile_nvptx(build_tile_program(guess.schedules.replay(guess.candidate.steps)), {});
  EXPECT_EQ(compiled.plans->kernels.size(), 1U);
}

TEST(ShortRowsOfProducts, FiltersInGroupsAreJoined) {
  FirstGuess guess(grouped_filters(), {{"N", 64}, {"Y", 1024}, {"G", 32}});
  ASSERT_EQ(guess.candidate.infeasible, "");
  EXPECT_EQ(guess.applications("join_short_rows"), 1);
  EXPECT_EQ(guess.applications("join_results"), 1);
  EXPECT_GE(value_or(guess.values, "columns", 0), 128) << "of 256 filters";
  EXPECT_EQ(guess.tensor_kernels({{"N", 2}, {"Y", 37}, {"G", 5}}), 1);
  EXPECT_EQ(guess.tensor_kernels({{"N", 1}, {"Y", 1}, {"G", 1}}), 1);
}

TEST(ShortRowsOfProducts, ManyFiltersOfAGroupStay) {
  FirstGuess guess(grouped_filters("128"), {{"N", 64}, {"Y", 1024}, {"G", 2}});
  EXPECT_EQ(guess.applications("join_short_rows"), 0);
  EXPECT_EQ(guess.tensor_kernels({{"N", 2}, {"Y", 37}, {"G", 3}}), 1);
}

TEST(ShortRowsOfProducts, HowManyThereAreIsKnownWhenCompiling) {
  const Nest nest = grouped_filters("S");
  Nest sized = nest;
  EXPECT_THAT(sizes_known_to_products(sized, {{"N", 64}, {"Y", 1024}, {"G", 32}, {"S", 8}}), ::testing::Contains("S"));
  EXPECT_THAT(sizes_known_to_products(sized, {{"N", 64}, {"Y", 1024}, {"G", 2}, {"S", 128}}),
              ::testing::Not(::testing::Contains("S")));
}

TEST(ColumnSums, GradientsOfChannelFiltersAreForNeighbouringChannels) {
  FirstGuess guess(channel_filter_gradient(), {});
  ASSERT_EQ(guess.candidate.infeasible, "");
  EXPECT_EQ(value_or(guess.values, "tile.c", 0), 64);
  EXPECT_EQ(value_or(guess.values, "split_axis", 0), -1) << "196 blocks are enough";
  EXPECT_EQ(guess.tensor_kernels({{"N", 2}, {"Y", 11}, {"C", 70}}), 0);
  EXPECT_EQ(guess.tensor_kernels({{"N", 1}, {"Y", 1}, {"C", 1}}), 0);
  EXPECT_NE(value_or(FirstGuess(channel_filter_gradient(3), {}).values, "tile.c", 0), 64) << "too few to be read together";
}

TEST(ShortColumns, ASoftmaxOverNeighboursIsOneKernel) {
  const Nest nest = channel_softmax();
  EXPECT_THAT(sizes_of_short_rows(nest, {{"P", 16384}, {"M", 16}}), UnorderedElementsAre("M"));
  EXPECT_THAT(sizes_of_short_rows(nest, {{"P", 16384}, {"M", 200}}), IsEmpty()) << "no thread keeps so many";
  FirstGuess guess(nest, {});
  ASSERT_EQ(guess.candidate.infeasible, "");
  const CompiledNvptx compiled = compile_nvptx(build_tile_program(guess.schedules.replay(guess.candidate.steps)), {});
  EXPECT_EQ(compiled.plans->kernels.size(), 1U);
  EXPECT_EQ(guess.tensor_kernels({{"P", 37}}), 0);
}

TEST(RecomputedSums, StepsOfAFewChannelsNeedNoPlace) {
  FirstGuess guess(weighed_steps(), {{"N", 32}, {"Y", 212992}});
  EXPECT_GT(guess.applications("recompute"), 0);
  EXPECT_EQ(guess.tensor_kernels({{"N", 3}, {"Y", 1000}}), 0);
}

TEST(RecomputedSums, VectorsTurnedBySmallMatricesAreOneKernel) {
  FirstGuess guess(turned_vectors(), {{"N", 1 << 20}});
  EXPECT_EQ(guess.applications("recompute"), 2);
  ASSERT_EQ(guess.candidate.infeasible, "");
  const CompiledNvptx compiled = compile_nvptx(build_tile_program(guess.schedules.replay(guess.candidate.steps)), {});
  EXPECT_EQ(compiled.plans->kernels.size(), 1U);
}

}  // namespace
}  // namespace nestor
