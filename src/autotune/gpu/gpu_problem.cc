// Inputs, reference values and the device's limits.
#include "autotune/gpu/gpu_problem.h"

#include "autotune/tensors/argument_bytes.h"
#include "support/debug.h"
#include "support/system/available_memory.h"

namespace nestor {
namespace {

/// Arguments up to this size are made twice.
constexpr std::int64_t kCheapBytes = 32 << 20;

GpuProblem::Data make_data(const Nest& original, const Sizes& sizes, const MeasureOptions& options, std::uint64_t seed,
                           const std::atomic<bool>* stop) {
  const DebugTimer timer("inputs and reference values");
  GpuProblem::Data data{make_inputs(original, sizes, seed), {}};
  data.samples = reference_samples(original, sizes, options.scalars, data.tensors, options.oracle_samples, seed, stop);
  return data;
}

/// What does not fit the device, or the inputs this machine, is refused before anything is made.
void require_room(const TrialProblem& tried, const MeasureOptions& options, const GpuFacts& gpu) {
  const ArgumentBytes bytes = argument_bytes(tried.definition, tried.sizes);
  const std::string what = problem_text(tried.definition, tried.sizes);
  const std::int64_t sets = bytes.all() <= kCheapBytes ? 2 : 1;
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
                                             const std::atomic<bool>* stop) {
  auto problem = std::make_shared<GpuProblem>(GpuProblem{{tried, options}, gpu_facts(options.target)});
  require_room(tried, options, problem->gpu);
  problem->data.push_back(make_data(tried.definition, tried.sizes, options, options.data_seed, stop));
  for (const auto& [name, tensor] : problem->data.front().tensors)
    problem->argument_bytes += tensor.elements() * static_cast<std::int64_t>(size_in_bytes(tensor.type));
  if (problem->argument_bytes <= kCheapBytes)
    problem->data.push_back(make_data(tried.definition, tried.sizes, options, options.data_seed + 1, stop));
  return problem;
}

}  // namespace nestor
