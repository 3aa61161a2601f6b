// Reports of what is not there: the message says what to run, and nothing is written.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace nestor::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CliReport : public testing::Test {
 protected:
  Outcome report(std::vector<std::string> args) const {
    args.insert(args.begin(), "report");
    args.insert(args.end(), {"--db", folder_.file("tuning.db"), "-o", folder_.file("report.html")});
    return run_nestor(args);
  }
  void make_database() const { ASSERT_EQ(run_nestor({"db", "prune", "--db", folder_.file("tuning.db")}).code, 0); }
  void import_shipped() const { ASSERT_EQ(run_nestor({"db", "import", "--shipped", "--db", folder_.file("tuning.db")}).code, 0); }
  bool written() const { return std::filesystem::exists(folder_.file("report.html")); }

  TemporaryFolder folder_;
};

TEST_F(CliReport, WithoutTrialsItSaysWhatMakesSome) {
  make_database();
  const Outcome outcome = report({"softmax"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("has no trials of softmax"), HasSubstr("nestor tune softmax --db "),
                                 HasSubstr("nestor db import --shipped --db ")));
  EXPECT_FALSE(written());
}

TEST_F(CliReport, OtherSizesAreListed) {
  import_shipped();
  const Outcome outcome = report({"softmax", "--rows", "3"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("fits; there are:"), HasSubstr("softmax --variant bf16 --sizes rows="),
                                 HasSubstr("more: nestor db summary --db ")));
}

TEST_F(CliReport, TrialsThatAreNotThere) {
  import_shipped();
  EXPECT_THAT(report({"--trial", "99999"}).err, HasSubstr("the database has no trial 99999"));
  EXPECT_THAT(report({"softmax", "--trial", "1"}).err,
              HasSubstr("trial 1 has an operator and sizes of its own: leave out softmax"));
  EXPECT_THAT(report({"--trial", "1", "--against", "200"}).err, HasSubstr("trial 200 is not one of"));
  EXPECT_FALSE(written());
}

TEST_F(CliReport, AFileThatCannotBeWrittenIsKnownBeforeTheSearch) {
  const Outcome outcome = run_nestor({"tune", "softmax", "--rows", "4", "--width", "8", "--trials", "1", "--db",
                                      folder_.file("tuning.db"), "--report", "/nowhere/at/all.html"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot write /nowhere/at/all.html: No such file or directory"));
  EXPECT_THAT(run_nestor({"db", "summary", "--db", folder_.file("tuning.db")}).out, testing::Not(HasSubstr("softmax")));
}

}  // namespace
}  // namespace nestor::test
