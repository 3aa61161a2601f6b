// One nest and its inputs through everything that computes: the definition instance by instance, the oracle, the tile program, host code
// and emulated GPU code. Results are dense row-major doubles by tensor.
#pragma once

#include "autotune/oracle/reference.h"
#include "codegen/gpu/backend.h"
#include "codegen/host/host_backend.h"
#include "emulator/emulate.h"
#include "support/element_codec.h"
#include "support/nests/nest_interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace nestor::testing {

using Results = std::map<std::string, std::vector<double>>;

struct NestInputs {
  Sizes sizes;
  Results tensors;                        ///< of every input, as its type holds it
  std::map<std::string, double> scalars;  ///< others: the nest's defaults
};

inline std::size_t elements_of(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

template <class Use>
void for_each_output(const Nest& nest, const Sizes& sizes, const Use& use) {
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::output) use(tensor, shape_at(tensor, sizes));
  }
}

inline std::int64_t extent_at(const IntExpr& extent, const Sizes& sizes) {
  return extent.evaluate([&](const std::string& name) { return sizes.at(name); });
}

/// The index of element `linear` of a dense tensor.
inline samples::Index index_of(const std::vector<std::int64_t>& shape, std::size_t linear) {
  samples::Index index(shape.size());
  auto rest = static_cast<std::int64_t>(linear);
  for (std::size_t k = shape.size(); k-- > 0; rest /= shape[k]) index[k] = rest % shape[k];
  return index;
}

inline Results run_definition(const Nest& nest, const NestInputs& inputs) {
  samples::Memory memory;
  for (const auto& [name, values] : inputs.tensors) {
    const auto shape = shape_at(nest.tensor(name), inputs.sizes);
    for (std::size_t k = 0; k < values.size(); ++k)
      memory[name][index_of(shape, k)] =
          nest.tensor(name).type == ElementType::i64 ? round_to(ElementType::i64, values[k]) : values[k];
  }
  samples::Interpreter(nest, inputs.sizes, inputs.scalars).run(memory);
  Results results;
  for_each_output(nest, inputs.sizes, [&](const Tensor& tensor, const std::vector<std::int64_t>& shape) {
    for (std::size_t k = 0; k < elements_of(shape); ++k)
      results[tensor.name].push_back(round_to(tensor.type, memory[tensor.name].at(index_of(shape, k))));
  });
  return results;
}

/// `backwards`: from single elements; else all statements in their order.
inline Results run_oracle(const Nest& nest, const NestInputs& inputs, bool backwards) {
  HostTensors data = make_inputs(nest, inputs.sizes, 1);
  for (const auto& [name, values] : inputs.tensors) {
    for (std::size_t k = 0; k < values.size(); ++k) data.at(name).set(static_cast<std::int64_t>(k), values[k]);
  }
  Reference reference(nest, inputs.sizes, inputs.scalars, data);
  if (!backwards) reference.evaluate_all(1e9);
  Results results;
  for_each_output(nest, inputs.sizes, [&](const Tensor& tensor, const std::vector<std::int64_t>& shape) {
    for (std::size_t k = 0; k < elements_of(shape); ++k) {
      const auto value = reference.value(tensor.name, static_cast<std::int64_t>(k), 1e9);
      if (!value) internal_error("the oracle has no value for {}", tensor.name);
      results[tensor.name].push_back(round_to(tensor.type, *value));
    }
  });
  return results;
}

/// Arguments as a tile program has them: inputs, and outputs full of NaN.
inline Results arguments_of(const TileProgram& program, const NestInputs& inputs) {
  Results memory;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.memory != Memory::argument) continue;
    std::size_t count = 1;
    for (const IntExpr& extent : buffer.extents) count *= static_cast<std::size_t>(extent_at(extent, inputs.sizes));
    const auto given = inputs.tensors.find(buffer.name);
    memory[buffer.name] = given != inputs.tensors.end() ? given->second : std::vector<double>(count, std::nan(""));
  }
  return memory;
}

inline Results outputs_of(const TileProgram& program, const Results& memory) {
  Results results;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.memory != Memory::argument || buffer.role != TensorRole::output) continue;
    for (const double value : memory.at(buffer.name)) results[buffer.name].push_back(round_to(buffer.type, value));
  }
  return results;
}

