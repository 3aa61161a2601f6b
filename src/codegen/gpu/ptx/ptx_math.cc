// Elementary functions by NVPTX intrinsics.
#include "codegen/gpu/ptx/ptx_math.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/MDBuilder.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace nestor::nvptx {
namespace {

using llvm::Value;
using Builder = llvm::IRBuilderBase;

llvm::Constant* number(Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }
Value* call(Builder& b, llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> args) { return b.CreateIntrinsic(id, {}, args); }

Value* fma(Builder& b, Value* x, Value* y, Value* z) {
  return b.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, z});
}

/// x / y of a number y, 2^-100 to 2^100 in size: q = x (1/y), and its rest x - q y once more. Rounded as a quotient is
/// (P. Markstein, 1990) from |x| = 2^-100 on, else within a unit; zeros are positive. An infinite q has no rest: what stands for it is finite, and leaves q.
Value* quotient_by_constant(Builder& b, Value* x, const llvm::APFloat& y) {
  llvm::APFloat inverse(1.0F), least = llvm::APFloat::getLargest(y.getSemantics(), true);
  inverse.divide(y, llvm::APFloat::rmNearestTiesToEven);
  Value *by = llvm::ConstantFP::get(x->getType(), y), *reciprocal = llvm::ConstantFP::get(x->getType(), inverse);
  Value* quotient = b.CreateFMul(x, reciprocal);
  Value* rest = fma(b, b.CreateFNeg(quotient), by, x);
  rest = b.CreateMinNum(rest, llvm::ConstantFP::get(x->getType(), llvm::APFloat::getLargest(y.getSemantics())));
  if (std::fabs(y.convertToFloat()) < 1)
    rest = b.CreateMaxNum(rest, llvm::ConstantFP::get(x->getType(), least));  // q may overflow
  return fma(b, rest, reciprocal, quotient);
}

/// 2 / (1 + 2^x).
Value* twice_logistic(Builder& b, Value* x) {
  Value* sum = b.CreateFAdd(call(b, llvm::Intrinsic::nvvm_ex2_approx_ftz_f, {x}), number(x, 1));
  Value* inverse = call(b, llvm::Intrinsic::nvvm_rcp_approx_ftz_f, {sum});
  return b.CreateFAdd(inverse, inverse);
}

constexpr int kMantissaBits = 23;

/// 2^x = 2^n 2^f with n = round(x): the minimax polynomial of 2^f on [-1/2, 1/2] that is 1 at 0, by Remez' exchange, n added to the
/// exponent's bits. The sum x + 1.5 * 2^23 rounds x and leaves n in the low bits. n = -127 makes 1 the bits of 0, n = 128 those of
/// infinity. Adding to bits would make a number of NaN: 0 x, added, keeps it, or the unit of its row does.
Value* exp2_polynomial(Builder& b, Value* x, const NvptxMath::Polynomial& form) {
  constexpr double kRound = 12582912.0;
  constexpr double kCoefficients[] = {1.0, 0.6932829270991665, 0.24221095927482292, 0.05500893111988299};
  constexpr double kLeast = -127, kMost = 128;
  if (form.limit_below) x = b.CreateBinaryIntrinsic(llvm::Intrinsic::maximum, x, number(x, kLeast));
  if (form.limit_above) x = b.CreateBinaryIntrinsic(llvm::Intrinsic::minimum, x, number(x, kMost));
  Value* rounded = b.CreateFAdd(x, number(x, kRound));
  Value* rest = b.CreateFSub(x, b.CreateFSub(rounded, number(x, kRound)));
  Value* sum = number(x, kCoefficients[3]);
  for (int k = 2; k >= 0; --k) sum = b.CreateFAdd(b.CreateFMul(sum, rest), number(x, kCoefficients[k]));
  Value* n = b.CreateBitCast(rounded, b.getInt32Ty());
  Value* exponent = form.unit != nullptr ? b.CreateMul(n, form.unit) : b.CreateShl(n, kMantissaBits);
  Value* power = b.CreateBitCast(b.CreateAdd(b.CreateBitCast(sum, b.getInt32Ty()), exponent), x->getType());
  return form.unit != nullptr ? power : b.CreateFAdd(b.CreateFMul(x, number(x, 0)), power);
}

}  // namespace

Value* NvptxMath::exp2(Builder& b, Value* x) const {
  return polynomial_ ? exp2_polynomial(b, x, *polynomial_) : call(b, llvm::Intrinsic::nvvm_ex2_approx_ftz_f, {x});
}

