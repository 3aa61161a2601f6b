// Limits of the processes, and what they do.
#include "autotune/gpu/gpu_pipeline.h"

#include "autotune/gpu/gpu_compiler.h"
#include "autotune/gpu/gpu_runner.h"
#include "db/devices/host_identity.h"

#include <algorithm>

namespace nestor {
namespace {

/// A hanging kernel costs this much of a search, and the restart of its process.
constexpr double kRunTimeout_s = 12;

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

}  // namespace

TrialPipeline make_gpu_pipeline(const TrialProblem& problem, const MeasureOptions& options, const std::atomic<bool>* stop,
                                std::shared_ptr<GpuData>* data) {
  const std::shared_ptr<GpuProblem> made = make_gpu_problem(problem, options, data ? *data : nullptr);
  if (data) *data = made->data;
  PipelineLimits limits = limits_for(options);
  limits.may_run = [found = made->data] { return found->complete(); };
  return TrialPipeline(
      limits, [made] { return std::make_unique<GpuCompiler>(made); },
      [made](int device) { return std::make_unique<GpuRunner>(made, made->options.target.ordinal + device); }, stop);
}

}  // namespace nestor
