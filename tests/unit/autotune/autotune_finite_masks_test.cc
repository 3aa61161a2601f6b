// Attention with masks of large negative numbers: first guesses leave out what is hidden, and are right where all scores of rows are lower still.
#include "autotune/check/masked_places.h"
#include "codegen/gpu/kernel_plans.h"
#include "poly/algebra/all_rules.h"
#include "support/nests/masked_scores.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;
using testing::SpaceGuesses;

const Sizes kSizes{{"H", 16}, {"N", 2048}};

bool sums_seldom(const PlannedKernel& kernel) {
  return kernel.tensor && std::any_of(kernel.tensor->ops.begin(), kernel.tensor->ops.end(),
                                      [](const nvptx::TensorOp& op) { return op.kind == nvptx::TensorOp::Kind::seldom; });
}

/// The point's kernel, emulated at ragged sizes beside the definition.
std::string wrong(SpaceGuesses& guesses, const Point& point, double spread) {
  const CompiledNvptx compiled = compile_nvptx(guesses.program(point), {});
  EXPECT_EQ(compiled.plans->kernels.size(), 1U);
  EXPECT_TRUE(sums_seldom(compiled.plans->kernels.back()));
  return testing::run_emulated(compiled, guesses.meaning(), {{"H", 1}, {"N", 200}}, {.tolerance = 1e-2, .spread = spread}, {1});
}

TEST(FiniteMasksSpace, FirstGuessesLeaveOutWhatIsHidden) {
  for (const ScalarExpr& seen : {sees_before(), sees_near()}) {
    SpaceGuesses guesses(masked_attention_scores(-1e9, seen), kSizes);
    ASSERT_TRUE(guesses.has_rule(0, "finite_masks"));
    EXPECT_EQ(wrong(guesses, guesses.points.front(), 1), "");
  }
}

/// Scores are some thousands: of rows with few columns that are seen, many have none above the mask's number.
TEST(FiniteMasksSpace, LowRowsHaveTheSumsOfWhatIsHidden) {
  SpaceGuesses guesses(masked_attention_scores(-1000, sees_near(), 300), kSizes);
  ASSERT_TRUE(guesses.has_rule(0, "finite_masks"));
  const NamedValues first = guesses.values(0);
  const std::vector<NamedValues> changes{
      {}, {{"intra_warpgroup_overlap", 0}, {"ping_pong", 0}}, {{"warpgroups", 2}, {"rescale", 8}, {"columns", 64}}};
  for (const NamedValues& change : changes) {
    NamedValues values = first;
    for (const auto& [name, value] : change) values[name] = value;
    const auto point = point_from(*guesses.space, values);
    ASSERT_TRUE(point) << ::testing::PrintToString(values);
    EXPECT_EQ(wrong(guesses, *point, 1), "") << ::testing::PrintToString(change);
  }
}

TEST(FiniteMasks, AskForFiniteValuesOfWhatIsHidden) {
  for (const bool quotients : {false, true}) {
    const ElementLists places = MaskedFactors(masked_scores({.quotients = quotients})).at({{"N", 3}, {"D", 1}});
    ASSERT_EQ(places.count("v"), 1U) << quotients;
    EXPECT_THAT(places.at("v"), ::testing::ElementsAre(1, 2)) << quotients;
  }
}

TEST(FiniteMasks, AddedInfinitiesAskForFiniteScoresToo) {
  const Sizes sizes{{"N", 3}, {"D", 1}};
  const ElementLists added = MaskedFactors(masked_scores({.hidden = -infinity(), .added = true})).at(sizes);
  ASSERT_EQ(added.count("x"), 1U);
  EXPECT_THAT(added.at("x"), ::testing::ElementsAre(1, 2, 5)) << "right of the diagonal";
  EXPECT_EQ(MaskedFactors(masked_scores({.hidden = -infinity()})).at(sizes).count("x"), 0U) << "a select does not look at them";
}

}  // namespace
}  // namespace nestor
