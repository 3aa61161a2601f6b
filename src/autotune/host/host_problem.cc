// Arguments between guard pages, and reference values.
#include "autotune/host/host_problem.h"

#include "db/devices/host_identity.h"

#include <cstring>

namespace nestor {

std::shared_ptr<HostProblem> make_host_problem(const TrialProblem& tried, const MeasureOptions& options) {
  auto problem = std::make_shared<HostProblem>(HostProblem{{tried, options}});
  if (problem->options.threads <= 0) problem->options.threads = host_threads();
  HostTensors tensors = make_arguments(tried.definition, tried.sizes, options.data_seed);
  problem->samples =
      reference_samples(tried.definition, tried.sizes, options.scalars, tensors, options.oracle_samples, options.data_seed);
  for (const MeasuredProblem::Argument& argument : problem->arguments) {
    HostTensor& data = tensors.at(argument.name);
    GuardedBuffer& buffer = problem->buffers.emplace_back(data.bytes.size());
    std::memcpy(buffer.data(), data.bytes.data(), data.bytes.size());
    if (argument.output)
      problem->outputs.emplace(argument.name, std::move(data));
    else
      buffer.make_read_only();
  }
  return problem;
}

}  // namespace nestor
