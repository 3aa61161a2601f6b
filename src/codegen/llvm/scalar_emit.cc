// Scalar expressions to LLVM IR.
#include "codegen/llvm/scalar_emit.h"

#include "codegen/llvm/needed_parts.h"
#include "poly/nest/scalar_semantics.h"
#include "poly/nest/scalar_share.h"
#include "support/error.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace nestor {
namespace {

using llvm::Value;

bool is_vector(Value* value) { return value->getType()->isVectorTy(); }

class Emitter {
 public:
  /// `deep`: shared parts make the expression very long when it is written out.
  Emitter(llvm::IRBuilderBase& b, const MathEmitter& math, const ScalarLeaves& leaves, unsigned width, bool deep)
      : b_(b), math_(math), leaves_(leaves), width_(width), deep_(deep) {}

  /// Notes products of the expression that no fma may take: those that are added to something, or taken from it, where the sum must not have the
  /// wrong sign. sqrt(m - x y) of a maximum m of products x y, which are rounded there, would be NaN.
  void find_rounded_products(const ScalarExpr& expression) {
    expression.visit([&](const ScalarExpr& node) {
      switch (node.op()) {
        case ScalarOp::sqrt:
        case ScalarOp::rsqrt:
        case ScalarOp::log:
        case ScalarOp::log1p:
        case ScalarOp::pow:
          return round_products_of(node.args()[0]);
        case ScalarOp::div:
          return round_products_of(node.args()[1]);
        default:
          return;
      }
    });
  }

  Value* emit(const ScalarExpr& e, Value* mask) {
    if (Value* value = known(e, mask)) return value;
    Value* value = compute(e, mask);
    values_[{node_identity(e), mask}] = value;
    if (values_.size() > kMostValues)
      user_error("A value has too many parts that different conditions need: compute some of them in statements of their own.");
    return value;
  }

 private:
  static constexpr std::size_t kMostValues = 1 << 18;  ///< parts, each under each condition it is needed under

  /// The value of a node under the mask, or for more lanes; null: it has none yet.
  Value* known(const ScalarExpr& e, Value* mask) const {
    const void* node = node_identity(e);
    if (const auto unmasked = values_.find({node, nullptr}); unmasked != values_.end()) return unmasked->second;
    while (mask != nullptr) {
      if (const auto found = values_.find({node, mask}); found != values_.end()) return found->second;
      const auto outer = outer_.find(mask);
      mask = deep_ && outer != outer_.end() ? outer->second : nullptr;
    }
    return nullptr;
  }

  /// Products that decide about the sign of a value, in its outermost sums.
  void round_products_of(const ScalarExpr& e) {
    if (!visited_.insert(node_identity(e)).second) return;
    switch (e.op()) {
      case ScalarOp::neg:
      case ScalarOp::abs:
      case ScalarOp::div:
        return round_products_of(e.args()[0]);
      case ScalarOp::mul:
      case ScalarOp::min:
      case ScalarOp::max:
        for (const ScalarExpr& arg : e.args()) round_products_of(arg);
        return;
      case ScalarOp::select:
        round_products_of(e.args()[1]);
        return round_products_of(e.args()[2]);
      case ScalarOp::add:
      case ScalarOp::sub:
        for (const ScalarExpr& arg : e.args()) {
          const ScalarExpr& term = arg.op() == ScalarOp::neg ? arg.args()[0] : arg;
          if (term.op() == ScalarOp::mul && term.type() == ElementType::f32) rounded_.insert(node_identity(term));
        }
        return;
      default:
        return;
    }
  }

  void match(Value*& x, Value*& y) {
    if (is_vector(x) && !is_vector(y)) y = splat_to(b_, y, width_);
    if (is_vector(y) && !is_vector(x)) x = splat_to(b_, x, width_);
  }

  /// Does it read anything that must not be read for all lanes of the mask? Of deep values, what has not been read yet.
  bool needs_mask(const ScalarExpr& e, Value* mask) const {
    bool found = false;
    e.visit([&](const ScalarExpr& node) {
      found = found || (node.op() == ScalarOp::read && !(deep_ && known(node, mask) != nullptr));
    });
    return found;
  }

