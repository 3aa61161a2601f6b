// How far results are off, and how far they may be.
#include "autotune/oracle/sample_error.h"

#include "autotune/oracle/error_sum.h"
#include "poly/algebra/values/polynomial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>

namespace nestor {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Half the distance of the numbers of a type around `value`.
double half_step(ElementType type, double value) {
  const double unit = unit_roundoff(type);
  if (unit == 0 || !std::isfinite(value)) return 0;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int least = type == ElementType::f16 ? -13 : -125;
  return std::ldexp(unit, (value == 0 ? least : std::max(exponent, least)) - 1);
}

/// Whether integers of tensors become floats: of any size, as -1e4 (1 - mask) with numbers where a model has 0 and 1.
bool has_floats_of_integers(const Nest& nest) {
  bool found = false;
  for (const Statement& statement : nest.statements) {
    statement.value.visit([&](const ScalarExpr& e) {
      if (e.op() != ScalarOp::cast || !is_float(e.type()) || is_float(e.args()[0].type())) return;
      e.args()[0].visit([&](const ScalarExpr& part) { found = found || part.op() == ScalarOp::read; });
    });
  }
  return found;
}

/// Whether a value has a step function of floats: a kernel that rounds otherwise may be a whole step away.
bool has_step(const ScalarExpr& value) {
  bool found = false;
  value.visit([&](const ScalarExpr& e) {
    const bool truncates = e.op() == ScalarOp::cast && !is_float(e.type()) && e.type() != ElementType::boolean;
    found = found || e.op() == ScalarOp::floor || (truncates && is_float(e.args()[0].type()));
  });
  return found;
}

bool has_quotient(const ScalarExpr& value) {
  bool found = false;
  value.visit([&](const ScalarExpr& e) {
    found = found || e.op() == ScalarOp::rsqrt || e.op() == ScalarOp::pow ||
            (e.op() == ScalarOp::div && e.args()[1].op() != ScalarOp::constant);
  });
  return found;
}

/// Tensors of values with something, and those that are made of them.
template <class Has>
std::set<std::string> tensors_made_of(const Nest& nest, const Has& has) {
  std::set<std::string> found;
  for (std::size_t before = 1, now = 0; before != now; now = found.size()) {
    before = found.size();
    for (const Statement& statement : nest.statements) {
      const bool reads_one = std::any_of(statement.reads.begin(), statement.reads.end(),
                                         [&](const Access& read) { return found.contains(read.tensor); });
      if (reads_one || has(statement.value)) found.insert(statement.write.tensor);
    }
  }
  return found;
}

/// By sample: `times` what rounding did to samples of its output whose bounds are no larger. In recurrences those are of as many steps.
std::vector<double> amplified_rounding(const std::vector<OracleSample>& samples, const std::vector<double>& rounded,
                                       double times) {
  std::vector<std::size_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return samples[a].bound < samples[b].bound; });
  std::vector<double> amplified(samples.size());
  std::map<std::string, double> most;
  for (const std::size_t k : order) {
    double& found = most[samples[k].tensor];
    const double distance = std::fabs(rounded[k] - samples[k].value);
    if (std::isfinite(samples[k].value)) found = std::max(found, std::isfinite(distance) ? distance : kInfinite);
    amplified[k] = times * found;
  }
  return amplified;
}

}  // namespace

std::map<std::string, Typical> typical_of(const std::vector<OracleSample>& samples) {
  struct Sums {
    double magnitude = 0, finite = 0, bound = 0, bounded = 0;
  };
  std::map<std::string, Sums> sums;
  for (const OracleSample& sample : samples) {
    if (!std::isfinite(sample.value)) continue;
    Sums& of = sums[sample.tensor];
    of.magnitude += std::fabs(sample.value);
    ++of.finite;
    if (!std::isfinite(sample.bound)) continue;
    of.bound += sample.bound;
    ++of.bounded;
  }
  std::map<std::string, Typical> result;
  for (const auto& [name, of] : sums)
    result[name] = {std::max(1.0, of.magnitude / of.finite), of.bounded > 0 ? of.bound / of.bounded : 0};
  return result;
}

