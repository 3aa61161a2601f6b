// Halide's own result for a definition: every Func computed at the root, realized by its JIT.
#pragma once

#include <Halide.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "frontend/halide_frontend.h"
#include "frontend/halide_graph.h"
#include "frontend/halide_target.h"
#include "unit/frontend/frontend_interpreter.h"

namespace nestor::testing {

template <class T>
double load(const Halide::Buffer<>& buffer, std::size_t at) {
  return static_cast<double>(static_cast<float>(reinterpret_cast<const T*>(buffer.data())[at]));
}

inline double load_element(const Halide::Buffer<>& buffer, std::size_t at) {
  const Halide::Type type = buffer.type();
  if (type == Halide::Float(32)) return reinterpret_cast<const float*>(buffer.data())[at];
  if (type == Halide::Float(16)) return load<Halide::float16_t>(buffer, at);
  if (type == Halide::BFloat(16)) return load<Halide::bfloat16_t>(buffer, at);
  if (type.is_bool()) return reinterpret_cast<const std::uint8_t*>(buffer.data())[at];
  return reinterpret_cast<const std::int32_t*>(buffer.data())[at];
}

inline void store_element(Halide::Buffer<>& buffer, std::size_t at, double value) {
  const Halide::Type type = buffer.type();
  if (type == Halide::Float(32)) {
    reinterpret_cast<float*>(buffer.data())[at] = static_cast<float>(value);
  } else if (type == Halide::Float(16)) {
    reinterpret_cast<Halide::float16_t*>(buffer.data())[at] = Halide::float16_t(value);
  } else if (type == Halide::BFloat(16)) {
    reinterpret_cast<Halide::bfloat16_t*>(buffer.data())[at] = Halide::bfloat16_t(value);
  } else {
    reinterpret_cast<std::int32_t*>(buffer.data())[at] = static_cast<std::int32_t>(value);
  }
}

inline Halide::Buffer<> make_buffer(const Halide::Type& type, const DenseTensor& tensor) {
  std::vector<int> extents;
  for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) extents.push_back(static_cast<int>(*extent));
  return Halide::Buffer<>(type, extents);
}

/// Values that every type holds exactly: multiples of 1/8 in [-2, 2], and small integers.
inline DenseTensors make_inputs(const Nest& nest, const Sizes& sizes) {
  DenseTensors inputs;
  std::uint32_t state = 12345;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::input) continue;
    DenseTensor dense{shape_at(tensor, sizes), {}};
    std::int64_t count = 1;
    for (const std::int64_t extent : dense.shape) count *= extent;
    for (std::int64_t k = 0; k < count; ++k) {
      state = state * 1664525U + 1013904223U;
      const int small = static_cast<int>((state >> 16) % 33U) - 16;
      dense.values.push_back(tensor.type == ElementType::i32 ? small : small / 8.0);
    }
    inputs[tensor.name] = dense;
  }
  return inputs;
}

/// A definition compiled by Halide, to be run at any sizes. Every input must be declared in the definition.
class HalideRun {
 public:
  explicit HalideRun(const HalideDefinition& definition) : definition_(definition), graph_(definition) {
    for (const FuncNode& node : graph_.funcs()) Halide::Func(node.function).compute_root();
    std::vector<Halide::Func> funcs;
    for (const HalideOutput& output : definition_.outputs) funcs.push_back(output.func);
    pipeline_ = Halide::Pipeline(funcs);
  }

  /// Results by tensor name.
  DenseTensors operator()(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                          const DenseTensors& inputs) {
    set_arguments(sizes, scalars, inputs);
    std::vector<Halide::Buffer<>> buffers;
    std::vector<std::string> names;
    for (const HalideOutput& output : definition_.outputs) {
      for (const FuncNode& node : graph_.funcs()) {
        if (!node.function.same_as(output.func.function())) continue;
        for (std::size_t c = 0; c < node.tensors.size(); ++c) {
          const std::string& name = node.tensors[c].name;
          buffers.push_back(make_buffer(node.function.output_types()[c], {shape_at(nest.tensor(name), sizes), {}}));
          names.push_back(name);
        }
      }
    }
#ifdef HALIDE_VERSION_MAJOR  // since Halide 15, a Realization takes the vector over
    Halide::Realization results(std::vector<Halide::Buffer<>>{buffers});
#else
    Halide::Realization results(buffers);
#endif
    pipeline_.realize(results, halide_jit_target());
    DenseTensors tensors;
    for (std::size_t k = 0; k < buffers.size(); ++k) {
      DenseTensor dense{shape_at(nest.tensor(names[k]), sizes), {}};
      for (std::size_t e = 0; e < buffers[k].number_of_elements(); ++e) dense.values.push_back(load_element(buffers[k], e));
      tensors[names[k]] = dense;
    }
    return tensors;
  }

 private:
  void set_arguments(const Sizes& sizes, const std::map<std::string, double>& scalars, const DenseTensors& inputs) const {
    for (const HalideSize& size : definition_.sizes) {
      Halide::Param<int> param = size.param;
      param.set(static_cast<int>(sizes.at(size.param.name())));
    }
    for (const HalideScalar& scalar : definition_.scalars) {
      auto param = scalar.param.as<Halide::Internal::Variable>()->param;
      const double value = scalars.at(param.name());
      if (param.type().is_float()) {
        param.set_scalar<float>(static_cast<float>(value));
      } else {
        param.set_scalar<int>(static_cast<int>(value));
      }
    }
    for (const HalideInput& input : definition_.inputs) {
      Halide::ImageParam param = input.param;
      const DenseTensor& data = inputs.at(identifier(param.name()));
      Halide::Buffer<> buffer = make_buffer(param.type(), data);
      for (std::size_t k = 0; k < data.values.size(); ++k) store_element(buffer, k, data.values[k]);
      param.set(buffer);
    }
  }

  HalideDefinition definition_;
  HalideGraph graph_;
  Halide::Pipeline pipeline_;
};

/// Largest |found - expected| / (1 + |expected|); infinite when one is NaN and the other is not.
inline double distance(const DenseTensor& found, const DenseTensor& expected) {
  double worst = found.values.size() == expected.values.size() ? 0 : INFINITY;
  for (std::size_t k = 0; k < std::min(found.values.size(), expected.values.size()); ++k) {
    const double a = found.values[k];
    const double b = expected.values[k];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double error = std::fabs(a - b) / (1 + std::fabs(b));
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

}  // namespace nestor::testing