  Value* conjunction(Value* mask, Value* condition) {
    if (mask == nullptr) return condition;
    Value* outer = mask;
    match(mask, condition);
    Value* both = b_.CreateAnd(mask, condition);
    if (both != outer) outer_.emplace(both, outer);
    return both;
  }

  /// What both arms of a choice need, all lanes of the mask do: once, and not under the conditions of each.
  void emit_common(const ScalarExpr& e, Value* mask) {
    const NeededParts::Nodes &yes = needed_.of(e.args()[1]), &no = needed_.of(e.args()[2]);
    e.args()[1].visit([&](const ScalarExpr& part) {
      if (yes.contains(node_identity(part)) && no.contains(node_identity(part))) emit(part, mask);
    });
  }

  Value* emit_select(const ScalarExpr& e, Value* mask) {
    Value* condition = emit(e.args()[0], mask);
    if (deep_) emit_common(e, mask);
    Value* then_mask = needs_mask(e.args()[1], mask) ? conjunction(mask, condition) : mask;
    Value* yes = emit(e.args()[1], then_mask);
    Value* else_mask = needs_mask(e.args()[2], mask) ? conjunction(mask, b_.CreateNot(condition)) : mask;
    Value* no = emit(e.args()[2], else_mask);
    match(yes, no);
    if (is_vector(condition)) {
      yes = splat_to(b_, yes, width_);
      no = splat_to(b_, no, width_);
    }
    return emit_choice(b_, condition, yes, no);
  }

  Value* emit_logic(const ScalarExpr& e, Value* mask) {
    Value* x = emit(e.args()[0], mask);
    Value* needed = mask;
    if (needs_mask(e.args()[1], mask)) needed = conjunction(mask, e.op() == ScalarOp::logical_and ? x : b_.CreateNot(x));
    Value* y = emit(e.args()[1], needed);
    match(x, y);
    // A select, not an and: where x decides, y may be a value that was never loaded.
    return e.op() == ScalarOp::logical_and ? b_.CreateSelect(x, y, llvm::ConstantInt::getFalse(x->getType()))
                                           : b_.CreateSelect(x, llvm::ConstantInt::getTrue(x->getType()), y);
  }

  Value* emit_pow(const ScalarExpr& e, Value* mask) {
    Value* x = emit(e.args()[0], mask);
    const ScalarExpr& exponent = e.args()[1];
    if (exponent.is_constant(1)) return x;
    if (exponent.is_constant(2)) return b_.CreateFMul(x, x);
    if (exponent.is_constant(3)) return b_.CreateFMul(b_.CreateFMul(x, x), x);
    if (exponent.is_constant(-1)) return math_.divide(b_, llvm::ConstantFP::get(x->getType(), 1.0), x);
    Value* y = emit(exponent, mask);
    match(x, y);
    return math_.pow(b_, x, y);
  }

  /// f(x) of 1 + f(x) where f goes from -1 to 1, as in the normal and the logistic distribution; null for other expressions.
  static const ScalarExpr* sigmoid_beside_one(const ScalarExpr& e) {
    if (e.op() != ScalarOp::add || e.type() != ElementType::f32) return nullptr;
    for (const std::size_t one : {std::size_t{0}, std::size_t{1}}) {
      const ScalarExpr& other = e.args()[1 - one];
      if (e.args()[one].is_constant(1) && (other.op() == ScalarOp::erf || other.op() == ScalarOp::tanh)) return &other;
    }
    return nullptr;
  }

  /// What an f32 value is not below, NaN aside. A sum of two that are not negative is rounded to no less than either.
  static std::optional<float> least_value(const ScalarExpr& e) {
    if (e.type() != ElementType::f32) return std::nullopt;
    const auto of = [&](std::size_t k) { return least_value(e.args()[k]); };
    switch (e.op()) {
      case ScalarOp::constant:
        return static_cast<float>(e.number());
      case ScalarOp::abs:
      case ScalarOp::exp:
      case ScalarOp::exp2:
      case ScalarOp::sqrt:
        return 0.0F;
      case ScalarOp::mul:
        return e.args()[0].equals(e.args()[1]) ? std::optional(0.0F) : std::nullopt;
      case ScalarOp::max: {
        const auto x = of(0), y = of(1);
        return x && y ? std::max(*x, *y) : x ? x : y;
      }
      case ScalarOp::add: {
        const auto x = of(0), y = of(1);
        return x && y && *x >= 0 && *y >= 0 ? std::optional(std::max(*x, *y)) : std::nullopt;
      }
      default:
        return std::nullopt;
    }
  }
  static bool is_normal(const ScalarExpr& e) { return least_value(e).value_or(0) >= std::numeric_limits<float>::min(); }

