// Conditions of selects as isl sets.
#include "poly/algebra/condition.h"

#include <isl/aff.h>

#include <cmath>

namespace nestor {
namespace {

/// An affine integer expression over index nodes; casts of integers to f32 are exact below 2^24 and vanish.
std::optional<isl::pw_aff> integer_of(const Statement& statement, const ScalarExpr& expr) {
  const isl::set universe = isl::set::universe(statement.domain.space());
  switch (expr.op()) {
    case ScalarOp::index:
      return statement.indices.at(static_cast<std::size_t>(expr.ordinal()));
    case ScalarOp::constant: {
      if (std::trunc(expr.number()) != expr.number() || std::fabs(expr.number()) > 1e15) return std::nullopt;
      return universe.pw_aff_on_domain(static_cast<long>(expr.number()));
    }
    case ScalarOp::cast:
      return integer_of(statement, expr.args()[0]);
    case ScalarOp::neg: {
      const auto a = integer_of(statement, expr.args()[0]);
      return a ? std::optional(a->neg()) : std::nullopt;
    }
    case ScalarOp::add:
    case ScalarOp::sub: {
      const auto a = integer_of(statement, expr.args()[0]);
      const auto b = integer_of(statement, expr.args()[1]);
      if (!a || !b) return std::nullopt;
      return expr.op() == ScalarOp::add ? a->add(*b) : a->sub(*b);
    }
    case ScalarOp::mul: {
      for (const int k : {0, 1}) {
        const ScalarExpr& factor = expr.args()[static_cast<std::size_t>(k)];
        if (factor.op() != ScalarOp::constant || std::trunc(factor.number()) != factor.number()) continue;
        const auto other = integer_of(statement, expr.args()[static_cast<std::size_t>(1 - k)]);
        if (other) return other->scale(static_cast<long>(factor.number()));
      }
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<isl::set> condition_set(const Statement& statement, const ScalarExpr& condition) {
  switch (condition.op()) {
    case ScalarOp::constant: {
      const isl::set universe = isl::set::universe(statement.domain.space());
      return condition.number() != 0 ? universe : isl::set::empty(statement.domain.space());
    }
    case ScalarOp::logical_not: {
      const auto a = condition_set(statement, condition.args()[0]);
      return a ? std::optional(a->complement()) : std::nullopt;
    }
    case ScalarOp::logical_and:
    case ScalarOp::logical_or: {
      const auto a = condition_set(statement, condition.args()[0]);
      const auto b = condition_set(statement, condition.args()[1]);
      if (!a || !b) return std::nullopt;
      return condition.op() == ScalarOp::logical_and ? a->intersect(*b) : a->unite(*b);
    }
    case ScalarOp::lt:
    case ScalarOp::le:
    case ScalarOp::eq:
      break;
    default:
      return std::nullopt;
  }
  const auto a = integer_of(statement, condition.args()[0]);
  const auto b = integer_of(statement, condition.args()[1]);
  if (!a || !b) return std::nullopt;
  if (condition.op() == ScalarOp::lt) return a->lt_set(*b);
  return condition.op() == ScalarOp::le ? a->le_set(*b) : a->eq_set(*b);
}

}  // namespace nestor
