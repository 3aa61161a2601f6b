// Oracle: a nest's own definition, evaluated in double, point by point.
#pragma once

#include "autotune/oracle/sample_error.h"
#include "autotune/tensors/host_tensor.h"
#include "poly/nest/nest.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// Reference values with bounds: every output element when cheap enough, else `samples` elements chosen at random, corners included,
/// and as many random runs of neighbouring elements as a fraction of a second allows.
/// Evaluates backwards from the sampled element, remembering temporaries; on all cores, in forked processes, when that takes
/// long. Processes share what one element needs, where that takes long (shared_elements.h). No other thread may run meanwhile. Bounds are
/// those of running error analysis (value_errors.h), as limit_bounds() cuts them. Empty as soon as `stop` is set.
std::vector<OracleSample> reference_samples(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                                            const HostTensors& inputs, std::int64_t samples, std::uint64_t seed,
                                            const std::atomic<bool>* stop = nullptr);

/// Samples at sizes at which some outputs may be too expensive.
struct AffordableSamples {
  std::vector<OracleSample> samples;
  std::vector<std::string>
      left_out;  ///< outputs of which one element takes too long: what kernels make of them shows at smaller sizes alone
};

/// reference_samples() of the outputs that are not too expensive: a mean over large products is. `seconds`: that they may take, about; where all
/// outputs take longer, and for 0, none is left out for that.
AffordableSamples affordable_samples(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                                     const HostTensors& inputs, std::int64_t samples, std::uint64_t seed, double seconds,
                                     const std::atomic<bool>* stop = nullptr);

/// Some elements of each output, as reference_samples() chooses and bounds them, but the first and the last ones before others, within about
/// a second, or three where one element needs most of the definition; in the calling thread alone: other threads may run.
/// Bounds are those of error analysis alone. The definition must be such that it can be evaluated backwards.
std::vector<OracleSample> some_samples(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                                       const HostTensors& inputs, std::int64_t samples, std::uint64_t seed);

class Reference;

/// All output elements of a reference that was evaluated in full; bounds are those of error analysis alone.
std::vector<OracleSample> all_samples(Reference& reference, const Nest& nest, std::int64_t most);

}  // namespace nestor
