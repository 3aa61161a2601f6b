// Outcomes one at a time from a measurer that works in batches.
#include "autotune/trial/measurer.h"

#include "support/error.h"

namespace nestor {

SettledTrial Measurer::next() {
  if (settled_.empty()) {
    if (handed_over_.empty()) internal_error("no trial is under way");
    std::vector<TrialJob> jobs;
    jobs.reserve(handed_over_.size());
    for (const auto& [ticket, job] : handed_over_) jobs.push_back(job);
    std::vector<TrialOutcome> outcomes = measure(jobs);
    for (std::size_t k = 0; k < jobs.size(); ++k) settled_.push_back({handed_over_[k].first, std::move(outcomes.at(k))});
    handed_over_.clear();
  }
  SettledTrial first = std::move(settled_.front());
  settled_.pop_front();
  return first;
}

}  // namespace nestor
