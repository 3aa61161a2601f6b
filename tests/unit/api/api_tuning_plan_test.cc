// Plans: grids, lines, shares, and what is refused.
#include "api/operators.h"
#include "api/share_journal.h"
#include "api/tuning_plan.h"
#include "support/error.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

namespace nestor {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Nest> built_in(const std::string& op, const std::string& variant = "") {
  return std::make_shared<const Nest>(load_operator(op, variant));
}

TuningPlan plan_of(const std::string& text) {
  std::istringstream in(text);
  return read_plan(in);
}

std::string text_of(const TuningPlan& plan) {
  std::ostringstream out;
  write_plan(plan, out);
  return out.str();
}

TuningPlan softmax_grid(const std::vector<std::string>& texts) {
  TuningPlan plan;
  const auto nest = built_in("softmax");
  for (const Sizes& sizes : size_grid(*nest, texts).points) plan.add(nest, sizes);
  return plan;
}

TEST(SizeGrid, ListsAndRangesGiveEveryCombination) {
  const auto nest = built_in("softmax");
  const SizeGrid grid = size_grid(*nest, {"rows=1k..4k", "width=64..192+64", "1000"});
  std::set<std::int64_t> rows, widths;
  for (const Sizes& point : grid.points) {
    rows.insert(point.at("rows"));
    widths.insert(point.at("width"));
  }
  EXPECT_EQ(grid.points.size(), 12u);
  EXPECT_EQ(rows, (std::set<std::int64_t>{1024, 2048, 4096}));
  EXPECT_EQ(widths, (std::set<std::int64_t>{64, 128, 192, 1000}));
  EXPECT_EQ(size_grid(*nest, {}).points.size(), 1u) << "defaults";
  EXPECT_EQ(size_grid(*nest, {"rows=3..20"}).points.size(), 3u) << "3, 6, 12";
  EXPECT_EQ(size_grid(*nest, {"rows=500000000000000000..999999999999999999"}).points.size(), 1u)
      << "twice that is beyond the last";
}

TEST(SizeGrid, WhatTheNestDoesNotTakeIsLeftOutAndCounted) {
  const SizeGrid grid = size_grid(*built_in("softmax"), {"rows=0", "8"});
  EXPECT_EQ(grid.points.size(), 1u);
  EXPECT_EQ(grid.left_out, 1u);
}

TEST(SizeGrid, OtherTextIsRefused) {
  const auto refused = [nest = built_in("softmax")](const std::vector<std::string>& texts) {
    return test::message_of([&] { size_grid(*nest, texts); });
  };
  EXPECT_THAT(refused({"rwos=4"}), HasSubstr("did you mean 'rows'"));
  EXPECT_THAT(refused({"4"}), HasSubstr("'4' is no size"));
  EXPECT_THAT(refused({"rows=many"}), HasSubstr("'many' is no value of a size"));
  EXPECT_THAT(refused({"rows=8..4"}), HasSubstr("no range"));
  EXPECT_THAT(refused({"rows=4..8+0"}), HasSubstr("no range"));
  EXPECT_THAT(refused({"rows=1..2000000+1"}), HasSubstr("more than 1000000 values"));
  EXPECT_THAT(refused({"rows=0"}), HasSubstr("takes none of the sizes"));
}

TEST(TuningPlan, ReadsWhatItWrote) {
  TuningPlan plan = softmax_grid({"rows=8", "16"});
  plan.add(built_in("layernorm", "bf16"), {{"rows", 4}});
  const std::string text = text_of(plan);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << "two nests, three problems";
  EXPECT_EQ(text_of(plan_of(text)), text);
  EXPECT_EQ(plan_of(text + text).problems().size(), 3u) << "plans are joined by putting one behind the other";
}

TEST(TuningPlan, AProblemWithoutNestIsOfABuiltInOperator) {
  const TuningPlan plan = plan_of(R"({"format":1,"problem":{"op":"softmax","variant":"bf16","sizes":{"rows":8}}})");
  ASSERT_EQ(plan.problems().size(), 1u);
  EXPECT_EQ(plan.problems()[0].key.variant, "bf16");
  EXPECT_EQ(plan.problems()[0].key.sizes.at("rows"), 8);
}

TEST(TuningPlan, EveryProblemIsInOneShare) {
  const TuningPlan plan = softmax_grid({"rows=1..10+1"});
  std::multiset<std::int64_t> rows;
  for (std::size_t k = 0; k < 3; ++k) {
    for (const PlannedProblem& problem : share_of(plan, {k, 3})) rows.insert(problem.key.sizes.at("rows"));
  }
  EXPECT_EQ(rows.size(), 10u);
  EXPECT_EQ(std::set<std::int64_t>(rows.begin(), rows.end()).size(), 10u);
  EXPECT_TRUE(share_of(plan, {11, 12}).empty()) << "more shares than problems";
}

TEST(TuningPlan, SharesAreCountedFromZero) {
  EXPECT_EQ(shard_from("2/8").index, 2u);
  EXPECT_EQ(shard_from("2/8").count, 8u);
  EXPECT_THAT(test::message_of([] { shard_from("8/8"); }), HasSubstr("0/8 to 7/8"));
  for (const char* text : {"", "/", "1", "1/0", "-1/4", "a/b", "0/99999999999999999999"})
    EXPECT_THROW(shard_from(text), UserError) << text;
}

TEST(TuningPlan, BadLinesAreNamed) {
  const auto refused = [](const std::string& text) { return test::message_of([&] { plan_of(text); }); };
  EXPECT_THAT(refused("\n{"), HasSubstr("line 2"));
  EXPECT_THAT(refused("[]"), HasSubstr("JSON object"));
  EXPECT_THAT(refused(R"({"format":2,"problem":{}})"), HasSubstr("\"format\" must be 1"));
  EXPECT_THAT(refused(R"({"format":1})"), HasSubstr("neither"));
  EXPECT_THAT(refused(R"({"format":1,"problem":7})"), HasSubstr("must be an object"));
  EXPECT_THAT(refused(R"({"format":1,"problem":{"op":7}})"), HasSubstr("\"op\" must be a text"));
  EXPECT_THAT(refused(R"({"format":1,"problem":{"op":"sofmax"}})"), HasSubstr("did you mean 'softmax'"));
  EXPECT_THAT(refused(R"({"format":1,"problem":{"op":"/etc/passwd"}})"), HasSubstr("is a path"));
  EXPECT_THAT(refused(R"({"format":1,"problem":{"op":"softmax","sizes":{"rows":1e99}}})"), HasSubstr("an integer of 64 bits"));
  EXPECT_THAT(refused(R"({"format":1,"problem":{"op":"softmax","sizes":{"rows":18446744073709551615}}})"),
              HasSubstr("an integer of 64 bits"));
  EXPECT_THAT(refused(R"({"format":1,"problem":{"op":"softmax","nest_digest":"0123"}})"),
              HasSubstr("no line with the nest 0123"));
  std::string altered = text_of(softmax_grid({"rows=8"}));
  altered.replace(altered.find("\"min\":1"), 7, "\"min\":2");
  EXPECT_THAT(refused(altered), HasSubstr("the plan was altered"));
}

TEST(ShareJournal, RemembersWhatGotAsMuch) {
  const test::TemporaryFolder folder;
  const ProblemKey problem{"softmax", "f32", "d", {{"rows", 8}}};
  const DeviceIdentity device{"host", "A CPU", "arch", 2, R"({"driver_cuda_version":1,"model":"m"})"};
  ShareJournal(folder.file("t.db")).add(problem, device, {10, 5, false});
  std::ofstream(folder.file("t.db.done"), std::ios::app) << R"({"what":["softm)";  // a crash
  ShareJournal journal(folder.file("t.db"));
  EXPECT_TRUE(journal.finished(problem, device, {10, 5, false}));
  EXPECT_TRUE(journal.finished(problem, device, {3, 2, false}));
  EXPECT_FALSE(journal.finished(problem, device, {11, 5, false})) << "more trials are asked for";
  EXPECT_FALSE(journal.finished(problem, device, {10, 6, false}));
  EXPECT_FALSE(journal.finished(problem, device, {10, 5, true}));
  EXPECT_FALSE(journal.finished({"softmax", "f32", "d", {{"rows", 9}}}, device, {10, 5, false}));
  DeviceIdentity other = device;
  other.details = R"({"driver_cuda_version":2,"model":"m"})";
  EXPECT_TRUE(journal.finished(problem, other, {10, 5, false})) << "a new driver";
  other.details = R"({"driver_cuda_version":1,"model":"n"})";
  EXPECT_FALSE(journal.finished(problem, other, {10, 5, false})) << "another machine";
  journal.add(problem, other, {1, 1, false});
  EXPECT_TRUE(ShareJournal(folder.file("t.db")).finished(problem, other, {1, 1, false})) << "behind the line that was cut off";
}

}  // namespace
}  // namespace nestor
