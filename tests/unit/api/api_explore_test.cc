// Suggestions are legal and know whom they follow; a conflict's picture has both instances where the step would put them.
#include "api/explore/conflict_picture.h"
#include "api/explore/step_ideas.h"
#include "api/explore/suggestions.h"
#include "api/operators.h"
#include "autotune/measure_schedules.h"
#include "autotune/near_problems.h"
#include "autotune/trial/trial_steps.h"
#include "poly/schedule/steps/step_table.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace nestor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

OrderConflict conflict_of(const Schedule& schedule, const std::string& step) {
  try {
    schedule.apply(parse_step(step));
  } catch (const IllegalStep& illegal) {
    EXPECT_THAT(illegal.what(), HasSubstr(" is illegal: "));
    return illegal.conflict();
  }
  throw std::runtime_error(step + " is legal");
}

// ---- pictures

TEST(ConflictPicture, ASequentialOrderReadsTheSecondInstanceFirst) {
  const Nest nest = samples::seidel(3, 9, 9);
  const OrderConflict conflict = conflict_of(Schedule(nest), "reverse(sweep.x)");
  EXPECT_EQ(conflict.loop, "sweep.x");
  const std::string text = conflict_picture(conflict, complete_sizes(nest, {}), 80);
  EXPECT_THAT(text, HasSubstr("A = sweep[t=0, y=1, x=6] must come before\n  B = sweep[t=0, y=1, x=7]"));
  EXPECT_THAT(text, HasSubstr("B comes first"));
  const std::size_t grid = text.find("->");
  ASSERT_NE(grid, std::string::npos);
  EXPECT_LT(text.find("  B   A", grid), text.size()) << text;  // read from the left, B is first
  EXPECT_THAT(text, HasSubstr("it comes to B before A"));
}

TEST(ConflictPicture, ConcurrentIterationsAreSaidToBe) {
  const Nest nest = samples::row_norm();
  const std::string text = conflict_picture(conflict_of(Schedule(nest), "parallel(mean_update.k)"), complete_sizes(nest, {}), 80);
  EXPECT_THAT(text, HasSubstr("parallel: both at once"));
  EXPECT_THAT(text, HasSubstr("would run at the same time"));
}

TEST(ConflictPicture, BodiesInTheWrongOrderHaveATableAlone) {
  const Nest nest = samples::row_norm();
  const std::string text =
      conflict_picture(conflict_of(Schedule(nest), "fuse_with(mean_init.i, variance_init.i)"), complete_sizes(nest, {}), 80);
  EXPECT_THAT(text, HasSubstr("mean_init[i=0] must come before"));
  EXPECT_THAT(text, Not(HasSubstr("->")));
}

TEST(ConflictPicture, FarInstancesAreDrawnWithGapsAndNarrowScreensGetNone) {
  const Nest nest = samples::NestBuilder("far", {{"N", 400}})
                        .tensor("x", TensorRole::input, {"N"})
                        .tensor("A", TensorRole::output, {"N + 100"})
                        .statement("first[i] : 0 <= i < N + 100", "A[i]", {}, samples::number(0))
                        .statement("S[i] : 0 <= i < N", "A[i + 100]", {"A[i]", "x[i]"},
                                   ScalarExpr::make(ScalarOp::add, {samples::read(0), samples::read(1)}))
                        .build();
  const OrderConflict conflict = conflict_of(Schedule(nest), "parallel(S.i)");
  const std::string text = conflict_picture(conflict, complete_sizes(nest, {}), 80);
  EXPECT_THAT(text, HasSubstr(" .. "));
  EXPECT_THAT(text, HasSubstr("100"));
  for (const int width : {1, 7, 20})
    EXPECT_THAT(conflict_picture(conflict, complete_sizes(nest, {}), width), Not(HasSubstr("->")));
  EXPECT_THAT(conflict_picture(conflict, {{"N", 50}}, 80), HasSubstr("no pair of instances is in the wrong order"));
}

// ---- ideas

std::set<std::string> names_of(const std::vector<Step>& steps) {
  std::set<std::string> names;
  for (const Step& step : steps) names.insert(step.name);
  return names;
}

