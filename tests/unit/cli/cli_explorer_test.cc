// An exploring session: steps show the loops, refused steps change nothing, undo and load restore.
#include "cli/explorer/explorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
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

TEST_F(ExplorerTest, MeasuresOnTheDeviceThatIsNamed) {
  EXPECT_THAT(type("measure --target host"), HasSubstr("worst error"));
  EXPECT_THAT(type("measure host"), HasSubstr("worst error"));
  EXPECT_THROW(type("measure moon"), UserError);
  EXPECT_THROW(type("measure --target cuda:99"), UserError);
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
  EXPECT_THAT(type("help diff"), testing::AllOf(HasSubstr("diff"), Not(HasSubstr("undo"))));
  EXPECT_THROW(type("help dance"), UserError);
  EXPECT_THROW(type("show picture"), UserError);
}

TEST_F(ExplorerTest, UndoAndRedoTakeNumbers) {
  const std::string original = explorer_.schedule().str();
  for (int k = 0; k < 3; ++k) type("parallel(out.i)"), type("serial(out.i)");
  type("parallel(out.i)");
  const std::string last = explorer_.schedule().str();
  EXPECT_THROW(type("undo 8"), UserError);
  EXPECT_THROW(type("undo 0"), UserError);
  EXPECT_THROW(type("undo many"), UserError);
  EXPECT_THROW(type("redo"), UserError);
  EXPECT_EQ(type("undo 7"), original);
  EXPECT_EQ(type("redo 7"), last);
  type("undo 2");
  type("reverse(out.c)");
  EXPECT_THROW(type("redo"), UserError);  // another way was taken
}

TEST_F(ExplorerTest, DiffComparesWithTheLastStepTheStartAndFiles) {
  EXPECT_THROW(type("diff"), UserError);
  type("split(out.c, 4, co, ci)");
  type("save " + folder_.file("split.json"));
  type("parallel(out.i)");
  EXPECT_THAT(type("diff"), testing::AllOf(HasSubstr("+ parallel for out.i"), Not(HasSubstr("mean"))));
  EXPECT_THAT(type("diff start"), testing::AllOf(HasSubstr("+ parallel for out.i"), HasSubstr("-   for out.c")));
  type("undo");
  EXPECT_EQ(type("diff " + folder_.file("split.json")), "the loops are the same\n");
  EXPECT_THROW(type("diff nothing.json"), UserError);
}

TEST_F(ExplorerTest, MarksAndPicturesAreForScreensAlone) {
  EXPECT_THAT(type("why parallel(mean.k)"), Not(HasSubstr("both at once\n")));
  explorer_.set_screen({80, false, true});
  EXPECT_THAT(type("parallel(out.i)"), HasSubstr("\n~ parallel for out.i"));
  EXPECT_THAT(type("why parallel(mean.k)"), HasSubstr("parallel: both at once\n"));
}

TEST_F(ExplorerTest, SuggestionsCanBeTaken) {
  EXPECT_THROW(type("take 1"), UserError);
  EXPECT_THROW(type("suggest dance"), UserError);
  EXPECT_THROW(type("suggest 0"), UserError);
  EXPECT_THAT(type("suggest parallel 20"), testing::AllOf(HasSubstr("parallel(out.i)"), HasSubstr("12 tasks for 2 threads")));
  EXPECT_THROW(type("take 1000"), UserError);
  EXPECT_THROW(type("take it"), UserError);
  EXPECT_THAT(type("take 1"), HasSubstr("parallel for"));
  EXPECT_THROW(type("take 1"), UserError);  // those were for another schedule
}

TEST_F(ExplorerTest, ReportsAreAboutTheStoredMeasurement) {
  type("parallel(out.i)");
  EXPECT_THAT(type("report " + folder_.file("page.html")), HasSubstr("trial 1 and its problem"));
  EXPECT_THAT(type("save"), HasSubstr("saved as trial 1"));  // it is stored once
  EXPECT_THAT(test::read_whole(folder_.file("page.html")), HasSubstr("parallel(out.i)"));
  EXPECT_THROW(type("report " + folder_.file("no/such/folder.html")), UserError);
}

TEST_F(ExplorerTest, AStoppedMeasurementIsNoneAndTheSessionGoesOn) {
  const std::atomic<bool> stop{true};
  explorer_.set_stop(&stop);
  EXPECT_THAT(type("measure"), HasSubstr("stopped"));
  explorer_.set_stop(nullptr);
  EXPECT_THAT(type("measure"), HasSubstr("worst error"));
}

TEST_F(ExplorerTest, WordsAreCompletedByWhereTheyStand) {
  const auto words = [&](const std::string& line) { return explorer_.complete(line).words; };
  EXPECT_THAT(words("spl"), testing::ElementsAre("split"));
  EXPECT_EQ(explorer_.complete("spl").behind, "(");
  EXPECT_EQ(explorer_.complete("why par").start, 4U);
  EXPECT_THAT(words("s"), testing::IsSupersetOf({"save", "show", "suggest", "split", "steps", "schedule"}));
  EXPECT_THAT(words("split(out."), testing::ElementsAre("out.c", "out.i"));
  EXPECT_EQ(explorer_.complete("split(out.c").behind, ", ");
  EXPECT_THAT(words("split(out.c, "), testing::IsEmpty());  // a number
  EXPECT_THAT(words("why split out."), testing::ElementsAre("out.c", "out.i"));
  EXPECT_THAT(words("compute_at(me"), testing::ElementsAre("mean", "mean_init"));
  EXPECT_THAT(words("reorder(out.c, out.i, out.c, mean.k"), testing::ElementsAre("mean.k"));
  EXPECT_THAT(words("vectorize(k"), testing::ElementsAre("mean.k", "variance.k"));  // by the dim's name
  EXPECT_THAT(words("streaming "), testing::Contains("x"));
  EXPECT_THAT(words("apply_rule(mom"), testing::ElementsAre("moments"));
  EXPECT_THAT(words("apply_rule(moments, "), testing::Contains("mean"));
  EXPECT_THAT(words("show t"), testing::ElementsAre("tile", "tiles", "tree"));
  EXPECT_THAT(words("help com"), testing::ElementsAre("compute_at"));
  EXPECT_THAT(words("load b"), testing::Contains("best"));
  test::write_whole(folder_.file("steps.json"), "{}");
  EXPECT_THAT(words("load " + folder_.file("st")), testing::ElementsAre(folder_.file("steps.json")));
  for (const char* line : {"", "   ", "dance(", "why dance(", "split(((", "\033[31m", "help split "})
    EXPECT_NO_THROW(words(line)) << line;
}

TEST_F(ExplorerTest, NamesBringNoEscapeSequences) {
  nest_.op = "evil\033]0;title\007";
  Explorer other(nest_, complete_sizes(nest_, {}), two_threads(), folder_.file("explore.db"), out_);
  out_.str("");
  other.greet();
  other.execute("nest");
  other.execute("certificate");
  EXPECT_THAT(out_.str(), Not(HasSubstr("\033")));
}

TEST_F(ExplorerTest, CommentsAreIgnoredAndQuitEnds) {
  EXPECT_TRUE(explorer_.execute("  # only a comment"));
  EXPECT_TRUE(explorer_.execute(""));
  EXPECT_FALSE(explorer_.execute("quit"));
}

}  // namespace
}  // namespace nestor::cli
