// Host code in this process, on memory whose surroundings cannot be touched unnoticed.
#include "autotune/host/guarded_buffer.h"
#include "autotune/trial/argument_facts.h"
#include "codegen/host/host_backend.h"
#include "soak/engine.h"

#include <cstring>

namespace nestor::soak {
namespace {

class HostCandidate : public LoadedCandidate {
 public:
  HostCandidate(const CompiledKernel& kernel, int threads) : kernel_(kernel), recipe_(kernel.recipe), threads_(threads) {}

  std::string run(const Sizes& sizes, const ProblemData& data, HostTensors& results) override {
    std::vector<GuardedBuffer> buffers;
    std::vector<void*> pointers;
    std::vector<std::int64_t> strides;
    std::vector<double> scalars;
    for (const ArgumentSpec& argument : recipe_.arguments) {
      const HostTensor& tensor = data.tensors.at(argument.name);
      buffers.emplace_back(tensor.bytes.size());
      std::memcpy(buffers.back().data(), tensor.bytes.data(), tensor.bytes.size());
      if (!argument.output) buffers.back().make_read_only();
      pointers.push_back(buffers.back().data());
      const std::vector<std::int64_t> dense = dense_strides(tensor.shape);
      strides.insert(strides.end(), dense.begin(), dense.end());
    }
    for (const ScalarSpec& scalar : recipe_.scalars) scalars.push_back(data.scalars.at(scalar.name));
    kernel_.run(pointers, strides, sizes, scalars, threads_);
    for (std::size_t k = 0; k < buffers.size(); ++k) {
      const ArgumentSpec& argument = recipe_.arguments[k];
      if (!argument.output) continue;
      if (!buffers[k].padding_intact()) return argument.name + " was written beyond its end";
      HostTensor result = data.tensors.at(argument.name);
      std::memcpy(result.bytes.data(), buffers[k].data(), buffers[k].size());
      results.insert_or_assign(argument.name, std::move(result));
    }
    return "";
  }

 private:
  LoadedHostKernel kernel_;
  LaunchRecipe recipe_;
  int threads_;
};

}  // namespace

std::unique_ptr<LoadedCandidate> load_on_host(const Generated& generated, int threads) {
  return std::make_unique<HostCandidate>(generated.kernel, threads);
}

}  // namespace nestor::soak
