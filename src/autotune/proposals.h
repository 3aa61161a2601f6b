// Proposals: in which order points of a space are tried, whoever proposed them.
#pragma once

#include "autotune/search/searcher.h"
#include "autotune/space/space.h"

#include <deque>
#include <optional>
#include <vector>

namespace nestor {

struct Proposal {
  Point point;
  const char* origin = "search";  ///< where it comes from, for reports: also "neighbour" and "guess"
  bool waited = false;            ///< was put off before
};

class Proposals {
 public:
  /// Both must outlive it.
  Proposals(const Space& space, Searcher& searcher) : space_(space), searcher_(searcher) {}

  /// Tries the point before all that the searcher proposes; once.
  void try_soon(const Point& point);
  /// Points that were to be tried soon and have not been.
  std::size_t soon() const { return neighbours_.size(); }
  /// The space's best guess.
  Point first_guess();

  /// The next point, nullopt when there are no more. `patient`: what was put off goes on waiting as long as there is anything else.
  std::optional<Proposal> next(bool patient);
  /// Puts a proposal off; false when it has waited before, or too many wait.
  bool put_off(const Proposal& proposal);

 private:
  const std::vector<Point>& guesses();

  const Space& space_;
  Searcher& searcher_;
  std::optional<std::vector<Point>> guesses_;  ///< the space's own
  std::deque<Proposal> postponed_;
  std::deque<Point> neighbours_;  ///< to be tried before what the searcher proposes
};

}  // namespace nestor
