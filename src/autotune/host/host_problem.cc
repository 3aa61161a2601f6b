// Arguments between guard pages, and reference values.
#include "autotune/host/host_problem.h"

#include "autotune/tensors/argument_bytes.h"
#include "db/devices/host_identity.h"
#include "support/system/available_memory.h"

#include <algorithm>
#include <cstring>

namespace nestor {

namespace {

/// Inputs once, and the largest one twice while it is copied. Outputs twice: as kernels write them, and as they are compared.
MemoryNeed memory_need(const TrialProblem& tried) {
  const ArgumentBytes bytes = argument_bytes(tried.definition, tried.sizes);
  MemoryNeed need;
  need.touched = saturating_add(saturating_add(bytes.inputs, bytes.largest), saturating_multiply(2, bytes.outputs));
  // Values of the definition and their errors, of which only samples are touched.
  need.reserved = saturating_add(need.touched, saturating_multiply(2 * sizeof(double), bytes.computed));
  return need;
}

}  // namespace

int host_compilers() { return std::clamp(host_threads(), 1, 4); }

std::int64_t host_worker_memory(const MeasureOptions& options) { return options.memory_limit / host_compilers(); }

std::shared_ptr<HostProblem> make_host_problem(const TrialProblem& tried, const MeasureOptions& options,
                                               const std::atomic<bool>* stop) {
  auto problem = std::make_shared<HostProblem>(HostProblem{{tried, options}});
  if (problem->options.threads <= 0) problem->options.threads = host_threads();
  require_memory(memory_need(tried), problem_text(tried.definition, tried.sizes));
  HostTensors tensors = make_inputs(tried.definition, tried.sizes, options.data_seed);
  problem->samples = affordable_samples(tried.definition, tried.sizes, options.scalars, tensors, options.oracle_samples,
                                        options.data_seed, options.oracle_seconds, stop);
  for (const MeasuredProblem::Argument& argument : problem->arguments) {
    HostTensor& data = tensors.at(argument.name);
    if (argument.output) {
      // Their pages come when a kernel writes them.
      data.bytes.resize(static_cast<std::size_t>(data.elements()) * size_in_bytes(data.type));
      problem->buffers.emplace_back(data.bytes.size());
      problem->outputs.emplace(argument.name, std::move(data));
      continue;
    }
    GuardedBuffer& buffer = problem->buffers.emplace_back(data.bytes.size());
    if (buffer.size() > 0) std::memcpy(buffer.data(), data.bytes.data(), data.bytes.size());
    buffer.make_read_only();
    data.bytes.resize(0);
  }
  return problem;
}

}  // namespace nestor
