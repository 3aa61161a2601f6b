// Records of a device that is not here: one command loads them, and a query answers with how good the match is.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace nestor::test {
namespace {

using testing::HasSubstr;

class ShippedRecords : public testing::Test {
 protected:
  /// A record of this machine, rewritten as if a GPU had measured it, in a folder of records, its code in a pack.
  void SetUp() override {
    const std::string own = folder_.file("own.db"), lines = folder_.file("own.jsonl");
    ASSERT_EQ(
        run_nestor({"tune", "layernorm", "--rows", "64", "--width", "32", "--trials", "1", "--target", "host", "--db", own}).code,
        0);
    ASSERT_EQ(run_nestor({"db", "export", "--winners", lines, "--db", own}).code, 0);
    std::ifstream in(lines);
    std::string nest, line;
    ASSERT_TRUE(std::getline(in, nest) && std::getline(in, line));
    nlohmann::json record = nlohmann::json::parse(line);
    record["device"] = {
        {"kind", "cuda"}, {"name", "NVIDIA H200"}, {"arch", "sm_90"}, {"units", 132}, {"details", nlohmann::json::object()}};
    record["kernel"]["architecture"] = "sm_90";
    record.erase("signature");  // altered, it is nobody's
    std::filesystem::create_directories(folder_.file("records"));
    std::ofstream(folder_.file("records") + "/h200.jsonl") << nest << "\n" << record.dump() << "\n";
    std::filesystem::copy_file(folder_.file("own.pack"), folder_.file("records") + "/h200.pack");
  }

  Outcome nestor(std::vector<std::string> args, const std::string& variables = "") const {
    args.insert(args.end(), {"--db", folder_.file("user.db")});
    return run_nestor(
        args, "",
        "env NESTOR_ALLOW_UNSIGNED=1 NESTOR_LIBCUDA=/nonexistent NESTOR_RECORDS=" + folder_.file("records") + " " + variables);
  }
  static nlohmann::json json_of(const Outcome& outcome) { return nlohmann::json::parse(outcome.out); }

