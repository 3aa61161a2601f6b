// Elements, poison and random inputs.
#include "autotune/tensors/host_tensor.h"

#include "autotune/tensors/argument_bytes.h"
#include "autotune/tensors/input_ranges.h"
#include "autotune/tensors/random_fill.h"
#include "support/system/available_memory.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace nestor {

double HostTensor::get(std::int64_t linear) const { return load_element(type, bytes.data(), linear); }
void HostTensor::set(std::int64_t linear, double value) { store_element(type, bytes.data(), linear, value); }
std::int64_t HostTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

namespace {

/// Random numbers, where the range is limited.
void keep_in_range(HostTensor& tensor, const InputRange& range) {
  constexpr double kFarthest = 3.5;  // of what fill_random() draws
  const double factor = std::isfinite(range.most) ? range.most / kFarthest : 1;
  for (std::int64_t k = 0; k < tensor.elements(); ++k) {
    const double value = factor * tensor.get(k);
    tensor.set(k, range.nonnegative ? std::fabs(value) : value);
  }
}

/// Places, some of them just before the first and behind the last.
void draw_places(HostTensor& tensor, std::int64_t count, const CounterRandom& random) {
  constexpr std::int64_t kBefore = 1, kBehind = 2;
  for (std::int64_t k = 0; k < tensor.elements(); ++k) {
    const std::uint64_t draw = random.at(static_cast<std::uint64_t>(k)) % static_cast<std::uint64_t>(count + kBefore + kBehind);
    tensor.set(k, static_cast<double>(static_cast<std::int64_t>(draw) - kBefore));
  }
}

/// Words of any 32 bits.
void draw_words(HostTensor& tensor, const CounterRandom& random) {
  for (std::int64_t k = 0; k < tensor.elements(); ++k)
    tensor.set(k, static_cast<double>(static_cast<std::int32_t>(random.at(static_cast<std::uint64_t>(k)) >> 32)));
}

/// Elements of a stretch along each dim become its first one: documents that are packed, blocks that are chosen.
void draw_stretches(HostTensor& tensor) {
  constexpr std::int64_t kStretches = 16;
  std::vector<std::int64_t> at(tensor.shape.size(), 0);
  for (std::int64_t k = 0; k < tensor.elements(); ++k) {
    std::int64_t first = 0;
    for (std::size_t dim = 0; dim < at.size(); ++dim) {
      const std::int64_t stretch = std::max<std::int64_t>(tensor.shape[dim] / kStretches, 1);
      first = first * tensor.shape[dim] + at[dim] / stretch * stretch;
    }
    if (first != k) tensor.set(k, tensor.get(first));
    for (std::size_t dim = at.size(); dim-- > 0 && ++at[dim] == tensor.shape[dim];) at[dim] = 0;
  }
}

}  // namespace

HostTensors make_inputs(const Nest& nest, const Sizes& sizes, std::uint64_t seed) {
  require_memory({argument_bytes(nest, sizes).inputs}, "the inputs of " + problem_text(nest, sizes));
  HostTensors arguments;
  const std::map<std::string, InputRange> ranges = input_ranges(nest);
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::temporary) continue;
    HostTensor data{tensor.name, tensor.type, shape_at(tensor, sizes), {}};
    if (tensor.role == TensorRole::input) {
      data.bytes.resize(static_cast<std::size_t>(data.elements()) * size_in_bytes(tensor.type));
      const std::uint64_t own_seed = seed_for(tensor.name, seed);
      const auto range = ranges.find(tensor.name);
      if (range != ranges.end() && !range->second.places.is_null()) {
        draw_places(data, std::max<std::int64_t>(evaluate_at(range->second.places, sizes), 0), CounterRandom(own_seed));
      } else if (range != ranges.end() && range->second.word) {
        draw_words(data, CounterRandom(own_seed));
      } else {
        fill_random(tensor.type, data.bytes.data(), data.elements(), own_seed);
        if (range != ranges.end() && range->second.hides) {
          draw_stretches(data);
        } else if (range != ranges.end()) {
          keep_in_range(data, range->second);
        }
      }
    }
    arguments.emplace(tensor.name, std::move(data));
  }
  return arguments;
}

HostTensors make_arguments(const Nest& nest, const Sizes& sizes, std::uint64_t seed) {
  require_memory({argument_bytes(nest, sizes).all()}, "the arguments of " + problem_text(nest, sizes));
  HostTensors arguments = make_inputs(nest, sizes, seed);
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::output) continue;
    HostTensor& data = arguments.at(tensor.name);
    data.bytes.resize(static_cast<std::size_t>(data.elements()) * size_in_bytes(tensor.type));
    fill_poison(data);
  }
  return arguments;
}

void fill_poison(HostTensor& tensor, std::uint32_t generation) {
  const std::uint32_t bits = poison_bits(tensor.type, generation);
  const std::size_t width = size_in_bytes(tensor.type);
  for (std::size_t at = 0; at < tensor.bytes.size(); at += width) std::memcpy(tensor.bytes.data() + at, &bits, width);
}

}  // namespace nestor
