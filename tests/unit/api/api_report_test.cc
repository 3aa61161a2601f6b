// Reports say what is there: counts of work, cells of iteration spaces, why steps are legal, the order of warps, and texts as texts.
#include "api/operators.h"
#include "api/report/device_roofs.h"
#include "api/report/kernel_report.h"
#include "api/report/nest_work.h"
#include "api/report/schedule_story.h"
#include "api/report/space_pictures.h"
#include "api/report/trial_columns.h"
#include "api/report/warp_timeline.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_problem.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/tile/build/tile_classes.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_json.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

namespace nestor {
namespace {

using nlohmann::json;
using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- work

TEST(NestWork, IndependentDimsAreFactorsOfAnExactCount) {
  const PointCount count =
      count_points(parse_set("{ S[b, i, j, e] : 0 <= b < 7 and 0 <= i < 100 and 0 <= j <= i and 0 <= e < 1000000 }", "a set"));
  EXPECT_TRUE(count.exact);
  EXPECT_EQ(count.points, 7.0 * 5050 * 1000000);
}

TEST(NestWork, ManyTiedPointsAreSampledWithinAPercent) {
  const PointCount count = count_points(parse_set("{ S[i, j] : 0 <= i < 16384 and 0 <= j <= i }", "a set"));
  EXPECT_FALSE(count.exact);
  EXPECT_NEAR(count.points / (16384.0 * 16385 / 2), 1, 0.01);
}

TEST(NestWork, HolesAreNotCountedAndNothingIsNone) {
  EXPECT_EQ(count_points(parse_set("{ S[i] : 0 <= i < 100 and i mod 3 = 0 }", "a set")).points, 34);
  EXPECT_EQ(count_points(parse_set("{ S[i] : 1 = 0 }", "a set")).points, 0);
}

TEST(NestWork, ProductsOf16BitOperandsAreForTensorCores) {
  const Sizes sizes{{"m", 64}, {"n", 32}, {"k", 16}};
  const NestWork half = work_of(load_operator("matmul", "f16"), sizes), single = work_of(load_operator("matmul", "f32"), sizes);
  EXPECT_EQ(half.tensor_flops, 2.0 * 64 * 32 * 16);
  EXPECT_EQ(single.tensor_flops, 0);
  EXPECT_GE(single.scalar_flops, 2.0 * 64 * 32 * 16);
  EXPECT_EQ(single.bytes, 4.0 * (64 * 16 + 16 * 32 + 64 * 32));
}

TEST(DeviceRoofs, FollowFromClocksAndWidthsOfAGpu) {
  DeviceIdentity device{"cuda", "NVIDIA H200", "sm_90", 132,
                        R"({"clock_khz":1980000,"memory_clock_khz":3201000,"memory_bus_bits":6016})"};
  const std::vector<Roof> roofs = roofs_of(device);
  ASSERT_EQ(roofs.size(), 4U);
  EXPECT_NEAR(roofs[0].per_second, 4.81e12, 1e10);
  EXPECT_NEAR(roofs[1].per_second, 1.0705e15, 1e12);
  EXPECT_NEAR(roof_times(roofs, {.bytes = 4.814304e9}).front(), 1.0, 1e-6);
  device.details = "{}";
  EXPECT_TRUE(roofs_of(device).empty());
  device.kind = "host";
  EXPECT_TRUE(roofs_of(device).empty());
}

// ---- schedule

class CausalAttention : public ::testing::Test {
 protected:
  CausalAttention() : database_(Database::open(folder_.file("shipped.db"))) {
    database_.import_file(NESTOR_TUNING_DB "/nvidia-h200-attention-bf16.jsonl");
    const Sizes sizes{{"batch", 4}, {"head_dim", 128}, {"heads", 16}, {"keys", 4096}, {"queries", 4096}};
    for (const Database::ProblemSummary& row : database_.summary()) {
      if (row.problem.variant == "causal.bf16" && row.problem.sizes == sizes)
        request_.device = row.device, request_.problem = row.problem;
    }
    const TrialRecord trial = database_.best(request_.device, request_.problem, Database::Kernels::unchecked_too).value();
    nest_ = nest_from_json(json::parse(database_.origin(trial.id)->nest_json));
    schedule_ = std::make_unique<Schedule>(replay_trial_steps(nest_, sizes, json::parse(trial.steps)));
    sizes_ = sizes;
  }

  test::TemporaryFolder folder_;
  Database database_;
  ReportRequest request_;
  Nest nest_;
  Sizes sizes_;
  std::unique_ptr<Schedule> schedule_;
};

std::int64_t cells_of(const json& pair, char kind) {
  const std::string text = pair["cells"];
  const std::regex run("([efp])([0-9]+)");
  std::int64_t count = 0;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), run); at != std::sregex_iterator(); ++at) {
    if ((*at)[1].str()[0] == kind) count += std::stoll((*at)[2]);
  }
  return count;
}