TEST(StepIdeas, EveryStepOfTheTableIsTriedSomewhere) {
  const Nest norm = load_operator("layernorm", "f32");
  const Sizes sizes = complete_sizes(norm, {});
  std::set<std::string> seen;
  const auto look = [&](const Schedule& schedule, const Sizes& at, int sm) {
    seen.merge(names_of(step_ideas(schedule, {at, sm, ""})));
  };
  const Schedule start(nest_for_tuning(norm, sizes));
  look(start, sizes, 0);
  look(start, sizes, 90);
  look(start.apply(parse_step("gpu_blocks(out.i)")), sizes, 90);
  look(start.apply(parse_step("gpu_blocks(out.i)")).apply(parse_step("tensor_cores(out.i, 2)")), sizes, 90);
  const Schedule joined = Schedule(samples::row_norm(64, 64)).apply(parse_step("compute_at(mean_update, variance_update.i)"));
  look(joined, {{"rows", 64}, {"cols", 64}}, 0);
  look(Schedule(samples::matmul(64, 64, 64)).apply(parse_step("split(C_update.i, 8, io, ii)")), {{"M", 64}, {"N", 64}, {"K", 64}},
       0);
  for (const StepHelp& step : step_help()) EXPECT_TRUE(seen.contains(step.name)) << step.name;
}

TEST(StepIdeas, NamesOfNewLoopsAreFree) {
  const Schedule schedule = Schedule(samples::matmul(64, 64, 64)).apply(parse_step("split(C_update.i, 8, io, ii)"));
  int legal = 0;
  for (const Step& step : step_ideas(schedule, {{{"M", 64}, {"N", 64}, {"K", 64}}, 0, "split"})) {
    EXPECT_NO_THROW(schedule.apply(step)) << describe(step);
    ++legal;
  }
  EXPECT_GE(legal, 4);
}

TEST(StepIdeas, ANestWithoutIterationsOrLoopsHasIdeasAllTheSame) {
  const Nest scalar = samples::NestBuilder("scalar", {})
                          .tensor("y", TensorRole::output, {})
                          .statement("S[]", "y[]", {}, samples::number(1))
                          .build();
  EXPECT_EQ(loop_lengths(Schedule(scalar), {}).size(), 0U);
  EXPECT_THAT(names_of(step_ideas(Schedule(scalar), {{}, 0, ""})), testing::IsSubsetOf({"streaming"}));
}

TEST(StepIdeas, AStepThatIsAskedForHasAllItsUsualValues) {
  const Schedule schedule = Schedule(samples::row_norm(64, 64)).apply(parse_step("gpu_blocks(out.i)"));
  const Sizes sizes{{"rows", 64}, {"cols", 64}};
  const auto count = [&](const std::string& only) {
    const std::vector<Step> steps = step_ideas(schedule, {sizes, 90, only});
    return std::count_if(steps.begin(), steps.end(), [](const Step& step) { return step.name == "gpu_threads"; });
  };
  EXPECT_EQ(count(""), 2);
  EXPECT_GE(count("gpu_threads"), 6);
}

// ---- suggestions

class SuggesterTest : public testing::Test {
 protected:
  SuggesterTest()
      : nest_(load_operator("softmax", "f32")),
        sizes_(complete_sizes(nest_, {{"rows", 64}, {"width", 128}})),
        start_(nest_for_tuning(nest_, sizes_)) {
    options_.threads = 2;
  }

  void store(const Sizes& sizes, const std::vector<std::string>& steps, double ms) {
    Database database = Database::open(path_);
    TrialRecord trial;
    std::vector<Step> parsed;
    for (const std::string& step : steps) parsed.push_back(parse_step(step));
    trial.steps = trial_steps_json(nest_, specialized_sizes(nest_, sizes), parsed).dump();
    trial.median_ms = ms;
    trial.samples_ms = {ms};
    trial.kernel = kernel();
    database.add_trial(device_identity_host(2), problem_key(nest_, sizes), nest_to_text(nest_), trial);
  }

  /// Records need one that can be read; nobody runs it here.
  KernelRecord kernel() {
    MeasureOptions patient = options_;
    patient.compile_timeout_s = patient.run_timeout_s = 300;
    if (!kernel_) kernel_ = measure_schedule(start_, nest_, sizes_, patient).kernel.value();
    return *kernel_;
  }

  SuggestionList suggest(const Schedule& schedule, const SuggestRequest& request = {}) {
    Suggester suggester(nest_, sizes_, options_, path_);
    return suggester.suggest(schedule, request);
  }

  test::TemporaryFolder folder_;
  const std::string path_ = folder_.file("suggest.db");
  Nest nest_;
  Sizes sizes_;
  MeasureOptions options_;
  Schedule start_;
  std::optional<KernelRecord> kernel_;
};

TEST_F(SuggesterTest, AllAreLegalAndTheSearchComesFirstWithoutRecords) {
  const SuggestionList list = suggest(start_, {.time_s = 300});
  ASSERT_FALSE(list.legal.empty());
  EXPECT_EQ(list.legal.front().source, PlanSource::search);
  EXPECT_THAT(list.legal.front().guess, HasSubstr("guess 1 of the search goes on so"));
  for (const Suggestion& suggestion : list.legal) EXPECT_NO_THROW(start_.apply(suggestion.step)) << describe(suggestion.step);
  EXPECT_GT(list.refused, 0);
  EXPECT_EQ(list.untried, 0);
  EXPECT_FALSE(std::filesystem::exists(path_));  // asking makes no database
}

