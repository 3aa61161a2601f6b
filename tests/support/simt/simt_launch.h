// Runs a launch recipe: evaluates loops, grids and parameters and hands each kernel to a launcher (an emulator or a driver).
#pragma once

#include "support/elements.h"
#include "support/error.h"
#include "support/launch_recipe.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace nestor::testing {

/// Multiprocessors: few, so that resident blocks have several work tiles each.
constexpr std::int64_t kEmulatedUnits = 2;

/// Where the arguments are: addresses and strides (elements, every index) in recipe order.
struct LaunchData {
  std::vector<std::uint64_t> pointers;
  std::vector<std::vector<std::int64_t>> strides;
  std::uint64_t workspace = 0, counter = 0;
  std::function<void*(const KernelParam&)> tensor_map;  ///< where the map lies; none: kernels that take maps are refused
  std::int64_t units = kEmulatedUnits;
  Sizes sizes;
  std::map<std::string, double> scalars;
};

/// One kernel launch; params as for cuLaunchKernel: addresses of the values.
using Launcher = std::function<void(const LaunchNode& node, std::int64_t blocks, std::vector<void*>& params)>;

inline std::int64_t evaluate_in(const IntExpr& expr, const std::map<std::string, std::int64_t>& values) {
  return expr.evaluate([&](const std::string& name) {
    const auto found = values.find(name);
    if (found == values.end()) internal_error("launch recipe: {} has no value", name);
    return found->second;
  });
}

inline void launch_nodes(const std::vector<LaunchNode>& nodes, const LaunchRecipe& recipe, const LaunchData& data,
                         std::map<std::string, std::int64_t>& values, const Launcher& launcher) {
  for (const LaunchNode& node : nodes) {
    if (node.kind == LaunchNode::Kind::loop) {
      const std::int64_t lower = evaluate_in(node.lower, values), upper = evaluate_in(node.upper, values);
      for (std::int64_t i = lower; i < upper; ++i) {
        values[node.var] = i;
        launch_nodes(node.children, recipe, data, values, launcher);
      }
      continue;
    }
    const std::int64_t blocks = evaluate_in(node.grid[0], values);
    if (blocks == 0) continue;
    std::vector<std::array<char, 8>> storage(node.params.size());
    std::vector<void*> params;
    for (std::size_t k = 0; k < node.params.size(); ++k) {
      const KernelParam& param = node.params[k];
      const auto index = static_cast<std::size_t>(param.index);
      std::uint64_t bits = 0;
      switch (param.kind) {
        case KernelParam::Kind::pointer:
          bits = data.pointers[index];
          break;
        case KernelParam::Kind::stride:
          bits = static_cast<std::uint64_t>(data.strides[index][static_cast<std::size_t>(param.dim)]);
          break;
        case KernelParam::Kind::size:
        case KernelParam::Kind::loop:
          bits = static_cast<std::uint64_t>(values.at(param.name));
          break;
        case KernelParam::Kind::workspace:
          bits = data.workspace;
          break;
        case KernelParam::Kind::scalar:
          for (const ScalarSpec& scalar : recipe.scalars) {
            if (scalar.name != param.name) continue;
            const auto given = data.scalars.find(scalar.name);
            write_element(&bits, scalar.type, given == data.scalars.end() ? scalar.default_value : given->second);
          }
          break;
        case KernelParam::Kind::counter:
          bits = data.counter;
          break;
        case KernelParam::Kind::tensor_map:
          if (!data.tensor_map) internal_error("there are no tensor maps, which kernel \"{}\" takes", node.symbol);
          params.push_back(data.tensor_map(param));
          continue;
      }
      std::memcpy(storage[k].data(), &bits, 8);
      params.push_back(storage[k].data());
    }
    launcher(node, blocks, params);
  }
}

inline void launch_recipe(const LaunchRecipe& recipe, const LaunchData& data, const Launcher& launcher) {
  std::map<std::string, std::int64_t> values(data.sizes.begin(), data.sizes.end());
  for (const auto& [name, value] : recipe.fixed_sizes) values[name] = value;
  values[kUnits] = data.units;
  launch_nodes(recipe.launches, recipe, data, values, launcher);
}

}  // namespace nestor::testing
