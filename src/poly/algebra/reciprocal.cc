// Rule "reciprocal": quotients by a value that many points share become products with its reciprocal.
//
// Pattern    x / y in an elementwise statement, y of type f32, computed from tensors, and the same for all values of the statement's last dim (a row's sum, its
//            deviation), x not.
// Rewrite    x * (1 / y), and 1 / sqrt(z) becomes rsqrt(z): one quotient for a row instead of one for each element, as back ends compute
//            what does not change along the last dim once.
// Conditions the statement is no reduction (there, defer_factor takes the quotient out of the sum altogether). Where y is 0 or so small that
//            1/y overflows (below 2^-128), the product is infinite although the quotient may be finite.
// Proof      x / y = x y^-1 in a field. In floating point both sides are within the rounding below (N. Higham, Accuracy and Stability of
//            Numerical Algorithms, §2.2: fl(x op y) = (x op y)(1 + d), |d| <= u, applied twice).
// Rounding   1.5 ulp instead of 0.5 for the quotient.
#include <fmt/format.h>

#include "poly/algebra/nest_edit.h"
#include "poly/algebra/rule_list.h"

namespace nestor {
namespace {

bool has_read(const ScalarExpr& value) {
  bool found = false;
  value.visit([&](const ScalarExpr& node) { found = found || node.op() == ScalarOp::read; });
  return found;
}

ScalarExpr inverse(const ScalarExpr& value) {
  if (value.op() == ScalarOp::sqrt) return ScalarExpr::make(ScalarOp::rsqrt, {value.args()[0]});
  return ScalarExpr::make(ScalarOp::div, {ScalarExpr::constant(1), value});
}

ScalarExpr with_products(const Statement& statement) {
  const int last = static_cast<int>(isl_set_dim(statement.domain.get(), isl_dim_set)) - 1;
  if (statement.reduction || last < 0) return statement.value;
  return statement.value.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::div || node.type() != ElementType::f32) return node;
    const ScalarExpr &x = node.args()[0], &y = node.args()[1];
    if (!has_read(y) || !varies_along(statement, x, last) || varies_along(statement, y, last)) return node;
    return ScalarExpr::make(ScalarOp::mul, {x, inverse(y)});
  });
}

std::vector<RuleMatch> find(const Nest& nest) {
  for (const Statement& statement : nest.statements) {
    if (with_products(statement).equals(statement.value)) continue;
    return {{"reciprocal", {}, "quotients by a value that a row shares, as in " + statement.name + ", become products"}};
  }
  return {};
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  expect_arguments("reciprocal", target, 0);
  if (find(nest).empty())
    refuse_rule("reciprocal", "", "no elementwise statement divides by a value that is the same along its last loop");
  Nest result = nest;
  for (Statement& statement : result.statements) statement.value = with_products(statement);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& reciprocal_rule() {
  static const Rule rule{"reciprocal",
                         "quotients by a value that a row shares become products with its reciprocal",
                         "x / y = x y^-1; two roundings in place of one",
                         "1.5 ulp instead of 0.5 for each quotient",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
