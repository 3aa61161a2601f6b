// Inputs, reference values and the device's limits.
#include "autotune/gpu/gpu_problem.h"

#include "support/debug.h"

namespace nestor {
namespace {

/// Arguments up to this size are made twice.
constexpr std::int64_t kCheapBytes = 32 << 20;

GpuProblem::Data make_data(const Nest& original, const Sizes& sizes, const MeasureOptions& options, std::uint64_t seed) {
  const DebugTimer timer("inputs and reference values");
  GpuProblem::Data data{make_inputs(original, sizes, seed), {}};
  data.samples = reference_samples(original, sizes, options.scalars, data.tensors, options.oracle_samples, seed);
  return data;
}

}  // namespace

std::shared_ptr<GpuProblem> make_gpu_problem(const TrialProblem& tried, const MeasureOptions& options) {
  auto problem = std::make_shared<GpuProblem>(GpuProblem{{tried, options}, gpu_facts(options.target)});
  problem->data.push_back(make_data(tried.definition, tried.sizes, options, options.data_seed));
  for (const auto& [name, tensor] : problem->data.front().tensors)
    problem->argument_bytes += tensor.elements() * static_cast<std::int64_t>(size_in_bytes(tensor.type));
  if (problem->argument_bytes <= kCheapBytes)
    problem->data.push_back(make_data(tried.definition, tried.sizes, options, options.data_seed + 1));
  return problem;
}

}  // namespace nestor
