// Bytes of a nest's arguments at given sizes, before any of them is allocated.
#pragma once

#include "poly/nest/nest.h"

#include <cstdint>

namespace nestor {

/// The largest number where a sum does not fit 64 bits.
struct ArgumentBytes {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t largest = 0;   ///< of one argument
  std::int64_t computed = 0;  ///< elements of outputs and temporaries, which the definition computes in double
  std::int64_t all() const;   ///< of all arguments
};

ArgumentBytes argument_bytes(const Nest& nest, const Sizes& sizes);

/// "layernorm (f32) at rows=4096, width=1024": what refusals begin with.
std::string problem_text(const Nest& nest, const Sizes& sizes);

}  // namespace nestor
