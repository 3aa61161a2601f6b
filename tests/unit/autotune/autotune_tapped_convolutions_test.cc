// Convolutions whose taps lie apart, alone or several in one kernel: each has loops over its own taps, and all share rows and columns.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/space_guesses.h"
#include "support/nests/tapped_convolutions.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace nestor::testing {
namespace {

using namespace samples;
using ::testing::HasSubstr;

std::size_t count_tensor_kernels(const CompiledNvptx& compiled) {
  const auto& kernels = compiled.plans->kernels;
  return static_cast<std::size_t>(
      std::count_if(kernels.begin(), kernels.end(), [](const PlannedKernel& kernel) { return kernel.tensor.has_value(); }));
}

/// The first guesses that differ in tiles, up to `most`, take tensor cores for all products in one kernel and are right at ragged sizes.
void check_guesses(const std::vector<TappedConvolution>& all, std::size_t most, bool added = true) {
  SpaceGuesses guesses(tapped_convolutions(all, added), {});
  const TileProgram meaning = guesses.meaning();
  std::set<std::tuple<std::int64_t, std::int64_t>> seen;
  for (std::size_t k = 0; k < guesses.points.size() && seen.size() < most; ++k) {
    const NamedValues values = guesses.values(k);
    if (!seen.emplace(value_or(values, "warpgroups", 0), value_or(values, "pack_gqa", 0)).second) continue;
    ASSERT_GT(value_or(values, "warpgroups", 0), 0) << k;
    const CompiledNvptx compiled = compile_nvptx(guesses.program(k), {});
    EXPECT_EQ(compiled.plans->kernels.size(), 1U);
    EXPECT_EQ(count_tensor_kernels(compiled), 1U);
    for (const Sizes& ragged : {Sizes{{"B", 2}, {"Y", 5}, {"Z", 13}}, Sizes{{"B", 1}, {"Y", 2}, {"Z", 1}}}) {
      Sizes sizes = complete_sizes(tapped_convolutions(all, added), ragged);
      EXPECT_EQ(run_emulated(compiled, meaning, sizes, {.tolerance = 4e-3}, {1}), "") << ::testing::PrintToString(values);
    }
  }
  EXPECT_EQ(seen.size(), most);
}

TEST(TappedConvolutions, OneAloneHasPlacesBetweenItsTaps) {
  check_guesses({{.apart = 2}}, 2);
  check_guesses({{.apart = 3, .stride = 2}}, 1);
  check_guesses({{.size = 5, .apart = 4}}, 1);
}

TEST(TappedConvolutions, ThoseOfOneMapAreAddedUpInOneKernel) {
  check_guesses({{.apart = 1}, {.apart = 2}, {.apart = 4}}, 2);
  check_guesses({{.size = 1}, {.apart = 6}, {.apart = 12}, {.apart = 18}}, 1);
}

TEST(TappedConvolutions, OtherFiltersMapsAndStridesShareTheKernel) {
  check_guesses({{.size = 1}, {.size = 3}, {.size = 5}}, 1);
  check_guesses({{.apart = 1}, {.size = 5, .map = "y", .channels = "P"}}, 1);
  check_guesses({{.stride = 2}, {.size = 1, .map = "y"}}, 1);
}

/// Terms in several tiles: a loop over them for each filter, as its taps are others.
TEST(TappedConvolutions, FiltersOfOtherSizesShareTheKernelWhereChannelsAreMoreThanATile) {
  check_guesses({{.size = 3, .channels = "P"}, {.size = 1, .channels = "P"}}, 1);
}

TEST(TappedConvolutions, ResultsSideBySideShareTheKernel) { check_guesses({{.size = 1}, {.size = 3}, {.apart = 2}}, 1, false); }

/// A shortcut beside a convolution of every other place: the rows of both are those of places, not of maps.
TEST(TappedConvolutions, AShortcutReadsEveryOtherPlace) { check_guesses({{.stride = 2}, {.size = 1, .stride = 2}}, 1); }

/// Places that a sum leaves out although its map has them are no zeros of a copy: for tiles of one image's row, and of several.
TEST(TappedConvolutions, TermsLeftOutWithinAMapAreRefused) {
  const Nest nest = tapped_convolutions({{.apart = 2}});
  SpaceGuesses whole(nest, {});
  for (const bool packed : {false, true}) {
    const auto point = std::find_if(whole.points.begin(), whole.points.end(), [&](const Point& each) {
      return (value_or(named_values(*whole.space, each), "pack_gqa", 1) > 1) == packed;
    });
    ASSERT_NE(point, whole.points.end());
    const Candidate candidate = whole.space->candidate(*point);
    ASSERT_EQ(candidate.infeasible, "");
    const auto refusal = [&](const std::string& cut) -> std::string {
      BaseSchedules schedules(nest_for_tuning(tapped_convolutions({{.apart = 2, .cut = cut}}), complete_sizes(nest, {})));
      try {
        compile_nvptx(build_tile_program(schedules.replay(candidate.steps)), {});
        return "compiled";
      } catch (const UserError& error) {
        return error.what();
      }
    };
    EXPECT_EQ(refusal(""), "compiled");
    EXPECT_EQ(refusal(" and y + 2 s >= 2"), "compiled") << "this is inside: what it leaves out lies before the map";
    for (const char* cut :
         {"z + 2 t >= 3", "z + 2 t - 2 < Z - 1", "y + 2 s >= 3", "y + 2 s - 2 < Y - 1", "y + 2 s - 2 < Y - 2", "2 t < Z - 1"})
      EXPECT_THAT(refusal(std::string(" and ") + cut), HasSubstr("add0 adds up a part of its tile of x")) << cut << packed;
  }
}

}  // namespace
}  // namespace nestor::testing
