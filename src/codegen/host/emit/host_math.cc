// erf as a quotient; f16 conversion in integer arithmetic, so that no library routine is needed on CPUs without F16C.
#include "codegen/host/emit/host_math.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

namespace nestor {

using llvm::Value;

namespace {

/// x limited to [-bound, bound]; NaN stays NaN.
Value* limit(llvm::IRBuilderBase& b, Value* x, double bound) {
  llvm::Constant* high = llvm::ConstantFP::get(x->getType(), bound);
  llvm::Constant* low = llvm::ConstantFP::get(x->getType(), -bound);
  x = b.CreateSelect(b.CreateFCmpOGT(x, high), high, x);
  return b.CreateSelect(b.CreateFCmpOLT(x, low), low, x);
}

}  // namespace

// erf(x) = x P(x^2)/Q(x^2) for |x| <= 3.92, beyond which it is 1 in f32. P/Q is a weighted least-squares fit (Sanathanan and
// Koerner's iteration with Lawson's weights, 40 digits) of relative error 2^-25.7. All coefficients are positive: nothing
// cancels.
Value* HostMath::erf(Builder& b, Value* x) const {
  constexpr double kP[] = {1.128379107, 0.1904067695, 0.05274876952, 0.003765632166, 0.0002848833974, 2.050089051e-6};
  constexpr double kQ[] = {1.0, 0.5020763278, 0.1141092405, 0.01496924553, 0.001162539818, 3.809176997e-5};
  Value* inner = limit(b, x, 3.92);
  Value* square = b.CreateFMul(inner, inner);
  Value* quotient = b.CreateFDiv(b.CreateFMul(inner, polynomial(b, square, kP)), polynomial(b, square, kQ));
  return limit(b, quotient, 1);
}

Value* HostMath::widen_f16(Builder& b, Value* half) const {
  if (has_f16c_) return MathEmitter::widen_f16(b, half);
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
  if (has_f16c_) return MathEmitter::narrow_f16(b, x);
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