inline Results run_program(const TileProgram& program, const NestInputs& inputs) {
  Results memory = arguments_of(program, inputs);
  for (const Buffer& buffer : program.buffers) {  // as they are read: an i64 is the nearest i32
    if (buffer.memory != Memory::argument || buffer.type != ElementType::i64) continue;
    for (double& value : memory.at(buffer.name)) value = round_to(buffer.type, value);
  }
  interpret(program, inputs.sizes, inputs.scalars, memory);
  return outputs_of(program, memory);
}

inline Results run_host(const TileProgram& program, const NestInputs& inputs, const HostTarget& target) {
  Results memory = arguments_of(program, inputs);
  std::vector<std::vector<std::byte>> storage;
  std::vector<void*> pointers;
  std::vector<std::int64_t> strides;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.memory != Memory::argument) continue;
    const std::vector<double>& values = memory.at(buffer.name);
    storage.emplace_back(values.size() * size_in_bytes(buffer.type) + 64);
    for (std::size_t k = 0; k < values.size(); ++k)
      store_element(buffer.type, storage.back().data(), static_cast<std::int64_t>(k), values[k]);
    pointers.push_back(storage.back().data());
    std::vector<std::int64_t> dense(buffer.extents.size(), 1);
    for (std::size_t k = dense.size(); k-- > 1;) dense[k - 1] = dense[k] * extent_at(buffer.extents[k], inputs.sizes);
    strides.insert(strides.end(), dense.begin(), dense.end());
  }
  std::vector<double> scalars;
  for (const ScalarParam& scalar : program.scalars) {
    const auto given = inputs.scalars.find(scalar.name);
    scalars.push_back(given == inputs.scalars.end() ? scalar.default_value : given->second);
  }
  const CompiledHost compiled = compile_host(in_host_order(program), target);
  LoadedHostKernel(compiled.kernel).run(pointers, strides, inputs.sizes, scalars, 2);
  std::size_t number = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.memory != Memory::argument) continue;
    std::vector<double>& values = memory.at(buffer.name);
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k] = load_element(buffer.type, storage[number].data(), static_cast<std::int64_t>(k));
    ++number;
  }
  return outputs_of(program, memory);
}

/// GPU code of the program, by the emulator.
inline Results run_emulated(const CompiledNvptx& compiled, const TileProgram& program, const NestInputs& inputs) {
  Results memory = arguments_of(program, inputs);
  std::vector<std::vector<std::byte>> storage;
  std::vector<EmulatedArgument> arguments;
  for (const ArgumentSpec& spec : compiled.kernel.recipe.arguments) {
    const std::vector<double>& values = memory.at(spec.name);
    storage.emplace_back(values.size() * size_in_bytes(spec.type));
    for (std::size_t k = 0; k < values.size(); ++k)
      store_element(spec.type, storage.back().data(), static_cast<std::int64_t>(k), values[k]);
    arguments.push_back({storage.back().data(), storage.back().size()});
  }
  const EmulationResult result =
      emulate(compiled.kernel.recipe, compiled.ir, inputs.sizes, arguments, {.scalars = inputs.scalars});
  if (!result.passed()) internal_error("{}", result.problem);
  for (std::size_t n = 0; n < storage.size(); ++n) {
    const ArgumentSpec& spec = compiled.kernel.recipe.arguments[n];
    std::vector<double>& values = memory.at(spec.name);
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k] = load_element(spec.type, storage[n].data(), static_cast<std::int64_t>(k));
  }
  return outputs_of(program, memory);
}

inline Results run_emulated(const TileProgram& program, const NestInputs& inputs) {
  return run_emulated(compile_nvptx(program, {}), program, inputs);
}

/// Equal masks of NaN and infinities, finite values near each other relative to the largest; empty or what differs.
inline std::string special_difference(const std::vector<double>& got, const std::vector<double>& want) {
  double scale = 1;
  for (const double value : want) scale = std::isfinite(value) ? std::max(scale, std::fabs(value)) : scale;
  for (std::size_t n = 0; n < want.size(); ++n) {
    const bool special = !std::isfinite(want[n]) || !std::isfinite(got[n]);
    const bool same =
        special ? (std::isnan(want[n]) && std::isnan(got[n])) || got[n] == want[n] : std::fabs(got[n] - want[n]) <= 5e-3 * scale;
    if (!same) return fmt::format("out[{}] is {}, not {}", n, got[n], want[n]);
  }
  return "";
}

}  // namespace nestor::testing