TEST_F(CausalAttention, CellsAreTheTilesThatShowCounts) {
  const json spaces = spaces_of(*schedule_, sizes_);
  const auto triangle = std::find_if(spaces.begin(), spaces.end(), [](const json& space) { return space["loops"].size() == 4; });
  ASSERT_NE(triangle, spaces.end());
  const json& pair = triangle->at("pairs").back();
  const std::vector<TileClasses> classes = classify_tiles(*schedule_, sizes_);
  const auto counted =
      std::max_element(classes.begin(), classes.end(), [](const auto& a, const auto& b) { return a.all < b.all; });
  EXPECT_EQ(cells_of(pair, 'f'), counted->full());
  EXPECT_EQ(cells_of(pair, 'p'), counted->partial);
  EXPECT_EQ(cells_of(pair, 'e'), counted->empty());
}

TEST_F(CausalAttention, StoryEndsWithTheScheduleAndSaysWhyOfEachStep) {
  const json story = story_of(*schedule_);
  ASSERT_EQ(story["steps"].size(), schedule_->steps().size());
  EXPECT_EQ(story["texts"][story["steps"].back()["text"].get<std::size_t>()], schedule_->str());
  for (const json& step : story["steps"]) {
    EXPECT_NE(step["why"], "") << step;
    if (step["name"] == "apply_rule") {
      EXPECT_THAT(step["facts"][1].get<std::string>(), HasSubstr("proof: "));
    }
    if (step["name"] == "fuse_with") {
      EXPECT_THAT(step["why"].get<std::string>(), HasSubstr("touch"));
    }
    if (step["name"] == "split") {
      EXPECT_THAT(step["why"].get<std::string>(), HasSubstr("order of all instances"));
    }
  }
}

/// Every lane does one thing at a time, and each of them something.
void expect_orderly(const TileProgram& program, int sm, const Sizes& sizes) {
  const auto plans = plan_kernels(program, {.sm = sm});
  ASSERT_TRUE(plans->kernels.front().tensor);
  const Timeline timeline = timeline_of(*plans->kernels.front().tensor, sizes);
  EXPECT_GT(timeline.clocks, 0);
  for (std::size_t lane = 0; lane < timeline.lanes.size(); ++lane) {
    std::vector<LaneSpan> spans;
    std::copy_if(timeline.spans.begin(), timeline.spans.end(), std::back_inserter(spans),
                 [&](const LaneSpan& span) { return span.lane == static_cast<int>(lane); });
    EXPECT_FALSE(spans.empty()) << timeline.lanes[lane].name;
    std::sort(spans.begin(), spans.end(), [](const LaneSpan& a, const LaneSpan& b) { return a.start < b.start; });
    for (std::size_t k = 1; k < spans.size(); ++k) {
      EXPECT_GE(spans[k].start, spans[k - 1].end - 1e-6)
          << timeline.lanes[lane].name << ": " << spans[k - 1].text << ", " << spans[k].text;
    }
  }
}

TEST_F(CausalAttention, StagesHoldOneTileAtATimeAndUnitsDoOneThing) {
  expect_orderly(build_tile_program(*schedule_), 90, sizes_);
}

TEST_F(CausalAttention, TimelinesOfAnOlderGpuHaveNoProducer) {
  const TrialProblem problem = trial_problem(nest_, sizes_);
  BaseSchedules schedules(problem.start);
  const auto space = make_nest_space(schedules, problem.sizes, gpu_space_limits(80, 163 << 10, 108));
  const Schedule guess = schedules.replay(space->candidate(space->defaults().front()).steps);
  expect_orderly(build_tile_program(guess), 80, sizes_);
}

TEST_F(CausalAttention, ReportHasAllPartsOfAShippedRecord) {
  const json data = report_data(database_, request_);
  EXPECT_THAT(data["notes"], ElementsAre());
  EXPECT_EQ(data["certificate"]["program"]["verdict"], "proved");
  EXPECT_EQ(data["warps"].size(), 1U);
  EXPECT_GT(data["relatives"].size(), 10U);
  EXPECT_EQ(data["subject"]["id"], data["best"]);
  const double bound = std::max_element(data["roofs"].begin(), data["roofs"].end(), [](const json& a, const json& b) {
                         return a["ms"] < b["ms"];
                       })->at("ms");
  EXPECT_LT(bound, data["subject"]["ms"].get<double>()) << "no kernel is faster than a roof";
}

