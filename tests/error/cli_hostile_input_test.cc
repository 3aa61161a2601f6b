// Input that was made to break the program: a message and exit code 1, never a signal or an internal error.
#include "integration/run_nestor.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nestor::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMany = 100000;

std::string repeated(const std::string& text, std::size_t times = kMany) {
  std::string all;
  for (std::size_t k = 0; k < times; ++k) all += text;
  return all;
}

class HostileInput : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    write_whole(folder_.file(name), text);
    return folder_.file(name);
  }
  static void expect_refused(const Outcome& outcome, const std::string& what, const std::string& words = "") {
    EXPECT_EQ(outcome.code, 1) << what << ": " << outcome.err.substr(0, 300);
    EXPECT_THAT(outcome.err, testing::Not(HasSubstr("internal error"))) << what;
    EXPECT_LT(outcome.err.size(), 5000u) << what;
    if (!words.empty()) {
      EXPECT_THAT(outcome.err, HasSubstr(words)) << what;
    }
  }
  TemporaryFolder folder_;
};

TEST_F(HostileInput, JsonNestedDeep) {
  for (const auto& [open, close] : {std::pair("[", "]"), std::pair(R"({"a":)", "}")}) {
    const std::string deep = repeated(open) + "1" + repeated(close);
    expect_refused(run_nestor({"show", file("deep.json", deep)}), "nest", "nested more than");
    expect_refused(run_nestor({"show", "matmul", "--steps", file("deep.steps", "{\"nest\":\"x\",\"steps\":" + deep + "}")}),
                   "steps", "nested more than");
    const std::string lines = "load " + file("load.json", "{\"steps\":" + deep + "}") + "\nsteps\n";
    const Outcome explored = run_nestor({"explore", "matmul", "--target", "host"}, lines);
    EXPECT_EQ(explored.code, 1);
    EXPECT_THAT(explored.out, HasSubstr("nested more than"));
  }
}

TEST_F(HostileInput, BytesThatAreNoUtf8WithJson) {
  const std::string bad = "x\xff\xfey";
  const std::vector<std::vector<std::string>> commands{
      {"show", bad},
      {"show", "matmul", "--variant", bad},
      {"show", "matmul", "--sizes", bad + "=3"},
      {"show", "matmul", "--" + bad, "3"},
      {"show", "matmul", "--as", bad},
      {"show", "matmul", "--steps", folder_.file(bad)},
      {"show", "matmul", "--steps", file("bad.steps", "split(" + bad + ", 2, a, b)\n")},
      {"tune", "matmul", "--target", bad},
      {"tune", "matmul", "--set", bad + "=1"},
      {"query", "matmul", "--db", folder_.file(bad)},
      {bad}};
  for (const auto& command : commands) {
    for (const bool json : {false, true}) {
      std::vector<std::string> args = command;
      if (json) args.insert(args.begin(), "--json");
      const Outcome outcome = run_nestor(args);
      expect_refused(outcome, command.back());
      if (json) {
        EXPECT_EQ(nlohmann::json::parse(outcome.out).at("error").at("kind"), "user") << command.back();
      }
    }
  }
}

TEST_F(HostileInput, AFolderInPlaceOfAFile) {
  const std::string folder = folder_.path().string();
  expect_refused(run_nestor({"show", folder}), "nest", "is a folder");
  expect_refused(run_nestor({"show", "matmul", "--steps", folder}), "steps", "is a folder");
  expect_refused(run_nestor({"tune", "matmul", "--db", folder, "--target", "host"}), "database", "is a folder");
  expect_refused(run_nestor({"db", "summary", "--db", folder}), "database", "is a folder");
  const Outcome explored = run_nestor({"explore", "matmul", "--target", "host"}, "load " + folder + "\nsave " + folder + "\n");
  EXPECT_EQ(explored.code, 1);
  EXPECT_THAT(explored.out,
              testing::AllOf(HasSubstr("it is a folder"), HasSubstr("cannot write " + folder + ": it is a folder; name a file")));
}

TEST_F(HostileInput, NumbersWithoutEnd) {
  const std::string digits = repeated("9");
  expect_refused(run_nestor({"show", "matmul", "--m", digits}), "size");
  expect_refused(run_nestor({"show", "matmul", "--steps", file("n.steps", "split(product.i, " + digits + ", a, b)\n")}),
                 "factor");
  expect_refused(run_nestor({"tune", "matmul", "--set", "eps=0." + digits, "--target", "host"}), "scalar");
  const Outcome explored =
      run_nestor({"explore", "matmul", "--target", "host"},
                 "load 99999999999999999999\nclaims()\nwhy claims()\nload 0\nsplit(product.i, " + digits + ", a, b)\nsteps\n");
  EXPECT_EQ(explored.code, 1);
  EXPECT_THAT(explored.out, testing::AllOf(HasSubstr("no trial 99999999999999999999"), HasSubstr("> steps")));
}

