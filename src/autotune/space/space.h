// Space: the candidates of one problem, as points with named integer coordinates.
#pragma once

#include "poly/schedule/schedule.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// One choice to be made; `choices` are the values it may take, in an order in which neighbours are alike.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> choices;
};

/// Chosen values by the names of their parameters.
using NamedValues = std::map<std::string, std::int64_t>;

/// Position of the chosen value within each parameter's choices, in the order of the space's parameters.
using Point = std::vector<int>;

/// The steps of one candidate, or why there are none.
struct Candidate {
  std::vector<Step> steps;
  std::string infeasible;  ///< not empty: why this point gives no schedule worth compiling
  /// Groups beside the main one were fused less than the point says, to fit blocks; or rows stand in kernels apart from the sums over them.
  bool cut = false;
  double least_ms = 0;  ///< what its arithmetic takes at least; 0: not known
};

class Space {
 public:
  virtual ~Space() = default;
  virtual const std::vector<Parameter>& parameters() const = 0;
  /// The starting point that results are compared with: original order, parallel where legal.
  virtual Point baseline() const = 0;
  /// Points to try first, best guess first.
  virtual std::vector<Point> defaults() const = 0;
  /// Deterministic. Different points may give the same steps where a choice does not matter.
  virtual Candidate candidate(const Point& point) const = 0;
};

/// Number of points, as a double since it may be huge.
double point_count(const Space& space);
/// Coordinates by name, as stored in the database.
NamedValues named_values(const Space& space, const Point& point);
/// Inverse; nothing when a name or a value is not in the space. Absent names take the first choice.
std::optional<Point> point_from(const Space& space, const NamedValues& values);
/// `point` with those of `values` that the space has as well: what was good for a space that is alike.
Point point_like(const Space& space, Point point, const NamedValues& values);
/// The value of that name, or `otherwise` where there is none.
std::int64_t value_or(const NamedValues& values, const std::string& name, std::int64_t otherwise);
/// "tile_i: 1 2 4 8; parallel: 1 2; 24 candidates".
std::string describe(const Space& space);

}  // namespace nestor
