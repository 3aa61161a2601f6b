// Elementary functions and 16-bit conversions by the GPU's own instructions.
#pragma once

#include "codegen/llvm/math_emit.h"

#include <array>
#include <optional>
#include <utility>

namespace nestor::nvptx {

/// Overrides where the hardware is faster. Errors by NVIDIA's PTX manual: ex2.approx.ftz 2 ulp (results below 2^-126 are 0), rsqrt.approx 2^-22.9 relative,
/// div.full 2 ulp, lg2.approx 2^-22 absolute near 1, rcp.approx 1 ulp, tanh.approx 2^-11 relative. exp(x) = ex2(x log2 e) adds
/// |x| 2^-24 of relative error. `exact`, for results that are not rounded to 16 bits, has exp within 3.2 ulp (1.2 more than
/// ex2.approx), log within 1.5 ulp, rsqrt within 1 ulp and rounded quotients (reciprocals
/// of normal numbers, too, but 0 from 2^126 on); an exponential takes 5 instructions more.
class NvptxMath : public MathEmitter {
 public:
  explicit NvptxMath(bool exact = false) : exact_(exact) {}
  Value* exp(Builder& b, Value* x) const override;
  Value* exp2(Builder& b, Value* x) const override;
  Value* log(Builder& b, Value* x) const override;
  /// < 7 ulp: one exponential, one reciprocal. With `coarse_tanh`: tanh.approx, 2^-11 relative.
  Value* tanh(Builder& b, Value* x) const override;
  Value* one_plus_tanh(Builder& b, Value* x) const override;
  Value* one_plus_erf(Builder& b, Value* x) const override;
  Value* pow(Builder& b, Value* x, Value* y) const override;
  Value* rsqrt(Builder& b, Value* x) const override;
  Value* rsqrt_of_normal(Builder& b, Value* x) const override;
  /// ptxas makes an fma of a plain product and a sum, wherever they came from.
  Value* rounded(Builder& b, Value* x) const override;
  Value* reciprocal_of_normal(Builder& b, Value* x) const override;
  /// By a number: multiplied by its reciprocal, the rest of that once more; rounded as a quotient is.
  Value* divide(Builder& b, Value* x, Value* y) const override;
  Value* narrow_bf16(Builder& b, Value* x) const override;

  /// What a polynomial in place of ex2.approx has to test.
  struct Polynomial {
    bool limit_below = true, limit_above = true;  ///< arguments may be below -126, above 126
    Value* unit = nullptr;                        ///< exponent_unit of a value that is no number where an argument is none
  };
  /// While set, exp2 is a polynomial of degree 3 on the FMA units instead of ex2.approx: relative error below 1.1e-4 for
  /// arguments from -126 up; below, results are less than 2^-125, and 0 from -127 down. NaN, infinities and overflow as exp2 has them.
  void use_polynomial(std::optional<Polynomial> form) { polynomial_ = form; }
  /// i32: what an exponent's least bit counts, and beside a `taint` of NaN or infinity what keeps NaN and makes next to nothing of arguments
  /// of minus infinity. `bounded_below`: they are relative to the larger one of `taint` and a number, so minus infinity is none.
  static Value* exponent_unit(Builder& b, Value* taint, bool bounded_below);

  /// Two f32 values as one i32 of two f16 or bf16, the first in the low half; one instruction.
  Value* pack_f16(Builder& b, Value* low, Value* high) const;
  Value* pack_bf16(Builder& b, Value* low, Value* high) const;

  /// Two f32 values as sums of two 16-bit numbers each, packed like the values: words of the first numbers, and of the second ones. Both numbers
  /// have the value's sign, and none is 0 unless the value is (or vanishes in 16 bits): what multiplies them sees the same infinities as the
  /// value would. Their sum is off by 2^-16 (bf16) or 2^-22 (f16, and 2^-24 beside) of the value at most. Infinities and NaN stay.
  std::pair<Value*, Value*> halves(Builder& b, bool f16, const std::array<Value*, 2>& values) const;

  bool coarse_tanh = false;  ///< set where results are rounded to bf16

 protected:
  /// In f32 up to 2^16, beyond in a branch of its own.
  Quarters quarters_of(Builder& b, Value* x) const override;

 private:
  /// f32 to {f32, i32}: what quarters_of returns, in a function of the module.
  llvm::Function* function_of_quarters(llvm::Module& module) const;
  Value* better_root(Builder& b, Value* x, Value* guess) const;

  bool exact_;
  std::optional<Polynomial> polynomial_;
};

}  // namespace nestor::nvptx
