// Evaluation of scalar expressions in double: the meaning that every back end approximates.
#include "poly/nest/scalar_semantics.h"

namespace nestor {

namespace {

/// Not rounded to f32: constants that rules make of others are rounded once, as numbers of the rewritten nest.
double whole_number(ElementType type, double number) {
  return type == ElementType::f32 ? semantics::in_range(number) : semantics::constant_value(type, number);
}

}  // namespace

double evaluate(const ScalarExpr& expr, const std::function<double(int)>& read, const std::function<std::int64_t(int)>& index,
                const std::function<double(const std::string&)>& scalar) {
  const auto below = [&](std::size_t k) { return evaluate(expr.args()[k], read, index, scalar); };
  switch (expr.op()) {
    case ScalarOp::constant:
      return whole_number(expr.type(), expr.number());
    case ScalarOp::index:
      return static_cast<double>(index(expr.ordinal()));
    case ScalarOp::scalar:
      return whole_number(expr.type(), scalar(expr.name()));
    case ScalarOp::read:
      return read(expr.ordinal());
    case ScalarOp::cast:
      return semantics::cast_value(expr.type(), expr.args()[0].type(), below(0));
    // Only the chosen side is evaluated: the other may read outside its tensor.
    case ScalarOp::select:
      return below(0) != 0 ? below(1) : below(2);
    case ScalarOp::logical_and:
      return below(0) != 0 && below(1) != 0 ? 1 : 0;
    case ScalarOp::logical_or:
      return below(0) != 0 || below(1) != 0 ? 1 : 0;
    default:
      break;
  }
  const ElementType type = expr.args()[0].type();
  if (arity(expr.op()) == 1) return semantics::with_unary(expr.op(), type, [&](auto f) { return f(below(0)); });
  return semantics::with_binary(expr.op(), type, [&](auto f) { return f(below(0), below(1)); });
}

double combine(ReductionOp op, double a, double b) { return semantics::combine(op, ElementType::f32, a, b); }

std::optional<semantics::SignedShift> semantics::signed_shift_of(const ScalarExpr& expr) {
  if (!expr.defined() || expr.op() != ScalarOp::bit_xor) return std::nullopt;
  const ScalarExpr &shifted = expr.args()[0], &sign = expr.args()[1];
  if (shifted.op() != ScalarOp::shift_right_logical || sign.op() != ScalarOp::select) return std::nullopt;
  const ScalarExpr &folded = shifted.args()[0], &test = sign.args()[0];
  const bool by_sign = sign.args()[1].is_constant(-1) && sign.args()[2].is_constant(0) && test.op() == ScalarOp::lt &&
                       test.args()[0].type() == ElementType::i32 && test.args()[1].is_constant(0);
  if (!by_sign || folded.op() != ScalarOp::bit_xor || !folded.args()[1].equals(sign) || !folded.args()[0].equals(test.args()[0]))
    return std::nullopt;
  return semantics::SignedShift{test.args()[0], shifted.args()[1]};
}

}  // namespace nestor
