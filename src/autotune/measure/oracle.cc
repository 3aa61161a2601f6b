// Random arguments, reference samples and the comparison of results.
#include "autotune/measure/oracle.h"

#include "autotune/measure/element_codec.h"
#include "autotune/measure/reference.h"
#include "support/error.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

namespace nestor {
namespace {

/// splitmix64: equal numbers on every machine and with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t limit) { return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(limit)); }
  /// Near enough to a normal distribution (sum of four uniform numbers, variance 1), and one multiplication a number.
  double normal() {
    const std::uint64_t bits = next();
    const double sum = static_cast<double>((bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48));
    return (sum - 131070.0) * (1.0 / 37837.2);
  }

 private:
  std::uint64_t state_;
};

std::uint64_t seed_for(const std::string& name, std::uint64_t seed) {
  std::uint64_t hash = 1469598103934665603ULL ^ seed;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

void fill_random(HostTensor& tensor, Random random) {
  const std::int64_t count = tensor.elements();
  switch (tensor.type) {
    case ElementType::f32: {
      auto* values = reinterpret_cast<float*>(tensor.bytes.data());
      for (std::int64_t k = 0; k < count; ++k) values[k] = static_cast<float>(random.normal());
      return;
    }
    case ElementType::i32:
      for (std::int64_t k = 0; k < count; ++k) tensor.set(k, static_cast<double>(random.below(17) - 8));
      return;
    case ElementType::boolean:
      for (std::int64_t k = 0; k < count; ++k) tensor.set(k, static_cast<double>(random.below(2)));
      return;
    default:
      for (std::int64_t k = 0; k < count; ++k) tensor.set(k, random.normal());
  }
}

void fill_poison(HostTensor& tensor) {
  const std::uint32_t bits = poison_bits(tensor.type);
  const std::size_t width = size_in_bytes(tensor.type);
  for (std::size_t at = 0; at < tensor.bytes.size(); at += width) std::memcpy(tensor.bytes.data() + at, &bits, width);
}

/// Elements to compare: corners first, then random ones of which many lie on a border, where remainders are handled.
std::vector<std::int64_t> choose_elements(const std::vector<std::int64_t>& shape, std::int64_t count, Random random) {
  std::int64_t total = 1;
  for (const std::int64_t extent : shape) total *= extent;
  std::vector<std::int64_t> chosen;
  if (total <= count) {
    for (std::int64_t k = 0; k < total; ++k) chosen.push_back(k);
    return chosen;
  }
  std::set<std::int64_t> seen;
  const auto add = [&](std::int64_t linear) {
    if (seen.insert(linear).second) chosen.push_back(linear);
  };
  const std::size_t rank = shape.size();
  for (std::size_t corner = 0; corner < std::min<std::size_t>(std::size_t{1} << rank, 16); ++corner) {
    std::int64_t linear = 0;
    for (std::size_t d = 0; d < rank; ++d) linear = linear * shape[d] + ((corner >> d) & 1 ? shape[d] - 1 : 0);
    add(linear);
  }
  for (std::int64_t attempt = 0; attempt < 4 * count && static_cast<std::int64_t>(chosen.size()) < count; ++attempt) {
    std::int64_t linear = 0;
    for (const std::int64_t extent : shape) {
      const std::int64_t kind = random.below(8);
      linear = linear * extent + (kind == 0 ? 0 : kind == 1 ? extent - 1 : random.below(extent));
    }
    add(linear);
  }
  return chosen;
}

/// Beyond this many elementary evaluations (a few nanoseconds each) sampled outputs are evaluated backwards.
constexpr double kCheap = 4e6;
constexpr double kFullLimit = 2e10;
constexpr double kBackwardLimit = 4e9;
constexpr std::int64_t kAllElements = 1 << 16;
constexpr std::int64_t kEnoughSamples = 64;
constexpr double kSampleSeconds = 0.3;

}  // namespace

double HostTensor::get(std::int64_t linear) const { return load_element(type, bytes.data(), linear); }
void HostTensor::set(std::int64_t linear, double value) { store_element(type, bytes.data(), linear, value); }
std::int64_t HostTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

HostTensors make_arguments(const Nest& nest, const Sizes& sizes, std::uint64_t seed) {
  HostTensors arguments;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::temporary) continue;
    HostTensor data{tensor.name, tensor.type, shape_at(tensor, sizes), {}};
    data.bytes.resize(static_cast<std::size_t>(data.elements()) * size_in_bytes(tensor.type));
    if (tensor.role == TensorRole::input) {
      fill_random(data, Random(seed_for(tensor.name, seed)));
    } else {
      fill_poison(data);
    }
    arguments.emplace(tensor.name, std::move(data));
  }
  return arguments;
}

std::vector<OracleSample> reference_samples(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                                            const HostTensors& inputs, std::int64_t samples, std::uint64_t seed) {
  Reference reference(nest, sizes, scalars, inputs);
  const bool whole = !reference.backward_possible() || reference.full_cost() <= kCheap;
  if (whole) reference.evaluate_all(kFullLimit);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::vector<OracleSample> result;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::output) continue;
    const auto elements =
        choose_elements(reference.shape(tensor.name), whole ? kAllElements : samples, Random(seed_for(tensor.name, ~seed)));
    std::int64_t taken = 0;
    for (const std::int64_t linear : elements) {
      if (!whole && taken >= kEnoughSamples && seconds() > kSampleSeconds) break;
      const auto value = reference.value(tensor.name, linear, kBackwardLimit);
      if (value) result.push_back({tensor.name, linear, *value});
      ++taken;
    }
  }
  return result;
}

double worst_error(const std::vector<OracleSample>& samples, const HostTensors& results, std::string* where) {
  double worst = 0;
  const HostTensor* tensor = nullptr;
  for (const OracleSample& sample : samples) {
    if (!tensor || tensor->name != sample.tensor) tensor = &results.at(sample.tensor);
    const double expected = round_to(tensor->type, sample.value);
    const double got = tensor->get(sample.linear);
    double error = std::fabs(got - expected) / (1 + std::fabs(expected));
    // Infinities and NaNs are right where the definition gives them, and wrong everywhere else.
    if (got == expected ||
        (std::isnan(got) && std::isnan(expected) && !is_poison(tensor->type, tensor->bytes.data(), sample.linear)))
      error = 0;
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    if (error <= worst) continue;
    worst = error;
    if (where) {
      std::string index;
      std::int64_t rest = sample.linear;
      for (std::size_t d = tensor->shape.size(); d-- > 0; rest /= tensor->shape[d]) {
        index = std::to_string(rest % tensor->shape[d]) + (index.empty() ? "" : ", ") + index;
      }
      *where = fmt::format("{}[{}] is {:.7g}, should be {:.7g}", sample.tensor, index, got, expected);
    }
  }
  return worst;
}

}  // namespace nestor
