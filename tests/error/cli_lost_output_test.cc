// Standard output that takes nothing: an error with the reason, in every command.
#include "integration/running_nestor.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

using testing::HasSubstr;

class LostOutput : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = new TemporaryFolder;
    const Outcome tuned = run_nestor({"tune", "softmax", "--rows", "8", "--width", "16", "--trials", "2", "--target", "host",
                                      "--threads", "1", "--db", database()});
    ASSERT_EQ(tuned.code, 0) << tuned.err;
    ASSERT_EQ(run_nestor({"plan", "softmax", "--rows", "8", "--width", "16", "--out", folder->file("plan")}).code, 0);
    write_whole(folder->file("none.steps"), "# the original order\n");
  }
  static void TearDownTestSuite() {
    delete folder;
    folder = nullptr;
  }
  static std::string database() { return folder->file("t.db"); }

  /// Each command once, all of which print something.
  static std::vector<std::vector<std::string>> commands() {
    const std::string db = database();
    const std::vector<std::string> problem{"softmax", "--rows", "8", "--width", "16"};
    const auto of = [&](std::vector<std::string> first, std::vector<std::string> rest) {
      first.insert(first.end(), problem.begin(), problem.end());
      first.insert(first.end(), rest.begin(), rest.end());
      return first;
    };
    return {
        {"--help"},
        {"--version"},
        {"tune", "--help"},
        {"show"},
        {"show", "softmax"},
        {"show", "softmax", "--as", "nest"},
        {"devices"},
        of({"query"}, {"--db", db, "--threads", "1"}),
        of({"bench"}, {"--db", db, "--target", "host", "--threads", "1", "--rounds", "1", "--steps", folder->file("none.steps")}),
        of({"explore"}, {"--db", db, "--target", "host"}),
        {"db", "summary", "--db", db},
        {"db", "check", "--db", db},
        {"db", "wrong", "--db", db},
        {"verify", "1", "--db", db}};
  }
  /// Through a shell: the streams are its business.
  static Outcome with_stream(const std::vector<std::string>& args, const std::string& stream) {
    std::string line = "exec " + shell_quoted(NESTOR_PROGRAM);
    for (const std::string& arg : args) line += " " + shell_quoted(arg);
    const TemporaryFolder own;
    write_whole(own.file("in"), "steps\n");
    const std::string command = "env NESTOR_LIBCUDA=/nonexistent sh -c " +
                                shell_quoted(line + " " + stream + " <" + own.file("in")) + " 2>" + own.file("err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), "", read_whole(own.file("err"))};
  }
  static Outcome closed_input(const std::vector<std::string>& args) {
    std::string line = "env NESTOR_LIBCUDA=/nonexistent " + shell_quoted(NESTOR_PROGRAM);
    for (const std::string& arg : args) line += " " + shell_quoted(arg);
    const TemporaryFolder own;
    const int status = std::system((line + " <&- >" + own.file("out") + " 2>" + own.file("err")).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_whole(own.file("out")),
            read_whole(own.file("err"))};
  }
  static TemporaryFolder* folder;
};
TemporaryFolder* LostOutput::folder = nullptr;

TEST_F(LostOutput, AFullDeviceIsAnError) {
  for (const auto& args : commands()) {
    const Outcome outcome = with_stream(args, ">/dev/full");
    EXPECT_EQ(outcome.code, 1) << args.front();
    EXPECT_THAT(outcome.err, HasSubstr("cannot write to standard output: No space left on device")) << args.front();
  }
}

TEST_F(LostOutput, AClosedStreamIsAnErrorAndNoFileTakesItsPlace) {
  for (const auto& args : commands()) {
    const Outcome outcome = with_stream(args, ">&-");
    EXPECT_EQ(outcome.code, 1) << args.front();
    EXPECT_THAT(outcome.err, HasSubstr("cannot write to standard output: it is closed")) << args.front();
  }
  // Standard error too: what would have been written there must not be in the database.
  EXPECT_EQ(with_stream({"db", "summary", "--db", database()}, ">&- 2>&-").code, 1);
  EXPECT_EQ(run_nestor({"db", "check", "--db", database()}).code, 0);
}

TEST_F(LostOutput, AnExportThatIsLostIsAnError) {
  for (const char* stream : {">/dev/full", ">&-"})
    EXPECT_EQ(with_stream({"db", "export", "--db", database()}, stream).code, 1) << stream;
}