  /// x c - x c: a fused multiply-add would make it what x c is rounded by, not 0. NaN of what is not finite, as 0 times it is.
  static bool is_product_less_itself(const ScalarExpr& e) {
    if (e.op() != ScalarOp::sub || e.type() != ElementType::f32 || !e.args()[0].equals(e.args()[1])) return false;
    return e.args()[0].op() == ScalarOp::mul || e.args()[0].op() == ScalarOp::neg;
  }

  Value* compute(const ScalarExpr& e, Value* mask) {
    if (const ScalarExpr* sigmoid = sigmoid_beside_one(e)) {
      Value* x = emit(sigmoid->args()[0], mask);
      return sigmoid->op() == ScalarOp::erf ? math_.one_plus_erf(b_, x) : math_.one_plus_tanh(b_, x);
    }
    if (const auto shift = semantics::signed_shift_of(e)) {
      Value *x = emit(shift->word, mask), *amount = emit(shift->amount, mask);
      match(x, amount);
      return b_.CreateAShr(x, b_.CreateAnd(amount, llvm::ConstantInt::get(amount->getType(), 31)));
    }
    switch (e.op()) {
      case ScalarOp::constant:
        return scalar_constant(b_.getContext(), e.type(), e.number());
      case ScalarOp::index:
        return leaves_.index(e.ordinal());
      case ScalarOp::scalar:
        return leaves_.scalar(e.name(), e.type());
      case ScalarOp::read:
        return leaves_.read(e.ordinal(), mask);
      case ScalarOp::cast:
        if (e.type() == ElementType::f32 && e.args()[0].type() == e.type()) return math_.rounded(b_, emit(e.args()[0], mask));
        return emit_cast(b_, math_, emit(e.args()[0], mask), e.args()[0].type(), e.type());
      case ScalarOp::select:
        return emit_select(e, mask);
      case ScalarOp::logical_and:
      case ScalarOp::logical_or:
        return emit_logic(e, mask);
      case ScalarOp::logical_not:
        return b_.CreateNot(emit(e.args()[0], mask));
      case ScalarOp::pow:
        return emit_pow(e, mask);
      default:
        break;
    }
    Value* x = emit(e.args()[0], mask);
    if (arity(e.op()) == 1)
      return e.args()[0].type() == ElementType::i32 ? unary_int(e.op(), x)
                                                    : unary_float(e.op(), x, e.op() == ScalarOp::rsqrt && is_normal(e.args()[0]));
    if (is_product_less_itself(e)) return b_.CreateFMul(x, llvm::ConstantFP::get(x->getType(), 0.0));
    Value* y = emit(e.args()[1], mask);
    match(x, y);
    const ScalarExpr& first = e.args()[0];
    const bool reciprocal = e.op() == ScalarOp::div && first.op() == ScalarOp::constant && first.number() == 1;
    if (reciprocal && e.type() == ElementType::f32 && is_normal(e.args()[1])) return math_.reciprocal_of_normal(b_, y);
    if (e.args()[0].type() != ElementType::f32) return binary_int(e.op(), x, y);
    Value* result = binary_float(e.op(), x, y);
    return rounded_.contains(node_identity(e)) ? math_.rounded(b_, result) : result;
  }

  Value* unary_int(ScalarOp op, Value* x) {
    if (op == ScalarOp::neg) return b_.CreateNeg(x);
    if (op == ScalarOp::abs) return b_.CreateIntrinsic(llvm::Intrinsic::abs, {x->getType()}, {x, b_.getFalse()});
    if (op == ScalarOp::floor) return x;
    internal_error("{} of an integer reached code generation", to_string(op));
  }

