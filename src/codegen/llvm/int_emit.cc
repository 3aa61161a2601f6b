// Integer expressions to LLVM IR.
#include "codegen/llvm/int_emit.h"

#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/conditions.h"

#include "support/error.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <bit>

namespace nestor {
namespace {

using llvm::Value;

bool is_power_of_two(std::int64_t value) { return value > 0 && std::has_single_bit(static_cast<std::uint64_t>(value)); }

Value* emit_floor_div(llvm::IRBuilderBase& b, Value* a, const IntExpr& divisor, const IntLookup& lookup) {
  if (const auto constant = divisor.as_constant(); constant && is_power_of_two(*constant)) {
    return b.CreateAShr(a, std::countr_zero(static_cast<std::uint64_t>(*constant)));
  }
  Value* d = emit_int(b, divisor, lookup);
  Value* quotient = b.CreateSDiv(a, d);
  Value* rest = b.CreateNSWSub(a, b.CreateNSWMul(quotient, d));
  return b.CreateSub(quotient, b.CreateZExt(b.CreateICmpSLT(rest, b.getInt64(0)), b.getInt64Ty()));
}

Value* emit_mod(llvm::IRBuilderBase& b, Value* a, const IntExpr& divisor, const IntLookup& lookup) {
  if (const auto constant = divisor.as_constant(); constant && is_power_of_two(*constant)) return b.CreateAnd(a, *constant - 1);
  Value* d = emit_int(b, divisor, lookup);
  Value* rest = b.CreateSRem(a, d);
  return b.CreateSelect(b.CreateICmpSLT(rest, b.getInt64(0)), b.CreateNSWAdd(rest, d), rest);
}

bool is_boolean(IntOp op) {
  return op == IntOp::ge || op == IntOp::gt || op == IntOp::eq || op == IntOp::logical_and || op == IntOp::logical_or ||
         op == IntOp::logical_not;
}

llvm::Constant* iota(llvm::IRBuilderBase& b, unsigned width, std::int64_t factor) {
  std::vector<llvm::Constant*> lanes;
  lanes.reserve(width);
  for (unsigned lane = 0; lane < width; ++lane) lanes.push_back(b.getInt32(static_cast<std::uint32_t>(factor * lane)));
  return llvm::ConstantVector::get(lanes);
}

/// Lookup in which the lane variable has moved on by `lane`.
IntLookup shifted(llvm::IRBuilderBase& b, const IntLookup& lookup, const LaneVariable& lane, unsigned offset) {
  return [&b, &lookup, &lane, offset](const std::string& name) -> Value* {
    Value* base = lookup(name);
    return name == lane.name && offset > 0 ? b.CreateNSWAdd(base, b.getInt64(offset)) : base;
  };
}

/// d + factor*lane compared with 0, where d is clamped so that 32 bits hold it without changing any lane's answer.
Value* compare_linear(llvm::IRBuilderBase& b, Value* d, std::int64_t factor, unsigned width, bool equality) {
  const std::int64_t bound = std::int64_t{1} << 30;
  d = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, d, b.getInt64(-bound));
  d = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, d, b.getInt64(bound));
  Value* start = b.CreateVectorSplat(width, b.CreateTrunc(d, b.getInt32Ty()));
  Value* wanted = llvm::ConstantExpr::getNeg(iota(b, width, factor));
  return equality ? b.CreateICmpEQ(start, wanted) : b.CreateICmpSGE(start, wanted);
}

Value* splat_condition(llvm::IRBuilderBase& b, Value* value, unsigned width) {
  return value->getType()->isVectorTy() ? value : b.CreateVectorSplat(width, value);
}

}  // namespace

Value* emit_int(llvm::IRBuilderBase& b, const IntExpr& expr, const IntLookup& lookup) {
  const auto arg = [&](std::size_t k) { return emit_int(b, expr.args()[k], lookup); };
  switch (expr.op()) {
    case IntOp::constant:
      return b.getInt64(static_cast<std::uint64_t>(expr.value()));
    case IntOp::variable: {
      Value* value = lookup(expr.name());
      if (value == nullptr) internal_error("no value for the variable {} in generated code", expr.name());
      return value;
    }
    case IntOp::add:
      return b.CreateNSWAdd(arg(0), arg(1));
    case IntOp::sub:
      return b.CreateNSWSub(arg(0), arg(1));
    case IntOp::mul:
      return b.CreateNSWMul(arg(0), arg(1));
    case IntOp::floor_div:
      return emit_floor_div(b, arg(0), expr.args()[1], lookup);
    case IntOp::mod:
      return emit_mod(b, arg(0), expr.args()[1], lookup);
    case IntOp::min:
      return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, arg(0), arg(1));
    case IntOp::max:
      return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, arg(0), arg(1));
    case IntOp::select:
      return b.CreateSelect(emit_condition(b, expr.args()[0], lookup), arg(1), arg(2));
    default:
      return b.CreateZExt(emit_condition(b, expr, lookup), b.getInt64Ty());
  }
}

