// Spaces of the problem with more and fewer sizes fixed, and whether their guesses fit.
#include "autotune/sizes_that_help.h"

#include "autotune/proposals.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/space/work_floor.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_problem.h"
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

std::set<std::string> sizes_that_help(const Nest& nest, const Sizes& sizes, const std::set<std::string>& fixed,
                                      const SpaceLimits& limits, bool planned) {
  NvptxTarget target;
  target.sm = limits.gpu->sm;
  target.shared_limit = limits.gpu->shared_bytes;
  const auto holds = [&](const std::set<std::string>& known, const auto& wanted, bool with_plans) {
    const TrialProblem problem = trial_problem(nest, sizes, false, known);
    BaseSchedules schedules(problem.start);
    const auto space = make_nest_space(schedules, problem.sizes, limits);
    const std::vector<Point> guesses = space->defaults();
    if (!wanted(*space, guesses)) return false;
    const std::optional<Point> first = with_plans ? first_whole_guess(*space, guesses) : std::nullopt;
    return !first || has_plans(schedules, *space, *first, target);
  };
  std::vector<std::string> free;
  for (const SizeParam& size : nest.sizes) {
    if (!size.specialized && !fixed.contains(size.name)) free.push_back(size.name);
  }
  std::set<std::string> all = fixed;
  all.insert(free.begin(), free.end());
  if (free.empty()) return fixed;
  // A space takes a second where a nest has many products.
  const auto needed_for = [&](const auto& wanted, bool with_plans) -> std::optional<std::set<std::string>> {
    const auto fits = [&](const std::set<std::string>& known) { return known != fixed && holds(known, wanted, with_plans); };
    if (!fits(all)) return std::nullopt;
    std::set<std::string> needed = all;
    leave_free(needed, free.begin(), free.end() - 1, fits);
    if (needed.size() > fixed.size() + 1) leave_free(needed, free.end() - 1, free.end(), fits);
    // Where all sizes are fixed, all results are checked at these, for each kind of data.
    constexpr double kSoonChecked = 1e7;
    const bool several = needed.size() > fixed.size() + 1;
    return several && least_instances(nest, complete_sizes(nest, sizes)) <= kSoonChecked ? all : needed;
  };
  if (holds(fixed, starts_on_tensor_cores, false)) return needed_for(starts_whole, planned).value_or(fixed);
  if (holds(fixed, lacks_size, false)) {
    if (auto needed = needed_for(starts_whole, true)) return std::move(*needed);
    if (!planned && holds(fixed, has_feasible_guess, false)) return fixed;
  }
  return needed_for(has_feasible_guess, planned).value_or(fixed);
}

}  // namespace nestor