  Value* unary_float(ScalarOp op, Value* x, bool normal) {
    switch (op) {
      case ScalarOp::neg:
        return b_.CreateFNeg(x);
      case ScalarOp::abs:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
      case ScalarOp::exp:
        return math_.exp(b_, x);
      case ScalarOp::exp2:
        return math_.exp2(b_, x);
      case ScalarOp::log:
        return math_.log(b_, x);
      case ScalarOp::sqrt:
        return math_.sqrt(b_, x);
      case ScalarOp::rsqrt:
        return normal ? math_.rsqrt_of_normal(b_, x) : math_.rsqrt(b_, x);
      case ScalarOp::tanh:
        return math_.tanh(b_, x);
      case ScalarOp::erf:
        return math_.erf(b_, x);
      case ScalarOp::sin:
        return math_.sin(b_, x);
      case ScalarOp::cos:
        return math_.cos(b_, x);
      case ScalarOp::log1p:
        return math_.log1p(b_, x);
      case ScalarOp::expm1:
        return math_.expm1(b_, x);
      case ScalarOp::atan:
        return math_.atan(b_, x);
      case ScalarOp::floor:
        return math_.floor(b_, x);
      default:
        internal_error("{} has no code of its own", to_string(op));
    }
  }

  Value* binary_float(ScalarOp op, Value* x, Value* y) {
    switch (op) {
      case ScalarOp::add:
        return b_.CreateFAdd(x, y);
      case ScalarOp::sub:
        return b_.CreateFSub(x, y);
      case ScalarOp::mul:
        return b_.CreateFMul(x, y);
      case ScalarOp::div:
        return math_.divide(b_, x, y);
      case ScalarOp::min:
        return math_.minimum(b_, x, y);
      case ScalarOp::max:
        return math_.maximum(b_, x, y);
      case ScalarOp::lt:
        return b_.CreateFCmpOLT(x, y);
      case ScalarOp::le:
        return b_.CreateFCmpOLE(x, y);
      case ScalarOp::eq:
        return b_.CreateFCmpOEQ(x, y);
      default:
        internal_error("{} of f32 values reached code generation", to_string(op));
    }
  }

  /// Rounds towards minus infinity; division by zero gives zero, and the one overflow wraps around.
  Value* floor_divide(Value* x, Value* y) {
    llvm::Type* type = x->getType();
    Value* zero = llvm::ConstantInt::get(type, 0);
    Value* minus = b_.CreateICmpEQ(y, llvm::ConstantInt::getSigned(type, -1));
    Value* undefined = b_.CreateICmpEQ(y, zero);
    Value* divisor = b_.CreateSelect(b_.CreateOr(minus, undefined), llvm::ConstantInt::get(type, 1), y);
    Value* quotient = b_.CreateSDiv(x, divisor);
    Value* rest = b_.CreateSub(x, b_.CreateMul(quotient, divisor));
    Value* below = b_.CreateAnd(b_.CreateICmpNE(rest, zero), b_.CreateICmpSLT(b_.CreateXor(rest, divisor), zero));
    quotient = b_.CreateAdd(quotient, b_.CreateSExt(below, type));
    quotient = b_.CreateSelect(minus, b_.CreateNeg(x), quotient);
    return b_.CreateSelect(undefined, zero, quotient);
  }