/// x, where the condition is x > 0 or x < 0; undefined: it is something else.
static IntExpr distance_that_is_not_0(const IntExpr& either) {
  for (const IntExpr& side : either.args()) {
    if (side.op() != IntOp::ge && side.op() != IntOp::gt) return {};
  }
  const IntExpr above = comparison_distance(either.args()[0]), below = comparison_distance(either.args()[1]);
  const nvptx::Affine both = nvptx::affine_of(above + below);
  return both.is_constant() && both.constant == -2 ? above + IntExpr(1) : IntExpr();
}

Value* emit_condition(llvm::IRBuilderBase& b, const IntExpr& expr, const IntLookup& lookup) {
  if (!expr.defined()) return b.getTrue();
  if (!is_boolean(expr.op())) return b.CreateICmpNE(emit_int(b, expr, lookup), b.getInt64(0));
  const auto number = [&](std::size_t k) { return emit_int(b, expr.args()[k], lookup); };
  const auto truth = [&](std::size_t k) { return emit_condition(b, expr.args()[k], lookup); };
  switch (expr.op()) {
    case IntOp::ge:
      return b.CreateICmpSGE(number(0), number(1));
    case IntOp::gt:
      return b.CreateICmpSGT(number(0), number(1));
    case IntOp::eq:
      return b.CreateICmpEQ(number(0), number(1));
    case IntOp::logical_and:
      return b.CreateAnd(truth(0), truth(1));
    case IntOp::logical_or:
      if (const IntExpr distance = distance_that_is_not_0(expr); distance.defined())
        return b.CreateICmpNE(emit_int(b, distance, lookup), b.getInt64(0));
      return b.CreateOr(truth(0), truth(1));
    default:
      return b.CreateNot(truth(0));
  }
}

Value* emit_int32_lanes(llvm::IRBuilderBase& b, const IntExpr& expr, const IntLookup& lookup, const LaneVariable& lane) {
  const auto factor = expr.coefficient(lane.name);
  if (lane.width == 1 || factor) {
    Value* base = b.CreateTrunc(emit_int(b, expr, lookup), b.getInt32Ty());
    if (lane.width == 1 || *factor == 0) return base;
    return b.CreateAdd(b.CreateVectorSplat(lane.width, base), iota(b, lane.width, *factor));
  }
  Value* result = llvm::PoisonValue::get(llvm::FixedVectorType::get(b.getInt32Ty(), lane.width));
  for (unsigned l = 0; l < lane.width; ++l) {
    Value* value = b.CreateTrunc(emit_int(b, expr, shifted(b, lookup, lane, l)), b.getInt32Ty());
    result = b.CreateInsertElement(result, value, l);
  }
  return result;
}

Value* emit_condition_lanes(llvm::IRBuilderBase& b, const IntExpr& expr, const IntLookup& lookup, const LaneVariable& lane) {
  if (!expr.defined() || lane.width == 1 || !expr.uses(lane.name)) return emit_condition(b, expr, lookup);
  const auto part = [&](std::size_t k) {
    return splat_condition(b, emit_condition_lanes(b, expr.args()[k], lookup, lane), lane.width);
  };
  if (expr.op() == IntOp::logical_and) return b.CreateAnd(part(0), part(1));
  if (expr.op() == IntOp::logical_or) return b.CreateOr(part(0), part(1));
  if (expr.op() == IntOp::logical_not) return b.CreateNot(part(0));
  if (const IntExpr distance = comparison_distance(expr); distance.defined()) {
    const auto factor = distance.coefficient(lane.name);
    if (factor && std::abs(*factor) < (std::int64_t{1} << 24)) {
      return compare_linear(b, emit_int(b, distance, lookup), *factor, lane.width, expr.op() == IntOp::eq);
    }
  }
  Value* result = llvm::PoisonValue::get(llvm::FixedVectorType::get(b.getInt1Ty(), lane.width));
  for (unsigned l = 0; l < lane.width; ++l) {
    result = b.CreateInsertElement(result, emit_condition(b, expr, shifted(b, lookup, lane, l)), l);
  }
  return result;
}

}  // namespace nestor
