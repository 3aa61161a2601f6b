// Elementary functions as polynomials. Coefficients: minimax fits by Remez exchange in 40 digits, rounded to f32;
// range reductions after J.-M. Muller, "Elementary Functions", 3rd ed., chapters 3 and 11.
#include "codegen/llvm/math_emit.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <limits>
#include <numbers>
#include <span>

namespace nestor {
namespace {

using llvm::Value;
using Builder = llvm::IRBuilderBase;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

llvm::Constant* number(Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }
llvm::Constant* integer(llvm::Type* type, std::int64_t value) { return llvm::ConstantInt::getSigned(type, value); }

Value* fma(Builder& b, Value* x, Value* y, Value* z) {
  return b.CreateIntrinsic(llvm::Intrinsic::fmuladd, {x->getType()}, {x, y, z});
}
Value* fabs(Builder& b, Value* x) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }

/// Which zero wins does not matter: without that, x86 takes four instructions more.
Value* extremum(Builder& b, llvm::Intrinsic::ID id, Value* x, Value* y) {
  Value* result = b.CreateBinaryIntrinsic(id, x, y);
  if (auto* call = llvm::dyn_cast<llvm::CallInst>(result)) call->setHasNoSignedZeros(true);
  return result;
}

/// Horner's rule; coefficients from the constant term upwards.
Value* polynomial(Builder& b, Value* x, std::span<const double> coefficients) {
  Value* sum = number(x, coefficients.back());
  for (std::size_t k = coefficients.size() - 1; k-- > 0;) sum = fma(b, sum, x, number(x, coefficients[k]));
  return sum;
}

llvm::Type* bits_type(Value* x) {
  return type_like(llvm::Type::getIntNTy(x->getContext(), x->getType()->getScalarSizeInBits()), x);
}

/// e^r - 1 - r = r^2 P(r) on |r| <= ln(2)/2, relative error of e^r 2^-28.
Value* exp_reduced(Builder& b, Value* r) {
  constexpr double kP[] = {4.999999404e-01, 1.666652113e-01, 4.166838899e-02, 8.368745446e-03, 1.381453825e-03};
  Value* square = b.CreateFMul(r, r);
  return b.CreateFAdd(fma(b, polynomial(b, r, kP), square, r), number(r, 1));
}

/// Adding 1.5*2^23 leaves the nearest integer in the low bits; shifted left by 23 it is an exponent to add.
constexpr double kRounder = 12582912.0;

Value* add_exponent(Builder& b, Value* mantissa, Value* rounded) {
  llvm::Type* type = bits_type(mantissa);
  Value* exponent = b.CreateShl(b.CreateBitCast(rounded, type), integer(type, 23));
  return b.CreateBitCast(b.CreateAdd(b.CreateBitCast(mantissa, type), exponent), mantissa->getType());
}

/// Results outside the normal range: 0 below `low`, inf above `high`, NaN for NaN.
Value* clamp_result(Builder& b, Value* x, Value* result, double low, double high) {
  result = b.CreateSelect(b.CreateFCmpUGT(x, number(x, high)), b.CreateFMul(x, number(x, kInfinity)), result);
  return b.CreateSelect(b.CreateFCmpOLT(x, number(x, low)), number(x, 0), result);
}

/// Splits positive normal x = m * 2^e with sqrt(1/2) <= m < sqrt(2), after scaling subnormals. e is returned as a float.
std::pair<Value*, Value*> split_exponent(Builder& b, Value* x, int mantissa_bits, std::int64_t root_half_bits) {
  llvm::Type* type = bits_type(x);
  Value* bits = b.CreateBitCast(x, type);
  Value* shifted = b.CreateSub(bits, integer(type, root_half_bits));
  Value* exponent = b.CreateAShr(shifted, integer(type, mantissa_bits));
  Value* mantissa = b.CreateSub(bits, b.CreateShl(exponent, integer(type, mantissa_bits)));
  return {b.CreateBitCast(mantissa, x->getType()), b.CreateSIToFP(exponent, x->getType())};
}

}  // namespace

