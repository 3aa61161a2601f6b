// Spaces made when first asked for.
#include "autotune/fixed_spaces.h"

#include "autotune/space/nest/nest_space.h"
#include "support/debug.h"

namespace nestor {

FixedSpace& FixedSpaces::problem(const std::set<std::string>& fixed) {
  std::unique_ptr<FixedSpace>& known = made_[fixed];
  if (!known) known = std::make_unique<FixedSpace>(FixedSpace{trial_problem(nest_, sizes_, fix_all_, fixed), nullptr});
  return *known;
}

FixedSpace& FixedSpaces::with_space(const std::set<std::string>& fixed, const SpaceLimits& limits) {
  FixedSpace& known = problem(fixed);
  if (known.space) return known;
  const DebugTimer timer("space");
  known.space = make_nest_space(*known.problem.schedules, known.problem.sizes, limits);
  return known;
}

void FixedSpaces::keep_only(const std::set<std::string>& fixed) {
  std::erase_if(made_, [&](const auto& entry) { return entry.first != fixed; });
}

}  // namespace nestor
