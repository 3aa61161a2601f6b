// The entry point of the emulator: launches of a recipe, memory and tensor maps.
#include "emulator/emulate.h"

#include "emulator/instructions.h"
#include "emulator/machine.h"
#include "emulator/module.h"
#include "support/simt/simt_launch.h"
#include "support/tensor_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>

namespace nestor::testing {
namespace {

using emulation::Region;
using emulation::TensorMap;
using SizeValues = std::map<std::string, std::int64_t>;

constexpr int kUnitRegisters = 65536;

std::vector<std::int64_t> extents_of(const ArgumentSpec& spec, const SizeValues& values) {
  std::vector<std::int64_t> extents;
  for (const IntExpr& extent : spec.shape) extents.push_back(evaluate_in(extent, values));
  return extents;
}

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& extents) {
  std::vector<std::int64_t> strides(extents.size(), 1);
  for (std::size_t k = extents.size(); k-- > 1;) strides[k - 1] = strides[k] * extents[k];
  return strides;
}

/// The argument's memory; rows are told apart where each index steps over all of those behind it.
Region region_of(const ArgumentSpec& spec, const EmulatedArgument& argument, const std::vector<std::int64_t>& extents,
                 const std::vector<std::int64_t>& strides) {
  const auto element = static_cast<std::int64_t>(size_in_bytes(spec.type));
  Region region;
  region.begin = static_cast<char*>(argument.data);
  region.bytes = argument.bytes;
  region.name = spec.name;
  region.writable = spec.output;
  std::int64_t inner = extents.empty() ? 1 : extents.back();
  bool nested = true;
  for (std::size_t k = extents.size(); k-- > 1;) {
    nested = nested && strides[k - 1] >= inner && strides[k - 1] > 0;
    inner = strides[k - 1] * extents[k - 1];
    region.dims.insert(region.dims.begin(), {strides[k - 1] * element, extents[k - 1]});
  }
  if (nested && !extents.empty()) region.row_bytes = extents.back() * element;
  if (!nested) region.dims.clear();
  return region;
}

/// Throws UserError for what the runtime refuses to launch.
TensorMap encode(const KernelParam& param, const ArgumentSpec& spec, const EmulatedArgument& argument,
                 const std::vector<std::int64_t>& extents, const std::vector<std::int64_t>& strides) {
  const auto rank = extents.size();
  std::vector<int> order = param.order;
  if (order.empty()) {
    order.resize(rank);
    std::iota(order.begin(), order.end(), 0);
  }
  TensorMap map;
  map.data = static_cast<char*>(argument.data);
  map.rank = static_cast<int>(rank);
  map.element = static_cast<int>(size_in_bytes(spec.type));
  map.swizzle = param.swizzle;
  TensorView view = tensor_view(
      {spec.name, map.element, reinterpret_cast<std::uint64_t>(argument.data), extents, strides.data(), spec.output}, order);
  for (std::size_t k = 0; k < rank; ++k) {
    map.extents[k] = static_cast<std::int64_t>(view.extents()[k]);
    map.strides[k] = k == 0 ? map.element : static_cast<std::int64_t>(view.byte_strides()[k - 1]);
    const auto dim = static_cast<std::size_t>(order[rank - 1 - k]);
    map.box[k] = param.box[dim];
    if (!param.element_strides.empty()) map.steps[k] = param.element_strides[dim];
  }
  return map;
}

/// Of a tensor in the workspace.
TensorMap encode_held(const KernelParam& param, const SizeValues& values, std::uint64_t workspace) {
  const WorkspaceTensor& tensor = *param.held;
  const ArgumentSpec spec{param.name, tensor.type, false, tensor.shape};
  std::vector<std::int64_t> strides;
  for (const IntExpr& stride : tensor.strides) strides.push_back(evaluate_in(stride, values));
  strides.push_back(1);
  EmulatedArgument argument;
  argument.data = reinterpret_cast<void*>(workspace + static_cast<std::uint64_t>(evaluate_in(tensor.offset, values)));
  return encode(param, spec, argument, extents_of(spec, values), strides);
}

}  // namespace

class EmulatedKernel::Implementation {
 public:
  Implementation(LaunchRecipe recipe, const std::string& ir) : recipe_(std::move(recipe)), module_(ir) {
    machine_.text_of_site = [this](emulation::Site site) { return module_.text_of(site); };
  }

