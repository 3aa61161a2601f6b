// Elementary functions on x86-64: the shared polynomials, and f16 conversion in integers where the CPU has no F16C.
#pragma once

#include "codegen/llvm/math_emit.h"

namespace nestor {

class HostMath : public MathEmitter {
 public:
  explicit HostMath(bool has_f16c) : has_f16c_(has_f16c) {}
  Value* widen_f16(Builder& b, Value* half) const override;
  Value* narrow_f16(Builder& b, Value* x) const override;

 private:
  bool has_f16c_;
};

}  // namespace nestor
