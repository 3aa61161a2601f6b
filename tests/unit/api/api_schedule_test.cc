// The public API: nests and schedules without a glimpse of isl.
#include "nestor/schedule.h"
#include "nestor/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "support/temporary_folder.h"

namespace nestor {
namespace {

using testing::HasSubstr;

class PublicSchedule : public testing::Test {
 protected:
  Nest nest_ = Nest::load("softmax");
  Schedule schedule_{nest_, {{"rows", 8}, {"width", 24}}};
};

TEST(PublicNest, TellsItsSizesAndTensors) {
  const Nest nest = Nest::load("layernorm", "f16");
  EXPECT_EQ(nest.op(), "layernorm");
  EXPECT_EQ(nest.variant(), "f16");
  ASSERT_EQ(nest.sizes().size(), 2U);
  EXPECT_EQ(nest.sizes()[0].name, "rows");
  EXPECT_TRUE(nest.sizes()[1].specialized);
  EXPECT_EQ(nest.tensors().front().type, ElementType::f16);
  EXPECT_THAT(Nest::builtin(), testing::Contains("layernorm"));
  EXPECT_EQ(Nest::from_json(nest.json()).digest(), nest.digest());
  EXPECT_THAT(nest.dependences(), HasSubstr("flow"));
}

TEST(PublicNest, TextHasItsProductSizesFixedAsAFileHas) {
  const Nest loaded = Nest::load("attention", "f16");
  nlohmann::json json = nlohmann::json::parse(loaded.json());
  for (nlohmann::json& size : json["sizes"]) size["specialized"] = false;
  const std::vector<SizeInfo> sizes = Nest::from_json(json.dump()).sizes();
  EXPECT_TRUE(std::any_of(sizes.begin(), sizes.end(), [](const SizeInfo& size) { return size.specialized; }));
}

TEST(PublicNest, TheOlderNameIsTheSameClass) { static_assert(std::is_same_v<nestor::Nest, nestor::api::Nest>); }

TEST(PublicNest, RefusesWhatIsNoNest) {
  EXPECT_THROW(Nest::from_json("{"), UserError);
  EXPECT_THROW(Nest::from_json("{}"), UserError);
  EXPECT_THROW(Nest::load("no_such_operator"), UserError);
}

TEST_F(PublicSchedule, MethodsChainAndCopiesAreIndependent) {
  const Schedule original = schedule_;
  schedule_.split("out.c", 8, "co", "ci").parallel("out.i");
  EXPECT_THAT(schedule_.steps(), testing::ElementsAre("split(out.c, 8, co, ci)", "parallel(out.i)"));
  EXPECT_TRUE(original.steps().empty());
  schedule_.undo().undo();
  EXPECT_EQ(schedule_.str(), original.str());
  EXPECT_THROW(schedule_.undo(), UserError);
}

TEST_F(PublicSchedule, AMethodAndItsTextAreTheSameStep) {
  Schedule text = schedule_;
  schedule_.split("out.c", 8, "co", "ci").vectorize("ci").unroll("co", 2);
  text.step("split(out.c, 8, co, ci)").step("vectorize ci").step("unroll(co, 2)");
  EXPECT_EQ(schedule_.json(), text.json());
}

TEST_F(PublicSchedule, ARefusalLeavesTheScheduleAsItWas) {
  const std::string before = schedule_.json();
  EXPECT_THROW(schedule_.fuse_with("out.c", "nowhere"), UserError);
  EXPECT_EQ(schedule_.json(), before);
  EXPECT_TRUE(schedule_.why_illegal("reorder(nowhere, out.i)").has_value());
  EXPECT_FALSE(schedule_.why_illegal("parallel(out.i)").has_value());
}

TEST_F(PublicSchedule, SurvivesItsJson) {
  schedule_.split("out.c", 8, "co", "ci");
  const Schedule loaded = Schedule::from_json(nest_, schedule_.json(), {{"rows", 8}, {"width", 24}});
  EXPECT_EQ(loaded.str(), schedule_.str());
  EXPECT_THROW(Schedule::from_json(Nest::load("layernorm"), schedule_.json()), UserError);
}

TEST_F(PublicSchedule, MeasuresAndSaves) {
  const test::TemporaryFolder folder;
  const Measurement measured = schedule_.parallel("out.i").measure();
  EXPECT_TRUE(measured.correct) << measured.failure;
  EXPECT_GT(measured.median_ms, 0);
  EXPECT_EQ(schedule_.save(folder.file("api.db")), 1);
}

TEST_F(PublicSchedule, ANestIsTunedAtTheSizesGiven) {
  const test::TemporaryFolder folder;
  TuneOptions options;
  options.max_trials = 2;
  options.database = folder.file("tuned.db");
  options.sizes = {{"width", 24}};
  const TuneReport report = tune(nest_, {{"rows", 8}}, options);
  EXPECT_EQ(report.trials, 2);
  ASSERT_GT(report.best_ms, 0);
  EXPECT_NO_THROW(Schedule::from_json(nest_, report.best_schedule, {{"rows", 8}, {"width", 24}}));
}

TEST_F(PublicSchedule, ShowsEveryView) {
  for (const char* view : {"nest", "deps", "tree", "loops", "tile", "ir", "asm", "ptx", "schedule"}) {
    EXPECT_FALSE(schedule_.show(view).empty()) << view;
  }
  EXPECT_THROW(schedule_.show("picture"), UserError);
}

}  // namespace
}  // namespace nestor
