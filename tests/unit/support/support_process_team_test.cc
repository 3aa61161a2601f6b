// Teams of forked processes: they meet, see what the others wrote, and one that fails ends the work of all.
#include "support/system/process_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <new>
#include <stdexcept>

#include <sys/mman.h>
#include <unistd.h>

namespace nestor {
namespace {

constexpr int kSize = 3, kRounds = 200;

/// Numbers that all processes see.
struct Board {
  Board()
      : values(new(mmap(nullptr, sizeof(std::atomic<int>) * kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                   std::atomic<int>[kSize]) {}
  ~Board() { munmap(values, sizeof(std::atomic<int>) * kSize); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  std::atomic<int>* values;
};

TEST(ProcessTeam, EachSeesWhatTheOthersWroteBeforeTheyMet) {
  Board board;
  const bool good = ProcessTeam::run(kSize, [&](ProcessTeam& team) {
    for (int round = 1; round <= kRounds; ++round) {
      board.values[team.number()].store(round);
      team.meet();
      for (int k = 0; k < kSize; ++k) {
        if (board.values[k].load() != round) throw std::runtime_error("it went on too early");
      }
      team.meet();
    }
  });
  EXPECT_TRUE(good);
  for (int k = 0; k < kSize; ++k) EXPECT_EQ(board.values[k].load(), kRounds);
}

TEST(ProcessTeam, OneThatFailsEndsTheWorkOfAll) {
  const auto at = [](int number, const auto& fails) {
    return ProcessTeam::run(kSize, [&](ProcessTeam& team) {
      team.meet();
      if (team.number() == number) fails();
      team.meet();
    });
  };
  EXPECT_FALSE(at(1, [] { throw std::runtime_error("no"); }));
  EXPECT_FALSE(at(2, [] { raise(SIGKILL); }));
  EXPECT_FALSE(at(1, [] { _exit(0); })) << "before it met the others";
  EXPECT_THROW(at(0, [] { throw std::runtime_error("no"); }), std::runtime_error);
}

TEST(ProcessTeam, AStopFlagEndsTheWait) {
  std::atomic<bool> stop{false};
  EXPECT_FALSE(ProcessTeam::run(
      2,
      [&](ProcessTeam& team) {
        stop.store(true);
        if (team.number() == 1) pause();
        team.meet();
      },
      &stop));
}

}  // namespace
}  // namespace nestor
