// Counting compared elements, and what they leave open.
#include "autotune/check/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace nestor {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// The compared elements of one output, in one case.
struct OutputSamples {
  std::int64_t elements = 0;
  std::int64_t promised = 0;                 ///< their bounds are finite
  std::int64_t no_numbers = 0;               ///< infinite, NaN, or anything
  ResultRange range{-kInfinite, kInfinite};  ///< numbers between pass for all of them
  bool has_nan = false;

  void take(ElementType type, const OracleSample& sample) {
    ++elements;
    if (sample.bound == kInfinite || !std::isfinite(sample.value)) ++no_numbers;
    if (sample.bound == kInfinite) return;
    ++promised;
    has_nan = has_nan || std::isnan(sample.value);
    const ResultRange allowed = allowed_results(type, sample);
    range = {std::max(range.lowest, allowed.lowest), std::min(range.highest, allowed.highest)};
  }
  bool may_be_constant() const { return !has_nan && range.lowest <= range.highest; }
  /// 0, 1 or -1 where one of them passes, else some number that does.
  double constant() const {
    for (const double number : {0.0, 1.0, -1.0}) {
      if (range.lowest <= number && number <= range.highest) return number;
    }
    return std::isfinite(range.lowest) && std::isfinite(range.highest) ? range.lowest + (range.highest - range.lowest) / 2
                                                                       : range.lowest;
  }
};

std::map<std::string, OutputSamples> by_output(const std::vector<OracleSample>& samples, const Nest& nest) {
  std::map<std::string, OutputSamples> outputs;
  OutputSamples* of = nullptr;
  const Tensor* tensor = nullptr;
  for (const OracleSample& sample : samples) {  // those of an output stand together
    if (!tensor || tensor->name != sample.tensor) {
      tensor = &nest.tensor(sample.tensor);
      of = &outputs[sample.tensor];
    }
    of->take(tensor->type, sample);
  }
  return outputs;
}

void add(OutputComparison& to, const OutputComparison& other) {
  to.elements += other.elements;
  to.promised += other.promised;
  to.differs = to.differs || other.differs;
}

/// Outputs most of whose results may be anything, or are no numbers.
std::string numbers_note(const std::map<std::string, OutputSamples>& outputs) {
  for (const auto& [tensor, of] : outputs) {
    if (2 * of.no_numbers <= of.elements) continue;
    return fmt::format(
        "{} of {} compared elements of {} at the tuned sizes are infinite, NaN or may overflow with random inputs, which tells "
        "little; data of "
        "other kinds are compared at small sizes",
        of.no_numbers, of.elements, tensor);
  }
  return "";
}

std::string amplification_note(const std::vector<OracleSample>& samples, const Nest& nest) {
  const auto needs_steps = [&](const Statement& statement) {
    return std::any_of(nest.statements.begin(), nest.statements.end(), [&](const Statement& other) {
      return other.group == statement.group && std::any_of(statement.reads.begin(), statement.reads.end(),
                                                           [&](const Access& read) { return read.tensor == other.write.tensor; });
    });
  };
  if (std::none_of(nest.statements.begin(), nest.statements.end(), needs_steps)) return "";
  const std::map<std::string, Typical> typical = typical_of(samples);
  const auto says_nothing = [&](const OracleSample& sample) {
    return std::isfinite(sample.value) && sample.bound > 2 * (typical.at(sample.tensor).magnitude + std::fabs(sample.value));
  };
  const auto count = static_cast<std::size_t>(std::count_if(samples.begin(), samples.end(), says_nothing));
  if (2 * count <= samples.size()) return "";
  return fmt::format(
      "steps amplify rounding: {} of {} elements at the tuned sizes may be off by more than they are, what tells is the check at "
      "small sizes",
      count, samples.size());
}

/// Outputs that a kernel gets right which writes one number everywhere. One element is always such a number.
std::string constant_note(const std::map<std::string, OutputSamples>& outputs, const Comparison& in_full) {
  for (const auto& [tensor, of] : outputs) {
    if (of.elements < 2 || !of.may_be_constant()) continue;
    const auto full = in_full.find(tensor);
    const bool told = full != in_full.end() && full->second.differs;
    return fmt::format(
        "all {} compared elements of {} at the tuned sizes are {:.4g}, as far as rounding tells: {}", of.elements, tensor,
        of.constant(),
        told ? "what tells is the check at small sizes" : "a kernel that writes this everywhere passes, at small sizes as well");
  }
  return "";
}

}  // namespace

Comparison compared_outputs(const std::vector<OracleSample>& samples, const Nest& nest) {
  Comparison comparison;
  for (const auto& [tensor, of] : by_output(samples, nest))
    comparison[tensor] = {of.elements, of.promised, !of.may_be_constant()};
  return comparison;
}

void add(Comparison& comparison, const Comparison& others) {
  for (const auto& [tensor, other] : others) add(comparison[tensor], other);
}

OutputComparison in_total(const Comparison& comparison) {
  OutputComparison total;
  for (const auto& [tensor, of] : comparison) add(total, of);
  return total;
}

std::string comparison_note(const std::vector<OracleSample>& samples, const Comparison& in_full, const Nest& nest) {
  std::string note = amplification_note(samples, nest);
  if (!note.empty()) return note;
  const std::map<std::string, OutputSamples> outputs = by_output(samples, nest);
  note = numbers_note(outputs);
  return note.empty() ? constant_note(outputs, in_full) : note;
}

}  // namespace nestor
