// TrialProblem: what all trials of one run have in common: a nest, its sizes, and those of them that are fixed in the kernel.
#pragma once

#include "autotune/trial/base_schedules.h"
#include "poly/nest/nest.h"

#include <memory>
#include <set>
#include <string>

namespace nestor {

struct TrialProblem {
  Nest definition;     ///< as defined, no size fixed; the oracle evaluates its meaning
  Sizes sizes;         ///< all of them
  Sizes fixed;         ///< in the kernel, before the first step
  Nest start;          ///< with those fixed: what schedules begin with
  std::string digest;  ///< of the definition
  /// Of `start`, for the space and for processes that are forked later, which have what was found for it; null: each makes its own.
  std::shared_ptr<BaseSchedules> schedules{};
};

/// `sizes`: missing ones take their default. Fixed are the specialised ones and those in `also`, or all.
TrialProblem trial_problem(const Nest& nest, const Sizes& sizes, bool fix_all_sizes = false,
                           const std::set<std::string>& also = {});

}  // namespace nestor
