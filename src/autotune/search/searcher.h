// Searchers: which point of a space to measure next.
#pragma once

#include "autotune/search/searcher_kind.h"
#include "autotune/space/space.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace nestor {

/// Proposes points and learns from what became of them. Deterministic: the same space, seed and reports give the same
/// proposals. Never proposes a point twice, nor one that was reported.
class Searcher {
 public:
  virtual ~Searcher() = default;
  /// The next point; nothing when there are no more.
  virtual std::optional<Point> propose() = 0;
  /// `ms`: median of a correct candidate (also one cut early); nothing: it failed.
  virtual void report(const Point& point, std::optional<double> ms) = 0;
};

/// `space` must outlive the searcher. All of them start with the space's best guess, its baseline and its other defaults.
std::unique_ptr<Searcher> make_searcher(SearcherKind kind, const Space& space, std::uint64_t seed);

}  // namespace nestor
