// Sorts the database's problems by the distance of their sizes.
#include "autotune/near_problems.h"

#include "db/lookup.h"

#include <algorithm>
#include <optional>

namespace nestor {
namespace {

constexpr std::size_t kMostOfOperator = 6;
constexpr std::size_t kMostOfOthers = 3;
constexpr double kOtherVariant = 1;  ///< as far as a size twice as large

struct Near {
  double distance;
  ProblemKey problem;
};

std::vector<ProblemKey> nearest(std::vector<Near> found, std::size_t most) {
  std::stable_sort(found.begin(), found.end(), [](const Near& a, const Near& b) { return a.distance < b.distance; });
  std::vector<ProblemKey> problems;
  for (Near& near : found) {
    if (problems.size() < most) problems.push_back(std::move(near.problem));
  }
  return problems;
}

}  // namespace

NearProblems near_problems(const Database& database, const DeviceIdentity& device, const ProblemKey& ours) {
  std::vector<Near> same_operator, other_operators;
  for (const Database::ProblemSummary& entry : database.summary()) {
    const ProblemKey& problem = entry.problem;
    if (entry.ok + entry.waiting == 0 || entry.device.key() != device.key()) continue;
    const bool same_variant = problem.variant == ours.variant;
    if (problem.op == ours.op && same_variant && problem.sizes == ours.sizes) continue;
    const auto distance = size_distance(ours.sizes, problem.sizes);
    if (!distance) continue;
    (problem.op == ours.op ? same_operator : other_operators)
        .push_back({*distance + (same_variant ? 0 : kOtherVariant), problem});
  }
  return {nearest(std::move(same_operator), kMostOfOperator), nearest(std::move(other_operators), kMostOfOthers)};
}

}  // namespace nestor
