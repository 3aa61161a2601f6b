// FixedSpaces: the spaces of one problem with more and fewer of its sizes fixed, each derived once.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/space_limits.h"
#include "autotune/trial/trial_problem.h"
#include "poly/nest/nest.h"

#include <map>
#include <memory>
#include <set>
#include <string>

namespace nestor {

/// The problem with some sizes fixed.
struct FixedSpace {
  TrialProblem problem;
  std::unique_ptr<Space> space;  ///< null at first: it takes a second where a nest has many products
};

class FixedSpaces {
 public:
  /// `sizes`: missing ones take their default. `fix_all`: all are fixed, whatever is asked for. The nest must outlive the object.
  FixedSpaces(const Nest& nest, Sizes sizes, bool fix_all) : nest_(nest), sizes_(std::move(sizes)), fix_all_(fix_all) {}

  const Nest& nest() const { return nest_; }
  const Sizes& sizes() const { return sizes_; }
  /// With those fixed beside the specialised ones, and no space yet if nobody has asked for it.
  FixedSpace& problem(const std::set<std::string>& fixed);
  /// The same with its space, for these limits, which are the same each time.
  FixedSpace& with_space(const std::set<std::string>& fixed, const SpaceLimits& limits);
  /// Forgets all others.
  void keep_only(const std::set<std::string>& fixed);

 private:
  const Nest& nest_;
  const Sizes sizes_;
  const bool fix_all_;
  std::map<std::set<std::string>, std::unique_ptr<FixedSpace>> made_;
};

}  // namespace nestor
