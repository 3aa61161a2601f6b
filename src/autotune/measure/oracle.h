// Oracle: a nest's own definition, evaluated in double, point by point.
#pragma once

#include "autotune/measure/byte_buffer.h"
#include "poly/nest.h"

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

/// One output element where a result is compared.
struct OracleSample {
  std::string tensor;
  std::int64_t linear;
  double value;
};

/// Reference values: every output element when cheap enough, else `samples` elements chosen at random, corners included.
/// Evaluates backwards from the sampled element, remembering temporaries; on all cores, in forked processes, when that takes
/// long. No other thread may run meanwhile.
std::vector<OracleSample> reference_samples(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                                            const HostTensors& inputs, std::int64_t samples, std::uint64_t seed);

/// Worst |result - reference| / (m + |reference|) over the samples (the reference rounded to the output's type first), with m the median
/// of the output's |reference|, at least 1; infinity when a result is not a number. Sets `where` to the worst place.
double worst_error(const std::vector<OracleSample>& samples, const HostTensors& results, std::string* where = nullptr);

}  // namespace nestor