bool limit_bounds(std::vector<OracleSample>& samples, const Nest& nest, bool narrows, bool recurrent,
                  const std::vector<double>& rounded) {
  constexpr double kOtherOrders = 64, kOtherOperands = 8;  ///< roundings to f32, and of operands to 16 bits, that kernels choose
  if (has_floats_of_integers(nest)) return false;
  const std::vector<double> amplified = rounded.empty()
                                            ? std::vector<double>(samples.size())
                                            : amplified_rounding(samples, rounded, narrows ? kOtherOperands : kOtherOrders);
  bool cut = false;
  const std::map<std::string, Typical> typical = typical_of(samples);
  const std::set<std::string> steps = tensors_made_of(nest, has_step), quotients = tensors_made_of(nest, has_quotient);
  for (std::size_t k = 0; k < samples.size(); ++k) {
    OracleSample& sample = samples[k];
    if (steps.contains(sample.tensor) || !std::isfinite(sample.value) || !std::isfinite(sample.bound)) continue;
    // What f32 makes of large sums, or of a quotient by a sum that cancels, is off by more, whoever computes it.
    constexpr double kOfSums = 64, kOfQuotients = 1e4;
    const Typical& usual = typical.at(sample.tensor);
    double factor = 1;
    if (nest.tensor(sample.tensor).tolerance) {
      // It says itself how far results may be off.
    } else if (!narrows) {
      factor = quotients.contains(sample.tensor) ? kOfQuotients : kOfSums;
    } else if (!recurrent && usual.bound > 0) {
      // Estimates of 16-bit rounding are wide, and still tell which elements have the larger terms: exponentials differ widely.
      factor = std::max(1.0, sample.bound / usual.bound);
    }
    const double limit = factor * nest.tolerance_of(sample.tensor) * (usual.magnitude + std::fabs(sample.value));
    const double most = std::max(limit, amplified[k]);
    if (most >= kNearOverflow && sample.bound + std::fabs(sample.value) >= kInfiniteFrom) {
      sample.bound = kInfinite;
      continue;
    }
    cut = cut || most < sample.bound;
    sample.bound = std::min(sample.bound, most);
  }
  return cut;
}

ResultRange allowed_results(ElementType type, const OracleSample& sample) {
  const double allowed = sample.bound + half_step(type, sample.value);
  return {sample.value - allowed, sample.value + allowed};
}

double error_fraction(const HostTensor& tensor, const OracleSample& sample, std::uint32_t generation) {
  if (is_poison(tensor.type, tensor.bytes.data(), sample.linear, generation)) return kInfinite;
  if (sample.bound == kInfinite) return 0;
  const double got = tensor.get(sample.linear);
  if (std::isnan(sample.value) || std::isnan(got)) return std::isnan(sample.value) && std::isnan(got) ? 0 : kInfinite;
  const double allowed = sample.bound + half_step(tensor.type, sample.value);
  const double distance = got == sample.value ? 0 : std::fabs(got - sample.value);
  if (distance <= sample.bound) return allowed == 0 ? 0 : distance / allowed;
  if (got == round_to(tensor.type, sample.value)) return 0;
  const bool right =
      got >= round_to(tensor.type, sample.value - sample.bound) && got <= round_to(tensor.type, sample.value + sample.bound);
  const double off = distance / allowed;
  if (right) return std::isfinite(off) ? std::min(off, 1.0) : 1.0;
  constexpr double kJustWrong = 1.001;
  return std::isnan(off) ? kInfinite : std::max(off, kJustWrong);
}

std::string describe_error(const HostTensor& tensor, const OracleSample& sample) {
  std::string index;
  std::int64_t rest = sample.linear;
  for (std::size_t d = tensor.shape.size(); d-- > 0; rest /= tensor.shape[d]) {
    index.insert(0, fmt::format("{}{}", rest % tensor.shape[d], index.empty() ? "" : ", "));
  }
  return fmt::format("{}[{}] is {:.7g}, should be {:.7g} (within {:.2g})", sample.tensor, index, tensor.get(sample.linear),
                     round_to(tensor.type, sample.value), sample.bound + half_step(tensor.type, sample.value));
}

bool only_loses_infinities(const std::vector<OracleSample>& samples, const HostTensors& results, std::uint32_t generation) {
  return std::all_of(samples.begin(), samples.end(), [&](const OracleSample& sample) {
    const HostTensor& tensor = results.at(sample.tensor);
    if (error_fraction(tensor, sample, generation) <= 1) return true;
    return std::isinf(sample.value) && std::isnan(tensor.get(sample.linear)) &&
           !is_poison(tensor.type, tensor.bytes.data(), sample.linear, generation);
  });
}

double worst_error(const std::vector<OracleSample>& samples, const HostTensors& results, std::string* where,
                   std::uint32_t generation) {
  double worst = 0;
  const HostTensor* tensor = nullptr;
  for (const OracleSample& sample : samples) {
    if (!tensor || tensor->name != sample.tensor) tensor = &results.at(sample.tensor);
    const double error = error_fraction(*tensor, sample, generation);
    if (error <= worst) continue;
    worst = error;
    if (where) *where = describe_error(*tensor, sample);
  }
  return worst;
}

}  // namespace nestor
