// A limit on the number of processes (ulimit -u): an error, or a run with fewer processes, never an abort and no hang.
#include "integration/run_nestor.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

/// A user with no other process: the limit counts all that a user has.
constexpr const char* kUser = "61234";
constexpr int kTimedOut = 124;

bool can_become_another() {
  return geteuid() == 0 && std::system(("setpriv --reuid=" + std::string(kUser) + " --regid=" + kUser +
                                        " --clear-groups test -x " + shell_quoted(NESTOR_PROGRAM) + " 2>/dev/null")
                                           .c_str()) == 0;
}

/// In `folder`, which it may write, with at most `processes` processes and threads.
Outcome limited(const std::vector<std::string>& args, int processes, const std::string& folder) {
  const std::string prefix = "HOME=" + shell_quoted(folder) + " TMPDIR=" + shell_quoted(folder) +
                             " timeout -k 5 90 setpriv --reuid=" + kUser + " --regid=" + kUser +
                             " --clear-groups bash -c 'ulimit -u " + std::to_string(processes) + "; exec \"$0\" \"$@\"'";
  return run_nestor(args, "", prefix);
}

TEST(FewProcesses, AreAnErrorOrEnough) {
  if (!can_become_another()) GTEST_SKIP() << "needs root, which is not limited itself, to become a user who is, and setpriv";
  const TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  bool failed = false, worked = false;
  for (const int processes : {1, 2, 3, 4, 5, 6, 8, 12, 40}) {
    // Small, and one whose definition is evaluated by several processes.
    for (const std::vector<std::string>& problem : {std::vector<std::string>{"softmax", "--rows", "8", "--width", "16"},
                                                    {"matmul", "--m", "512", "--n", "512", "--k", "512"}}) {
      std::vector<std::string> args{"tune", "--target", "host", "--trials", "2", "--db", folder.file("few.db")};
      args.insert(args.begin() + 1, problem.begin(), problem.end());
      const Outcome outcome = limited(args, processes, folder.path().string());
      EXPECT_NE(outcome.code, kTimedOut) << processes;
      EXPECT_THAT(outcome.code, testing::AnyOf(0, 1, 3, 4)) << processes << ": " << outcome.err;
      EXPECT_THAT(outcome.err,
                  testing::Not(testing::AnyOf(testing::HasSubstr("internal error"), testing::HasSubstr("terminate"))));
      if (outcome.code == 1) {
        EXPECT_THAT(outcome.err, testing::HasSubstr("cannot start")) << processes;
      }
      failed = failed || outcome.code != 0;
      worked = worked || outcome.code == 0;
    }
  }
  EXPECT_TRUE(failed) << "the limit was none";
  EXPECT_TRUE(worked) << "too few for everything";
  EXPECT_EQ(run_nestor({"db", "check", "--db", folder.file("few.db")}).code, 0);
}

}  // namespace
}  // namespace nestor::test
