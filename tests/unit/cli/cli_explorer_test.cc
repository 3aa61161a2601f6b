// An exploring session: steps show the loops, refused steps change nothing, undo and load restore.
#include "cli/commands/explorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "api/operators.h"
#include "support/error.h"
#include "support/temporary_folder.h"

namespace nestor::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class ExplorerTest : public testing::Test {
 protected:
  ExplorerTest()
      : nest_(load_operator("layernorm", "f32")),
        explorer_(nest_, complete_sizes(nest_, {{"rows", 12}, {"width", 16}}), two_threads(), folder_.file("explore.db"), out_) {}

  static MeasureOptions two_threads() {
    MeasureOptions options;
    options.threads = 2;
    return options;
  }

  /// What a line prints.
  std::string type(const std::string& line) {
    out_.str("");
    explorer_.execute(line);
    return out_.str();
  }

  test::TemporaryFolder folder_;
  std::ostringstream out_;
  Nest nest_;
  Explorer explorer_;
};

TEST_F(ExplorerTest, EachStepShowsTheLoopNest) {
  const std::string before = explorer_.schedule().str();
  const std::string after = type("split out.c 4 co ci");
  EXPECT_EQ(after, explorer_.schedule().str());
  EXPECT_NE(after, before);
  EXPECT_THAT(after, HasSubstr("co"));
}

TEST_F(ExplorerTest, ARefusedStepChangesNothing) {
  const std::string before = explorer_.schedule().str();
  EXPECT_THROW(type("parallel(mean.k)"), UserError);
  EXPECT_THROW(type("split(out.c, 0, co, ci)"), UserError);
  EXPECT_THROW(type("dance(out.c)"), UserError);
  EXPECT_EQ(explorer_.schedule().str(), before);
}

TEST_F(ExplorerTest, WhyExplainsWithoutApplying) {
  const std::string before = explorer_.schedule().str();
  EXPECT_THAT(type("why parallel(mean.k)"), HasSubstr("mean["));
  EXPECT_THAT(type("why parallel(out.i)"), HasSubstr("legal"));
  EXPECT_EQ(explorer_.schedule().str(), before);
}

TEST_F(ExplorerTest, UndoAndResetGoBack) {
  const std::string original = explorer_.schedule().str();
  EXPECT_THROW(type("undo"), UserError);
  type("parallel(out.i)");
  const std::string parallel = explorer_.schedule().str();
  type("split(out.c, 4, co, ci)");
  EXPECT_EQ(type("undo"), parallel);
  EXPECT_EQ(type("reset"), original);
  EXPECT_EQ(type("undo"), parallel);
  EXPECT_EQ(type("undo"), original);
}

TEST_F(ExplorerTest, MeasuresSavesAndLoadsTheBest) {
  type("parallel(out.i)");
  EXPECT_THAT(type("measure"), HasSubstr("worst error"));
  const std::string saved = type("save");
  EXPECT_THAT(saved, HasSubstr("saved as trial 1"));
  const std::string parallel = explorer_.schedule().str();
  type("reset");
  EXPECT_NE(explorer_.schedule().str(), parallel);
  type("load best");
  EXPECT_EQ(explorer_.schedule().str(), parallel);
  type("reset");
  type("load 1");
  EXPECT_EQ(explorer_.schedule().str(), parallel);
}

TEST_F(ExplorerTest, StepsSurviveAFile) {
  type("split(out.c, 4, co, ci)");
  type("save " + folder_.file("steps.json"));
  const std::string split = explorer_.schedule().str();
  type("reset");
  type("load " + folder_.file("steps.json"));
  EXPECT_EQ(explorer_.schedule().str(), split);
}

TEST_F(ExplorerTest, ViewsAndHelpAnswer) {
  EXPECT_THAT(type("tile"), Not(testing::IsEmpty()));
  EXPECT_THAT(type("deps"), HasSubstr("mean"));
  EXPECT_THAT(type("ptx"), HasSubstr(".visible .entry"));
  EXPECT_THAT(type("ir"), HasSubstr("define"));
  EXPECT_THAT(type("rules"), HasSubstr("apply_rule("));
  EXPECT_THAT(type("certificate"), HasSubstr("respected"));
  EXPECT_THAT(type("help"), HasSubstr("compute_at"));
  EXPECT_THAT(type("help split"), testing::AllOf(HasSubstr("split"), Not(HasSubstr("compute_at"))));
  EXPECT_THROW(type("show picture"), UserError);
}

TEST_F(ExplorerTest, CommentsAreIgnoredAndQuitEnds) {
  EXPECT_TRUE(explorer_.execute("  # only a comment"));
  EXPECT_TRUE(explorer_.execute(""));
  EXPECT_FALSE(explorer_.execute("quit"));
}

}  // namespace
}  // namespace nestor::cli