  TemporaryFolder folder_;
};

TEST_F(ShippedRecords, OneCommandLoadsThemAndQueriesAnswer) {
  const Outcome imported = nestor({"--json", "db", "import", "--shipped"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_EQ(json_of(imported).at("added"), 1);
  EXPECT_EQ(json_of(nestor({"--json", "db", "import", "--shipped"})).at("added"), 0);

  const Outcome exact = nestor({"--json", "query", "layernorm", "--rows", "64", "--width", "32"});
  ASSERT_EQ(exact.code, 0) << exact.err;
  EXPECT_EQ(json_of(exact).at("match"), "exact");
  EXPECT_EQ(nestor({"query", "layernorm", "--rows", "64", "--width", "32"}, "NESTOR_ALLOW_UNSIGNED=0").code, 3)
      << "nobody vouches for it";
  EXPECT_EQ(json_of(exact).at("here"), false);
  EXPECT_EQ(json_of(exact).at("device").at("name"), "NVIDIA H200");
  EXPECT_THAT(nestor({"query", "layernorm", "--rows", "64", "--width", "32"}).out,
              HasSubstr("another device: NVIDIA H200 (sm_90), which is not in this machine"));

  const Outcome nearest = nestor({"--json", "query", "layernorm", "--rows", "128", "--width", "32", "--device", "h200"});
  ASSERT_EQ(nearest.code, 0) << nearest.err;
  EXPECT_EQ(json_of(nearest).at("match"), "nearest");
  EXPECT_EQ(json_of(nearest).at("distance"), 1.0);
  EXPECT_EQ(nestor({"query", "layernorm", "--rows", "64", "--width", "32", "--device", "host"}).code, 3);
  EXPECT_EQ(nestor({"query", "layernorm", "--rows", "64", "--width", "33"}).code, 3);
}

TEST_F(ShippedRecords, AMissingPackIsRefusedByName) {
  std::filesystem::remove(folder_.file("records") + "/h200.pack");
  const Outcome imported = nestor({"db", "import", "--shipped"});
  EXPECT_EQ(imported.code, 1);
  EXPECT_THAT(imported.err, HasSubstr("h200.jsonl: line 2: the code of its kernel is in a pack, but "));
  EXPECT_THAT(imported.err, HasSubstr("h200.pack cannot be read"));
}

TEST_F(ShippedRecords, OneFileCanBeSentAround) {
  ASSERT_EQ(nestor({"db", "import", "--shipped"}).code, 0);
  ASSERT_EQ(nestor({"db", "export", "--inline-code", folder_.file("one.jsonl")}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("one.pack")));
  const Outcome imported = run_nestor({"--json", "db", "import", folder_.file("one.jsonl"), "--db", folder_.file("third.db")});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_EQ(json_of(imported).at("added"), 1);
}

TEST_F(ShippedRecords, TheSystemDatabaseServesEverybody) {
  const std::string variables = "NESTOR_SYSTEM_DB=" + folder_.file("share/system.db");
  const Outcome imported = nestor({"db", "import", "--shipped", "--system"}, variables);
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("share/system.db"));
  ASSERT_EQ(nestor({"db", "prune"}).code, 0);
  const Outcome asked = nestor({"--json", "query", "layernorm", "--rows", "64", "--width", "32"}, variables);
  ASSERT_EQ(asked.code, 0) << asked.err;
  EXPECT_LT(json_of(asked).at("trial").at("id"), 0);
}

TEST_F(ShippedRecords, AMachineWithThatGpuSaysSo) {
  ASSERT_EQ(nestor({"db", "import", "--shipped"}).code, 0);
  // The fake's device is another model of the same architecture: its kernel runs here, its time says nothing.
  const std::string fake = std::string("NESTOR_LIBCUDA=") + NESTOR_FAKE_CUDA;
  const Outcome asked = nestor({"--json", "query", "layernorm", "--rows", "64", "--width", "32"}, fake);
  ASSERT_EQ(asked.code, 0) << asked.err;
  EXPECT_EQ(json_of(asked).at("match"), "other device");
}

/// A folder of keys of its own for each user.
TEST_F(ShippedRecords, AColleaguesRecordsAreServedOnceTheKeyIsTrusted) {
  const auto as = [&](const std::string& user, std::vector<std::string> args) {
    args.insert(args.end(), {"--db", folder_.file(user + ".db")});
    return run_nestor(args, "", "env NESTOR_KEYS=" + folder_.file(user));
  };
  const std::string lines = folder_.file("sent.jsonl");
  const std::vector<std::string> query{"query", "layernorm", "--rows", "64", "--width", "32", "--device", "host"};
  ASSERT_EQ(as("ann", {"tune", "layernorm", "--rows", "64", "--width", "32", "--trials", "1", "--target", "host"}).code, 0);
  ASSERT_EQ(as("ann", {"db", "export", lines}).code, 0);
  const Outcome imported = as("bob", {"db", "import", lines});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("nestor db trust"));
  EXPECT_EQ(as("bob", query).code, 3);
  const std::string key = json_of(as("ann", {"--json", "db", "trust"})).at("own");
  ASSERT_EQ(as("bob", {"db", "trust", key, "--remark", "Ann"}).code, 0);
  EXPECT_EQ(as("bob", query).code, 0);
  EXPECT_THAT(as("bob", {"db", "trust"}).out, HasSubstr(key + "  Ann"));
  ASSERT_EQ(as("bob", {"db", "trust", key, "--off"}).code, 0);
  EXPECT_EQ(as("bob", query).code, 3);
  ASSERT_EQ(as("bob", {"db", "check", "--run", "--target", "host"}).code, 0);
  EXPECT_EQ(as("bob", query).code, 0) << "compiled and measured here";
  EXPECT_EQ(as("bob", {"db", "check"}).code, 0);
  EXPECT_THAT(as("bob", {"db", "trust", "no key"}).err, HasSubstr("is neither a public key"));
}

TEST_F(ShippedRecords, SharesAreMergedAndFilesCopied) {
  const std::string one = folder_.file("own.db"), lines = folder_.file("own.jsonl"), target = folder_.file("joined.db");
  ASSERT_EQ(run_nestor({"db", "merge", lines, one, lines, "--db", target}).code, 0);
  ASSERT_EQ(run_nestor({"db", "backup", folder_.file("copy.db"), "--db", target}).code, 0);
  EXPECT_EQ(run_nestor({"db", "export", "--db", folder_.file("copy.db")}).out, run_nestor({"db", "export", "--db", one}).out);
  EXPECT_EQ(run_nestor({"db", "check", "--db", folder_.file("copy.db")}).out, "sound\n");
}

TEST_F(ShippedRecords, AFileAtItsLimitEndsWithAMessageAndWhatWasCommitted) {
  const std::string limited = folder_.file("limited.db");
  std::filesystem::copy_file(folder_.file("own.db"), limited);
  const Outcome full =
      run_nestor({"tune", "layernorm", "--rows", "64", "--width", "64", "--trials", "50", "--target", "host", "--db", limited},
                 "", "sh -c 'ulimit -f 200; exec \"$@\"' sh");
  EXPECT_EQ(full.code, 1) << full.err;
  EXPECT_THAT(full.err, HasSubstr(limited));
  EXPECT_EQ(run_nestor({"db", "check", "--db", limited}).out, "sound\n");
}

TEST_F(ShippedRecords, AUserWithoutAPlaceHasTheSystemsRecords) {
  const std::string variables = "env -u NESTOR_DB -u XDG_DATA_HOME HOME=/proc/nowhere NESTOR_KEYS=" + folder_.file("keys") +
                                " NESTOR_ALLOW_UNSIGNED=1 NESTOR_SYSTEM_DB=" + folder_.file("own.db");
  const Outcome asked = run_nestor({"query", "layernorm", "--rows", "64", "--width", "32", "--device", "host"}, "", variables);
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.err, HasSubstr("in memory alone"));
  const Outcome tuned =
      run_nestor({"tune", "layernorm", "--rows", "64", "--width", "32", "--trials", "1", "--target", "host"}, "", variables);
  EXPECT_EQ(tuned.code, 0) << tuned.err;
}

}  // namespace
}  // namespace nestor::test
