// Oracle: a nest's own definition, evaluated in double, point by point.
#pragma once

#include "autotune/oracle/byte_buffer.h"
#include "poly/nest/nest.h"
#include "support/element_codec.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// Dense row-major data of one argument, in its storage type.
struct HostTensor {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;
  ByteBuffer bytes;
  double get(std::int64_t linear) const;
  void set(std::int64_t linear, double value);  ///< rounds to the type
  std::int64_t elements() const;
};

using HostTensors = std::map<std::string, HostTensor>;

/// Random normal inputs (i32: small integers) and outputs filled with a poison pattern, for all arguments of `nest`.
HostTensors make_arguments(const Nest& nest, const Sizes& sizes, std::uint64_t seed);

/// The inputs alone, the same as above; outputs have a shape but no bytes.
HostTensors make_inputs(const Nest& nest, const Sizes& sizes, std::uint64_t seed);

/// Fills an output with the poison of one generation.
void fill_poison(HostTensor& tensor, std::uint32_t generation = kFirstPoison);

/// One output element where a result is compared.
struct OracleSample {
  std::string tensor;
  std::int64_t linear;
  double value;      ///< of the definition, in double, before it is rounded to the tensor's type
  double bound = 0;  ///< how far a kernel may be off by rounding, beside that to the tensor's type; infinite: nothing is promised
};

/// Reference values with bounds: every output element when cheap enough, else `samples` elements chosen at random, corners included,
/// and as many random runs of neighbouring elements as a fraction of a second allows.
/// Evaluates backwards from the sampled element, remembering temporaries; on all cores, in forked processes, when that takes
/// long. No other thread may run meanwhile. Bounds are those of running error analysis (value_errors.h), but no larger than
/// Nest::tolerance allows.
std::vector<OracleSample> reference_samples(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                                            const HostTensors& inputs, std::int64_t samples, std::uint64_t seed);

class Reference;
/// All output elements of a reference that was evaluated in full; bounds are those of error analysis alone.
std::vector<OracleSample> all_samples(Reference& reference, const Nest& nest, std::int64_t most);

/// Cuts bounds at tolerance (m + |value|), with m the median of the output's |value|, at least 1.
void limit_bounds(std::vector<OracleSample>& samples, double tolerance);

/// Error of a result as a fraction of what is allowed: at most 1 if it is a number of the type that some value within `bound` of the
/// reference rounds to, above 1 if not. Infinities and NaN are right where the definition has them; `generation` is that of the poison
/// that the output held before (support/element_codec.h), which is never right.
double error_fraction(const HostTensor& tensor, const OracleSample& sample, std::uint32_t generation = kFirstPoison);

/// The worst of them. Sets `where` to its place and the two values.
double worst_error(const std::vector<OracleSample>& samples, const HostTensors& results, std::string* where = nullptr,
                   std::uint32_t generation = kFirstPoison);

/// "y[1, 0] is 20, should be 21 (within 0.1)"
std::string describe_error(const HostTensor& tensor, const OracleSample& sample);

}  // namespace nestor
