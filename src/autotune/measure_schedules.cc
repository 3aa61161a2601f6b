// The measurer of a target, and one schedule after another.
#include "autotune/measure_schedules.h"

#include "autotune/gpu/gpu_pipeline.h"
#include "autotune/host/host_pipeline.h"
#include "autotune/target/toolchain.h"
#include "autotune/trial/trial_steps.h"
#include "poly/nest/nest_json.h"

#include <map>
#include <string>

namespace nestor {
namespace {

TrialPipeline make_pipeline(const TrialProblem& problem, const MeasureOptions& options, const std::atomic<bool>* stop = nullptr,
                            std::shared_ptr<GpuData>* data = nullptr) {
  return options.target.is_gpu() ? make_gpu_pipeline(problem, options, stop, data) : make_host_pipeline(problem, options, stop);
}

class PipelineMeasurer : public Measurer {
 public:
  PipelineMeasurer(const TrialProblem& problem, const MeasureOptions& options, const std::atomic<bool>* stop,
                   std::shared_ptr<GpuData>* data)
      : devices_(identities(options)), pipeline_(make_pipeline(problem, options, stop, data)) {}

  int batch_size() const override { return pipeline_.depth(); }
  bool streaming() const override { return pipeline_.streaming(); }
  void submit(std::int64_t ticket, const TrialJob& job) override { pipeline_.submit(ticket, job); }
  SettledTrial next() override { return pipeline_.next(); }
  bool has_settled() override { return pipeline_.has_settled(); }
  void abandon() override { pipeline_.abandon(); }
  void while_waiting(std::function<void()> told) override { pipeline_.while_waiting(std::move(told)); }
  /// Before everything that was submitted.
  std::vector<TrialOutcome> measure(const std::vector<TrialJob>& jobs) override {
    const std::int64_t first = next_own_;
    for (const TrialJob& job : jobs) pipeline_.submit(next_own_--, job, true);
    std::vector<TrialOutcome> outcomes;
    outcomes.reserve(jobs.size());
    for (std::size_t k = 0; k < jobs.size(); ++k) outcomes.push_back(pipeline_.wait_for(first - static_cast<std::int64_t>(k)));
    return outcomes;
  }
  const DeviceIdentity& device() const override { return devices_.front(); }
  std::vector<DeviceIdentity> devices() const override { return devices_; }
  std::string toolchain() const override { return measuring_toolchain(); }

 private:
  static std::vector<DeviceIdentity> identities(const MeasureOptions& options) {
    std::vector<DeviceIdentity> found;
    Target target = options.target;
    for (int k = 0; k < options.target.count; ++k, ++target.ordinal) found.push_back(device_identity(target, options.threads));
    return found;
  }

  std::vector<DeviceIdentity> devices_;
  TrialPipeline pipeline_;
  std::int64_t next_own_ = -1;  ///< tickets of submit() are not negative
};

}  // namespace

std::unique_ptr<Measurer> make_measurer(const TrialProblem& problem, const MeasureOptions& options, const std::atomic<bool>* stop,
                                        std::shared_ptr<GpuData>* data) {
  return std::make_unique<PipelineMeasurer>(problem, options, stop, data);
}

TrialOutcome measure_stored_kernel(const Nest& nest, const Sizes& sizes, const KernelRecord& kernel, const std::string& periods,
                                   const MeasureOptions& options) {
  TrialPipeline pipeline = make_pipeline({nest, sizes, {}, nest, digest(nest)}, options);
  pipeline.submit(0, TrialJob{{}, 0, true}, CompiledTrial{kernel, "", "", 0, periods});
  return pipeline.wait_for(0);
}

std::vector<TrialRecord> measure_schedules(const std::vector<Schedule>& schedules, const Nest& nest, const Sizes& sizes,
                                           const MeasureOptions& options, const MeasureWatch& watch) {
  const TrialProblem usual = trial_problem(nest, sizes), all_fixed = trial_problem(nest, sizes, true);
  const std::string all_fixed_start = digest(all_fixed.start);
  std::map<std::string, std::unique_ptr<Measurer>> measurers;  // by the nest that schedules begin with
  std::vector<TrialRecord> records;
  for (const Schedule& schedule : schedules) {
    const std::string start = digest(schedule.original_nest());
    TrialProblem problem = start == all_fixed_start ? all_fixed : usual;
    problem.start = schedule.original_nest();
    problem.schedules = nullptr;
    std::unique_ptr<Measurer>& measurer = measurers[start];
    if (!measurer) {
      measurer = make_measurer(problem, options, watch.stop);
      if (watch.waiting) measurer->while_waiting(watch.waiting);
    }
    const TrialOutcome outcome = measurer->measure({TrialJob{schedule.steps(), 0, true}}).at(0);
    records.push_back(to_record(outcome, trial_steps_json(problem, schedule.steps()).dump(), measurer->toolchain()));
  }
  return records;
}

TrialRecord measure_schedule(const Schedule& schedule, const Nest& nest, const Sizes& sizes, const MeasureOptions& options,
                             const MeasureWatch& watch) {
  return measure_schedules({schedule}, nest, sizes, options, watch).front();
}

}  // namespace nestor
