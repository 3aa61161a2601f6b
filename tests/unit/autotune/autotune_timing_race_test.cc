// Who is timed for how long, on a device that slows down under steady work.
#include "autotune/timing/timing_race.h"

#include <gtest/gtest.h>

#include <random>

namespace nestor {
namespace {

/// Runs of one candidate: `fresh_ms` each until `steady_after_ms`, then `slowed` times that, with a little noise.
struct Device {
  double fresh_ms = 1;
  double slowed = 1;
  double steady_after_ms = 60;
  double pause_ms = 0.1;  ///< between runs
  double noise = 0.001;
  int runs = 0;
  double clock_ms = 0;

  void time(TimingRace& race) {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> jitter(1 - noise, 1 + noise);
    while (const int count = race.next_runs()) {
      ASSERT_LE(runs += count, 5000);
      std::vector<double> samples;
      double elapsed = 0;
      for (int k = 0; k < count; ++k) {
        samples.push_back(fresh_ms * (clock_ms > steady_after_ms ? slowed : 1) * jitter(random));
        elapsed += samples.back() + pause_ms;
        clock_ms += samples.back() + pause_ms;
      }
      race.add(samples, elapsed);
    }
  }
};

TEST(TimingRace, LongRunsAreFew) {
  Device device{480, 1.0};
  TimingRace race(0, false, {}, 480);
  device.time(race);
  EXPECT_FALSE(race.lost());
  EXPECT_EQ(device.runs, 2);
  EXPECT_NEAR(race.median_ms(), 480, 1);
  EXPECT_NEAR(race.settling().factor(), 1, 0.01);
  Device slower{600, 1.0};
  TimingRace second(480, false, race.settling(), 600);
  slower.time(second);
  EXPECT_EQ(slower.runs, 2);
  EXPECT_NEAR(second.median_ms(), 600, 1);
}

TEST(TimingRace, TheFirstCandidateCountsWithWhatItTakesInSteadyWork) {
  for (const double fresh_ms : {0.01, 0.1, 1.0, 30.0}) {
    Device device{fresh_ms, 1.2};
    TimingRace race(0, false, {});
    device.time(race);
    EXPECT_FALSE(race.lost());
    EXPECT_NEAR(race.median_ms(), 1.2 * fresh_ms, 0.01 * fresh_ms) << fresh_ms;
    EXPECT_DOUBLE_EQ(race.median_ms(), median(race.samples()));
    // Runs so long that the clocks settle within the first few show nothing of it.
    EXPECT_NEAR(race.settling().factor(), fresh_ms < 30 ? 1.2 : 1.0, 0.01) << fresh_ms;
    EXPECT_GE(device.clock_ms, TimingRace::kSettle_ms);
    EXPECT_LE(device.clock_ms, TimingRace::kSettle_ms + 350) << fresh_ms;
  }
}

TEST(TimingRace, ALoserStopsAfterItsFirstRuns) {
  Device device{1.3};
  TimingRace race(1.0, false, {0.9, 1.0});
  device.time(race);
  EXPECT_TRUE(race.lost());
  EXPECT_EQ(device.runs, 6);
  EXPECT_FALSE(race.settling().known());
  EXPECT_NE(race.reason().find("cut after 6 runs: 1.3 ms, best is 0.9 ms in its first runs and 1 ms in steady work"),
            std::string::npos)
      << race.reason();
}

TEST(TimingRace, WhatDrawsLessPowerMayWinInTheEnd) {
  Device device{1.1, 1.05};
  TimingRace race(1.2, false, {1.0, 1.2});
  device.time(race);
  EXPECT_FALSE(race.lost());
  EXPECT_NEAR(race.median_ms(), 1.1 * 1.05, 0.01);
}

TEST(TimingRace, ALoserIsKnownOnTheWayToSteadyWork) {
  Device device{1.05, 1.2, 30};
  TimingRace race(1.2, false, {1.0, 1.2});
  device.time(race);
  EXPECT_TRUE(race.lost());
  EXPECT_NEAR(race.median_ms(), 1.05 * 1.2, 0.01);
  EXPECT_LT(device.clock_ms, TimingRace::kSettle_ms);
  EXPECT_NE(race.reason().find("on the way to steady work"), std::string::npos) << race.reason();
}

TEST(TimingRace, ThePaceOfSteadyWorkIsOutOfReachForFirstRunsAboveIt) {
  Device device{1.09, 1.2};
  TimingRace race(1.08, false, {1.0, 1.08});
  device.time(race);
  EXPECT_TRUE(race.lost());
  EXPECT_NEAR(race.median_ms(), 1.09 * 1.08, 0.01) << "estimated to slow down like the best";
  EXPECT_LT(device.clock_ms, 40);
}

TEST(TimingRace, WhereNothingSlowsDownOnlyNewWinnersAreTimedLonger) {
  const Settling steady{1.0, 1.002};
  Device close{1.01};
  TimingRace second(1.0, false, steady);
  close.time(second);
  EXPECT_FALSE(second.lost());
  EXPECT_NEAR(second.median_ms(), 1.01, 0.005);
  EXPECT_LT(close.clock_ms, TimingRace::kSettle_ms);
  Device faster{0.98};
  TimingRace first(1.0, false, steady);
  faster.time(first);
  EXPECT_TRUE(first.settling().known());
}

TEST(TimingRace, WhatMustFinishIsNotRaced) {
  Device device{50};
  TimingRace race(1.0, true, {1.0, 1.1});
  device.time(race);
  EXPECT_FALSE(race.lost());
  EXPECT_GE(race.interval().samples, 6);
}

TEST(TimingRace, EndsWhateverTheNoise) {
  Device device{0.02, 1.1, 60, 0.1, 0.9};
  TimingRace race(0, false, {});
  device.time(race);
  EXPECT_LE(device.runs, 2000);
}

}  // namespace
}  // namespace nestor