  Value* binary_int(ScalarOp op, Value* x, Value* y) {
    llvm::Type* type = x->getType();
    const auto amount = [&] { return b_.CreateAnd(y, llvm::ConstantInt::get(type, 31)); };
    switch (op) {
      case ScalarOp::add:
        return b_.CreateAdd(x, y);
      case ScalarOp::sub:
        return b_.CreateSub(x, y);
      case ScalarOp::mul:
        return b_.CreateMul(x, y);
      case ScalarOp::div:
        return floor_divide(x, y);
      case ScalarOp::min:
        return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y);
      case ScalarOp::max:
        return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y);
      case ScalarOp::lt:
        return b_.CreateICmpSLT(x, y);
      case ScalarOp::le:
        return b_.CreateICmpSLE(x, y);
      case ScalarOp::eq:
        return b_.CreateICmpEQ(x, y);
      case ScalarOp::bit_and:
        return b_.CreateAnd(x, y);
      case ScalarOp::bit_or:
        return b_.CreateOr(x, y);
      case ScalarOp::bit_xor:
        return b_.CreateXor(x, y);
      case ScalarOp::shift_left:
        return b_.CreateShl(x, amount());
      case ScalarOp::shift_right_logical:
        return b_.CreateLShr(x, amount());
      case ScalarOp::mul_high_unsigned: {
        llvm::Type* wide = type_like(b_.getInt64Ty(), x);
        Value* product = b_.CreateMul(b_.CreateZExt(x, wide), b_.CreateZExt(y, wide));
        return b_.CreateTrunc(b_.CreateLShr(product, llvm::ConstantInt::get(wide, 32)), type);
      }
      default:
        internal_error("{} of integers reached code generation", to_string(op));
    }
  }

  llvm::IRBuilderBase& b_;
  std::set<const void*> rounded_, visited_;  ///< products that no fma may take; what was searched for them
  const MathEmitter& math_;
  const ScalarLeaves& leaves_;
  unsigned width_;
  bool deep_;
  std::map<std::pair<const void*, Value*>, Value*> values_;  ///< by node and mask
  std::map<Value*, Value*> outer_;                           ///< masks that have the lanes of others
  NeededParts needed_;
};

/// Is the expression long because its parts are shared? One that has many parts of its own is no longer for its conditions.
bool is_deep(const ScalarExpr& expr) {
  constexpr int kMostParts = 2048;
  if (is_short(expr)) return false;
  int parts = 0;
  expr.visit([&](const ScalarExpr&) { ++parts; });
  return parts <= kMostParts;
}

/// The f32 value of anything.
Value* to_f32(llvm::IRBuilderBase& b, const MathEmitter& math, Value* value, ElementType from) {
  switch (from) {
    case ElementType::f32:
      return value;
    case ElementType::f16:
      return math.widen_f16(b, value);
    case ElementType::bf16:
      return math.widen_bf16(b, value);
    case ElementType::i32:
    case ElementType::i64:
      return b.CreateSIToFP(value, type_like(b.getFloatTy(), value));
    case ElementType::boolean:
      return b.CreateUIToFP(value, type_like(b.getFloatTy(), value));
  }
  internal_error("unknown element type {}", static_cast<int>(from));
}

std::uint64_t bf16_bits(double number) {
  llvm::APFloat value(number);
  bool lost = false;
  value.convert(llvm::APFloat::BFloat(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return value.bitcastToAPInt().getZExtValue();
}

}  // namespace

llvm::Type* register_type(llvm::LLVMContext& context, ElementType type) {
  switch (type) {
    case ElementType::f32:
      return llvm::Type::getFloatTy(context);
    case ElementType::f16:
      return llvm::Type::getHalfTy(context);
    case ElementType::bf16:
      return llvm::Type::getInt16Ty(context);
    case ElementType::i32:
    case ElementType::i64:
      return llvm::Type::getInt32Ty(context);
    case ElementType::boolean:
      return llvm::Type::getInt1Ty(context);
  }
  internal_error("unknown element type {}", static_cast<int>(type));
}

bool lies_as_held(ElementType type) { return type != ElementType::boolean && type != ElementType::i64; }

llvm::Type* element_type(llvm::LLVMContext& context, ElementType type) {
  if (lies_as_held(type)) return register_type(context, type);
  return llvm::Type::getIntNTy(context, static_cast<unsigned>(8 * size_in_bytes(type)));
}

Value* from_element(llvm::IRBuilderBase& b, Value* element, ElementType type) {
  if (lies_as_held(type)) return element;
  llvm::Type* wide = element->getType();
  if (type == ElementType::boolean) return b.CreateICmpNE(element, llvm::ConstantInt::get(wide, 0));
  element = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, element, llvm::ConstantInt::getSigned(wide, -2147483648LL));
  element = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, element, llvm::ConstantInt::getSigned(wide, 2147483647LL));
  return b.CreateTrunc(element, type_like(b.getInt32Ty(), element));
}

Value* to_element(llvm::IRBuilderBase& b, Value* value, ElementType type) {
  if (lies_as_held(type)) return value;
  llvm::Type* wide = type_like(element_type(b.getContext(), type), value);
  return type == ElementType::boolean ? b.CreateZExt(value, wide) : b.CreateSExt(value, wide);
}

