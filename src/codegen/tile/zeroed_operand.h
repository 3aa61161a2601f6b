// What kernels multiply by 0 although their program does not.
#pragma once

#include <string>

namespace nestor {

/// An op whose code multiplies elements of a tensor by 0 at points that are none of its own: products of whole tiles do.
struct ZeroedOperand {
  std::string op, tensor;
};

}  // namespace nestor