/// Without the unit 2^23, n is 0x7fffffff (a GPU has this NaN only) or that of -127. Its unit keeps the bits of the first one NaN and makes
/// 2^-141 of 1 for the second: less than half of any 16-bit number.
Value* NvptxMath::exponent_unit(Builder& b, Value* taint, bool bounded_below) {
  constexpr std::uint32_t kKeepsNaN = 0x74e9d2;
  Value* size = bounded_below ? taint : b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, taint);
  Value* finite = b.CreateFCmpOLT(size, llvm::ConstantFP::getInfinity(taint->getType()));
  return b.CreateSelect(finite, b.getInt32(1U << kMantissaBits), b.getInt32(kKeepsNaN));
}

/// 2^t (1 + d ln 2) with t = x log2 e, rounded, and d the rounding's rest. An infinite t has no d: 1 + d ln 2 is kept from 1/2 to 3/2, and 1/2
/// for NaN, so that infinities, zeros and NaN are those of 2^t.
Value* NvptxMath::exp(Builder& b, Value* x) const {
  constexpr double kHigh = 0x1.715476p+0, kLow = 0x1.4ae0cp-26;  // of log2 e
  Value* scaled = b.CreateFMul(x, number(x, exact_ ? kHigh : std::numbers::log2e));
  if (!exact_) return exp2(b, scaled);
  Value* rest = fma(b, x, number(x, kLow), fma(b, x, number(x, kHigh), b.CreateFNeg(scaled)));
  Value* factor = call(b, llvm::Intrinsic::nvvm_saturate_f, {fma(b, rest, number(x, std::numbers::ln2), number(x, 0.5))});
  return b.CreateFMul(call(b, llvm::Intrinsic::nvvm_ex2_approx_ftz_f, {scaled}), b.CreateFAdd(factor, number(x, 0.5)));
}

Value* NvptxMath::log(Builder& b, Value* x) const {
  if (exact_) return MathEmitter::log(b, x);
  return b.CreateFMul(call(b, llvm::Intrinsic::nvvm_lg2_approx_f, {x}), number(x, std::numbers::ln2));
}

Value* NvptxMath::pow(Builder& b, Value* x, Value* y) const {
  Value* magnitude = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  return signed_power(b, x, y, exp2(b, b.CreateFMul(y, call(b, llvm::Intrinsic::nvvm_lg2_approx_f, {magnitude}))));
}

/// Near 0 an odd polynomial (minimax by Remez' exchange, 2.8e-9 relative before rounding), beyond 1 - 2 / (e^2|x| + 1).
Value* NvptxMath::tanh(Builder& b, Value* x) const {
  if (exact_) return MathEmitter::tanh(b, x);
  if (coarse_tanh) {
    auto* type = llvm::FunctionType::get(b.getFloatTy(), {b.getFloatTy()}, false);
    return b.CreateCall(type, llvm::InlineAsm::get(type, "tanh.approx.f32 $0, $1;", "=f,f", false), {x});
  }
  constexpr double kNear = 0.6;
  constexpr double kCoefficients[] = {-0.33333298, 0.133319241, -0.0537838304, 0.020795972, -0.00589515841};
  Value* square = b.CreateFMul(x, x);
  Value* near = fma(b, b.CreateFMul(x, square), polynomial(b, square, kCoefficients), x);
  Value* magnitude = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  Value* power = call(b, llvm::Intrinsic::nvvm_ex2_approx_ftz_f, {b.CreateFMul(magnitude, number(x, 2 * std::numbers::log2e))});
  Value* inverse = call(b, llvm::Intrinsic::nvvm_rcp_approx_ftz_f, {b.CreateFAdd(power, number(x, 1))});
  Value* far = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, fma(b, inverse, number(x, -2), number(x, 1)), x);
  return b.CreateSelect(b.CreateFCmpOLT(magnitude, number(x, kNear)), near, far);
}

