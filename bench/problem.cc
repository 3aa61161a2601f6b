// Inputs of a definition, and Halide's schedules of it.
#include "problem.h"

#include "frontend/halide_target.h"
#include "frontend/values/affine_index.h"
#include "operator.h"
#include "support/error.h"

#include <unistd.h>

#include <algorithm>
#include <random>

namespace nestor::bench {
namespace {

/// Func names gain "$1" when a name occurs twice in a process.
std::string plain_name(const std::string& name) { return name.substr(0, name.find('$')); }

std::span<const float> as_floats(const Halide::Buffer<>& buffer) {
  return {static_cast<const float*>(buffer.data()), buffer.number_of_elements()};
}

void schedule(Halide::Pipeline& pipeline, const std::string& scheduler, const Halide::Target& target, int threads) {
  std::string plugin = scheduler;
  std::transform(plugin.begin(), plugin.end(), plugin.begin(), [](unsigned char c) { return std::tolower(c); });
  Halide::load_plugin(std::string(NESTOR_HALIDE_PLUGINS) + "/libautoschedule_" + plugin + ".so");
#ifdef HALIDE_VERSION_MAJOR
  pipeline.apply_autoscheduler(target, {scheduler, {{"parallelism", std::to_string(threads)}}});
#else
  const long cache = std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 1L << 20);
  pipeline.auto_schedule(scheduler, target, Halide::MachineParams(threads, static_cast<std::uint64_t>(cache), 40));
#endif
}

}  // namespace

Problem::Problem(const std::string& op, const std::string& variant, const Sizes& sizes)
    : definition_(kernels::define(op, variant)) {
  Sizes unknown = sizes;
  for (HalideSize& size : definition_.sizes) {
    const std::string& name = size.param.name();
    const auto given = sizes.find(name);
    sizes_[name] = given == sizes.end() ? size.default_value : given->second;
    unknown.erase(name);
    size.param.set(static_cast<int>(sizes_[name]));
    size.param.set_estimate(static_cast<int>(sizes_[name]));
  }
  if (!unknown.empty()) user_error("operator '{}' has no size '{}'", op, unknown.begin()->first);
  for (const HalideScalar& scalar : definition_.scalars) set_scalar(scalar);
  for (HalideInput& input : definition_.inputs) fill(input);
  for (HalideOutput& output : definition_.outputs) reserve(output);
}

void Problem::set_scalar(const HalideScalar& scalar) {
  auto param = scalar.param.as<Halide::Internal::Variable>()->param;
  if (param.type().is_float()) {
    param.set_scalar<float>(static_cast<float>(scalar.default_value));
    param.set_estimate(static_cast<float>(scalar.default_value));
  } else {
    param.set_scalar<int>(static_cast<int>(scalar.default_value));
    param.set_estimate(static_cast<int>(scalar.default_value));
  }
}

int Problem::value_of(const Halide::Expr& extent) const {
  std::map<std::string, Halide::Expr> values;
  for (const auto& [name, value] : sizes_) values[name] = static_cast<int>(value);
  const Halide::Expr value = Halide::Internal::simplify(Halide::Internal::substitute(values, extent));
  return static_cast<int>(*constant_of(value));
}

void Problem::fill(HalideInput& input) {
  if (input.param.type() != Halide::Float(32)) user_error("the input '{}' is not f32", input.param.name());
  std::vector<int> extents;
  for (std::size_t d = 0; d < input.extents.size(); ++d) {
    extents.push_back(value_of(input.extents[d]));
    input.param.dim(static_cast<int>(d)).set_estimate(0, extents.back());
  }
  Halide::Buffer<> buffer(input.param.type(), extents);
  std::mt19937 random(static_cast<unsigned>(1 + inputs_.size()));
  auto* data = static_cast<float*>(buffer.data());
  for (std::size_t k = 0; k < buffer.number_of_elements(); ++k)
    data[k] = static_cast<float>(random() >> 8) / static_cast<float>(1 << 23) - 1.0f;
  input.param.set(buffer);
  inputs_.emplace(input.param.name(), buffer);
}

void Problem::reserve(HalideOutput& output) {
  Halide::Region region;
  std::vector<int> extents;
  for (const Halide::Expr& extent : output.extents) {
    extents.push_back(value_of(extent));
    region.emplace_back(0, extents.back());
  }
  output.func.set_estimates(region);
  const std::vector<Halide::Type>& types = output.func.function().output_types();
  for (std::size_t k = 0; k < types.size(); ++k) {
    if (types[k] != Halide::Float(32)) user_error("the output '{}' is not f32", output.func.name());
    results_.emplace_back(types[k], extents);
    const std::string name = plain_name(output.func.name()) + (types.size() > 1 ? "_" + std::to_string(k) : "");
    outputs_.emplace(name, results_.back());
  }
}

std::size_t Problem::output_elements() const {
  std::size_t count = 0;
  for (const Halide::Buffer<>& result : results_) count += result.number_of_elements();
  return count;
}

std::vector<std::span<const float>> Problem::results() {
  std::vector<std::span<const float>> out;
  for (const Halide::Buffer<>& result : results_) out.push_back(as_floats(result));
  return out;
}

Prepared Problem::prepare_halide(const std::string& scheduler, int threads) {
  setenv("HL_NUM_THREADS", std::to_string(threads).c_str(), 1);
  std::vector<Halide::Func> funcs;
  for (const HalideOutput& output : definition_.outputs) funcs.push_back(output.func);
  auto pipeline = std::make_shared<Halide::Pipeline>(funcs);
  const Halide::Target target = halide_jit_target();
  schedule(*pipeline, scheduler, target, threads);
  pipeline->compile_jit(target);
  // Since Halide 15, a Realization takes the vector over.
  std::vector<Halide::Buffer<>> buffers = results_;
#ifdef HALIDE_VERSION_MAJOR
  auto realization = std::make_shared<Halide::Realization>(std::move(buffers));
#else
  auto realization = std::make_shared<Halide::Realization>(buffers);
#endif
  return {[pipeline, realization] { pipeline->realize(*realization); }, results()};
}

}  // namespace nestor::bench
