// Short spellings of scalar expressions for the rules.
#pragma once

#include <string>

#include "poly/nest/scalar_expr.h"

namespace nestor::build {

inline ScalarExpr number(double value) { return ScalarExpr::constant(value); }
inline ScalarExpr named(const std::string& name) { return ScalarExpr::scalar(name, ElementType::f32); }
inline ScalarExpr add(const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::add, {a, b}); }
inline ScalarExpr sub(const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::sub, {a, b}); }
inline ScalarExpr mul(const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::mul, {a, b}); }
inline ScalarExpr div(const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::div, {a, b}); }
inline ScalarExpr equal(const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::eq, {a, b}); }
inline ScalarExpr select(const ScalarExpr& condition, const ScalarExpr& yes, const ScalarExpr& no) {
  return ScalarExpr::make(ScalarOp::select, {condition, yes, no});
}
inline ScalarExpr unary(ScalarOp op, const ScalarExpr& a) { return ScalarExpr::make(op, {a}); }

/// A read in f32 arithmetic.
inline ScalarExpr as_f32(const ScalarExpr& value) {
  return value.type() == ElementType::f32 ? value : ScalarExpr::cast(ElementType::f32, value);
}

}  // namespace nestor::build