llvm::Type* type_like(llvm::Type* type, Value* like) {
  if (const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like->getType())) {
    return llvm::FixedVectorType::get(type, vector->getNumElements());
  }
  return type;
}

Value* MathEmitter::exp(Builder& b, Value* x) const {
  // ln(2) = 0.693359375 - 2.12194440e-4: the first product is exact for |n| < 2^14.
  Value* shifted = fma(b, x, number(x, std::numbers::log2e), number(x, kRounder));
  Value* n = b.CreateFSub(shifted, number(x, kRounder));
  Value* r = fma(b, n, number(x, -0.693359375), x);
  r = fma(b, n, number(x, 2.12194440054690583e-4), r);
  return clamp_result(b, x, add_exponent(b, exp_reduced(b, r), shifted), -87.3365447505, 88.7228390520);
}

Value* MathEmitter::exp2(Builder& b, Value* x) const {
  constexpr double kQ[] = {6.931471825e-01, 2.402264774e-01, 5.550332367e-02, 9.618437849e-03, 1.339892624e-03, 1.535331976e-04};
  Value* shifted = b.CreateFAdd(x, number(x, kRounder));
  Value* n = b.CreateFSub(shifted, number(x, kRounder));
  Value* r = b.CreateFSub(x, n);
  Value* mantissa = fma(b, polynomial(b, r, kQ), r, number(x, 1));
  return clamp_result(b, x, add_exponent(b, mantissa, shifted), -126.0, 127.9999924);
}

Value* MathEmitter::log(Builder& b, Value* x) const {
  constexpr double kP[] = {3.333331347e-01,  -2.500000894e-01, 2.000212669e-01,  -1.666800082e-01, 1.421938837e-01,
                           -1.240536198e-01, 1.188923866e-01,  -1.167765483e-01, 6.746630371e-02};
  Value* tiny = b.CreateFCmpOLT(x, number(x, 0x1p-126));
  Value* scaled = b.CreateSelect(tiny, b.CreateFMul(x, number(x, 0x1p23)), x);
  auto [m, e] = split_exponent(b, scaled, 23, 0x3f3504f3);
  e = b.CreateFSub(e, b.CreateSelect(tiny, number(x, 23), number(x, 0)));
  Value* f = b.CreateFSub(m, number(x, 1));
  Value* square = b.CreateFMul(f, f);
  Value* tail = b.CreateFMul(polynomial(b, f, kP), b.CreateFMul(square, f));
  tail = fma(b, e, number(x, -2.12194440054690583e-4), tail);
  tail = fma(b, square, number(x, -0.5), tail);
  Value* result = fma(b, e, number(x, 0.693359375), b.CreateFAdd(f, tail));
  result = b.CreateSelect(b.CreateFCmpOEQ(x, number(x, kInfinity)), x, result);
  result = b.CreateSelect(b.CreateFCmpOEQ(x, number(x, 0)), number(x, -kInfinity), result);
  return b.CreateSelect(b.CreateFCmpUGE(x, number(x, 0)), b.CreateSelect(b.CreateFCmpUNO(x, x), x, result),
                        number(x, std::numeric_limits<double>::quiet_NaN()));
}

Value* MathEmitter::tanh(Builder& b, Value* x) const {
  // Near 0 an odd polynomial, elsewhere 1 - 2/(e^(2|x|) + 1).
  constexpr double kP[] = {-3.333326876e-01, 1.333109289e-01, -5.370965600e-02, 2.053881995e-02, -5.591016728e-03};
  Value* magnitude = fabs(b, x);
  Value* square = b.CreateFMul(x, x);
  Value* small = fma(b, b.CreateFMul(polynomial(b, square, kP), square), magnitude, magnitude);
  Value* grown = exp(b, b.CreateFAdd(magnitude, magnitude));
  Value* large = b.CreateFSub(number(x, 1), divide(b, number(x, 2), b.CreateFAdd(grown, number(x, 1))));
  Value* result = b.CreateSelect(b.CreateFCmpOLT(magnitude, number(x, 0.625)), small, large);
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, result, x);
}

