// GPU code in the emulator of the tests.
#include "emulator/emulate.h"
#include "soak/engine.h"

namespace nestor::soak {
namespace {

class EmulatedCandidate : public LoadedCandidate {
 public:
  EmulatedCandidate(const Generated& generated, unsigned seed)
      : kernel_(generated.kernel.recipe, generated.ir), recipe_(generated.kernel.recipe), seed_(seed) {}

  std::string run(const Sizes& sizes, const ProblemData& data, HostTensors& results) override {
    HostTensors memory = data.tensors;
    std::vector<testing::EmulatedArgument> arguments;
    for (const ArgumentSpec& argument : recipe_.arguments) {
      HostTensor& tensor = memory.at(argument.name);
      arguments.push_back({tensor.bytes.data(), tensor.bytes.size()});
    }
    const testing::EmulationResult result = kernel_.run(sizes, arguments, {.seed = seed_++, .scalars = data.scalars});
    if (!result.passed()) return result.problem;
    for (const ArgumentSpec& argument : recipe_.arguments) {
      if (argument.output) {
        results.insert_or_assign(argument.name, std::move(memory.at(argument.name)));
      } else if (!(memory.at(argument.name).bytes == data.tensors.at(argument.name).bytes)) {
        return argument.name + " was changed, which is an input";
      }
    }
    return "";
  }

 private:
  testing::EmulatedKernel kernel_;
  LaunchRecipe recipe_;
  unsigned seed_;
};

}  // namespace

std::unique_ptr<LoadedCandidate> load_in_emulator(const Generated& generated, unsigned seed) {
  return std::make_unique<EmulatedCandidate>(generated, seed);
}

}  // namespace nestor::soak
