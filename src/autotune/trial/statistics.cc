// Medians and their order-statistic confidence intervals.
#include "autotune/trial/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace nestor {
namespace {

/// Fewest samples whose extremes enclose the median with 95 % probability: 1 - 2 / 2^n.
constexpr int kFewest = 6;

double middle(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace

double median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  return middle(samples);
}

double MedianInterval::relative_half_width() const {
  if (samples < kFewest || median <= 0) return std::numeric_limits<double>::infinity();
  return (upper - lower) / 2 / median;
}

MedianInterval median_interval(std::vector<double> samples) {
  MedianInterval interval;
  if (samples.empty()) return interval;
  std::sort(samples.begin(), samples.end());
  // The number of samples below the median is binomial(n, 1/2): its normal approximation gives the ranks.
  const double count = static_cast<double>(samples.size());
  const double spread = 1.96 * std::sqrt(count) / 2;
  const auto last = static_cast<std::int64_t>(samples.size()) - 1;
  const auto below = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(count / 2 - spread)) - 1, 0, last);
  interval.lower = samples[below];
  interval.upper = samples[last - below];
  interval.median = middle(samples);
  interval.samples = static_cast<int>(samples.size());
  return interval;
}

}  // namespace nestor
