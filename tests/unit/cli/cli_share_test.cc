// nestor plan, tune --plan and db merge: shares done one by one, cut off and gone on with, joined to the same bytes.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

namespace nestor::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class CliShare : public testing::Test {
 protected:
  CliShare() {
    const Outcome planned =
        run_nestor({"plan", "softmax", "rmsnorm", "--rows", "4,8,12", "--width", "8", "--out", file("plan.jsonl")});
    EXPECT_EQ(planned.code, 0) << planned.err;
    std::filesystem::create_directory(file("out"));
  }
  std::string file(const std::string& name) const { return folder.file(name); }

  json share(const std::string& shard, const std::string& name, int trials = 2) const {
    const Outcome tuned =
        run_nestor({"--json", "tune", "--plan", file("plan.jsonl"), "--shard", shard, "--db", file(name + ".db"), "--export",
                    file("out/" + name + ".jsonl"), "--target", "host", "--threads", "1", "--trials", std::to_string(trials)});
    EXPECT_EQ(tuned.code, 0) << tuned.err << tuned.out;
    return json::parse(tuned.out, nullptr, false);
  }
  std::string exported(const std::string& database) const {
    const Outcome lines = run_nestor({"db", "export", "--db", file(database)});
    EXPECT_EQ(lines.code, 0) << lines.err;
    return lines.out;
  }
  std::string merged(std::vector<std::string> files, const std::string& name) const {
    std::vector<std::string> words{"db", "merge", "--db", file(name)};
    words.insert(words.end(), files.begin(), files.end());
    const Outcome outcome = run_nestor(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return exported(name);
  }

  TemporaryFolder folder;
};

TEST_F(CliShare, SharesJoinToTheSameBytesInAnyOrderAndAnyNumberOfTimes) {
  for (int k = 0; k < 3; ++k) {
    const json done = share(std::to_string(k) + "/3", std::to_string(k));
    EXPECT_EQ(done["problems"], 2);
    EXPECT_EQ(done["finished"], 2);
    EXPECT_EQ(done["trials"], 4);
  }
  std::vector<std::string> files;  // OUT/*, packs included
  for (const auto& entry : std::filesystem::directory_iterator(file("out"))) files.push_back(entry.path().string());
  EXPECT_EQ(files.size(), 6u);
  std::sort(files.begin(), files.end());
  const std::string all = merged(files, "all.db");
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 12);
  std::mt19937 random(1);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::string> some = files;
    some.insert(some.end(), files.begin(), files.end());
    std::shuffle(some.begin(), some.end(), random);
    EXPECT_EQ(merged(some, "round" + std::to_string(round) + ".db"), all);
  }
  EXPECT_EQ(merged(files, "all.db"), all);
}

TEST_F(CliShare, TheSameCommandGoesOnWhereItStopped) {
  EXPECT_EQ(share("0/2", "part")["finished"], 3);
  const std::string before = exported("part.db");
  const json again = share("0/2", "part");
  EXPECT_EQ(again["known"], 3);
  EXPECT_EQ(again["trials"], 0);
  EXPECT_EQ(exported("part.db"), before);
  const json more = share("0/2", "part", 3);
  EXPECT_EQ(more["finished"], 3);
  EXPECT_EQ(more["trials"], 3) << "those that are known count";
  std::filesystem::remove(file("part.db"));
  EXPECT_EQ(share("0/2", "part")["finished"], 3) << "the file beside a database that is gone says nothing";
}

TEST_F(CliShare, AKilledShareLosesAtMostTheTrialUnderWay) {
  const std::string command = "timeout -s KILL 2 ";
  const std::vector<std::string> words{"tune",      "--plan", file("plan.jsonl"), "--db", file("killed.db"), "--target", "host",
                                       "--threads", "1",      "--trials",         "40"};
  run_nestor(words, "", command);
  const std::string before = std::filesystem::exists(file("killed.db")) ? exported("killed.db") : "";
  const Outcome again = run_nestor({"--json", "tune", "--plan", file("plan.jsonl"), "--db", file("killed.db"), "--target", "host",
                                    "--threads", "1", "--trials", "2"});
  EXPECT_EQ(again.code, 0) << again.err;
  const std::string after = exported("killed.db");
  for (std::size_t begin = 0; begin < before.size(); begin = before.find('\n', begin) + 1)
    EXPECT_THAT(after, HasSubstr(before.substr(begin, before.find('\n', begin) - begin)));
}

TEST_F(CliShare, AProblemThatIsRefusedDoesNotEndTheShare) {
  std::ofstream(file("plan.jsonl")) << R"({"format":1,"problem":{"op":"softmax","sizes":{"rows":4000000000,"width":65536}}})"
                                    << '\n'
                                    << R"({"format":1,"problem":{"op":"softmax","sizes":{"rows":4,"width":8}}})" << '\n';
  const Outcome tuned =
      run_nestor({"--json", "tune", "--plan", file("plan.jsonl"), "--db", file("t.db"), "--target", "host", "--trials", "1"});
  EXPECT_EQ(tuned.code, 3) << tuned.err;
  const json done = json::parse(tuned.out);
  EXPECT_EQ(done["finished"], 1);
  ASSERT_EQ(done["failures"].size(), 1u);
  EXPECT_EQ(done["failures"][0]["problem"]["sizes"]["rows"], 4000000000);
}

TEST_F(CliShare, OptionsThatNameOneProblemAreRefusedBesideAPlan) {
  const auto refused = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"tune", "--plan", file("plan.jsonl"), "--db", file("t.db")});
    const Outcome outcome = run_nestor(words);
    EXPECT_EQ(outcome.code, 1);
    return outcome.err;
  };
  EXPECT_THAT(refused({"softmax"}), HasSubstr("excludes"));
  EXPECT_THAT(refused({"--rows", "8"}), HasSubstr("excludes"));
  EXPECT_THAT(refused({"--shard", "3/3"}), HasSubstr("0/3 to 2/3"));
  EXPECT_THAT(run_nestor({"tune", "--db", file("t.db")}).err, HasSubstr("--plan FILE"));
  EXPECT_THAT(run_nestor({"tune", "softmax", "--shard", "0/2", "--db", file("t.db")}).err, HasSubstr("--plan"));
  EXPECT_THAT(run_nestor({"tune", "--plan", file("none.jsonl"), "--db", file("t.db")}).err, HasSubstr("cannot read"));
}

}  // namespace
}  // namespace nestor::test
