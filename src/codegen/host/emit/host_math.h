// Elementary functions on x86-64: the shared polynomials, a shorter erf, exponentials by a table in a register where the CPU has
// AVX-512, and f16 conversion in integers where it has no F16C.
#pragma once

#include "codegen/llvm/math_emit.h"

namespace nestor {

class HostMath : public MathEmitter {
 public:
  /// What of the CPU's instructions these functions may use.
  struct Features {
    bool f16c = false;
    bool avx512 = false;  ///< AVX-512F
  };
  explicit HostMath(Features features) : has_(features) {}
  /// < 1.5 ulp. With AVX-512 vectors of 16 take 2^(k/16) from a register and a short polynomial for the rest. Results below
  /// 2^-126 are rounded to subnormal numbers then.
  Value* exp(Builder& b, Value* x) const override;
  Value* exp2(Builder& b, Value* x) const override;
  /// < 6 ulp (relative error below 3.6e-7): one quotient of polynomials for all x. It has half the latency of the shared,
  /// more precise form, and latency is what bounds maps of erf on a CPU.
  Value* erf(Builder& b, Value* x) const override;
  Value* widen_f16(Builder& b, Value* half) const override;
  Value* narrow_f16(Builder& b, Value* x) const override;

 private:
  bool has_table(const Value* x) const;

  Features has_;
};

}  // namespace nestor