Value* MathEmitter::erf(Builder& b, Value* x) const {
  // |x| < 1: odd polynomial; beyond: 1 - 2^P(|x|), where P fits log2(erfc) up to 3.95, after which erf is 1 in f32.
  constexpr double kSmall[] = {1.128379107e+00, -3.761262596e-01, 1.128358543e-01, -2.685381286e-02,
                               5.188327748e-03, -8.010193706e-04, 7.853861462e-05};
  constexpr double kLarge[] = {2.718846954e-04, -1.629639864e+00, -9.135383368e-01, -1.564198583e-01,
                               3.637072444e-02, -6.066903006e-03, 6.369021721e-04,  -3.130233745e-05};
  Value* magnitude = fabs(b, x);
  Value* small = b.CreateFMul(polynomial(b, b.CreateFMul(x, x), kSmall), magnitude);
  Value* bounded = b.CreateSelect(b.CreateFCmpOGT(magnitude, number(x, 3.95)), number(x, 3.95), magnitude);
  Value* large = b.CreateFSub(number(x, 1), exp2(b, polynomial(b, bounded, kLarge)));
  Value* result = b.CreateSelect(b.CreateFCmpOLT(magnitude, number(x, 1)), small, large);
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, result, x);
}

namespace {

/// log2 of positive x in f64 by the series of 2 atanh((m-1)/(m+1)); absolute error below 2^-40.
Value* log2_f64(Builder& b, Value* x) {
  auto [m, e] = split_exponent(b, x, 52, 0x3fe6a09e667f3bcd);
  Value* s = b.CreateFDiv(b.CreateFSub(m, number(x, 1)), b.CreateFAdd(m, number(x, 1)));
  double terms[8];
  for (int k = 0; k < 8; ++k) terms[k] = 2 * std::numbers::log2e / (2 * k + 1);
  return fma(b, polynomial(b, b.CreateFMul(s, s), terms), s, e);
}

/// 2^z in f64 for |z| <= 1000; relative error below 2^-36.
Value* exp2_f64(Builder& b, Value* z) {
  constexpr double kRounder64 = 6755399441055744.0;
  Value* shifted = b.CreateFAdd(z, number(z, kRounder64));
  Value* r = b.CreateFSub(z, b.CreateFSub(shifted, number(z, kRounder64)));
  double terms[11];
  terms[0] = 1;
  for (int k = 1; k < 11; ++k) terms[k] = terms[k - 1] * std::numbers::ln2 / k;
  llvm::Type* type = bits_type(z);
  Value* exponent = b.CreateShl(b.CreateBitCast(shifted, type), integer(type, 52));
  return b.CreateBitCast(b.CreateAdd(b.CreateBitCast(polynomial(b, r, terms), type), exponent), z->getType());
}

}  // namespace

Value* MathEmitter::pow(Builder& b, Value* x, Value* y) const {
  llvm::Type* wide = type_like(b.getDoubleTy(), x);
  Value* magnitude = fabs(b, x);
  Value* logarithm = log2_f64(b, b.CreateFPExt(magnitude, wide));
  Value* infinite = b.CreateFCmpOEQ(magnitude, number(x, kInfinity));
  Value* z = b.CreateFMul(b.CreateFPExt(y, wide), b.CreateSelect(infinite, number(logarithm, kInfinity), logarithm));
  z = b.CreateSelect(b.CreateFCmpOGT(z, number(z, 1000)), number(z, 1000), z);
  z = b.CreateSelect(b.CreateFCmpOLT(z, number(z, -1000)), number(z, -1000), z);
  Value* power = b.CreateFPTrunc(exp2_f64(b, z), x->getType());
  Value* at_zero = b.CreateSelect(b.CreateFCmpOGT(y, number(y, 0)), number(x, 0), number(x, kInfinity));
  return signed_power(b, x, y, b.CreateSelect(b.CreateFCmpOEQ(x, number(x, 0)), at_zero, power));
}

