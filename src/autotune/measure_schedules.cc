// The measurer of a target, and one schedule after another.
#include "autotune/measure_schedules.h"

#include "autotune/gpu/gpu_measurer.h"
#include "autotune/host/host_measurer.h"
#include "autotune/trial/trial_steps.h"
#include "poly/nest/nest_json.h"

#include <map>
#include <string>

namespace nestor {

std::unique_ptr<Measurer> make_measurer(const TrialProblem& problem, const MeasureOptions& options,
                                        const std::atomic<bool>* stop) {
  return options.target.is_gpu() ? make_gpu_measurer(problem, options, stop) : make_host_measurer(problem, options, stop);
}

std::vector<TrialRecord> measure_schedules(const std::vector<Schedule>& schedules, const Nest& nest, const Sizes& sizes,
                                           const MeasureOptions& options) {
  const TrialProblem usual = trial_problem(nest, sizes), all_fixed = trial_problem(nest, sizes, true);
  const std::string all_fixed_start = digest(all_fixed.start);
  std::map<std::string, std::unique_ptr<Measurer>> measurers;  // by the nest that schedules begin with
  std::vector<TrialRecord> records;
  for (const Schedule& schedule : schedules) {
    const std::string start = digest(schedule.original_nest());
    TrialProblem problem = start == all_fixed_start ? all_fixed : usual;
    problem.start = schedule.original_nest();
    std::unique_ptr<Measurer>& measurer = measurers[start];
    if (!measurer) measurer = make_measurer(problem, options);
    const TrialOutcome outcome = measurer->measure({TrialJob{schedule.steps(), 0, true}}).at(0);
    records.push_back(to_record(outcome, trial_steps_json(problem, schedule.steps()).dump(), measurer->toolchain()));
  }
  return records;
}

TrialRecord measure_schedule(const Schedule& schedule, const Nest& nest, const Sizes& sizes, const MeasureOptions& options) {
  return measure_schedules({schedule}, nest, sizes, options).front();
}

}  // namespace nestor
