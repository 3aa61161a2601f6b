// The pipeline of compilers and devices as a measurer.
#include "autotune/gpu/gpu_measurer.h"

#include "autotune/gpu/gpu_compiler.h"
#include "autotune/gpu/gpu_runner.h"
#include "autotune/target/toolchain.h"
#include "autotune/workers/trial_pipeline.h"
#include "db/devices/host_identity.h"
#include "poly/nest/nest_json.h"

#include <algorithm>

namespace nestor {
namespace {

/// A hanging kernel costs this much of a search, and the restart of its process.
constexpr double kRunTimeout_s = 4;

PipelineLimits limits_for(const MeasureOptions& options) {
  PipelineLimits limits;
  // The tuner and the processes of the devices need cores of their own.
  limits.compilers = std::clamp(host_threads() - 1 - options.target.count, 1, 24);
  limits.devices = options.target.count;
  limits.compile_timeout_s = options.compile_timeout_s;
  limits.run_timeout_s = options.run_timeout_s > 0 ? options.run_timeout_s : kRunTimeout_s;
  limits.memory_limit = options.memory_limit;
  return limits;
}

TrialPipeline make_pipeline(const std::shared_ptr<GpuProblem>& problem, const std::atomic<bool>* stop) {
  const int first = problem->options.target.ordinal;
  return TrialPipeline(
      limits_for(problem->options), [problem] { return std::make_unique<GpuCompiler>(problem); },
      [problem, first](int device) { return std::make_unique<GpuRunner>(problem, first + device); }, stop);
}

class GpuMeasurer : public Measurer {
 public:
  GpuMeasurer(const std::shared_ptr<GpuProblem>& problem, const std::atomic<bool>* stop)
      : device_(device_identity(problem->options.target)), pipeline_(make_pipeline(problem, stop)) {}

  int batch_size() const override { return pipeline_.depth(); }
  bool streaming() const override { return true; }
  void submit(std::int64_t ticket, const TrialJob& job) override { pipeline_.submit(ticket, job); }
  SettledTrial next() override { return pipeline_.next(); }
  void abandon() override { pipeline_.abandon(); }
  /// Before everything that was submitted.
  std::vector<TrialOutcome> measure(const std::vector<TrialJob>& jobs) override {
    const std::int64_t first = next_own_;
    for (const TrialJob& job : jobs) pipeline_.submit(next_own_--, job, true);
    std::vector<TrialOutcome> outcomes;
    outcomes.reserve(jobs.size());
    for (std::size_t k = 0; k < jobs.size(); ++k) outcomes.push_back(pipeline_.wait_for(first - static_cast<std::int64_t>(k)));
    return outcomes;
  }
  const DeviceIdentity& device() const override { return device_; }
  std::string toolchain() const override { return measuring_toolchain(); }

 private:
  DeviceIdentity device_;
  TrialPipeline pipeline_;
  std::int64_t next_own_ = -1;  ///< tickets of submit() are not negative
};

}  // namespace

std::unique_ptr<Measurer> make_gpu_measurer(const TrialProblem& problem, const MeasureOptions& options,
                                            const std::atomic<bool>* stop) {
  return std::make_unique<GpuMeasurer>(make_gpu_problem(problem, options), stop);
}

TrialOutcome measure_stored_gpu_kernel(const Nest& nest, const Sizes& sizes, const KernelRecord& kernel,
                                       const std::string& periods, const MeasureOptions& options) {
  TrialPipeline pipeline = make_pipeline(make_gpu_problem({nest, sizes, {}, nest, digest(nest)}, options), nullptr);
  pipeline.submit(0, TrialJob{{}, 0, true}, CompiledTrial{kernel, "", "", 0, periods});
  return pipeline.wait_for(0);
}

}  // namespace nestor
