// Inputs, reference values and the device's limits.
#include "autotune/gpu/gpu_problem.h"

#include "autotune/trial/argument_facts.h"
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
  check_scalars(tried.start, options.scalars);
  auto problem = std::make_shared<GpuProblem>(
      GpuProblem{tried.definition, BaseSchedules(tried.start), tried.sizes, options, gpu_facts(options.target), {}, {}, 0});
  problem->data.push_back(make_data(tried.definition, tried.sizes, options, options.data_seed));
  for (const Tensor& tensor : tried.start.tensors) {
    if (tensor.role == TensorRole::temporary) continue;
    const HostTensor& data = problem->data.front().tensors.at(tensor.name);
    const bool output = tensor.role == TensorRole::output;
    problem->arguments.push_back(
        {tensor.name, dense_strides(data.shape), output, output && writes_every_element(tried.definition, tensor, tried.sizes)});
    problem->argument_bytes += data.elements() * static_cast<std::int64_t>(size_in_bytes(data.type));
  }
  if (problem->argument_bytes <= kCheapBytes)
    problem->data.push_back(make_data(tried.definition, tried.sizes, options, options.data_seed + 1));
  return problem;
}

}  // namespace nestor
