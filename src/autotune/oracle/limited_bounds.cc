// A recurrence is evaluated once more, with roundings, where bounds are cut.
#include "autotune/oracle/limited_bounds.h"

#include "autotune/oracle/reference.h"

namespace nestor {

void limit_bounds_of(const Reference& reference, const HostTensors& inputs, std::vector<OracleSample>& samples, const Nest& nest,
                     bool narrows, int processes) {
  std::vector<OracleSample> limited = samples;
  const bool recurrent = reference.recurrent();
  if (!limit_bounds(limited, nest, narrows, recurrent) || !recurrent) {
    samples = std::move(limited);
    return;
  }
  Reference again = reference.copy_for(inputs);
  again.evaluate_rounded(kFullLimit, processes);
  std::vector<double> rounded;
  for (const OracleSample& sample : samples)
    rounded.push_back(again.value(sample.tensor, sample.linear, kFullLimit).value_or(sample.value));
  limit_bounds(samples, nest, narrows, recurrent, rounded);
}

}  // namespace nestor