Value* MathEmitter::signed_power(Builder& b, Value* x, Value* y, Value* power) const {
  Value* magnitude = fabs(b, x);
  Value* half = b.CreateFMul(y, number(y, 0.5));
  Value* whole = b.CreateFCmpOEQ(floor(b, y), y);
  Value* odd = b.CreateAnd(whole, b.CreateFCmpONE(floor(b, half), half));
  Value* result = b.CreateSelect(b.CreateFCmpOEQ(magnitude, number(x, 1)), number(x, 1), power);  // where y is infinite too
  result = b.CreateSelect(odd, b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, result, x), result);
  Value* finite_below = b.CreateAnd(b.CreateFCmpOLT(x, number(x, 0)), b.CreateFCmpONE(magnitude, number(x, kInfinity)));
  result =
      b.CreateSelect(b.CreateAnd(finite_below, b.CreateNot(whole)), number(x, std::numeric_limits<double>::quiet_NaN()), result);
  result = b.CreateSelect(b.CreateFCmpUNO(x, y), b.CreateFAdd(x, y), result);
  Value* one = b.CreateOr(b.CreateFCmpOEQ(y, number(y, 0)), b.CreateFCmpOEQ(x, number(x, 1)));
  return b.CreateSelect(one, number(x, 1), result);
}

Value* MathEmitter::sqrt(Builder& b, Value* x) const { return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x); }
Value* MathEmitter::rsqrt(Builder& b, Value* x) const { return divide(b, number(x, 1), sqrt(b, x)); }
Value* MathEmitter::divide(Builder& b, Value* x, Value* y) const { return b.CreateFDiv(x, y); }
Value* MathEmitter::floor(Builder& b, Value* x) const { return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x); }

Value* MathEmitter::minimum(Builder& b, Value* x, Value* y) const { return extremum(b, llvm::Intrinsic::minimum, x, y); }
Value* MathEmitter::maximum(Builder& b, Value* x, Value* y) const { return extremum(b, llvm::Intrinsic::maximum, x, y); }

Value* MathEmitter::widen_f16(Builder& b, Value* half) const { return b.CreateFPExt(half, type_like(b.getFloatTy(), half)); }
Value* MathEmitter::narrow_f16(Builder& b, Value* x) const { return b.CreateFPTrunc(x, type_like(b.getHalfTy(), x)); }

Value* MathEmitter::widen_bf16(Builder& b, Value* bits) const {
  llvm::Type* word = type_like(b.getInt32Ty(), bits);
  return b.CreateBitCast(b.CreateShl(b.CreateZExt(bits, word), integer(word, 16)), type_like(b.getFloatTy(), bits));
}

Value* MathEmitter::narrow_bf16(Builder& b, Value* x) const {
  llvm::Type* word = type_like(b.getInt32Ty(), x);
  Value* bits = b.CreateBitCast(x, word);
  Value* odd = b.CreateAnd(b.CreateLShr(bits, integer(word, 16)), integer(word, 1));
  Value* rounded = b.CreateAdd(bits, b.CreateAdd(odd, integer(word, 0x7fff)));
  // Rounding could carry a NaN's payload into infinity.
  Value* quiet = b.CreateOr(bits, integer(word, 0x400000));
  Value* kept = b.CreateSelect(b.CreateFCmpUNO(x, x), quiet, rounded);
  return b.CreateTrunc(b.CreateLShr(kept, integer(word, 16)), type_like(b.getInt16Ty(), x));
}

Value* MathEmitter::to_i32(Builder& b, Value* x) const {
  llvm::Type* word = type_like(b.getInt32Ty(), x);
  return b.CreateIntrinsic(llvm::Intrinsic::fptosi_sat, {word, x->getType()}, {x});
}

}  // namespace nestor
