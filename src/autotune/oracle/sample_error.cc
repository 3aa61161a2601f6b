// How far results are off, and how far they may be.
#include "autotune/oracle/sample_error.h"

#include "autotune/oracle/error_sum.h"
#include "poly/algebra/values/polynomial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

namespace nestor {
namespace {

/// Of each output: the mean magnitude of its finite samples, and at least 1. A gate that is closed for most elements makes a median small,
/// and the others no more exact.
std::map<std::string, double> typical_magnitudes(const std::vector<OracleSample>& samples) {
  std::map<std::string, std::pair<double, double>> sums;  // of magnitudes, and their number
  for (const OracleSample& sample : samples) {
    if (!std::isfinite(sample.value)) continue;
    auto& [sum, count] = sums[sample.tensor];
    sum += std::fabs(sample.value);
    ++count;
  }
  std::map<std::string, double> result;
  for (const auto& [name, of] : sums) result[name] = std::max(1.0, of.first / of.second);
  return result;
}

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

}  // namespace

void limit_bounds(std::vector<OracleSample>& samples, const Nest& nest, bool narrows) {
  if (has_floats_of_integers(nest)) return;
  const std::map<std::string, double> typical = typical_magnitudes(samples);
  const std::set<std::string> steps = tensors_made_of(nest, has_step), quotients = tensors_made_of(nest, has_quotient);
  for (OracleSample& sample : samples) {
    if (steps.contains(sample.tensor) || !std::isfinite(sample.value) || !std::isfinite(sample.bound)) continue;
    // What f32 makes of large sums, or of a quotient by a sum that cancels, is off by more, whoever computes it.
    constexpr double kOfSums = 64, kOfQuotients = 1e4;
    const bool amplifies = !narrows && !nest.tensor(sample.tensor).tolerance;
    const double factor = !amplifies ? 1 : quotients.contains(sample.tensor) ? kOfQuotients : kOfSums;
    sample.bound =
        std::min(sample.bound, factor * nest.tolerance_of(sample.tensor) * (typical.at(sample.tensor) + std::fabs(sample.value)));
  }
}

double error_fraction(const HostTensor& tensor, const OracleSample& sample, std::uint32_t generation) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
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
