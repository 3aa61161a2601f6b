// What samples of a time say.
#pragma once

#include <vector>

namespace nestor {

/// Median; the mean of the middle two of an even number. 0 when empty.
double median(std::vector<double> samples);

/// A median with its 95 % confidence interval, from order statistics: no assumption about how times are distributed.
struct MedianInterval {
  double median = 0;
  double lower = 0;
  double upper = 0;
  /// Half the interval's width, relative to the median; infinite below 6 samples, which can give no such confidence.
  double relative_half_width() const;
  int samples = 0;
};
MedianInterval median_interval(std::vector<double> samples);

}  // namespace nestor
