// Sample errors: results compared with reference values, as a fraction of what rounding allows.
#pragma once

#include "autotune/tensors/host_tensor.h"
#include "support/element_codec.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// One output element where a result is compared.
struct OracleSample {
  std::string tensor;
  std::int64_t linear;
  double value;      ///< of the definition, in double, before it is rounded to the tensor's type
  double bound = 0;  ///< how far a kernel may be off by rounding, beside that to the tensor's type; infinite: nothing is promised
};

/// Means of an output's samples.
struct Typical {
  double magnitude = 1;  ///< of finite ones, and at least 1
  double bound = 0;      ///< of those that have a finite one
};

/// By output. A gate that is closed for most elements makes a median small, and the others no more exact.
std::map<std::string, Typical> typical_of(const std::vector<OracleSample>& samples);

/// Results that pass lie between these, both included; a few just outside may pass, too.
struct ResultRange {
  double lowest, highest;
};
ResultRange allowed_results(ElementType type, const OracleSample& sample);

/// Cuts bounds at tolerance (m + |value|), with the output's tolerance and m the mean of its |value|, at least 1. Not for nests that
/// compute floats of integers in tensors: with large ones, rounding that the definition itself implies is beyond any such limit.
/// Nor for outputs made of step functions (floor, casts to integers), where rounding that is due may be a whole step. Where all is
/// computed in f32 and the output has no tolerance of its own, at 64 times that (sums that cancel, sines of large arguments), or 10,000
/// times for what is made of quotients: what f32 leaves of those by sums that cancel is what the bound says, whoever computes them.
/// `narrows`: may_round_operands() of the nest. A bound that is above the output's mean then raises its limit in proportion, unless the output
/// has a tolerance of its own, or the definition is `recurrent` (Reference::recurrent()): bounds of late steps say little.
/// `rounded`: of recurrences, the samples' values by Reference::evaluate_rounded(); empty: not known. Steps may amplify rounding, so
/// that no bound is cut below 64 times what that rounding does to it, or to samples of the output with smaller bounds; 8 times with `narrows`.
/// Returns whether any bound was cut. Any thread may call it: it asks isl for nothing.
bool limit_bounds(std::vector<OracleSample>& samples, const Nest& nest, bool narrows, bool recurrent = false,
                  const std::vector<double>& rounded = {});

/// Error of a result as a fraction of what is allowed: at most 1 if it is a number of the type that some value within `bound` of the
/// reference rounds to, above 1 if not. Infinities and NaN are right where the definition has them; `generation` is that of the poison
/// that the output held before (support/element_codec.h), which is never right.
double error_fraction(const HostTensor& tensor, const OracleSample& sample, std::uint32_t generation = kFirstPoison);

/// The worst of them. Sets `where` to its place and the two values.
double worst_error(const std::vector<OracleSample>& samples, const HostTensors& results, std::string* where = nullptr,
                   std::uint32_t generation = kFirstPoison);

/// Is every wrong result NaN where the definition has an infinity? A factor that vanishes when it is rounded makes that of an infinite one.
bool only_loses_infinities(const std::vector<OracleSample>& samples, const HostTensors& results,
                           std::uint32_t generation = kFirstPoison);

/// "y[1, 0] is 20, should be 21 (within 0.1)"
std::string describe_error(const HostTensor& tensor, const OracleSample& sample);

}  // namespace nestor
