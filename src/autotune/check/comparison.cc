// Counting compared elements, and what they leave open.
#include "autotune/check/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace nestor {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// The numbers that pass for every element so far.
struct CommonResults {
  ResultRange range{-kInfinite, kInfinite};
  bool numbers = true;  ///< no element is NaN

  void narrow(ElementType type, const OracleSample& sample) {
    if (sample.bound == kInfinite) return;
    numbers = numbers && !std::isnan(sample.value);
    const ResultRange allowed = allowed_results(type, sample);
    range = {std::max(range.lowest, allowed.lowest), std::min(range.highest, allowed.highest)};
  }
  bool some() const { return numbers && range.lowest <= range.highest; }
  /// 0, 1 or -1 where one of them passes, else some number that does.
  double simplest() const {
    for (const double number : {0.0, 1.0, -1.0}) {
      if (range.lowest <= number && number <= range.highest) return number;
    }
    return std::isfinite(range.lowest) && std::isfinite(range.highest) ? range.lowest + (range.highest - range.lowest) / 2
                                                                       : range.lowest;
  }
};

void add(OutputComparison& to, const OutputComparison& other) {
  to.elements += other.elements;
  to.promised += other.promised;
  to.differs = to.differs || other.differs;
}

/// Outputs most of whose results may be anything, or are no numbers.
std::string numbers_note(const std::vector<OracleSample>& samples) {
  std::map<std::string, std::pair<std::size_t, std::size_t>> found;  // no numbers, all
  for (const OracleSample& sample : samples) {
    auto& [none, all] = found[sample.tensor];
    ++all;
    if (!std::isfinite(sample.value) || sample.bound == kInfinite) ++none;
  }
  for (const auto& [tensor, counts] : found) {
    if (2 * counts.first <= counts.second) continue;
    return fmt::format(
        "{} of {} compared elements of {} at the tuned sizes are infinite, NaN or may overflow with random inputs, which tells "
        "little; data of "
        "other kinds are compared at small sizes",
        counts.first, counts.second, tensor);
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

std::map<std::string, CommonResults> common_results(const std::vector<OracleSample>& samples, const Nest& nest) {
  std::map<std::string, CommonResults> common;
  CommonResults* of = nullptr;
  const Tensor* tensor = nullptr;
  for (const OracleSample& sample : samples) {  // those of an output stand together
    if (!tensor || tensor->name != sample.tensor) {
      tensor = &nest.tensor(sample.tensor);
      of = &common[sample.tensor];
    }
    of->narrow(tensor->type, sample);
  }
  return common;
}

/// Outputs that a kernel gets right which writes one number everywhere. One element is always such a number.
std::string constant_note(const std::vector<OracleSample>& samples, const Comparison& in_full, const Nest& nest) {
  const Comparison tuned = compared_outputs(samples, nest);
  for (const auto& [tensor, common] : common_results(samples, nest)) {
    const std::int64_t elements = tuned.at(tensor).elements;
    if (elements < 2 || !common.some()) continue;
    const auto full = in_full.find(tensor);
    const bool told = full != in_full.end() && full->second.differs;
    return fmt::format(
        "all {} compared elements of {} at the tuned sizes are {:.4g}, as far as rounding tells: {}", elements, tensor,
        common.simplest(),
        told ? "what tells is the check at small sizes" : "a kernel that writes this everywhere passes, at small sizes as well");
  }
  return "";
}

}  // namespace

Comparison compared_outputs(const std::vector<OracleSample>& samples, const Nest& nest) {
  Comparison comparison;
  OutputComparison* of = nullptr;
  const std::string* tensor = nullptr;
  for (const OracleSample& sample : samples) {
    if (!tensor || *tensor != sample.tensor) {
      tensor = &sample.tensor;
      of = &comparison[sample.tensor];
    }
    ++of->elements;
    of->promised += sample.bound != kInfinite ? 1 : 0;
  }
  for (const auto& [name, common] : common_results(samples, nest)) comparison.at(name).differs = !common.some();
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
  if (note.empty()) note = numbers_note(samples);
  return note.empty() ? constant_note(samples, in_full, nest) : note;
}

}  // namespace nestor
