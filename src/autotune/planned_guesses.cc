// Plans kernels of guesses one after the other, as long as there is time, and compares their least times.
#include "autotune/planned_guesses.h"

#include "autotune/proposals.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/simt/plan/block_work.h"
#include "codegen/gpu/target/gpu_target.h"
#include "support/error.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>

namespace nestor {
namespace {

constexpr double kLaunchMs = 0.002;

/// How often the launcher runs a kernel; bounds that other loops decide about count once.
double launches_of(const nvptx::KernelPlan& kernel, const Sizes& sizes) {
  double launches = 1;
  for (const nvptx::LaunchLoop& loop : kernel.launch_loops) {
    bool known = true;
    const auto value_of = [&](const std::string& name) -> std::int64_t {
      const auto found = sizes.find(name);
      known = known && found != sizes.end();
      return found == sizes.end() ? 0 : found->second;
    };
    const std::int64_t count = loop.upper.evaluate(value_of) - loop.lower.evaluate(value_of);
    if (known) launches *= static_cast<double>(std::max<std::int64_t>(count, 1));
  }
  return launches;
}

/// What the candidate's kernels take at least, in milliseconds; nothing: they cannot be planned.
std::optional<double> least_ms(const Space& space, BaseSchedules& schedules, const Sizes& sizes, const SpaceLimits& limits,
                               const Point& point) {
  const Candidate candidate = space.candidate(point);
  if (!candidate.infeasible.empty()) return std::nullopt;
  NvptxTarget target;
  target.sm = limits.gpu->sm;
  target.shared_limit = limits.gpu->shared_bytes;
  const std::map<std::string, std::int64_t> values(sizes.begin(), sizes.end());
  try {
    double ms = 0;
    const auto plans = plan_kernels(target_program(schedules.replay(candidate.steps), true), target);
    for (const PlannedKernel& kernel : plans->kernels) {
      const double once =
          kernel.tensor ? 0 : nvptx::least_clocks(kernel.bodies.front(), values, limits.gpu->units) / nvptx::kClocksPerMs;
      ms += launches_of(*kernel.kernel, sizes) * (once + kLaunchMs);
    }
    return ms;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<Point> much_better_guesses(const Space& space, BaseSchedules& schedules, const Sizes& sizes,
                                       const SpaceLimits& limits, const std::vector<Point>& guesses) {
  constexpr double kSeconds = 1, kMuch = 2;
  constexpr std::size_t kFew = 4;
  if (guesses.size() < 2 || starts_on_tensor_cores(space, guesses)) return {};
  struct Planned {
    const Point* point;
    double ms;
  };
  std::vector<Planned> planned;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  for (auto guess = guesses.begin(); guess != guesses.end() && elapsed() < kSeconds; ++guess) {
    if (const auto ms = least_ms(space, schedules, sizes, limits, *guess)) planned.push_back({&*guess, *ms});
  }
  if (planned.empty()) return {};
  const double first = planned.front().ms;
  std::stable_sort(planned.begin(), planned.end(), [](const Planned& a, const Planned& b) { return a.ms < b.ms; });
  std::vector<Point> better;
  for (const Planned& each : planned) {
    const bool much = kMuch * each.ms < first && each.ms <= kMuch * planned.front().ms;
    if (much && better.size() < kFew) better.push_back(*each.point);
  }
  return better;
}

}  // namespace nestor
