// The proof of a tensor plan tells masks, neutral elements, keeps and full tiles that are wrong from those that are right, without running them.
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "poly/nest/nest_json.h"
#include "support/mutants/tensor_value_mutants.h"
#include "support/nests/tensor_nests.h"
#include "support/temporary_folder.h"
#include "support/tensor/tensor_problem.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <string>

namespace nestor::testing {
namespace {

/// `known`: answers to questions that other mutants have asked, too.
std::string complaint(const nvptx::TensorPlan& plan, nvptx::BoundAnswers& known) {
  const auto violations = check_tensor_plan(plan, known).violations;
  return violations.empty() ? "" : violations.front();
}

/// How far the plan's results are from the definition's; infinity where a GPU would go wrong.
double error_of(const nvptx::TensorPlan& plan, const TensorShape& shape, Seen seen) {
  TensorMemory memory = random_memory(shape, ElementType::f16);
  const std::vector<double> expected = definition(memory, shape, seen, true);
  try {
    TensorInterpreter(plan, sizes_of(shape), {{"scale", kTensorScale}}, memory, {.round_operands = false, .blocks = 2}).run();
  } catch (const std::exception&) {
    return std::numeric_limits<double>::infinity();
  }
  return worst(expected, memory.at("out"));
}

class ValueMutants : public ::testing::TestWithParam<std::tuple<Seen, bool>> {};

TEST_P(ValueMutants, that_have_a_proof_compute_the_definition) {
  const auto [seen, overlap] = GetParam();
  TensorSteps steps{.rows = 64, .warpgroups = 1};
  if (overlap) steps.more.emplace_back("intra_warpgroup_overlap(out.io)");
  const PlannedTensor planned(
      tensor_program(attention_nest({.seen = seen, .result = ElementType::f32, .depth = kTensorDepth}), steps));
  nvptx::BoundAnswers known;
  ASSERT_EQ(complaint(planned.plan, known), "");
  std::map<std::string, int> refused, all;
  for (const ValueMutant& mutant : ValueMutator(planned.plan).all()) {
    ++all[mutant.what];
    if (!complaint(mutant.plan, known).empty()) {
      ++refused[mutant.what];
      continue;
    }
    for (const TensorShape& shape : {TensorShape{63, 65, 5}, TensorShape{130, 200, 70}, TensorShape{64, 128, 64}})
      EXPECT_FALSE(!(error_of(mutant.plan, shape, seen) < 1e-9)) << mutant.what << " of " << mutant.where << " has a proof";
  }
  for (const auto& [what, count] : all) {
    if (what == "call full tiles partial" || what == "infinities of rows") continue;  // right here: no row is without points
    EXPECT_GT(refused[what], 0) << what << ", " << count << " of them";
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, ValueMutants,
                         ::testing::Combine(::testing::Values(Seen::all, Seen::causal, Seen::window, Seen::picture),
                                            ::testing::Bool()));

/// The plan of a finding of `bench/soak`, which went wrong before it was mended.
TileProgram found_program(const std::string& name) {
  const auto json = nlohmann::json::parse(test::read_whole(fmt::format("{}/../findings/{}.json", NESTOR_GOLDEN_FOLDER, name)));
  std::vector<Step> steps;
  for (const auto& step : json.at("steps").at("steps")) steps.push_back(step_from_json(step));
  const auto& nest = json.at("nest");
  const Nest read = nest_from_json(nest.is_string() ? nlohmann::json::parse(nest.get<std::string>()) : nest);
  return build_tile_program(Schedule(fix_sizes(read, json.at("steps").at("fixed").get<Sizes>())).apply_all(steps));
}

TEST(ValueProofs, parts_of_a_tile_that_do_not_keep_each_other_are_refused) {
  const PlannedTensor planned(found_program("parts_of_a_tile_on_tensor_cores"));
  nvptx::BoundAnswers known;
  ASSERT_EQ(complaint(planned.plan, known), "");
  int keeps = 0;
  for (const ValueMutant& mutant : ValueMutator(planned.plan).all()) {
    if (mutant.what != "drop a keep") continue;
    ++keeps;
    EXPECT_NE(complaint(mutant.plan, known).find("has not left as the tile program does"), std::string::npos) << mutant.where;
  }
  EXPECT_EQ(keeps, 2);
}

TEST(ValueProofs, columns_that_do_not_start_from_0_are_computed_to_their_end) {
  const PlannedTensor planned(found_program("parts_of_a_tile_on_tensor_cores"));
  EXPECT_EQ(planned.fragment("score_part").columns, 128);
  const OpDim& dim = planned.op("score_part_part0").op.dims.back();
  EXPECT_LT(nvptx::extent_bound(dim).value(), 128);
  EXPECT_EQ(nvptx::end_bound(dim), 128);
}

TensorSteps value_steps() { return {.rows = 64, .warpgroups = 1}; }

/// A row's maximum may start from -inf or NaN: then its own terms are NaN, as what a ragged tile adds.
TEST(ValueProofs, hidden_terms_that_are_NaN_stand_beside_such_of_the_row) {
  nvptx::BoundAnswers known;
  const PlannedTensor all(tensor_program(attention_nest({.started = true}), value_steps()));
  EXPECT_EQ(complaint(all.plan, known), "");
  // Below the diagonal are tiles in which a row has no terms: it may have others that are numbers.
  const PlannedTensor causal(tensor_program(attention_nest({.seen = Seen::causal, .started = true}), value_steps()));
  EXPECT_NE(complaint(causal.plan, known), "");
}

/// exp(score - log(0)) is infinite where the row has points, and exp(-inf + inf) beside them.
TEST(ValueProofs, hidden_terms_that_are_NaN_beside_infinite_ones_are_refused) {
  TensorSteps steps = value_steps();
  steps.rules = {};
  PlannedTensor planned(tensor_program(attention_nest({.shifted = true}), steps));
  nvptx::TensorPlan& plan = planned.plan;
  nvptx::BoundAnswers known;
  ASSERT_EQ(complaint(plan, known), "");
  const auto op = [&](const std::string& name) {
    return std::find_if(plan.ops.begin(), plan.ops.end(), [&](const nvptx::TensorOp& each) { return each.op.name == name; });
  };
  const auto score = op("score"), power = op("power");
  ASSERT_TRUE(power->select);
  score->select = true;
  score->outside = -std::numeric_limits<double>::infinity();
  power->select = false;
  EXPECT_NE(complaint(plan, known).find("has not left as the tile program does"), std::string::npos) << complaint(plan, known);
}

}  // namespace
}  // namespace nestor::testing
