// Squared distances in the space: first guesses have them as products on tensor cores, and are right where pairs are near each other, in every form of
// attention over distances.
#include "autotune/oracle/error_sum.h"
#include "autotune/oracle/rounding_model.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/proof/program_proof.h"
#include "support/nests/operand_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;

struct Guesses : testing::SpaceGuesses {
  using SpaceGuesses::SpaceGuesses;

  /// The point's kernel, emulated at ragged sizes beside the definition.
  std::string wrong(const Point& point, const Sizes& ragged, bool& seldom) {
    const CompiledNvptx compiled = compile_nvptx(program(point), {});
    const auto& last = compiled.plans->kernels.back();
    seldom = last.tensor && std::any_of(last.tensor->ops.begin(), last.tensor->ops.end(),
                                        [](const nvptx::TensorOp& op) { return op.kind == nvptx::TensorOp::Kind::seldom; });
    return testing::run_emulated(compiled, meaning(), ragged, {.tolerance = 4e-3}, {1});
  }
};

TEST(ExpandedSquaresSpace, FirstGuessesHaveProducts) {
  for (const Nest& nest : {squared_distances(), squares_of_stored_differences()}) {
    Guesses guesses(nest, {{"M", 4096}, {"N", 4096}, {"K", 256}});
    for (const std::size_t k : {0U, 1U}) {
      EXPECT_TRUE(guesses.has_rule(k, "expand_squares")) << nest.op;
      bool seldom = false;
      EXPECT_EQ(guesses.wrong(guesses.points.at(k), {{"M", 70}, {"N", 72}, {"K", 40}}, seldom), "") << nest.op;
      EXPECT_TRUE(seldom) << nest.op;
    }
  }
}

TEST(ExpandedSquaresSpace, FewTermsAreAddedUpDirectly) {
  Guesses guesses(squared_distances(), {{"M", 4096}, {"N", 4096}, {"K", 8}});
  EXPECT_FALSE(guesses.has_rule(0, "expand_squares"));
}

TEST(ExpandedSquaresSpace, AttentionOverDistancesIsRightInEachForm) {
  Guesses guesses(distance_attention("q"), {{"H", 8}, {"N", 2048}});  // each row is near itself
  const NamedValues first = guesses.values(0);
  ASSERT_TRUE(guesses.has_rule(0, "expand_squares"));
  const std::vector<NamedValues> changes{{},
                                         {{"intra_warpgroup_overlap", 0}, {"ping_pong", 0}},
                                         {{"warpgroups", 2}, {"ping_pong", 0}, {"early_release", 0}, {"unroll", 2}},
                                         {{"warpgroups", 2}, {"cluster", 2}, {"rescale", 8}, {"columns", 64}},
                                         {{"warpgroups", 1}, {"row_tiles", 2}, {"columns", 48}, {"persistent", 1}}};
  for (const NamedValues& change : changes) {
    NamedValues values = first;
    for (const auto& [name, value] : change) values[name] = value;
    const auto point = point_from(*guesses.space, values);
    ASSERT_TRUE(point) << ::testing::PrintToString(values);
    bool seldom = false;
    EXPECT_EQ(guesses.wrong(*point, {{"H", 1}, {"N", 150}}, seldom), "") << ::testing::PrintToString(change);
    EXPECT_TRUE(seldom) << ::testing::PrintToString(change);
  }
}

TEST(ExpandedSquaresOracle, GrantsWhatProductsMakeOfASum) {
  const auto expands = [](const Nest& nest) {
    std::vector<std::string> names;
    const RoundingModel model = rounding_model(nest);
    for (std::size_t k = 0; k < nest.statements.size(); ++k) {
      if (model.statements.at(k).expands) names.push_back(nest.statements[k].name);
    }
    return names;
  };
  EXPECT_EQ(expands(squared_distances()), std::vector<std::string>{"sum"});
  EXPECT_EQ(expands(distance_attention()), std::vector<std::string>{"sum"});
  EXPECT_EQ(expands(squares_of_stored_differences()), std::vector<std::string>{"sum"});
  EXPECT_TRUE(expands(squared_distances(ElementType::f32)).empty());
  EXPECT_TRUE(expands(matmul()).empty());
  ErrorSum error;
  error.start(0, 0);
  double sum = 0;
  for (const double term : {0.1, 0.2, 0.3}) {
    error.add(ReductionOp::add, ElementType::f32, term, 0, 0, sum, sum + term);
    sum += term;
  }
  const double once = error.error(sum, std::nullopt);
  EXPECT_GT(once, 0);
  EXPECT_GT(error.error(sum, std::nullopt, kExpandedOrders), kExpandedOrders * once);
  ErrorSum single;
  single.start(0, 0);
  single.add(ReductionOp::add, ElementType::f32, 0.1, 0, 0, 0, 0.1);
  EXPECT_EQ(single.error(0.1, std::nullopt), 0);
  EXPECT_GT(single.error(0.1, std::nullopt, kExpandedOrders), 0) << "a square is the difference of larger numbers then";
}

}  // namespace
}  // namespace nestor