TEST_F(LostOutput, AClosedStreamIsNotOpenedAgainByItsName) {
  for (const char* name : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    const std::string db = database();
    const std::vector<std::vector<std::string>> writers{
        {"db", "export", name, "--db", db},
        {"db", "export", std::string(name) + ".pack", "--db", db},
        {"db", "backup", name, "--db", db},
        {"report", "softmax", "--db", db, "-o", name},
        {"plan", "softmax", "--rows", "8", "--width", "16", "--out", name},
        {"tune", "--plan", folder->file("plan"), "--target", "host", "--threads", "1", "--db", db, "--export", name},
        {"tune", "softmax", "--rows", "8", "--width", "16", "--trials", "3", "--target", "host", "--threads", "1", "--db", db,
         "--report", name},
        {"db", "merge", name, "--db", db},
        {"show", name},
        {"db", "summary", "--db", name}};
    for (const auto& args : writers) {
      for (const char* streams : {">&-", "<&- >&-"}) {
        const Outcome outcome = with_stream(args, streams);
        EXPECT_EQ(outcome.code, 1) << args[0] << " " << args[1] << " " << name << outcome.err;
        EXPECT_THAT(outcome.err, testing::AnyOf(HasSubstr(name), HasSubstr("standard output: it is closed"))) << args[0];
      }
      EXPECT_EQ(with_stream(args, "<&- >&- 2>&-").code, 1) << args[0] << " " << args[1];
    }
    EXPECT_THAT(with_stream(writers.front(), ">&-").err, HasSubstr("it is a standard stream that is closed, or a socket"));
    EXPECT_EQ(run_nestor({"db", "check", "--db", db}).code, 0);
  }
}

TEST_F(LostOutput, AClosedInputIsAnError) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"show", "softmax", "--as", "loops", "--steps", "-"},
                                               {"db", "import", "-", "--db", database()}}) {
    const Outcome outcome = closed_input(args);
    EXPECT_EQ(outcome.code, 1) << args[0] << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("closed")) << args[0];
  }
  EXPECT_THAT(closed_input({"show", "/dev/stdin"}).err, HasSubstr("it is a standard stream that is closed, or a socket"));
  EXPECT_EQ(closed_input({"explore", "softmax", "--target", "host"}).code, 0) << "as at the end of the input";
}

TEST_F(LostOutput, APipeThatNobodyReadsEndsASearch) {
  const std::string db = folder->file("pipe.db");
  const std::string tune = "env NESTOR_LIBCUDA=/nonexistent " + shell_quoted(NESTOR_PROGRAM) +
                           " tune softmax --rows 8 --width 16 --trials 2 --target host --threads 1 --db " + shell_quoted(db);
  // The reader goes after the first line, or at once: SIGPIPE ends the run, as it does any program.
  for (const char* reader : {"true", "head -n 1"}) {
    const std::string code = folder->file("code");
    EXPECT_EQ(
        std::system(("(" + tune + "; echo $? >" + shell_quoted(code) + ") 2>/dev/null | " + reader + " >/dev/null").c_str()), 0);
    EXPECT_THAT(read_whole(code), testing::AnyOf("0\n", "1\n", "141\n")) << reader;
    EXPECT_TRUE(within(2, [&] { return processes_with(db).empty(); })) << "a process outlived its run";
    if (std::filesystem::exists(db)) {
      EXPECT_EQ(run_nestor({"db", "check", "--db", db}).code, 0);
    }
  }
}

TEST_F(LostOutput, JsonToo) {
  const Outcome outcome = with_stream({"--json", "devices"}, ">/dev/full");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("No space left on device"));
}

TEST_F(LostOutput, AFileThatMayNotGrowIsAnError) {
  const Outcome outcome = with_stream({"show", "softmax", "--as", "ir"}, ">" + folder->file("small"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_GT(read_whole(folder->file("small")).size(), 1024u);
  const std::string limited =
      "ulimit -f 1; exec " + shell_quoted(NESTOR_PROGRAM) + " show softmax --as ir >" + folder->file("cut");
  const int status = std::system(("sh -c " + shell_quoted(limited) + " 2>" + folder->file("err")).c_str());
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace nestor::test
