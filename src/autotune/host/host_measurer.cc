// The host as a measurer: a problem, and a pool of workers that measure candidates of it.
#include "autotune/host/host_measurer.h"

#include "autotune/host/host_runner.h"
#include "autotune/target/toolchain.h"
#include "autotune/workers/worker_pool.h"
#include "db/devices/host_identity.h"

#include <algorithm>

namespace nestor {
namespace {

class HostMeasurer : public Measurer {
 public:
  HostMeasurer(const std::shared_ptr<HostProblem>& problem, const std::atomic<bool>* stop)
      : device_(host_device(problem->options.threads)),
        workers_(std::clamp(host_threads(), 1, 4)),
        pool_(
            {workers_, problem->options.compile_timeout_s, host_run_timeout(problem->options),
             problem->options.memory_limit / workers_},
            [problem] { return std::make_unique<HostRunner>(problem); }, stop) {}

  int batch_size() const override { return workers_; }
  std::vector<TrialOutcome> measure(const std::vector<TrialJob>& jobs) override { return pool_.measure(jobs); }
  const DeviceIdentity& device() const override { return device_; }
  std::string toolchain() const override { return measuring_toolchain(); }

 private:
  DeviceIdentity device_;
  int workers_;
  WorkerPool pool_;
};

}  // namespace

double host_run_timeout(const MeasureOptions& options) { return options.run_timeout_s > 0 ? options.run_timeout_s : 30; }

std::unique_ptr<Measurer> make_host_measurer(const TrialProblem& problem, const MeasureOptions& options,
                                             const std::atomic<bool>* stop) {
  return std::make_unique<HostMeasurer>(make_host_problem(problem, options), stop);
}

}  // namespace nestor
