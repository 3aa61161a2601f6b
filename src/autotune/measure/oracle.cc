// Random arguments, reference samples and the comparison of results.
#include "autotune/measure/oracle.h"

#include "autotune/measure/random_fill.h"
#include "autotune/measure/reference.h"
#include "autotune/measure/statistics.h"
#include "db/host_device.h"
#include "support/element_codec.h"
#include "support/error.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

namespace nestor {
namespace {

void fill_poison(HostTensor& tensor) {
  const std::uint32_t bits = poison_bits(tensor.type);
  const std::size_t width = size_in_bytes(tensor.type);
  for (std::size_t at = 0; at < tensor.bytes.size(); at += width) std::memcpy(tensor.bytes.data() + at, &bits, width);
}

/// Elements to compare: corners first, then random ones of which many lie on a border, where remainders are handled.
std::vector<std::int64_t> choose_elements(const std::vector<std::int64_t>& shape, std::int64_t count, CounterRandom random) {
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
constexpr std::size_t kEnoughSamples = 64;
constexpr double kSampleSeconds = 0.3;
constexpr std::size_t kSequential = 4;  ///< samples after which it is known what one takes
constexpr double kWorthForking_s = 0.03;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// What forked evaluators write into.
struct SharedValue {
  enum State : int { unknown, unwritten, known } state;
  double value;
};

/// Evaluates every `stride`-th element from `first` on, until enough are done and the time is up.
void evaluate_stride(Reference& reference, const std::string& tensor, const std::vector<std::int64_t>& elements,
                     std::size_t first, std::size_t stride, bool limited, SharedValue* values) {
  const auto start = Clock::now();
  for (std::size_t k = first; k < elements.size(); k += stride) {
    if (limited && k >= kEnoughSamples && seconds_since(start) > kSampleSeconds) return;
    const auto value = reference.value(tensor, elements[k], kBackwardLimit);
    values[k] = {value ? SharedValue::known : SharedValue::unwritten, value.value_or(0)};
  }
}

/// Evaluates elements from `first` on in forked processes, one a core. False when one of them failed: the caller then
/// evaluates by itself and meets the error.
bool evaluate_forked(Reference& reference, const std::string& tensor, const std::vector<std::int64_t>& elements,
                     std::size_t first, SharedValue* values) {
  const std::size_t processes = std::min<std::size_t>(static_cast<std::size_t>(host_threads()), elements.size() - first);
  std::vector<pid_t> children;
  for (std::size_t p = 0; p < processes; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        evaluate_stride(reference, tensor, elements, first + p, processes, true, values);
        _exit(0);
      } catch (...) {
        _exit(1);
      }
    }
    if (child > 0) children.push_back(child);
  }
  bool good = children.size() == processes;
  for (const pid_t child : children) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return good;
}

std::vector<OracleSample> evaluate_samples(Reference& reference, const std::string& tensor,
                                           const std::vector<std::int64_t>& elements, bool whole) {
  ByteBuffer shared(std::max<std::size_t>(elements.size(), 1) * sizeof(SharedValue));
  auto* values = reinterpret_cast<SharedValue*>(shared.data());
  std::size_t done = 0;
  if (!whole && elements.size() > kSequential && host_threads() > 1) {
    // The first ones also compile what all others need, once.
    const auto start = Clock::now();
    evaluate_stride(reference, tensor, {elements.begin(), elements.begin() + kSequential}, 0, 1, false, values);
    done = kSequential;
    const double expected = seconds_since(start) / kSequential * static_cast<double>(elements.size() - done);
    if (expected > kWorthForking_s && evaluate_forked(reference, tensor, elements, done, values)) done = elements.size();
  }
  if (done < elements.size()) evaluate_stride(reference, tensor, elements, done, 1, !whole, values);
  std::vector<OracleSample> result;
  for (std::size_t k = 0; k < elements.size(); ++k) {
    if (values[k].state == SharedValue::known) result.push_back({tensor, elements[k], values[k].value});
  }
  return result;
}

}  // namespace

double HostTensor::get(std::int64_t linear) const { return load_element(type, bytes.data(), linear); }
void HostTensor::set(std::int64_t linear, double value) { store_element(type, bytes.data(), linear, value); }
std::int64_t HostTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

HostTensors make_inputs(const Nest& nest, const Sizes& sizes, std::uint64_t seed) {
  HostTensors arguments;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::temporary) continue;
    HostTensor data{tensor.name, tensor.type, shape_at(tensor, sizes), {}};
    if (tensor.role == TensorRole::input) {
      data.bytes.resize(static_cast<std::size_t>(data.elements()) * size_in_bytes(tensor.type));
      fill_random(tensor.type, data.bytes.data(), data.elements(), seed_for(tensor.name, seed));
    }
    arguments.emplace(tensor.name, std::move(data));
  }
  return arguments;
}

HostTensors make_arguments(const Nest& nest, const Sizes& sizes, std::uint64_t seed) {
  HostTensors arguments = make_inputs(nest, sizes, seed);
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::output) continue;
    HostTensor& data = arguments.at(tensor.name);
    data.bytes.resize(static_cast<std::size_t>(data.elements()) * size_in_bytes(tensor.type));
    fill_poison(data);
  }
  return arguments;
}

std::vector<OracleSample> reference_samples(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                                            const HostTensors& inputs, std::int64_t samples, std::uint64_t seed) {
  Reference reference(nest, sizes, scalars, inputs);
  const bool whole = !reference.backward_possible() || reference.full_cost() <= kCheap;
  if (whole) reference.evaluate_all(kFullLimit);
  std::vector<OracleSample> result;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::output) continue;
    const auto elements = choose_elements(reference.shape(tensor.name), whole ? kAllElements : samples,
                                          CounterRandom(seed_for(tensor.name, ~seed)));
    for (OracleSample& sample : evaluate_samples(reference, tensor.name, elements, whole)) result.push_back(std::move(sample));
  }
  return result;
}

namespace {

/// Of each output: the median magnitude of its finite samples, and at least 1.
std::map<std::string, double> typical_magnitudes(const std::vector<OracleSample>& samples) {
  std::map<std::string, std::vector<double>> magnitudes;
  for (const OracleSample& sample : samples) {
    if (std::isfinite(sample.value)) magnitudes[sample.tensor].push_back(std::fabs(sample.value));
  }
  std::map<std::string, double> result;
  for (const auto& [name, values] : magnitudes) result[name] = std::max(1.0, median(values));
  return result;
}

}  // namespace

double worst_error(const std::vector<OracleSample>& samples, const HostTensors& results, std::string* where) {
  const std::map<std::string, double> typical = typical_magnitudes(samples);
  double worst = 0, magnitude = 1;
  const HostTensor* tensor = nullptr;
  for (const OracleSample& sample : samples) {
    if (!tensor || tensor->name != sample.tensor) {
      tensor = &results.at(sample.tensor);
      const auto found = typical.find(sample.tensor);
      magnitude = found == typical.end() ? 1 : found->second;
    }
    const double expected = round_to(tensor->type, sample.value);
    const double got = tensor->get(sample.linear);
    double error = std::fabs(got - expected) / (magnitude + std::fabs(expected));
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
        index.insert(0, fmt::format("{}{}", rest % tensor->shape[d], index.empty() ? "" : ", "));
      }
      *where = fmt::format("{}[{}] is {:.7g}, should be {:.7g}", sample.tensor, index, got, expected);
    }
  }
  return worst;
}

}  // namespace nestor
