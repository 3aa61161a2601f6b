// Tiles of masks are counted as by hand, and masks of several parts keep plain bounds.
#include "codegen/tile/build/tile_classes.h"

#include "codegen/tile/tile_program.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

namespace nestor {
namespace {

struct MaskCase {
  const char* text;  ///< over i, j, R, C, P
  std::function<bool(std::int64_t i, std::int64_t j, const Sizes& sizes)> sees;
  bool plain = true;  ///< bounds are minima and maxima: a part that has points has them in every row
};

const std::vector<MaskCase>& masks() {
  static const std::vector<MaskCase> all{
      {"0 <= i", [](auto, auto, const Sizes&) { return true; }},
      {"j <= i", [](auto i, auto j, const Sizes&) { return j <= i; }},
      {"j <= i + C - R", [](auto i, auto j, const Sizes& s) { return j <= i + s.at("C") - s.at("R"); }},
      {"i - P < j <= i", [](auto i, auto j, const Sizes& s) { return i - s.at("P") < j && j <= i; }},
      {"j < P or j <= i", [](auto i, auto j, const Sizes& s) { return j < s.at("P") || j <= i; }},
      {"j < P or i - P < j <= i", [](auto i, auto j, const Sizes& s) { return j < s.at("P") || (i - s.at("P") < j && j <= i); },
       false},
  };
  return all;
}

/// Both statements in tiles of rows x cols, which they share.
Schedule tiled(const Nest& nest, int rows, int cols) {
  Schedule schedule(nest);
  for (const char* s : {"A", "B"})
    schedule =
        schedule.apply(parse_step(fmt::format("tile({0}.i, {0}.j, {0}.io, {0}.jo, {0}.ii, {0}.ji, {1}, {2})", s, rows, cols)));
  for (const char* step : {"fuse_with(A.io, B.io)", "fuse_with(A.jo, B.jo)"}) schedule = schedule.apply(parse_step(step));
  return schedule;
}

/// Visited and partial tiles by looking at every point of the grid.
std::pair<std::int64_t, std::int64_t> count_by_hand(const MaskCase& mask, const Sizes& sizes, int rows, int cols) {
  std::int64_t visited = 0, partial = 0;
  for (std::int64_t io = 0; io * rows < sizes.at("R"); ++io) {
    for (std::int64_t jo = 0; jo * cols < sizes.at("C"); ++jo) {
      std::int64_t points = 0;
      for (std::int64_t i = io * rows; i < std::min<std::int64_t>(sizes.at("R"), (io + 1) * rows); ++i) {
        for (std::int64_t j = jo * cols; j < std::min<std::int64_t>(sizes.at("C"), (jo + 1) * cols); ++j)
          points += mask.sees(i, j, sizes) ? 1 : 0;
      }
      visited += points > 0;
      partial += points > 0 && points < rows * cols;
    }
  }
  return {visited, partial};
}

TEST(TileClasses, AreWhatLookingAtEveryPointGives) {
  for (const MaskCase& mask : masks()) {
    const Nest nest = samples::masked_points(mask.text);
    for (const auto& [rows, cols] : std::vector<std::pair<int, int>>{{4, 4}, {2, 8}, {8, 3}}) {
      const Schedule schedule = tiled(nest, rows, cols);
      for (const Sizes& sizes : {Sizes{{"R", 32}, {"C", 32}, {"P", 9}}, Sizes{{"R", 13}, {"C", 41}, {"P", 5}}}) {
        const std::vector<TileClasses> classes = classify_tiles(schedule, sizes);
        ASSERT_EQ(classes.size(), 1U) << mask.text;
        EXPECT_EQ(classes[0].statements, (std::vector<std::string>{"A", "B"}));
        const auto [visited, partial] = count_by_hand(mask, sizes, rows, cols);
        EXPECT_EQ(classes[0].visited, visited) << mask.text << " by " << rows << "x" << cols;
        EXPECT_EQ(classes[0].partial, partial) << mask.text << " by " << rows << "x" << cols;
        EXPECT_EQ(classes[0].full() + classes[0].partial + classes[0].empty(), classes[0].all);
      }
    }
  }
}

TEST(TileClasses, UntiledLoopsHaveNone) {
  const Nest nest = samples::masked_points("j <= i");
  EXPECT_TRUE(classify_tiles(Schedule(nest), complete_sizes(nest, {})).empty());
  EXPECT_EQ(describe(classify_tiles(Schedule(nest), complete_sizes(nest, {}))), "no tiled loops\n");
}

TEST(TileClasses, TooManyToCountIsAnError) {
  const Nest nest = samples::masked_points("j <= i");
  EXPECT_THROW(classify_tiles(tiled(nest, 2, 2), {{"R", 1 << 20}, {"C", 1 << 20}, {"P", 1}}), UserError);
}

TEST(TileBounds, MasksOfSeveralPartsAreRightAndMostlyKeepPlainBounds) {
  for (const MaskCase& mask : masks()) {
    const Nest nest = samples::masked_points(mask.text);
    const TileProgram program = build_tile_program(tiled(nest, 3, 2));
    EXPECT_TRUE(!mask.plain || describe(program).find('?') == std::string::npos) << mask.text << "\n" << describe(program);
    for (const Sizes& sizes : {Sizes{{"R", 7}, {"C", 9}, {"P", 3}}, Sizes{{"R", 5}, {"C", 5}, {"P", 8}}}) {
      const std::int64_t cols = sizes.at("C");
      const auto count = static_cast<std::size_t>(sizes.at("R") * cols);
      std::map<std::string, std::vector<double>> memory{{"x", std::vector<double>(count)}, {"B", std::vector<double>(count, -1)}};
      for (std::size_t k = 0; k < count; ++k) memory["x"][k] = static_cast<double>(k);
      interpret(program, sizes, {}, memory);
      for (std::size_t k = 0; k < count; ++k) {
        const bool seen = mask.sees(static_cast<std::int64_t>(k) / cols, static_cast<std::int64_t>(k) % cols, sizes);
        EXPECT_EQ(memory["B"][k], seen ? 2.0 * static_cast<double>(k) : -1) << mask.text << " at " << k;
      }
    }
  }
}

}  // namespace
}  // namespace nestor
