// Spaces of the problem with more and fewer sizes fixed, and whether their guesses fit.
#include "autotune/sizes_that_help.h"

#include "autotune/proposals.h"
#include "autotune/space/work_floor.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/error.h"

#include <functional>
#include <optional>
#include <vector>

namespace nestor {
namespace {

/// Takes out of `fixed` what of the sizes from `first` to `last` it fits without: all at once, else half by half. Front to back, so that the last ones stay.
void leave_free(std::set<std::string>& fixed, std::vector<std::string>::const_iterator first,
                std::vector<std::string>::const_iterator last, const std::function<bool(const std::set<std::string>&)>& fits) {
  if (first == last) return;
  std::set<std::string> fewer = fixed;
  for (auto size = first; size != last; ++size) fewer.erase(*size);
  if (fits(fewer)) {
    fixed = std::move(fewer);
  } else if (last - first > 1) {
    const auto middle = first + (last - first) / 2;
    leave_free(fixed, first, middle, fits);
    leave_free(fixed, middle, last, fits);
  }
}

/// Can the kernels of the point's candidate be planned?
bool has_plans(BaseSchedules& schedules, const Space& space, const Point& point, const NvptxTarget& target) {
  try {
    plan_kernels(target_program(schedules.replay(space.candidate(point).steps), true), target);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

std::set<std::string> sizes_that_help(FixedSpaces& spaces, const std::set<std::string>& fixed, const SpaceLimits& limits,
                                      bool planned) {
  const Nest& nest = spaces.nest();
  NvptxTarget target;
  target.sm = limits.gpu->sm;
  target.shared_limit = limits.gpu->shared_bytes;
  const auto holds = [&](const std::set<std::string>& known, const auto& wanted, bool with_plans) {
    FixedSpace& made = spaces.with_space(known, limits);
    const std::vector<Point> guesses = made.space->defaults();
    if (!wanted(*made.space, guesses)) return false;
    const std::optional<Point> first = with_plans ? first_whole_guess(*made.space, guesses) : std::nullopt;
    return !first || has_plans(*made.problem.schedules, *made.space, *first, target);
  };
  std::vector<std::string> free;
  for (const SizeParam& size : nest.sizes) {
    if (!size.specialized && !fixed.contains(size.name)) free.push_back(size.name);
  }
  std::set<std::string> all = fixed;
  all.insert(free.begin(), free.end());
  if (free.empty()) return fixed;
  const auto needed_for = [&](const auto& wanted, bool with_plans) -> std::optional<std::set<std::string>> {
    const auto fits = [&](const std::set<std::string>& known) { return known != fixed && holds(known, wanted, with_plans); };
    if (!fits(all)) return std::nullopt;
    std::set<std::string> needed = all;
    leave_free(needed, free.begin(), free.end() - 1, fits);
    if (needed.size() > fixed.size() + 1) leave_free(needed, free.end() - 1, free.end(), fits);
    // Where all sizes are fixed, all results are checked at these, for each kind of data.
    constexpr double kSoonChecked = 1e7;
    const bool several = needed.size() > fixed.size() + 1;
    return several && least_instances(nest, complete_sizes(nest, spaces.sizes())) <= kSoonChecked ? all : needed;
  };
  if (holds(fixed, starts_on_tensor_cores, false)) return needed_for(starts_whole, planned).value_or(fixed);
  if (holds(fixed, lacks_size, false)) {
    if (auto needed = needed_for(starts_whole, true)) return std::move(*needed);
    if (!planned && holds(fixed, has_feasible_guess, false)) return fixed;
  }
  return needed_for(has_feasible_guess, planned).value_or(fixed);
}

}  // namespace nestor
