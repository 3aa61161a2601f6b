// Elementary functions and 16-bit conversions as inlined IR, for scalars and vectors alike; no library is called.
// A back end overrides what its hardware does better.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>

namespace nestor {

/// Values are f32 (`float` or <W x float>) unless said otherwise; f16 values are `half`, bf16 values are i16 bit patterns.
/// Errors are in units in the last place of f32, over the whole range; results below 2^-126 of exp and exp2 become 0.
class MathEmitter {
 public:
  virtual ~MathEmitter() = default;
  using Builder = llvm::IRBuilderBase;
  using Value = llvm::Value;

  virtual Value* exp(Builder& b, Value* x) const;            ///< < 1.5 ulp; exp(-inf) = 0, overflow is inf
  virtual Value* exp2(Builder& b, Value* x) const;           ///< < 1.5 ulp
  virtual Value* log(Builder& b, Value* x) const;            ///< < 1.5 ulp; subnormals included
  virtual Value* tanh(Builder& b, Value* x) const;           ///< < 3 ulp
  virtual Value* erf(Builder& b, Value* x) const;            ///< < 3 ulp
  virtual Value* one_plus_tanh(Builder& b, Value* x) const;  ///< absolute error < 2^-21
  virtual Value* one_plus_erf(Builder& b, Value* x) const;   ///< absolute error < 2^-21
  virtual Value* sin(Builder& b, Value* x) const;            ///< < 2 ulp; arguments of any size
  virtual Value* cos(Builder& b, Value* x) const;            ///< < 2 ulp; arguments of any size
  virtual Value* log1p(Builder& b, Value* x) const;          ///< < 3 ulp
  virtual Value* expm1(Builder& b, Value* x) const;          ///< < 2 ulp
  virtual Value* atan(Builder& b, Value* x) const;           ///< < 4 ulp
  virtual Value* pow(Builder& b, Value* x, Value* y) const;  ///< computed in f64: < 1 ulp
  virtual Value* sqrt(Builder& b, Value* x) const;
  virtual Value* rsqrt(Builder& b, Value* x) const;                                   ///< 1/sqrt(x), two roundings
  virtual Value* rsqrt_of_normal(Builder& b, Value* x) const { return rsqrt(b, x); }  ///< of what is not below 2^-126
  virtual Value* reciprocal_of_normal(Builder& b, Value* x) const;                    ///< 1/x, likewise
  virtual Value* divide(Builder& b, Value* x, Value* y) const;
  virtual Value* floor(Builder& b, Value* x) const;
  virtual Value* minimum(Builder& b, Value* x, Value* y) const;  ///< NaN if either is; which zero wins is not said
  virtual Value* maximum(Builder& b, Value* x, Value* y) const;

  /// A value as memory would hold it: a product is not made part of an fma. Meant by a cast from f32 to f32.
  virtual Value* rounded(Builder& b, Value* x) const;

  virtual Value* widen_f16(Builder& b, Value* half) const;   ///< exact
  virtual Value* narrow_f16(Builder& b, Value* x) const;     ///< round to nearest even
  virtual Value* widen_bf16(Builder& b, Value* bits) const;  ///< exact
  virtual Value* narrow_bf16(Builder& b, Value* x) const;    ///< round to nearest even
  virtual Value* to_i32(Builder& b, Value* x) const;         ///< towards zero, saturating, NaN gives 0

 protected:
  /// An angle as quarters of a turn.
  struct Quarters {
    Value* angle;  ///< f32, about -pi/4 to pi/4: what is left of them
    Value* count;  ///< an integer; its lowest two bits count
  };
  /// For arguments of any size.
  virtual Quarters quarters_of(Builder& b, Value* x) const;

  /// x^y from `power`, |x|^y where |x| is not 1: signs, and what is not a real number. A negative base keeps its sign for odd integers
  /// and has no real power otherwise.
  Value* signed_power(Builder& b, Value* x, Value* y, Value* power) const;
};

/// The sum of coefficients[k] x^k by Horner's rule.
llvm::Value* polynomial(llvm::IRBuilderBase& b, llvm::Value* x, std::span<const double> coefficients);

/// `type` for one value, or <lanes of `like` x type>.
llvm::Type* type_like(llvm::Type* type, llvm::Value* like);

}  // namespace nestor