/// A function of its own, so that LLVM makes equal calls one before it puts the function's branch in their place.
/// After Cody and Waite: x - n pi/2 with n = round(2 x / pi), pi/2 as three numbers of f32. n times the first one is no more than 24 bits away
/// from x, so that the first difference is exact.
llvm::Function* NvptxMath::function_of_quarters(llvm::Module& module) const {
  constexpr const char* kName = "nestor_quarters_of_a_turn";
  constexpr double kRound = 12582912.0, kMost = 65536;
  constexpr double kParts[] = {-0x1.921fb6p+0, 0x1.777a5cp-25, 0x1.ee59dap-50};
  if (llvm::Function* known = module.getFunction(kName)) return known;
  llvm::LLVMContext& context = module.getContext();
  llvm::Type *angles = llvm::Type::getFloatTy(context), *counts = llvm::Type::getInt32Ty(context);
  auto* type = llvm::FunctionType::get(llvm::StructType::get(angles, counts), {angles}, false);
  auto* function = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, kName, module);
  function->setDoesNotAccessMemory();
  for (const auto attribute : {llvm::Attribute::NoUnwind, llvm::Attribute::WillReturn, llvm::Attribute::AlwaysInline})
    function->addFnAttr(attribute);
  auto* before = llvm::BasicBlock::Create(context, "near", function);
  auto* far = llvm::BasicBlock::Create(context, "far", function);
  auto* after = llvm::BasicBlock::Create(context, "turned", function);
  llvm::IRBuilder<> b(before);
  Value* x = function->getArg(0);
  Value* rounded = fma(b, x, number(x, 2 / std::numbers::pi), number(x, kRound));
  Value* n = b.CreateFSub(rounded, number(x, kRound));
  Value* angle = x;
  for (const double part : kParts) angle = fma(b, n, number(x, part), angle);
  Value* count = b.CreateBitCast(rounded, counts);
  Value* near = b.CreateFCmpOLT(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), number(x, kMost));
  b.CreateCondBr(near, after, far, llvm::MDBuilder(context).createBranchWeights(1 << 20, 1));
  b.SetInsertPoint(far);
  const Quarters all = MathEmitter::quarters_of(b, x);
  Value* all_count = b.CreateTrunc(all.count, counts);
  b.CreateBr(after);
  b.SetInsertPoint(after);
  const auto either = [&](Value* here, Value* there) {
    llvm::PHINode* value = b.CreatePHI(here->getType(), 2);
    value->addIncoming(here, before);
    value->addIncoming(there, far);
    return value;
  };
  llvm::PHINode* chosen = either(angle, all.angle);
  Value* both[] = {chosen, either(count, all_count)};
  b.CreateAggregateRet(both, 2);
  return function;
}

MathEmitter::Quarters NvptxMath::quarters_of(Builder& b, Value* x) const {
  if (x->getType()->isVectorTy()) return MathEmitter::quarters_of(b, x);
  Value* found = b.CreateCall(function_of_quarters(*b.GetInsertBlock()->getModule()), {x});
  return {b.CreateExtractValue(found, 0), b.CreateExtractValue(found, 1)};
}

/// 2 / (1 + 2^-2x log2 e), which is exact to the left, where 1 and tanh cancel.
Value* NvptxMath::one_plus_tanh(Builder& b, Value* x) const {
  if (exact_ || coarse_tanh) return MathEmitter::one_plus_tanh(b, x);
  return twice_logistic(b, b.CreateFMul(x, number(x, -2 * std::numbers::log2e)));
}

/// 2 / (1 + 2^-p), where p = x Q(x^2) is log2((1 + erf x) / (1 - erf x)): minimax in 1 + erf up to |x| = 4.2, by exchange. Farther, |p|
/// grows with the last coefficient, so that 0 and 2 are reached.
Value* NvptxMath::one_plus_erf(Builder& b, Value* x) const {
  if (exact_) return MathEmitter::one_plus_erf(b, x);
  constexpr double kCoefficients[] = {3.25581551e+00, 2.96518505e-01,  -5.32022736e-04, -1.80544099e-03,
                                      2.58853891e-04, -1.72706623e-05, 4.58633934e-07};
  return twice_logistic(b, b.CreateFMul(b.CreateFNeg(x), polynomial(b, b.CreateFMul(x, x), kCoefficients)));
}

Value* NvptxMath::rsqrt(Builder& b, Value* x) const {
  return better_root(b, x, call(b, llvm::Intrinsic::nvvm_rsqrt_approx_f, {x}));
}

Value* NvptxMath::rounded(Builder& b, Value* x) const {
  auto* product = llvm::dyn_cast<llvm::BinaryOperator>(x);
  if (product == nullptr || product->getOpcode() != llvm::Instruction::FMul || !x->getType()->isFloatTy())
    return MathEmitter::rounded(b, x);
  return call(b, llvm::Intrinsic::nvvm_mul_rn_f, {product->getOperand(0), product->getOperand(1)});
}

/// The unit itself takes subnormal numbers for 0: of others it needs no scaling.
Value* NvptxMath::rsqrt_of_normal(Builder& b, Value* x) const {
  return better_root(b, x, call(b, llvm::Intrinsic::nvvm_rsqrt_approx_ftz_f, {x}));
}

/// A step of Newton's method, r + r (1 - x r); 0 and infinity have no 1 - x r, and what stands for it leaves their r.
Value* NvptxMath::reciprocal_of_normal(Builder& b, Value* x) const {
  Value* guess = call(b, llvm::Intrinsic::nvvm_rcp_approx_ftz_f, {x});
  if (!exact_) return guess;
  Value* rest = b.CreateMinNum(fma(b, b.CreateFNeg(x), guess, number(x, 1)), number(x, 1));
  return fma(b, rest, guess, guess);
}

