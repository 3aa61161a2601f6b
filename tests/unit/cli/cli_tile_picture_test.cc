// Tiles as signs: kinds, directions, and several tiles in one sign.
#include "cli/terminal/tile_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::cli {
namespace {

using ::testing::HasSubstr;

nlohmann::json space(int rows, int columns, const std::string& cells, int scale, int count = 0) {
  return {{{"loops",
            {{{"name", "io"}, {"dim", "i"}, {"scale", scale}, {"count", rows}},
             {{"name", "jo"}, {"dim", "j"}, {"scale", 1}, {"count", count > 0 ? count : columns}}}},
           {"pairs", {{{"a", 0}, {"b", 1}, {"rows", rows}, {"columns", columns}, {"cells", cells}}}}}};
}

TEST(TilePicture, TriangleHasItsDiagonal) {
  EXPECT_EQ(tile_picture(space(2, 2, "p1e1f1p1", 1), 80),
            "io (of i) down, jo (of j) across: █ full, ▒ partial, · empty\n  ▒▒··\n  ██▒▒\n");
}

TEST(TilePicture, LoopsThatRunBackwardsAreDrawnAlongTheirDim) {
  EXPECT_THAT(tile_picture(space(2, 2, "p1e1f1p1", -1), 80), HasSubstr("\n  ██▒▒\n  ▒▒··\n"));
}

TEST(TilePicture, ManyTilesShareASign) {
  const std::string text = tile_picture(space(100, 100, "f5000e5000", 1), 80);
  EXPECT_THAT(text, HasSubstr("a sign is 3 x 3 tiles"));
  EXPECT_THAT(text, HasSubstr("▒▒▒▒"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 34);
}

TEST(TilePicture, WhatIsLeftOutIsSaid) {
  EXPECT_THAT(tile_picture(space(2, 2, "f4", 1, 300), 80), HasSubstr("io (of i) down, jo (of j, the first 2) across"));
}

TEST(TilePicture, NothingWithoutRoomOrLoops) {
  EXPECT_EQ(tile_picture(space(2, 2, "f4", 1), 39), "");
  EXPECT_EQ(tile_picture(nlohmann::json::array(), 80), "");
}

}  // namespace
}  // namespace nestor::cli