// ---- trials

TrialRecord trial_with(std::int64_t id, TrialStatus status, double ms, const std::string& reason,
                       const std::string& report = "") {
  TrialRecord trial;
  trial.id = id;
  trial.status = status;
  trial.median_ms = ms;
  trial.reason = reason;
  trial.report = report;
  trial.created = id == 1 ? "2026-01-31T23:59:50Z" : "2026-02-01T00:00:05Z";
  trial.steps = R"({"parameters":{"tile.i":)" + std::to_string(8 * id) + R"(,"order":0},"steps":[]})";
  return trial;
}

TEST(TrialColumns, NumbersStandForTextsAndConstantsAreSaidOnce) {
  const json columns = trial_columns({trial_with(1, TrialStatus::ok, 1.5, "", R"({"origin":"guess","compile_ms":12.3456})"),
                                      trial_with(2, TrialStatus::slow, 3.14159, "cut")},
                                     "");
  EXPECT_EQ(columns["id"], json({1, 2}));
  EXPECT_EQ(columns["ms"], json({1.5, 3.142}));
  EXPECT_EQ(columns["seconds"], json({0, 15}));
  EXPECT_EQ(columns["statuses"], json({"ok", "slow"}));
  EXPECT_EQ(columns["origins"], json({"guess", "search"}));
  EXPECT_EQ(columns["reasons"], json({"", "cut"}));
  EXPECT_EQ(columns["compile"][0], 12.35);
  EXPECT_EQ(columns["parameters"], json({{"tile.i", {8, 16}}}));
  EXPECT_EQ(columns["constant"], json({{"order", 0}}));
}

TEST(TrialColumns, LongReasonsAreCutBetweenCharacters) {
  std::string reason;
  for (int k = 0; k < 300; ++k) reason += "\u00e9";
  const std::string kept = trial_columns({trial_with(1, TrialStatus::crash, 0, reason)}, "")["reasons"][0];
  EXPECT_LT(kept.size(), 250U);
  EXPECT_EQ((kept.size() - 3) % 2, 0U);
}

// ---- page

TEST(ReportPage, NoTextOfTheDataCanEndItsElement) {
  const std::string page =
      report_page({{"reason", "</script><script>alert(1)</script><!-- <img src=x onerror=alert(1)>"}, {"bytes", "\xff\xfe"}});
  EXPECT_THAT(page, HasSubstr("\\u003c/script>\\u003cscript>alert(1)"));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("http://www.example")));
}

TEST(ReportPage, NamesFromADatabaseAreQuotedInCommands) {
  test::TemporaryFolder folder;
  Database database = Database::open(folder.file("names.db"));
  const Nest nest = load_operator("rmsnorm");
  ProblemKey problem = problem_key(nest, complete_sizes(nest, {{"rows", 6}, {"width", 16}}));
  problem.op = "x; rm -rf 'y'";
  const DeviceIdentity device{"host", "a CPU", "znver3", 2, "{}"};
  TrialRecord trial = trial_with(1, TrialStatus::slow, 1, "");
  database.add_trial(device, problem, nest_to_text(nest), trial);
  ReportRequest request;
  request.device = device;
  request.problem = problem;
  const json data = report_data(database, request);
  EXPECT_THAT(data["commands"][0][1].get<std::string>(), HasSubstr(R"(nestor tune 'x; rm -rf '\''y'\''' --variant)"));
}

TEST(ReportPage, IsRenamedIntoPlaceOrRefused) {
  test::TemporaryFolder folder;
  const std::string path = folder.file("report.html");
  write_report(path, "one");
  write_report(path, "two");
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "two");
  EXPECT_THAT(message_of([] { write_report("/nowhere/at/all/report.html", "x"); }),
              HasSubstr("cannot write /nowhere/at/all/report.html"));
}

TEST(ReportPage, APipeIsWrittenAndALinkFollowed) {
  test::TemporaryFolder folder;
  const std::string pipe = folder.file("pipe"), link = folder.file("link"), place = folder.file("place.html");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  write_report(pipe, "page");
  char read[8] = {};
  EXPECT_EQ(::read(reader, read, sizeof(read)), 4);
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  std::filesystem::create_symlink(place, link);
  for (const std::string page : {"to what is not there yet", "and again"}) {
    write_report(link, page);
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    std::ifstream file(place);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), page);
  }
}

TEST(ReportPage, TimesAreReadAsUtc) {
  EXPECT_EQ(seconds_of("1970-01-02T00:00:01Z"), 86401);
  EXPECT_EQ(seconds_of("yesterday"), 0);
}

}  // namespace
}  // namespace nestor
