// Exponentials by a table in a register; erf as a quotient; f16 conversion in integer arithmetic, so that no library routine is needed on CPUs without F16C.
#include "codegen/host/emit/host_math.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace nestor {

using llvm::Value;

namespace {

/// x limited to [lowest, highest]; NaN stays NaN.
Value* limit(llvm::IRBuilderBase& b, Value* x, double lowest, double highest) {
  llvm::Constant* high = llvm::ConstantFP::get(x->getType(), highest);
  llvm::Constant* low = llvm::ConstantFP::get(x->getType(), lowest);
  x = b.CreateSelect(b.CreateFCmpOGT(x, high), high, x);
  return b.CreateSelect(b.CreateFCmpOLT(x, low), low, x);
}

constexpr unsigned kTableLanes = 16;           ///< of one register
constexpr std::uint32_t kCurrentRounding = 4;  ///< instructions round as the processor's mode says

/// The nearest multiple of 1/16, and its sixteenths in the low four bits of `bits` where it is below 2^18 in magnitude.
struct Sixteenths {
  Value* number;
  Value* bits;
};

Sixteenths sixteenths_of(llvm::IRBuilderBase& b, Value* x) {
  constexpr double kRounder = 786432.0;          // adding 1.5*2^19 leaves sixteenths in the lowest bit
  constexpr std::uint32_t kToSixteenths = 0x48;  // nearest, ties to even; four bits of the fraction stay
  Value* number = b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_rndscale_ps_512, {},
                                    {x, b.getInt32(kToSixteenths), llvm::Constant::getNullValue(x->getType()), b.getInt16(0xffff),
                                     b.getInt32(kCurrentRounding)});
  // Of the rounded number: x itself may be a product, which as part of an fma would be rounded otherwise here than there.
  Value* shifted = b.CreateFAdd(number, llvm::ConstantFP::get(x->getType(), kRounder));
  return {number, b.CreateBitCast(shifted, type_like(b.getInt32Ty(), shifted))};
}

/// 2^n (1 + small), where `small` is what the rest of the exponent adds. The permutation reads the low four bits of an index alone;
/// the scaling takes 2^floor(n), and gives infinity and 0 for infinite n whatever `small` is.
Value* scaled_entry(llvm::IRBuilderBase& b, const Sixteenths& n, Value* small) {
  std::vector<llvm::Constant*> entries;
  for (unsigned k = 0; k < kTableLanes; ++k)
    entries.push_back(llvm::ConstantFP::get(b.getFloatTy(), std::exp2(static_cast<double>(k) / kTableLanes)));
  Value* entry = b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {llvm::ConstantVector::get(entries), n.bits});
  Value* mantissa = b.CreateIntrinsic(llvm::Intrinsic::fmuladd, {entry->getType()}, {entry, small, entry});
  return b.CreateIntrinsic(
      llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
      {mantissa, n.number, llvm::Constant::getNullValue(mantissa->getType()), b.getInt16(0xffff), b.getInt32(kCurrentRounding)});
}

}  // namespace

bool HostMath::has_table(const Value* x) const {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  return has_.avx512 && vector != nullptr && vector->getNumElements() == kTableLanes;
}

// After P. Tang, "Table-driven implementation of the exponential function", ACM TOMS 15(2), 1989. e^r - 1 = r P(r) on
// |r| <= ln(2)/32 has a relative error of e^r below 2^-29, as has 2^r - 1 = r Q(r) of 2^r on |r| <= 1/32.
Value* HostMath::exp(Builder& b, Value* x) const {
  if (!has_table(x)) return MathEmitter::exp(b, x);
  constexpr double kP[] = {1.0, 5.000162125e-01, 1.666715592e-01};
  const auto number = [&](double value) { return llvm::ConstantFP::get(x->getType(), value); };
  const auto fma = [&](Value* p, Value* q, Value* sum) {
    return b.CreateIntrinsic(llvm::Intrinsic::fmuladd, {x->getType()}, {p, q, sum});
  };
  Value* bounded = limit(b, x, -110, 90);  // beyond these it is 0 or infinity
  const Sixteenths n = sixteenths_of(b, b.CreateFMul(bounded, number(std::numbers::log2e)));
  // ln(2) = 0.693359375 - 2.12194440e-4: the first product is exact.
  Value* r = fma(n.number, number(-0.693359375), bounded);
  r = fma(n.number, number(2.12194440054690583e-4), r);
  return scaled_entry(b, n, b.CreateFMul(r, polynomial(b, r, kP)));
}

