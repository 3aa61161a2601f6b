// The entry point of the emulator.
#include "emulator/emulate.h"

#include "support/simt_emulator.h"

namespace nestor::testing {

class EmulatedKernel::Implementation {
 public:
  Implementation(LaunchRecipe recipe, const std::string& ir) : recipe_(std::move(recipe)), emulator_(ir) {}

  EmulationResult run(const Sizes& sizes, const std::vector<EmulatedArgument>& arguments, const EmulationOptions& options) {
    EmulationResult result;
    LaunchData data;
    data.sizes = sizes;
    data.scalars = options.scalars;
    std::map<std::string, std::int64_t> values(sizes.begin(), sizes.end());
    for (const auto& [name, value] : recipe_.fixed_sizes) values[name] = value;
    for (std::size_t k = 0; k < arguments.size(); ++k) {
      data.pointers.push_back(reinterpret_cast<std::uint64_t>(arguments[k].data));
      data.strides.push_back(arguments[k].strides.empty() ? dense_strides(recipe_.arguments.at(k), values)
                                                          : arguments[k].strides);
    }
    std::vector<char> workspace(static_cast<std::size_t>(evaluate_in(recipe_.workspace_bytes, values)) + 64, '\xff');
    data.workspace = (reinterpret_cast<std::uint64_t>(workspace.data()) + 63) / 64 * 64;
    emulator_.seed(options.seed);
    try {
      launch_recipe(recipe_, data, [&](const LaunchNode& node, std::int64_t blocks, std::vector<void*>& params) {
        emulator_.run(node, blocks, params);
      });
    } catch (const InternalError& error) {
      result.problem = error.what();
    }
    return result;
  }

 private:
  static std::vector<std::int64_t> dense_strides(const ArgumentSpec& spec, const std::map<std::string, std::int64_t>& values) {
    std::vector<std::int64_t> strides(spec.shape.size(), 1);
    for (std::size_t k = spec.shape.size(); k-- > 1;) strides[k - 1] = strides[k] * evaluate_in(spec.shape[k], values);
    return strides;
  }

  LaunchRecipe recipe_;
  SimtEmulator emulator_;
};

EmulatedKernel::EmulatedKernel(LaunchRecipe recipe, const std::string& ir)
    : implementation_(std::make_unique<Implementation>(std::move(recipe), ir)) {}
EmulatedKernel::~EmulatedKernel() = default;

EmulationResult EmulatedKernel::run(const Sizes& sizes, const std::vector<EmulatedArgument>& arguments,
                                    const EmulationOptions& options) {
  return implementation_->run(sizes, arguments, options);
}

EmulationResult emulate(const LaunchRecipe& recipe, const std::string& ir, const Sizes& sizes,
                        const std::vector<EmulatedArgument>& arguments, const EmulationOptions& options) {
  return EmulatedKernel(recipe, ir).run(sizes, arguments, options);
}

}  // namespace nestor::testing
