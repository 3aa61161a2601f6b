// Unions of intervals in fewer ones: whatever the bounds are, the same iterations, and none outside of the loop.
#include "codegen/gpu/mma/plan/tile_intervals.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace nestor::nvptx {
namespace {

using Piece = std::vector<IntExpr>;

std::int64_t value_of(const IntExpr& expr, std::int64_t v, std::int64_t p) {
  return expr.evaluate([&](const std::string& name) { return name == "v" ? v : p; });
}

/// One to three distances, of few slopes, so that bounds coincide.
Piece random_piece(std::mt19937& random, int steepest) {
  const auto one_of = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Piece piece;
  for (int k = one_of(1, 3); k-- > 0;)
    piece.push_back(IntExpr(one_of(-steepest, steepest)) * IntExpr::variable("v") +
                    IntExpr(one_of(-1, 1)) * IntExpr::variable("p") + IntExpr(one_of(-2 * steepest, 2 * steepest - 1)));
  return piece;
}

std::set<std::int64_t> iterations(const Interval& interval, std::int64_t p) {
  std::set<std::int64_t> found;
  if (interval.holds.defined() && value_of(interval.holds, 0, p) == 0) return found;
  for (std::int64_t v = value_of(interval.from, 0, p), end = value_of(interval.to, 0, p); v < end; ++v) found.insert(v);
  return found;
}

/// Unions among pieces of bounds so steep, all of whose iterations are checked.
int checked_unions(int steepest) {
  std::mt19937 random(3);
  const Interval within{IntExpr(1), IntExpr::variable("p") + IntExpr(2)};
  const auto itself = [](const IntExpr& distance) { return std::optional(distance); };
  int unions = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::vector<Piece> pieces{random_piece(random, steepest), random_piece(random, steepest),
                                    random_piece(random, steepest)};
    std::vector<Interval> intervals;
    for (const Piece& piece : pieces) intervals.push_back(interval_of(piece, "v", within, itself).value());
    const std::vector<Interval> fewer = joined(intervals, within);
    unions += fewer.size() < intervals.size() ? 1 : 0;
    for (std::int64_t p = 0; p < 6; ++p) {
      std::set<std::int64_t> expected, found;
      for (std::int64_t v = 1; v < p + 2; ++v) {
        const bool any = std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
          return std::all_of(piece.begin(), piece.end(), [&](const IntExpr& distance) { return value_of(distance, v, p) >= 0; });
        });
        if (any) expected.insert(v);
      }
      for (const Interval& interval : fewer) {
        found.merge(iterations(interval, p));
        EXPECT_GE(value_of(interval.from, 0, p), 1);
        EXPECT_LE(value_of(interval.from, 0, p), value_of(interval.to, 0, p));
      }
      EXPECT_EQ(found, expected) << "round " << round << ", p = " << p;
      if (found != expected) return 0;
    }
  }
  return unions;
}

TEST(TileIntervals, AreWithinTheLoopAndKeepItsIterations) {
  EXPECT_GT(checked_unions(1), 500);
  EXPECT_GT(checked_unions(4), 100);
}

/// Keys of two masks that meet at a boundary between tiles: [.., n + 16) and [n + 16, ..) in tiles of 128.
TEST(TileIntervals, OneThatBeginsWhereTheOtherEndsIsOneWithIt) {
  const IntExpr v = IntExpr::variable("v"), n = IntExpr::variable("n");
  const Interval within{IntExpr(0), n};
  const auto itself = [](const IntExpr& distance) { return std::optional(distance); };
  const auto piece = [&](const Piece& distances) { return interval_of(distances, "v", within, itself).value(); };
  const Interval before = piece({IntExpr(128) * v - n + IntExpr(127), IntExpr(-128) * v + n + IntExpr(15)}),
                 behind = piece({IntExpr(128) * v - n - IntExpr(16)});
  EXPECT_EQ(joined({before, behind}, within).size(), 1U);
  EXPECT_EQ(joined({behind, before}, within).size(), 1U);
  EXPECT_EQ(joined({before, piece({IntExpr(128) * v - n - IntExpr(144)})}, within).size(), 2U) << "a tile lies between";
}

}  // namespace
}  // namespace nestor::nvptx
