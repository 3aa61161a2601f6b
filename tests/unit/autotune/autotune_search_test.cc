// Searchers: every point at most once, the same order for the same seed, and good points found with noisy measurements.
#include "autotune/search/searcher.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace nestor {
namespace {

/// A space without a nest: its cost is known.
class GridSpace : public Space {
 public:
  explicit GridSpace(std::vector<std::int64_t> extents) {
    for (std::size_t k = 0; k < extents.size(); ++k) {
      Parameter parameter{"p" + std::to_string(k), {}};
      for (std::int64_t c = 0; c < extents[k]; ++c) parameter.choices.push_back(10 * c);
      parameters_.push_back(parameter);
    }
  }
  const std::vector<Parameter>& parameters() const override { return parameters_; }
  Point baseline() const override { return Point(parameters_.size(), 0); }
  std::vector<Point> defaults() const override {
    Point middle;
    for (const Parameter& parameter : parameters_) middle.push_back(static_cast<int>(parameter.choices.size() / 2));
    return {middle, middle};
  }
  Candidate candidate(const Point&) const override { return {}; }

 private:
  std::vector<Parameter> parameters_;
};

/// Distance from a hidden best point, with deterministic noise of up to 10 %; some points fail.
std::optional<double> cost(const Point& point, const Point& best) {
  double sum = 1;
  unsigned hash = 17;
  for (std::size_t k = 0; k < point.size(); ++k) {
    sum += std::abs(point[k] - best[k]);
    hash = hash * 31 + static_cast<unsigned>(point[k]);
  }
  if (hash % 11 == 0) return std::nullopt;
  return sum * (1 + 0.1 * (hash % 101) / 100.0);
}

std::vector<Point> proposals(SearcherKind kind, const Space& space, std::uint64_t seed, int limit, const Point& best) {
  const auto searcher = make_searcher(kind, space, seed);
  std::vector<Point> result;
  while (static_cast<int>(result.size()) < limit) {
    const auto point = searcher->propose();
    if (!point) break;
    searcher->report(*point, cost(*point, best));
    result.push_back(*point);
  }
  return result;
}

constexpr SearcherKind kKinds[] = {SearcherKind::exhaustive, SearcherKind::random, SearcherKind::evolutionary};

TEST(Search, EverySearcherVisitsAllOfASmallSpaceOnce) {
  const GridSpace space({3, 1, 4, 2});
  for (const SearcherKind kind : kKinds) {
    const auto visited = proposals(kind, space, 5, 1000, {1, 0, 1, 1});
    EXPECT_EQ(visited.size(), 24u) << to_string(kind);
    EXPECT_EQ(std::set<Point>(visited.begin(), visited.end()).size(), 24u) << to_string(kind);
  }
}

TEST(Search, TheBestGuessComesFirstAndTheBaselineSecond) {
  const GridSpace space({5, 5});
  for (const SearcherKind kind : kKinds) {
    const auto visited = proposals(kind, space, 5, 2, {0, 0});
    EXPECT_EQ(visited, (std::vector<Point>{{2, 2}, {0, 0}})) << to_string(kind);
  }
}

TEST(Search, EqualSeedsProposeEqualPointsAndOthersDoNot) {
  const GridSpace space({9, 9, 9, 9});
  const Point best{7, 1, 8, 3};
  for (const SearcherKind kind : {SearcherKind::random, SearcherKind::evolutionary}) {
    EXPECT_EQ(proposals(kind, space, 1, 60, best), proposals(kind, space, 1, 60, best)) << to_string(kind);
    EXPECT_NE(proposals(kind, space, 1, 60, best), proposals(kind, space, 2, 60, best)) << to_string(kind);
  }
}

TEST(Search, EvolutionFindsNearlyTheBestOfAHugeSpaceInFewTrials) {
  const GridSpace space({10, 10, 10, 10, 10, 10, 10, 10});
  const Point best{7, 1, 8, 3, 9, 0, 2, 6};
  double evolved = 0, drawn = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const auto best_of = [&](SearcherKind kind) {
      double least = 1e9;
      for (const Point& point : proposals(kind, space, seed, 300, best)) least = std::min(least, cost(point, best).value_or(1e9));
      return least;
    };
    evolved += best_of(SearcherKind::evolutionary) / 5;
    drawn += best_of(SearcherKind::random) / 5;
  }
  EXPECT_LT(evolved, 5);
  EXPECT_LT(evolved, 0.6 * drawn);
}

TEST(Search, ReportedPointsAreNotProposedAgain) {
  const GridSpace space({4, 4});
  for (const SearcherKind kind : kKinds) {
    const auto searcher = make_searcher(kind, space, 1);
    for (int k = 0; k < 4; ++k) searcher->report({1, k}, 1.0);
    searcher->report({2, 2}, 1.0);  // the default
    int proposed = 0;
    while (const auto point = searcher->propose()) {
      EXPECT_NE((*point)[0], 1);
      EXPECT_NE(*point, (Point{2, 2}));
      searcher->report(*point, std::nullopt);
      ++proposed;
    }
    EXPECT_EQ(proposed, 11) << to_string(kind);
  }
}

TEST(Search, NamesAndPointsConvertBothWays) {
  const GridSpace space({3, 4});
  const auto values = named_values(space, {2, 1});
  EXPECT_EQ(values, (std::map<std::string, std::int64_t>{{"p0", 20}, {"p1", 10}}));
  EXPECT_EQ(point_from(space, values), (Point{2, 1}));
  EXPECT_EQ(point_from(space, {{"p0", 15}}), std::nullopt);
  EXPECT_EQ(point_from(space, {{"other", 0}}), std::nullopt);
  EXPECT_EQ(point_like(space, {2, 1}, {{"p0", 0}, {"p1", 35}, {"other", 10}}), (Point{0, 1}));
  EXPECT_EQ(point_count(space), 12);
  EXPECT_EQ(describe(space), "p0: 0 10 20; p1: 0 10 20 30; 12 candidates");
}

}  // namespace
}  // namespace nestor
