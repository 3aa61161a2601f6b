// Forked processes: one that is stopped costs its limit of time, and no process is left.
#include "support/system/child_processes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>

#include <unistd.h>

namespace nestor {
namespace {

template <class Work>
pid_t forked(Work&& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  return child;
}

TEST(ChildProcesses, AStoppedOneIsKilledAndGone) {
  const pid_t stopped = forked([] { raise(SIGSTOP); });
  EXPECT_FALSE(wait_for_children({stopped, forked([] {})}, 0.1));
  EXPECT_EQ(kill(stopped, 0), -1) << "it was waited for";
}

TEST(ChildProcesses, AStopFlagEndsTheWait) {
  std::atomic<bool> stop{true};
  const pid_t stopped = forked([] { raise(SIGSTOP); });
  EXPECT_FALSE(wait_for_children({stopped}, 600, &stop));
  EXPECT_EQ(kill(stopped, 0), -1) << "it was waited for";
}

TEST(ChildProcesses, AllMustExitWell) {
  EXPECT_TRUE(wait_for_children({forked([] {}), forked([] {})}, 60));
  EXPECT_FALSE(wait_for_children({forked([] {}), forked([] { _exit(3); })}, 60));
  EXPECT_FALSE(wait_for_children({forked([] { raise(SIGKILL); })}, 60));
  EXPECT_TRUE(wait_for_children({}, 0));
}

TEST(ChildProcesses, NoneOutlivesItsParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  // The child leaves a child of its own, which holds the pipe open as long as it lives.
  const pid_t parent = forked([] {
    const pid_t self = getpid();
    forked([self] {
      end_with_parent(self);
      for (;;) pause();
    });
  });
  close(ends[1]);
  EXPECT_TRUE(wait_for_children({parent}, 60));
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "all who could write are gone";
  close(ends[0]);
}

}  // namespace
}  // namespace nestor
