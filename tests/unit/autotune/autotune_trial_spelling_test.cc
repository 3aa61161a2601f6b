// Records keep the words of the program that wrote them: old ones are read as what they are called today.
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_spelling.h"
#include "autotune/trial/trial_steps.h"
#include "poly/nest/nest_json.h"
#include "support/knobs.h"
#include "support/nests/shipped_schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace nestor {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json trial(const json& steps, const json& parameters = json::object()) {
  return {{"nest", "x"}, {"fixed", json::object()}, {"steps", steps}, {"parameters", parameters}};
}

json step(const char* name, const json& args) { return {{"name", name}, {"args", args}}; }

TEST(TrialSpelling, OldNamesBecomeThoseOfToday) {
  const json stored =
      trial({step("tensor_cores", {"io", 2, 3}), step("turns", {"io"}), step("stage", {"x", "i", "registers", 2})},
            {{"groups", 2},
             {"slots", 3},
             {"turns", 1},
             {"hold", 0},
             {"residents", 1},
             {"claims", 0},
             {"polynomial", 8},
             {"stagger", 1},
             {"overlap", 1},
             {"cluster", 16},
             {"multicast", 2},
             {"pack", 4},
             {"split", -1},
             {"parts", 8},
             {"stream", 3},
             {"stream_tile", 64},
             {"ahead", 2},
             {"columns", 128}});
  const json today = current_trial_steps(stored);
  EXPECT_EQ(today.at("steps"),
            json({step("tensor_cores", {"io", 2, 3}), step("ping_pong", {"io"}), step("stage", {"x", "i", 2})}));
  EXPECT_EQ(today.at("parameters"), json({{"warpgroups", 2},
                                          {"stages", 3},
                                          {"ping_pong", 1},
                                          {"a_from_registers", 0},
                                          {"min_blocks", 1},
                                          {"dynamic_scheduler", 0},
                                          {"exp2_polynomial", 8},
                                          {"early_release", 1},
                                          {"intra_warpgroup_overlap", 1},
                                          {"cluster", 2},
                                          {"pack_gqa", 4},
                                          {"split_axis", -1},
                                          {"num_splits", 8},
                                          {"reduction_axis", 3},
                                          {"reduction_tile", 64},
                                          {"prefetch", 2},
                                          {"columns", 128}}));
  EXPECT_EQ(current_trial_steps(today), today);
}

TEST(TrialSpelling, ClustersOffTensorCoresKeepTheirSize) {
  const json today = current_trial_steps(trial(json::array(), {{"groups", 0}, {"cluster", 16}, {"multicast", 2}}));
  EXPECT_EQ(today.at("parameters"), json({{"warpgroups", 0}, {"cluster", 16}}));
}

TEST(TrialSpelling, OneCandidateHasOneKeyInAllSpellings) {
  const json old = trial({step("gpu_blocks", {"io"}), step("gpu_threads", {"io", 64}), step("cluster", {"io", 2}),
                          step("persistent", {"io", 1}), step("stage", {"x", "io", "registers", 2})},
                         {{"ahead", 1}});
  const json now = trial({step("gpu_blocks", {"io"}), step("gpu_threads", {"io", 64}), step("persistent", {"io", 1}),
                          step("cluster", {"io", 2}), step("stage", {"x", "io", 2})},
                         {{"prefetch", 1}});
  EXPECT_EQ(trial_key(old), trial_key(now));
  json other = now;
  other["steps"][3] = step("cluster", {"io", 4});
  EXPECT_NE(trial_key(other), trial_key(now));
  other = now;
  std::swap(other["steps"][0], other["steps"][4]);  // no knobs: the order counts
  EXPECT_NE(trial_key(other), trial_key(now));
}

TEST(TrialSpelling, WhatIsNoRecordOfStepsStaysAsItIs) {
  for (const char* text : {"3", "[]", R"({"steps": 3})", R"({"steps": [{"name": 3}]})", R"({"steps": [], "parameters": 3})"}) {
    EXPECT_EQ(current_trial_steps(json::parse(text)), json::parse(text)) << text;
  }
}

/// Names of parameters of today and of before.
std::set<std::string> old_names() {
  std::set<std::string> names{"multicast", "split", "parts", "stream", "stream_tile", "ahead", "pack"};
  for (const KnobStep& known : knob_steps()) {
    for (const Knob& knob : known.knobs) names.insert(knob.formerly.begin(), knob.formerly.end());
    names.insert(known.formerly.begin(), known.formerly.end());
  }
  return names;
}

TEST(TrialSpelling, EveryShippedRecordReadsInTheWordsOfToday) {
  const std::set<std::string> old = old_names();
  std::size_t count = 0, changed = 0;
  for (const testing::ShippedSchedule& shipped : testing::shipped_schedules(NESTOR_SHIPPED_RECORDS)) {
    const json today = current_trial_steps(shipped.steps);
    for (const auto& [name, value] : today.at("parameters").items()) EXPECT_FALSE(old.contains(name)) << shipped.name;
    for (const json& written : today.at("steps")) {
      const std::string name = written.at("name");
      EXPECT_TRUE(name == "split" || !old.contains(name)) << shipped.name << ": " << name;
    }
    ++count;
    changed += today != shipped.steps ? 1 : 0;
  }
  EXPECT_GT(count, 0u);
  EXPECT_GT(changed, 0u);
}

/// What was found by an older program is a point of today's space, and gives the stored steps; first kernels are launched early now.
TEST(TrialSpelling, ShippedRecordsOnTensorCoresArePointsOfTheSpace) {
  int tried = 0, number = 0;
  for (const testing::ShippedSchedule& shipped : testing::shipped_schedules(NESTOR_SHIPPED_RECORDS)) {
    if (!shipped.tensor || number++ % 9 != 0) continue;
    const Nest nest = nest_from_json(shipped.nest);
    BaseSchedules schedules(nest_for_tuning(nest, shipped.sizes));
    const auto space = make_nest_space(schedules, shipped.sizes, gpu_space_limits(90, 227 << 10, 132));
    const auto point = point_from(*space, current_trial_steps(shipped.steps).at("parameters").get<NamedValues>());
    ASSERT_TRUE(point.has_value()) << shipped.name;
    json steps = shipped.steps;
    steps["steps"] = json::array();
    bool first = true;
    for (const Step& taken : space->candidate(*point).steps) {
      if (taken.name == "programmatic_launch" && std::exchange(first, false)) continue;
      steps["steps"].push_back(step_to_json(taken));
    }
    EXPECT_FALSE(first) << shipped.name;
    EXPECT_EQ(trial_key(steps), trial_key(shipped.steps)) << shipped.name;
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

}  // namespace
}  // namespace nestor
