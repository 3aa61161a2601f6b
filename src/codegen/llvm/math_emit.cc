// Elementary functions as polynomials. Coefficients: minimax fits by Remez exchange in 40 digits, rounded to f32;
// range reductions after J.-M. Muller, "Elementary Functions", 3rd ed., chapters 3 and 11.
#include "codegen/llvm/math_emit.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <cmath>
#include <limits>
#include <numbers>

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

Value* polynomial(Builder& b, Value* x, std::span<const double> coefficients) {
  Value* sum = number(x, coefficients.back());
  for (std::size_t k = coefficients.size() - 1; k-- > 0;) sum = fma(b, sum, x, number(x, coefficients[k]));
  return sum;
}

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
  Value* large = fma(b, reciprocal_of_normal(b, b.CreateFAdd(grown, number(x, 1))), number(x, -2), number(x, 1));
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

Value* MathEmitter::one_plus_tanh(Builder& b, Value* x) const { return b.CreateFAdd(number(x, 1), tanh(b, x)); }
Value* MathEmitter::one_plus_erf(Builder& b, Value* x) const { return b.CreateFAdd(number(x, 1), erf(b, x)); }

namespace {

/// As kRounder, of f64.
constexpr double kRounder64 = 6755399441055744.0;

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

namespace {

/// The part of t that is no multiple of 4, from -2 to 2; exact.
Value* within_turn(Builder& b, Value* t) {
  Value* turns = b.CreateFAdd(b.CreateFMul(t, number(t, 0.25)), number(t, kRounder64));
  return b.CreateFSub(t, b.CreateFMul(b.CreateFSub(turns, number(t, kRounder64)), number(t, 4)));
}

/// sin(angle + quarters pi/2). Polynomials of S. Moshier's Cephes on -pi/4 to pi/4.
Value* sine_of(Builder& b, Value* angle, Value* quarters) {
  constexpr double kSine[] = {-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4};
  constexpr double kCosine[] = {4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5};
  Value* square = b.CreateFMul(angle, angle);
  Value* sine = fma(b, b.CreateFMul(polynomial(b, square, kSine), square), angle, angle);
  Value* cosine =
      fma(b, b.CreateFMul(polynomial(b, square, kCosine), square), square, fma(b, square, number(angle, -0.5), number(angle, 1)));
  const auto has = [&](std::int64_t bit) {
    llvm::Type* type = quarters->getType();
    return b.CreateICmpNE(b.CreateAnd(quarters, integer(type, bit)), integer(type, 0));
  };
  Value* result = b.CreateSelect(has(1), cosine, sine);
  return b.CreateSelect(has(2), b.CreateFNeg(result), result);
}

}  // namespace

/// After Payne and Hanek, in f64: x 2/pi by parts of 28 bits, whose products with the 24 bits of x are exact. Parts whose products are
/// multiples of 4 are left out: `window` says how many, and the four parts from there on leave less than 2^-59 behind.
MathEmitter::Quarters MathEmitter::quarters_of(Builder& b, Value* x) const {
  constexpr double kParts[] = {170891318, 240010261, 44024437, 131200308, 232525238, 43358524, 70845471};
  constexpr double kWindows[] = {0x1p53, 0x1p81, 0x1p109};  // |x| from which one more part is left out
  Value* magnitude = fabs(b, x);
  Value* wide = b.CreateFPExt(x, type_like(b.getDoubleTy(), x));
  const auto by_window = [&](auto&& value) {
    Value* chosen = number(wide, value(0));
    for (int window = 1; window < 4; ++window)
      chosen = b.CreateSelect(b.CreateFCmpOGE(magnitude, number(x, kWindows[window - 1])), number(wide, value(window)), chosen);
    return chosen;
  };
  Value* scaled = b.CreateFMul(wide, by_window([](int window) { return std::ldexp(1.0, -28 * window); }));
  Value* products[4];
  for (int k = 0; k < 4; ++k)
    products[k] = b.CreateFMul(scaled, by_window([&](int window) { return std::ldexp(kParts[window + k], -28 * (k + 1)); }));
  Value *first = within_turn(b, products[0]), *second = within_turn(b, products[1]);
  Value* rounded = b.CreateFAdd(b.CreateFAdd(b.CreateFAdd(first, second), products[2]), number(wide, kRounder64));
  // What cancels, cancels exactly: the largest terms first.
  Value* rest = b.CreateFAdd(b.CreateFSub(first, b.CreateFSub(rounded, number(wide, kRounder64))), second);
  rest = b.CreateFAdd(b.CreateFAdd(rest, products[2]), products[3]);
  Value* angle = b.CreateFPTrunc(b.CreateFMul(rest, number(wide, std::numbers::pi / 2)), x->getType());
  return {angle, b.CreateBitCast(rounded, bits_type(wide))};
}

Value* MathEmitter::sin(Builder& b, Value* x) const {
  const Quarters turned = quarters_of(b, x);
  return b.CreateSelect(b.CreateFCmpOEQ(x, number(x, 0)), x, sine_of(b, turned.angle, turned.count));
}

Value* MathEmitter::cos(Builder& b, Value* x) const {
  const Quarters turned = quarters_of(b, x);
  return sine_of(b, turned.angle, b.CreateAdd(turned.count, integer(turned.count->getType(), 1)));
}

Value* MathEmitter::log1p(Builder& b, Value* x) const {
  // log(u) + (x - (u - 1)) / u with u = 1 + x rounded: the second term is what was lost of x.
  Value* u = b.CreateFAdd(x, number(x, 1));
  Value* lost = b.CreateFSub(x, b.CreateFSub(u, number(x, 1)));
  Value* logarithm = MathEmitter::log(b, u);
  Value* result = b.CreateFAdd(logarithm, divide(b, lost, u));
  Value* ordinary = b.CreateAnd(b.CreateFCmpOGT(u, number(x, 0)), b.CreateFCmpOLT(u, number(x, kInfinity)));
  result = b.CreateSelect(ordinary, result, logarithm);
  return b.CreateSelect(b.CreateFCmpOEQ(u, number(x, 1)), x, result);
}

Value* MathEmitter::expm1(Builder& b, Value* x) const {
  // With e^x = 2^n e^r: 2 (t (e^r - 1) + (t - 1/2)) where t = 2^(n-1), which does not overflow before the result does.
  constexpr double kP[] = {4.999999404e-01, 1.666652113e-01, 4.166838899e-02, 8.368745446e-03, 1.381453825e-03};
  constexpr double kLowest = -50, kHighest = 88.7228390520;  // from here down it is -1
  Value* bounded = b.CreateSelect(b.CreateFCmpOLT(x, number(x, kLowest)), number(x, kLowest), x);
  Value* shifted = fma(b, bounded, number(x, std::numbers::log2e), number(x, kRounder));
  Value* n = b.CreateFSub(shifted, number(x, kRounder));
  Value* r = fma(b, n, number(x, -0.693359375), bounded);
  r = fma(b, n, number(x, 2.12194440054690583e-4), r);
  Value* grown = fma(b, polynomial(b, r, kP), b.CreateFMul(r, r), r);
  Value* t = add_exponent(b, number(x, 0.5), shifted);
  Value* half = fma(b, t, grown, b.CreateFSub(t, number(x, 0.5)));
  Value* result = b.CreateFAdd(half, half);
  result = b.CreateSelect(b.CreateFCmpUGT(x, number(x, kHighest)), b.CreateFMul(x, number(x, kInfinity)), result);
  return b.CreateSelect(b.CreateFCmpOLT(fabs(b, x), number(x, 0x1p-25)), x, result);  // half of it might be too small for f32
}

Value* MathEmitter::atan(Builder& b, Value* x) const {
  // An odd polynomial up to 1 (coefficients of N. Shibata's SLEEF), beyond pi/2 - atan(1/|x|).
  constexpr double kP[] = {-0.333331018686294555664062,  0.199926957488059997558594,   -0.142027363181114196777344,
                           0.106347933411598205566406,   -0.0748900920152664184570312, 0.0425049886107444763183594,
                           -0.0159569028764963150024414, 0.00282363896258175373077393};
  constexpr double kQuarterHigh = 1.57079637050628662109375, kQuarterLow = -4.37113900018624283e-8;
  Value* magnitude = fabs(b, x);
  Value* far = b.CreateFCmpOGT(magnitude, number(x, 1));
  Value* inner = b.CreateSelect(far, divide(b, number(x, 1), magnitude), magnitude);
  Value* square = b.CreateFMul(inner, inner);
  Value* near = fma(b, b.CreateFMul(polynomial(b, square, kP), square), inner, inner);
  Value* beyond = b.CreateFAdd(b.CreateFSub(number(x, kQuarterHigh), near), number(x, kQuarterLow));
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, b.CreateSelect(far, beyond, near), x);
}

Value* MathEmitter::sqrt(Builder& b, Value* x) const { return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x); }
Value* MathEmitter::rsqrt(Builder& b, Value* x) const { return divide(b, number(x, 1), sqrt(b, x)); }
Value* MathEmitter::divide(Builder& b, Value* x, Value* y) const { return b.CreateFDiv(x, y); }
Value* MathEmitter::reciprocal_of_normal(Builder& b, Value* x) const { return divide(b, number(x, 1), x); }
Value* MathEmitter::floor(Builder& b, Value* x) const { return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x); }

Value* MathEmitter::minimum(Builder& b, Value* x, Value* y) const { return extremum(b, llvm::Intrinsic::minimum, x, y); }
Value* MathEmitter::maximum(Builder& b, Value* x, Value* y) const { return extremum(b, llvm::Intrinsic::maximum, x, y); }

Value* MathEmitter::rounded(Builder& b, Value* x) const { return b.CreateArithmeticFence(x, x->getType()); }

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
