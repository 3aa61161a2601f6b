// NESTOR_DEBUG: names are checked, and output appears only for switches that are on.
#include "support/debug.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace nestor {
namespace {

TEST(Debug, NamesUnknownSwitchesAlone) {
  EXPECT_EQ(unknown_debug_switches("trials,timing,tiles,ptx,all"), "");
  EXPECT_EQ(unknown_debug_switches("tiling,ptx,,tree"), "tiling, tree");
  EXPECT_EQ(unknown_debug_switches(""), "");
}

// The variable is read once a process, so each case runs in a process of its own.
TEST(DebugDeathTest, LogsOnlyWhatIsSwitchedOn) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("NESTOR_DEBUG", "tiles,timing", 1);
        debug_log(DebugSwitch::tiles, "a tile");
        debug_log(DebugSwitch::ptx, "some ptx");
        { const DebugTimer timer("a stage"); }
        std::exit(debug_enabled(DebugSwitch::ptx) ? 1 : 0);
      },
      testing::ExitedWithCode(0), "^\\[nestor tiles\\] a tile\n\\[nestor timing\\] a stage: [0-9.]+ ms\n$");
}

}  // namespace
}  // namespace nestor
