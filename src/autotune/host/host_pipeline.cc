// Limits of the processes, and what they do.
#include "autotune/host/host_pipeline.h"

#include "autotune/host/host_compiler.h"
#include "autotune/host/host_runner.h"

namespace nestor {
namespace {

constexpr double kRunTimeout_s = 30;

PipelineLimits limits_for(const MeasureOptions& options) {
  PipelineLimits limits;
  limits.compilers = host_compilers();
  limits.compile_timeout_s = options.compile_timeout_s;
  limits.run_timeout_s = options.run_timeout_s > 0 ? options.run_timeout_s : kRunTimeout_s;
  limits.memory_limit = host_worker_memory(options);
  limits.run_memory_limit = 2 * options.memory_limit;  // one process, which also holds what results are compared with
  limits.alternating = true;
  return limits;
}

}  // namespace

TrialPipeline make_host_pipeline(const TrialProblem& problem, const MeasureOptions& options, const std::atomic<bool>* stop) {
  const std::shared_ptr<HostProblem> made = make_host_problem(problem, options, stop);
  return TrialPipeline(
      limits_for(options), [made] { return std::make_unique<HostCompiler>(made); },
      [made](int) { return std::make_unique<HostRunner>(made); }, stop);
}

}  // namespace nestor
