// Elementary functions on x86-64: the shared polynomials, a shorter erf, and f16 conversion in integers where the CPU has no F16C.
#pragma once

#include "codegen/llvm/math_emit.h"

namespace nestor {

class HostMath : public MathEmitter {
 public:
  explicit HostMath(bool has_f16c) : has_f16c_(has_f16c) {}
  /// < 6 ulp (relative error below 3.6e-7): one quotient of polynomials for all x. It has half the latency of the shared,
  /// more precise form, and latency is what bounds maps of erf on a CPU.
  Value* erf(Builder& b, Value* x) const override;
  Value* widen_f16(Builder& b, Value* half) const override;
  Value* narrow_f16(Builder& b, Value* x) const override;

 private:
  bool has_f16c_;
};

}  // namespace nestor
