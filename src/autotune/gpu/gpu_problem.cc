// The device's limits, and data within them.
#include "autotune/gpu/gpu_problem.h"

#include "autotune/tensors/argument_bytes.h"
#include "support/system/available_memory.h"

#include <utility>

namespace nestor {
namespace {

/// What does not fit the device, or the inputs this machine, is refused before anything is made.
void require_room(const TrialProblem& tried, const MeasureOptions& options, const GpuFacts& gpu) {
  const ArgumentBytes bytes = argument_bytes(tried.definition, tried.sizes);
  const std::string what = problem_text(tried.definition, tried.sizes);
  const std::int64_t sets = GpuData::sets_for(bytes.all());
  const std::int64_t device = saturating_add(saturating_multiply(sets, bytes.all()), options.flush_bytes);
  if (device > gpu.memory_bytes) {
    throw LackOfResources(
        fmt::format("{} needs {} of memory on the GPU; {} has {}: choose smaller sizes, or a GPU with more memory", what,
                    bytes_text(device), options.target.str(), bytes_text(gpu.memory_bytes)));
  }
  // Of outputs only what is compared is touched here.
  require_memory({saturating_multiply(sets, bytes.inputs), saturating_multiply(sets, bytes.all())}, what);
}

}  // namespace

std::shared_ptr<GpuProblem> make_gpu_problem(const TrialProblem& tried, const MeasureOptions& options,
                                             std::shared_ptr<GpuData> known) {
  auto problem = std::make_shared<GpuProblem>(GpuProblem{{tried, options}, gpu_facts(options.target), std::move(known)});
  if (problem->data) return problem;
  require_room(tried, options, problem->gpu);
  problem->data = std::make_shared<GpuData>(tried, options);
  return problem;
}

}  // namespace nestor