TEST_F(SuggesterTest, RecordsComeFirstFastestFirstThenNeighbours) {
  store(sizes_, {"parallel(out.i)", "vectorize(out.c)"}, 2);
  store(sizes_, {"split(out.c, 16, co, ci)", "parallel(out.i)"}, 1);
  store(complete_sizes(nest_, {{"rows", 128}, {"width", 128}}), {"unroll(out.c, 4)"}, 3);
  SuggestionList list = suggest(start_, {.time_s = 300});
  ASSERT_GE(list.legal.size(), 3U);
  EXPECT_EQ(describe(list.legal[0].step), "split(out.c, 16, co, ci)");
  EXPECT_EQ(list.legal[0].guess, "the best trial here, 2 goes on so: 1 ms");
  EXPECT_EQ(describe(list.legal[1].step), "parallel(out.i)");
  EXPECT_EQ(list.legal[1].guess, "trial 1 goes on so: 2 ms");
  EXPECT_EQ(list.legal[2].source, PlanSource::neighbour);
  EXPECT_THAT(list.legal[2].guess, HasSubstr("the best at rows=128, 3 goes on so: 3 ms"));

  list = suggest(start_.apply(parse_step("split(out.c, 16, co, ci)")), {.time_s = 300});
  EXPECT_EQ(describe(list.legal.front().step), "parallel(out.i)");
  EXPECT_EQ(list.legal.front().ms, 1);
}

TEST_F(SuggesterTest, StepsThatTrialsHaveElsewhereSayHowTheyFared) {
  store(sizes_, {"parallel(out.i)", "streaming(out)"}, 2);
  store(sizes_, {"parallel(out.i)"}, 4);
  const SuggestionList list = suggest(start_, {.only = "streaming", .time_s = 300});
  ASSERT_FALSE(list.legal.empty());
  EXPECT_THAT(list.legal.front().guess, HasSubstr("the best trial here, 1 has it: 2 ms"));
  for (const Suggestion& suggestion : list.legal) EXPECT_EQ(suggestion.step.name, "streaming");
}

TEST_F(SuggesterTest, TimeAndTheStopFlagEndIt) {
  SuggestionList list = suggest(start_, {.time_s = 0});
  EXPECT_TRUE(list.legal.empty());
  EXPECT_GT(list.untried, 0);
  const std::atomic<bool> stop{true};
  list = suggest(start_, {.time_s = 300, .stop = &stop});
  EXPECT_TRUE(list.legal.empty());
}

TEST_F(SuggesterTest, GpuSchedulesHearWhatTheBackEndSays) {
  const Nest attention = load_operator("attention", "f16");
  const Sizes sizes = complete_sizes(attention, {});
  Suggester suggester(attention, sizes, options_, path_);
  const Schedule schedule = Schedule(nest_for_tuning(attention, sizes)).apply(parse_step("gpu_blocks(dot.i)"));
  const SuggestionList list = suggester.suggest(schedule, {.only = "tensor_cores", .time_s = 300});
  ASSERT_FALSE(list.legal.empty());
  EXPECT_THAT(list.legal.front().guess, testing::AnyOf(HasSubstr("registers a thread"), HasSubstr("not yet for the GPU: ")))
      << list.legal.front().guess;
}

TEST_F(SuggesterTest, BlocksWithoutTensorCoresHaveTheirSharedMemoryCounted) {
  const SuggestionList list = suggest(start_.apply(parse_step("gpu_blocks(out.i)")), {.only = "gpu_threads", .time_s = 300});
  ASSERT_FALSE(list.legal.empty());
  EXPECT_THAT(list.legal.front().guess, HasSubstr(" threads and ")) << list.legal.front().guess;
}

TEST_F(SuggesterTest, NearProblemsAreSortedByTheirSizes) {
  for (const std::int64_t rows : {1024, 128, 32})
    store(complete_sizes(nest_, {{"rows", rows}, {"width", 128}}), {"parallel(out.i)"}, 1);
  const NearProblems near = near_problems(Database::open(path_), device_identity_host(2), problem_key(nest_, sizes_));
  ASSERT_EQ(near.same_operator.size(), 3U);
  EXPECT_EQ(near.same_operator.back().sizes.at("rows"), 1024);
  EXPECT_TRUE(near.other_operators.empty());
}

}  // namespace
}  // namespace nestor
