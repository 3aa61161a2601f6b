// Compiled kernels, emulated, against their nest's definition.
#pragma once

#include "autotune/oracle/reference.h"
#include "codegen/gpu/backend.h"
#include "emulator/emulate.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

namespace nestor::testing {

/// A kernel with inputs and what its outputs must be; runs it in as many orders as wanted.
class EmulatedProblem {
 public:
  EmulatedProblem(const Nest& nest, const Sizes& sizes, const LaunchRecipe& recipe, std::uint64_t seed = 7)
      : nest_(nest), sizes_(sizes), recipe_(recipe), inputs_(make_arguments(nest, sizes, seed)) {
    Reference reference(nest, sizes, {}, inputs_);
    reference.evaluate_all(1e12);
    for (const Tensor& tensor : nest.tensors) {
      if (tensor.role != TensorRole::output) continue;
      std::vector<double>& values = expected_[tensor.name];
      for (std::int64_t k = 0; k < inputs_.at(tensor.name).elements(); ++k)
        values.push_back(reference.value(tensor.name, k, 1e12).value_or(std::nan("")));
    }
  }

  /// Empty: it ran without a problem and its results are right; else what is wrong.
  std::string run(EmulatedKernel& kernel, unsigned seed) const {
    HostTensors tensors = inputs_;
    std::vector<EmulatedArgument> arguments;
    for (const ArgumentSpec& spec : recipe_.arguments) {
      HostTensor& tensor = tensors.at(spec.name);
      arguments.push_back({tensor.bytes.data(), static_cast<std::size_t>(tensor.elements()) * size_in_bytes(tensor.type), {}});
    }
    const EmulationResult result = kernel.run(sizes_, arguments, {.seed = seed});
    if (!result.passed()) return fmt::format("{} (order {})", result.problem, seed);
    for (const auto& [name, values] : expected_) {
      const std::string difference = compare(name, values, tensors.at(name));
      if (!difference.empty()) return fmt::format("{} (order {})", difference, seed);
    }
    return "";
  }

  std::string run(EmulatedKernel& kernel, const std::vector<unsigned>& seeds) const {
    for (const unsigned seed : seeds) {
      if (std::string problem = run(kernel, seed); !problem.empty()) return problem;
    }
    return "";
  }

 private:
  /// |result - expected| <= tolerance * (root mean square of the output + |expected|), and the same infinities and NaNs.
  std::string compare(const std::string& name, const std::vector<double>& expected, const HostTensor& result) const {
    double squares = 0;
    std::int64_t finite = 0;
    for (const double value : expected) {
      if (!std::isfinite(value)) continue;
      squares += value * value;
      ++finite;
    }
    const double scale = std::sqrt(squares / static_cast<double>(std::max<std::int64_t>(finite, 1)));
    for (std::size_t k = 0; k < expected.size(); ++k) {
      const double got = result.get(static_cast<std::int64_t>(k)), wanted = expected[k];
      const bool same = got == wanted || (std::isnan(got) && std::isnan(wanted));
      if (!same && !(std::abs(got - wanted) <= nest_.tolerance * (scale + std::abs(wanted))))
        return fmt::format("{}[{}] is {}, expected {}", name, k, got, wanted);
    }
    return "";
  }

  Nest nest_;
  Sizes sizes_;
  LaunchRecipe recipe_;
  HostTensors inputs_;
  std::map<std::string, std::vector<double>> expected_;
};

}  // namespace nestor::testing