Value* HostMath::exp2(Builder& b, Value* x) const {
  if (!has_table(x)) return MathEmitter::exp2(b, x);
  constexpr double kQ[] = {6.931471825e-01, 2.402342856e-01, 5.550573766e-02};
  x = rounded(b, x);  // what rounding took of a large product would be no small rest
  const Sixteenths n = sixteenths_of(b, x);
  Value* r = b.CreateFSub(x, n.number);
  return scaled_entry(b, n, b.CreateFMul(r, polynomial(b, r, kQ)));
}

// erf(x) = x P(x^2)/Q(x^2) for |x| <= 3.92, beyond which it is 1 in f32. P/Q is a weighted least-squares fit (Sanathanan and
// Koerner's iteration with Lawson's weights, 40 digits) of relative error 2^-25.7. All coefficients are positive: nothing
// cancels.
Value* HostMath::erf(Builder& b, Value* x) const {
  constexpr double kP[] = {1.128379107, 0.1904067695, 0.05274876952, 0.003765632166, 0.0002848833974, 2.050089051e-6};
  constexpr double kQ[] = {1.0, 0.5020763278, 0.1141092405, 0.01496924553, 0.001162539818, 3.809176997e-5};
  Value* inner = limit(b, x, -3.92, 3.92);
  Value* square = b.CreateFMul(inner, inner);
  Value* quotient = b.CreateFDiv(b.CreateFMul(inner, polynomial(b, square, kP)), polynomial(b, square, kQ));
  return limit(b, quotient, -1, 1);
}

Value* HostMath::widen_f16(Builder& b, Value* half) const {
  if (has_.f16c) return MathEmitter::widen_f16(b, half);
  llvm::Type* word = type_like(b.getInt32Ty(), half);
  llvm::Type* real = type_like(b.getFloatTy(), half);
  const auto bits = [&](std::uint32_t value) { return llvm::ConstantInt::get(word, value); };
  Value* raw = b.CreateZExt(b.CreateBitCast(half, type_like(b.getInt16Ty(), half)), word);
  Value* magnitude = b.CreateAnd(raw, bits(0x7fff));
  // The exponent's bias is corrected by a multiplication, which also normalises subnormals.
  Value* finite = b.CreateFMul(b.CreateBitCast(b.CreateShl(magnitude, bits(13)), real), llvm::ConstantFP::get(real, 0x1p112));
  Value* special = b.CreateOr(b.CreateShl(magnitude, bits(13)), bits(0x7f800000));
  Value* result = b.CreateSelect(b.CreateICmpUGE(magnitude, bits(0x7c00)), special, b.CreateBitCast(finite, word));
  Value* sign = b.CreateShl(b.CreateAnd(raw, bits(0x8000)), bits(16));
  return b.CreateBitCast(b.CreateOr(result, sign), real);
}

Value* HostMath::narrow_f16(Builder& b, Value* x) const {
  if (has_.f16c) return MathEmitter::narrow_f16(b, x);
  llvm::Type* word = type_like(b.getInt32Ty(), x);
  llvm::Type* real = x->getType();
  const auto bits = [&](std::uint32_t value) { return llvm::ConstantInt::get(word, value); };
  Value* raw = b.CreateBitCast(x, word);
  Value* magnitude = b.CreateAnd(raw, bits(0x7fffffff));
  Value* value = b.CreateBitCast(magnitude, real);
  // Subnormal results: adding 1/2 aligns the bits that stay, and the addition rounds to nearest even.
  Value* aligned = b.CreateBitCast(b.CreateFAdd(value, llvm::ConstantFP::get(real, 0.5)), word);
  Value* small = b.CreateSub(aligned, bits(0x3f000000));
  Value* odd = b.CreateAnd(b.CreateLShr(magnitude, bits(13)), bits(1));
  Value* rounded = b.CreateAdd(b.CreateAdd(magnitude, bits(0xfff)), odd);
  Value* normal = b.CreateSub(b.CreateLShr(rounded, bits(13)), bits(112U << 10U));
  Value* result = b.CreateSelect(b.CreateICmpULT(magnitude, bits(0x38800000)), small, normal);
  result = b.CreateSelect(b.CreateICmpUGE(magnitude, bits(0x477ff000)), bits(0x7c00), result);
  result = b.CreateSelect(b.CreateICmpUGT(magnitude, bits(0x7f800000)), bits(0x7e00), result);
  Value* sign = b.CreateAnd(b.CreateLShr(raw, bits(16)), bits(0x8000));
  Value* narrow = b.CreateTrunc(b.CreateOr(result, sign), type_like(b.getInt16Ty(), x));
  return b.CreateBitCast(narrow, type_like(b.getHalfTy(), x));
}

}  // namespace nestor