llvm::Constant* scalar_constant(llvm::LLVMContext& context, ElementType type, double number) {
  llvm::Type* ir = register_type(context, type);
  switch (type) {
    case ElementType::f32:
      return llvm::ConstantFP::get(ir, static_cast<float>(number));
    case ElementType::f16:
      return llvm::ConstantFP::get(ir, number);
    case ElementType::bf16:
      return llvm::ConstantInt::get(ir, bf16_bits(number));
    case ElementType::i32:
    case ElementType::i64: {
      const double bounded = std::isnan(number) ? 0 : std::clamp(std::trunc(number), -2147483648.0, 2147483647.0);
      return llvm::ConstantInt::getSigned(ir, static_cast<std::int64_t>(bounded));
    }
    case ElementType::boolean:
      return llvm::ConstantInt::get(ir, number != 0 ? 1 : 0);
  }
  internal_error("unknown element type {}", static_cast<int>(type));
}

Value* emit_choice(llvm::IRBuilderBase& b, Value* condition, Value* yes, Value* no) {
  if (!yes->getType()->getScalarType()->isHalfTy()) return b.CreateSelect(condition, yes, no);
  llvm::Type* bits = type_like(b.getInt16Ty(), yes);
  return b.CreateBitCast(b.CreateSelect(condition, b.CreateBitCast(yes, bits), b.CreateBitCast(no, bits)), yes->getType());
}

Value* splat_to(llvm::IRBuilderBase& b, Value* value, unsigned width) {
  if (width == 1 || is_vector(value)) return value;
  if (!value->getType()->isHalfTy()) return b.CreateVectorSplat(width, value);
  // Not every target can shuffle halves.
  Value* bits = b.CreateVectorSplat(width, b.CreateBitCast(value, b.getInt16Ty()));
  return b.CreateBitCast(bits, llvm::FixedVectorType::get(b.getHalfTy(), width));
}

Value* emit_cast(llvm::IRBuilderBase& b, const MathEmitter& math, Value* value, ElementType from, ElementType to) {
  from = semantics::value_type(from);
  to = semantics::value_type(to);
  if (from == to) return value;
  if (from == ElementType::boolean && to == ElementType::i32) return b.CreateZExt(value, type_like(b.getInt32Ty(), value));
  if (from == ElementType::i32 && to == ElementType::boolean)
    return b.CreateICmpNE(value, llvm::ConstantInt::get(value->getType(), 0));
  Value* wide = to_f32(b, math, value, from);
  switch (to) {
    case ElementType::f32:
      return wide;
    case ElementType::f16:
      return math.narrow_f16(b, wide);
    case ElementType::bf16:
      return math.narrow_bf16(b, wide);
    case ElementType::i32:
    case ElementType::i64:
      return math.to_i32(b, wide);
    case ElementType::boolean:
      return b.CreateFCmpUNE(wide, llvm::ConstantFP::get(wide->getType(), 0.0));
  }
  internal_error("unknown element type {}", static_cast<int>(to));
}

// The new term first: x86 tests the first operand of an extremum for NaN, which need not wait for the sum so far then.
Value* emit_combine(llvm::IRBuilderBase& b, const MathEmitter& math, ReductionOp op, ElementType type, Value* a, Value* c) {
  const bool integer = type == ElementType::i32;
  switch (op) {
    case ReductionOp::add:
      return integer ? b.CreateAdd(a, c) : b.CreateFAdd(a, c);
    case ReductionOp::mul:
      return integer ? b.CreateMul(a, c) : b.CreateFMul(a, c);
    case ReductionOp::min:
      return integer ? b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, c) : math.minimum(b, c, a);
    case ReductionOp::max:
      return integer ? b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, c) : math.maximum(b, c, a);
  }
  internal_error("unknown reduction {}", static_cast<int>(op));
}

Value* emit_scalar(llvm::IRBuilderBase& b, const MathEmitter& math, const ScalarExpr& expr, const ScalarLeaves& leaves,
                   unsigned width, Value* active) {
  Emitter emitter(b, math, leaves, width, is_deep(expr));
  emitter.find_rounded_products(expr);
  return emitter.emit(expr, active);
}

}  // namespace nestor