Value* NvptxMath::better_root(Builder& b, Value* x, Value* guess) const {
  if (!exact_) return guess;
  // A step of Newton's method, y + y/2 (1 - x y y); 0 and infinity have no y that it is defined for.
  Value* rest = fma(b, b.CreateFNeg(b.CreateFMul(x, guess)), guess, number(x, 1));
  Value* better = fma(b, b.CreateFMul(guess, number(x, 0.5)), rest, guess);
  return b.CreateSelect(b.CreateFCmpORD(better, better), better, guess);
}

Value* NvptxMath::divide(Builder& b, Value* x, Value* y) const {
  if (const auto* constant = llvm::dyn_cast<llvm::ConstantFP>(y)) {  // a power of two divides exactly by multiplying
    llvm::APFloat inverse(0.0f);
    const llvm::APFloat& value = constant->getValueAPF();
    if (value.getExactInverse(&inverse)) return b.CreateFMul(x, llvm::ConstantFP::get(x->getType(), inverse));
    const double size = std::fabs(value.convertToDouble());
    if (&value.getSemantics() == &llvm::APFloat::IEEEsingle() && size >= 0x1p-100 && size <= 0x1p100)
      return quotient_by_constant(b, x, value);
  }
  if (exact_) return b.CreateFDiv(x, y);
  auto* type = llvm::FunctionType::get(b.getFloatTy(), {b.getFloatTy(), b.getFloatTy()}, false);
  return b.CreateCall(type, llvm::InlineAsm::get(type, "div.full.f32 $0, $1, $2;", "=f,f,f", false), {x, y});
}

Value* NvptxMath::narrow_bf16(Builder& b, Value* x) const {
  return b.CreateBitCast(call(b, llvm::Intrinsic::nvvm_f2bf16_rn, {x}), b.getInt16Ty());
}

Value* NvptxMath::pack_f16(Builder& b, Value* low, Value* high) const {
  return b.CreateBitCast(call(b, llvm::Intrinsic::nvvm_ff2f16x2_rn, {high, low}), b.getInt32Ty());
}

Value* NvptxMath::pack_bf16(Builder& b, Value* low, Value* high) const {
  return b.CreateBitCast(call(b, llvm::Intrinsic::nvvm_ff2bf16x2_rn, {high, low}), b.getInt32Ty());
}

/// The first number is rounded towards 0, and an infinity becomes the largest finite one: so the rest has the value's sign. A rest of 0 would make
/// NaN of an infinity that it meets; so it gets a bit more, far below what is rounded: in bf16 a small part of the value, in f16, which has no
/// such range, half of the least number.
std::pair<Value*, Value*> NvptxMath::halves(Builder& b, bool f16, const std::array<Value*, 2>& values) const {
  auto* half = f16 ? b.getHalfTy() : b.getBFloatTy();
  auto* pair = llvm::FixedVectorType::get(half, 2);
  const auto largest = [&](bool negative) {
    return llvm::ConstantFP::get(pair, llvm::APFloat::getLargest(half->getFltSemantics(), negative));
  };
  const auto between = [&](Value* x, Value* low, Value* high) { return b.CreateMaxNum(b.CreateMinNum(x, high), low); };
  const auto toward_zero = f16 ? llvm::Intrinsic::nvvm_ff2f16x2_rz : llvm::Intrinsic::nvvm_ff2bf16x2_rz;
  Value* first =
      b.CreateBitCast(between(call(b, toward_zero, {values[1], values[0]}), largest(true), largest(false)), b.getInt32Ty());
  std::array<Value*, 2> rest;
  for (unsigned k = 0; k < 2; ++k) {
    Value* x = values[k];
    Value* bits = b.CreateTrunc(k == 0 ? first : b.CreateLShr(first, 16), b.getInt16Ty());
    Value* number_of = f16 ? b.CreateFPExt(b.CreateBitCast(bits, half), b.getFloatTy()) : widen_bf16(b, bits);
    rest[k] = b.CreateFSub(x, number_of);
    constexpr double kHalfStep = 0x1.01p-25, kSmallPart = 0x1p-30;
    rest[k] = f16 ? b.CreateFAdd(rest[k], between(x, number(x, -kHalfStep), number(x, kHalfStep)))
                  : fma(b, x, number(x, kSmallPart), rest[k]);
  }
  return {first, f16 ? pack_f16(b, rest[0], rest[1]) : pack_bf16(b, rest[0], rest[1])};
}

}  // namespace nestor::nvptx