  EmulationResult run(const Sizes& sizes, const std::vector<EmulatedArgument>& arguments, const EmulationOptions& options) {
    if (arguments.size() != recipe_.arguments.size())
      internal_error("emulator: {} arguments for a kernel of {}", arguments.size(), recipe_.arguments.size());
    SizeValues values(sizes.begin(), sizes.end());
    for (const auto& [name, value] : recipe_.fixed_sizes) values[name] = value;
    LaunchData data;
    data.sizes = sizes;
    data.scalars = options.scalars;
    data.units = options.units;
    std::vector<std::vector<std::int64_t>> extents;
    std::vector<Region> regions;
    for (std::size_t k = 0; k < arguments.size(); ++k) {
      extents.push_back(extents_of(recipe_.arguments[k], values));
      data.pointers.push_back(reinterpret_cast<std::uint64_t>(arguments[k].data));
      data.strides.push_back(arguments[k].strides.empty() ? dense_strides(extents[k]) : arguments[k].strides);
      regions.push_back(region_of(recipe_.arguments[k], arguments[k], extents[k], data.strides[k]));
    }
    const auto bytes = static_cast<std::size_t>(evaluate_in(recipe_.workspace_bytes, values));
    std::vector<char> workspace(bytes + 64, '\xff');
    data.workspace = (reinterpret_cast<std::uint64_t>(workspace.data()) + 63) / 64 * 64;
    std::uint32_t counter = 0;
    data.counter = reinterpret_cast<std::uint64_t>(&counter);
    regions.push_back(memory(reinterpret_cast<char*>(data.workspace), bytes, "the workspace"));
    regions.push_back(memory(reinterpret_cast<char*>(&counter), sizeof counter, "the counter"));
    regions.back().counter = true;
    EmulationResult result;
    std::deque<TensorMap> maps;
    data.tensor_map = [&](const KernelParam& param) -> void* {
      if (param.held) return &maps.emplace_back(encode_held(param, values, data.workspace));
      const auto k = static_cast<std::size_t>(param.index);
      return &maps.emplace_back(encode(param, recipe_.arguments[k], arguments[k], extents[k], data.strides[k]));
    };
    machine_.accesses = machine_.switches = 0;
    machine_.seed(options.seed);
    machine_.set_regions(std::move(regions));
    launch_recipe(recipe_, data, [&](const LaunchNode& node, std::int64_t blocks, std::vector<void*>& params) {
      if (!result.problem.empty()) return;
      launch(node, blocks, params, result);
      if (result.problem.empty() && counter != 0)
        result.problem = fmt::format("kernel {} leaves its counter at {}", node.symbol, counter);
    });
    machine_.set_regions({});
    result.accesses = machine_.accesses;
    result.switches = machine_.switches;
    return result;
  }

 private:
  static Region memory(char* begin, std::size_t bytes, const char* name) {
    Region region;
    region.begin = begin;
    region.bytes = bytes;
    region.name = name;
    return region;
  }

  void launch(const LaunchNode& node, std::int64_t blocks, std::vector<void*>& params, EmulationResult& result) {
    emulation::LaunchShape shape;
    shape.kernel = node.symbol;
    shape.threads = node.block[0];
    shape.cluster = node.cluster[0];
    shape.blocks = blocks;
    shape.shared_bytes = node.shared_bytes;
    const int residents = module_.residents(node.symbol);
    shape.registers = residents == 0 ? 0 : kUnitRegisters / residents / shape.threads / 8 * 8;
    const auto kernel = module_.kernel(node.symbol);
    if (!machine_.run(shape, [&] { kernel(params.data()); }))
      result.problem = "kernel " + node.symbol + ": " + machine_.problem();
  }

  LaunchRecipe recipe_;
  emulation::Module module_;
  emulation::Machine machine_;
};

EmulatedKernel::EmulatedKernel(LaunchRecipe recipe, const std::string& ir)
    : implementation_(std::make_unique<Implementation>(std::move(recipe), ir)) {}
EmulatedKernel::~EmulatedKernel() = default;

EmulationResult EmulatedKernel::run(const Sizes& sizes, const std::vector<EmulatedArgument>& arguments,
                                    const EmulationOptions& options) {
  return implementation_->run(sizes, arguments, options);
}

EmulatedKernel& emulated_kernel(const LaunchRecipe& recipe, const std::string& ir) {
  struct Last {
    std::string recipe, ir;
    std::unique_ptr<EmulatedKernel> kernel;
  };
  static Last& last = *new Last;  // LLVM may end before it
  std::string text = recipe_to_json(recipe).dump();
  if (last.kernel == nullptr || last.recipe != text || last.ir != ir) {
    last.kernel.reset();
    last.kernel = std::make_unique<EmulatedKernel>(recipe, ir);
    last.recipe = std::move(text);
    last.ir = ir;
  }
  return *last.kernel;
}

EmulationResult emulate(const LaunchRecipe& recipe, const std::string& ir, const Sizes& sizes,
                        const std::vector<EmulatedArgument>& arguments, const EmulationOptions& options) {
  return emulated_kernel(recipe, ir).run(sizes, arguments, options);
}

}  // namespace nestor::testing
