// Plans kernels of guesses, one of each family after the other as long as there is time, and compares their least times.
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
#include <set>
#include <string>
#include <utility>

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

/// Values that are the same in guesses that differ in nothing but shapes of blocks and tiles.
NamedValues family_of(const Space& space, const Point& point) {
  static const std::set<std::string> kShapes{"threads",  "cluster",   "num_splits", "staging",       "streaming",
                                             "prefetch", "part_tile", "persistent", "reduction_tile"};
  NamedValues values = named_values(space, point);
  std::erase_if(values, [](const auto& value) { return value.first.starts_with("tile.") || kShapes.contains(value.first); });
  return values;
}

/// The guesses' places: the first of each family, then the second ones, and so on.
std::vector<std::size_t> by_families(const Space& space, const std::vector<Point>& guesses) {
  std::map<NamedValues, std::size_t> members;
  std::vector<std::pair<std::size_t, std::size_t>> places;  // which of its family, and where
  for (std::size_t k = 0; k < guesses.size(); ++k) places.emplace_back(members[family_of(space, guesses[k])]++, k);
  std::sort(places.begin(), places.end());
  std::vector<std::size_t> order;
  for (const auto& [turn, place] : places) order.push_back(place);
  return order;
}

}  // namespace

std::vector<Point> much_better_guesses(const Space& space, BaseSchedules& schedules, const Sizes& sizes,
                                       const SpaceLimits& limits, const std::vector<Point>& guesses) {
  constexpr double kSeconds = 1, kMuch = 2;
  constexpr std::size_t kFew = 4;
  if (guesses.size() < 2 || starts_on_tensor_cores(space, guesses)) return {};
  struct Planned {
    std::size_t place;
    double ms;
  };
  std::vector<Planned> planned;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  for (const std::size_t place : by_families(space, guesses)) {
    if (elapsed() >= kSeconds) break;
    if (const auto ms = least_ms(space, schedules, sizes, limits, guesses[place])) planned.push_back({place, *ms});
  }
  if (planned.empty()) return {};
  std::sort(planned.begin(), planned.end(), [](const Planned& a, const Planned& b) { return a.place < b.place; });
  const double first = planned.front().ms;
  std::stable_sort(planned.begin(), planned.end(), [](const Planned& a, const Planned& b) { return a.ms < b.ms; });
  std::vector<Point> better;
  for (const Planned& each : planned) {
    const bool much = kMuch * each.ms < first && each.ms <= kMuch * planned.front().ms;
    if (much && better.size() < kFew) better.push_back(guesses[each.place]);
  }
  return better;
}

}  // namespace nestor