TEST_F(HostileInput, NumbersInNestsFit64Bits) {
  const std::string nest = run_nestor({"--json", "show", "matmul", "--as", "nest"}).out;
  const auto with = [&](const std::string& domain) {
    nlohmann::json json = nlohmann::json::parse(nest);
    json["statements"][1]["domain"] =
        "[m, n, k] -> { product[i, j, r] : 0 <= i < m and 0 <= j < n and 0 <= r < k and " + domain + " }";
    return file("case.nest.json", json.dump());
  };
  // Such numbers wrapped, so that nests with other meanings had one digest; and fractions of them made the library of integers abort.
  const std::string digits = repeated("9");
  expect_refused(run_nestor({"show", with("i < " + digits)}), "constant", "more than 18 digits");
  expect_refused(run_nestor({"show", with("i >= floor((m)/" + digits + ")")}), "fraction", "more than 18 digits");
  expect_refused(run_nestor({"show", with("i < 1180591620717411303424")}), "2^70", "more than 18 digits");
  expect_refused(run_nestor({"show", with("i < 1000000000 * 1000000000 * 1000000000 * m")}), "product", "more than 18 digits");
  // A power of the second needs more memory than there is; the third was read as 2^3.
  for (const char* power : {"2^63", "-92233^20368547758089", "2^-3", "2^99999999999999999999", "2^"})
    expect_refused(run_nestor({"show", with(std::string("i < ") + power)}), power, "only a number from 0 to 62 may follow ^");
  EXPECT_EQ(run_nestor({"show", with("i < 2 ^ 10")}).code, 0);
  expect_refused(run_nestor({"show", with(repeated("(", 5000) + "i < 5" + repeated(")", 5000))}), "parentheses",
                 "nested more than");
  EXPECT_EQ(run_nestor({"show", with("i < 999999999999999999")}).code, 0);
}

TEST_F(HostileInput, AFolderOfRecordsIsNamedAsOne) {
  const Outcome outcome = run_nestor({"db", "import", folder_.file(""), "--db", folder_.file("t.db")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("is a folder"));
}

TEST_F(HostileInput, FilesMayNotGrow) {
  for (const int bytes : {8 << 10, 64 << 10, 200 << 10}) {
    const Outcome outcome = run_nestor(
        {"tune", "softmax", "--rows", "4", "--width", "8", "--trials", "2", "--target", "host", "--db", folder_.file("small.db")},
        "", "prlimit --fsize=" + std::to_string(bytes));
    EXPECT_TRUE(outcome.code == 0 || outcome.code == 1) << outcome.code << outcome.err;
    EXPECT_THAT(outcome.err, testing::Not(HasSubstr("disk I/O error"))) << bytes;
    EXPECT_TRUE(outcome.code == 0 || outcome.err.find("ulimit -f") != std::string::npos) << bytes << ": " << outcome.err;
  }
}

TEST_F(HostileInput, WithoutAHomeTheSystemDatabaseAnswers) {
  const std::string system = folder_.file("system.db");
  ASSERT_EQ(
      run_nestor({"tune", "softmax", "--rows", "4", "--width", "8", "--trials", "2", "--target", "host", "--db", system}).code,
      0);
  for (const char* home : {"-u HOME", "HOME=", "HOME=/proc/none"}) {
    const Outcome outcome =
        run_nestor({"query", "softmax", "--rows", "4", "--width", "8", "--device", "host", "--system-db", system}, "",
                   std::string("env -u NESTOR_DB -u XDG_DATA_HOME ") + home + " NESTOR_ALLOW_UNSIGNED=1");
    EXPECT_EQ(outcome.code, 0) << home << ": " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("in memory alone")) << home;
  }
  EXPECT_THAT(run_nestor({"query", "softmax"}, "", "env -u NESTOR_DB -u XDG_DATA_HOME -u HOME").err, HasSubstr("set $NESTOR_DB"));
}

TEST_F(HostileInput, FewFilesMayBeOpen) {
  for (int most = 3; most <= 16; ++most) {
    const std::string limit = "prlimit --nofile=" + std::to_string(most);
    for (const std::vector<std::string>& args :
         {std::vector<std::string>{"tune", "softmax", "--rows", "4", "--width", "8", "--trials", "1", "--target", "host", "--db",
                                   folder_.file("few.db")},
          std::vector<std::string>{"query", "softmax", "--db", folder_.file("few.db")}, std::vector<std::string>{"devices"}}) {
      const Outcome outcome = run_nestor(args, "", limit);
      if (outcome.code == 127) continue;  // the loader found no file for a library
      EXPECT_TRUE(outcome.code == 0 || outcome.code == 1 || outcome.code == 3 || outcome.code == 4)
          << args.front() << " with " << most << " files: " << outcome.code << " " << outcome.err;
      EXPECT_THAT(outcome.err, testing::Not(HasSubstr("internal error"))) << args.front() << " with " << most << " files";
    }
  }
}

}  // namespace
}  // namespace nestor::test
