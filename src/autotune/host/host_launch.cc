// Guarded copies of tensors, and the call.
#include "autotune/host/host_launch.h"

#include "autotune/host/guarded_buffer.h"
#include "autotune/trial/argument_facts.h"
#include "support/error.h"

#include <cstring>

namespace nestor {

CheckRun run_guarded(const LoadedHostKernel& kernel, const LaunchRecipe& recipe, HostTensors& tensors, const Sizes& sizes,
                     const std::map<std::string, double>& scalars, int threads) {
  std::vector<GuardedBuffer> buffers;
  KernelArguments arguments;
  arguments.scalars = scalar_values(recipe, scalars);
  buffers.reserve(recipe.arguments.size());
  for (const ArgumentSpec& argument : recipe.arguments) {
    const auto found = tensors.find(argument.name);
    if (found == tensors.end()) internal_error("the kernel takes an argument '{}' that the nest does not have", argument.name);
    const HostTensor& tensor = found->second;
    GuardedBuffer& buffer = buffers.emplace_back(tensor.bytes.size());
    if (buffer.size() > 0) std::memcpy(buffer.data(), tensor.bytes.data(), buffer.size());
    if (!argument.output) buffer.make_read_only();
    arguments.pointers.push_back(buffer.data());
    const std::vector<std::int64_t> strides = dense_strides(tensor.shape);
    arguments.strides.insert(arguments.strides.end(), strides.begin(), strides.end());
  }
  kernel.run(arguments.pointers, arguments.strides, sizes, arguments.scalars, threads);
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    if (!recipe.arguments[k].output) continue;
    if (!buffers[k].padding_intact()) return {false, fmt::format("{} was written beyond its end", recipe.arguments[k].name)};
    std::memcpy(tensors.at(recipe.arguments[k].name).bytes.data(), buffers[k].data(), buffers[k].size());
  }
  return {};
}

CheckReport check_host_kernel(ResultCheck& check, const LoadedHostKernel& kernel, const LaunchRecipe& recipe,
                              const CheckSizes& sizes, const std::map<std::string, double>& scalars, int threads) {
  return check.run(
      sizes, [&](const Sizes& at, HostTensors& tensors) { return run_guarded(kernel, recipe, tensors, at, scalars, threads); });
}

}  // namespace nestor
