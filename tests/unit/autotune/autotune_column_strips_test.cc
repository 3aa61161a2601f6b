// Statistics of channels that lie far apart, for each place: the first guess has strips of places in one kernel, which has its input near when it
// reads it again.
#include "autotune/space/group_choice.h"
#include "support/nests/sample_nests.h"
#include "unit/autotune/candidate_steps.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace nestor {
namespace {

using namespace samples;
using testing::SearchedProblem;

/// y[n, c, p, q] = (x - mean) rsqrt(mean of squares around it), over c; images of `across` columns.
Nest place_norm(const std::string& across = "Q", ElementType type = ElementType::f32) {
  const ScalarExpr count = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0)),
                   value = type == ElementType::f32 ? read(0) : ScalarExpr::cast(ElementType::f32, read(0, type)),
                   centred = value - read(1);
  const std::string place = "0 <= n < N and 0 <= p < P and 0 <= q < " + across, all = place + " and 0 <= c < C";
  std::vector<std::pair<std::string, std::int64_t>> sizes{{"N", 8}, {"C", 64}, {"P", 28}, {"Q", 28}};
  if (across != "Q") sizes.pop_back();
  const ScalarExpr scaled = centred * ScalarExpr::make(ScalarOp::rsqrt, {read(2) / count + number(1e-3)});
  return NestBuilder("place_norm", sizes)
      .tensor("x", TensorRole::input, {"N", "C", "P", across}, type)
      .tensor("total", TensorRole::temporary, {"N", "P", across})
      .tensor("mean", TensorRole::temporary, {"N", "P", across})
      .tensor("squares", TensorRole::temporary, {"N", "P", across})
      .tensor("y", TensorRole::output, {"N", "C", "P", across}, type)
      .statement("total_init[n, p, q] : " + place, "total[n, p, q]", {}, number(0))
      .statement("total[n, p, q, c] : " + all, "total[n, p, q]", {"x[n, c, p, q]"}, value, ReductionOp::add)
      .statement("mean[n, p, q] : " + place, "mean[n, p, q]", {"total[n, p, q]"}, read(0) / count, std::nullopt, {"C"})
      .statement("squares_init[n, p, q] : " + place, "squares[n, p, q]", {}, number(0))
      .statement("squares[n, p, q, c] : " + all, "squares[n, p, q]", {"x[n, c, p, q]", "mean[n, p, q]"}, centred * centred,
                 ReductionOp::add)
      .statement("y[n, c, p, q] : " + all, "y[n, c, p, q]", {"x[n, c, p, q]", "mean[n, p, q]", "squares[n, p, q]"},
                 type == ElementType::f32 ? scaled : ScalarExpr::cast(type, scaled), std::nullopt, {"C"})
      .build();
}

/// Of the first guess, if it is strips: the tile along memory, the threads, and whether the input is staged.
struct Strips {
  std::int64_t columns, threads;
  bool staged;
  bool operator==(const Strips&) const = default;
};

std::optional<Strips> first_strips(const SearchedProblem& problem) {
  const Point first = problem.space->defaults().front();
  const NamedValues values = named_values(*problem.space, first);
  const Candidate candidate = problem.space->candidate(first);
  if (!candidate.infeasible.empty() || candidate.cut || testing::count_steps(candidate, "gpu_threads") != 1) return std::nullopt;
  return Strips{value_or(values, "tile.q", 0), value_or(values, "threads", 0), testing::count_steps(candidate, "stage") == 1};
}

TEST(ColumnStrips, PlacesAreInOneKernelWithAllOfTheirChannels) {
  SearchedProblem problem(place_norm(), {{"Q", 400}});
  EXPECT_EQ(first_strips(problem), (Strips{64, 128, false}));
  for (const std::int64_t across : {1, 37, 64, 130}) {
    for (const std::int64_t channels : {1, 21, 64})
      EXPECT_EQ(problem.difference(problem.space->defaults().front(), {{"N", 2}, {"C", channels}, {"P", 3}, {"Q", across}}), "")
          << across << " " << channels;
  }
}

TEST(ColumnStrips, ShortRowsOfKnownLengthAreWhole) {
  SearchedProblem problem(place_norm("28"), {});
  EXPECT_EQ(first_strips(problem), (Strips{0, 128, false}));
  EXPECT_EQ(problem.difference(problem.space->defaults().front(), {{"N", 2}, {"C", 19}, {"P", 3}}), "");
  SearchedProblem unknown(place_norm(), {});
  const auto strips = first_strips(unknown);
  ASSERT_TRUE(strips);
  EXPECT_EQ(strips->columns, 16) << "a row may be longer in another launch";
}

TEST(ColumnStrips, KnownChannelsAreStaged) {
  SearchedProblem problem(fix_sizes(place_norm("28"), {{"C", 48}}), {{"C", 48}});
  EXPECT_EQ(first_strips(problem), (Strips{0, 128, true}));
  EXPECT_EQ(problem.difference(problem.space->defaults().front(), {{"N", 2}, {"P", 3}}), "");
}

TEST(ColumnStrips, AreAsWideAsTheFirstCacheIsLarge) {
  const auto columns_of = [](std::int64_t channels) -> std::int64_t {
    const auto strips = first_strips(SearchedProblem(place_norm(), {{"Q", 400}, {"C", channels}}));
    return strips ? strips->columns : -1;
  };
  EXPECT_EQ(columns_of(128), 64);
  EXPECT_EQ(columns_of(256), 32);
  EXPECT_EQ(columns_of(512), 16);
  EXPECT_NE(columns_of(100000), 16);
}

/// Threads' shares of channels meet in shared memory; a plan without that is wrong.
TEST(ColumnStrips, OtherTilesAndBlocksAreRight) {
  SearchedProblem problem(place_norm(), {{"Q", 400}});
  for (const std::int64_t threads : {64, 256, 512}) {
    for (const std::int64_t tile : {32, 128}) {
      EXPECT_EQ(problem.difference(problem.with({{"threads", threads}, {"tile.q", tile}, {"tile.p", threads == 64 ? 2 : 1}}),
                                   {{"N", 2}, {"C", 21}, {"P", 3}, {"Q", 45}}),
                "")
          << threads << " " << tile;
    }
  }
}

}  // namespace
}  // namespace nestor
