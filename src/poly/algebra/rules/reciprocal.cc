// Rule "reciprocal": quotients by a value that many points share become products with its reciprocal.
//
// Pattern    x / y in an elementwise statement, y of type f32, computed from tensors, and the same for all values of the statement's last dim (a row's sum, its
//            deviation), x not.
// Rewrite    x * (1 / y), and 1 / sqrt(z) becomes rsqrt(z): one quotient for a row instead of one for each element, as back ends compute
//            what does not change along the last dim once. Where 1 / y might overflow or be subnormal: (x k) (1 / (y k)), with k = 2^64 for
//            tiny y, 2^-64 for huge ones, and 1 else. A root that differs from element to element is worth it too: x rsqrt(z) is one
//            function and one product, x / sqrt(z) some thirty instructions.
// Conditions the statement is no reduction (there, defer_factor takes the quotient out of the sum altogether). Without k, y other than 0 and
//            infinities is within 2^-126 and 2^126, by ranges. 0, infinities and NaN give in both forms what x / y gives. A root is
//            within 2^-75 and 2^64, or 0 or infinite.
// Proof      x / y = x y^-1 in a field. In floating point both sides are within the rounding below (N. Higham, Accuracy and Stability of
//            Numerical Algorithms, §2.2: fl(x op y) = (x op y)(1 + d), |d| <= u, applied twice).
// Rounding   1.5 ulp instead of 0.5 for the quotient.
#include <fmt/format.h>

#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/scaled_quotient.h"

namespace nestor {
namespace {

bool has_read(const ScalarExpr& value) {
  bool found = false;
  value.visit([&](const ScalarExpr& node) { found = found || node.op() == ScalarOp::read; });
  return found;
}

/// The inverse of y, other than 0, must be a normal number.
constexpr int kRoom = 126;

ScalarExpr product_for(const Nest& nest, const Statement& statement, const ScalarExpr& x, const ScalarExpr& y) {
  if (y.op() == ScalarOp::sqrt) return build::mul(x, build::unary(ScalarOp::rsqrt, y.args()[0]));
  if (range_of(nest, statement, y).within(kRoom)) return build::mul(x, build::div(build::number(1), y));
  return scaled_quotient(x, y);
}

ScalarExpr with_products(const Nest& nest, const Statement& statement) {
  const int last = static_cast<int>(isl_set_dim(statement.domain.get(), isl_dim_set)) - 1;
  if (statement.reduction || last < 0) return statement.value;
  return statement.value.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::div || node.type() != ElementType::f32) return node;
    const ScalarExpr &x = node.args()[0], &y = node.args()[1];
    if (!has_read(y) || !varies_along(statement, x, last)) return node;
    if (varies_along(statement, y, last) && y.op() != ScalarOp::sqrt) return node;
    return product_for(nest, statement, x, y);
  });
}

std::vector<RuleMatch> find(const Nest& nest) {
  for (const Statement& statement : nest.statements) {
    if (with_products(nest, statement).equals(statement.value)) continue;
    return {{"reciprocal", {}, "quotients by a value that a row shares, as in " + statement.name + ", become products"}};
  }
  return {};
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  expect_arguments("reciprocal", target, 0);
  if (find(nest).empty())
    refuse_rule("reciprocal", "", "no elementwise statement divides by a value that is the same along its last loop");
  Nest result = nest;
  for (Statement& statement : result.statements) statement.value = with_products(nest, statement);
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
