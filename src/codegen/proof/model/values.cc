// Matching of scalar expressions.
#include "codegen/proof/model/values.h"

#include "codegen/proof/model/composite_roles.h"

#include <algorithm>

namespace nestor::proof {
namespace {

bool is_count(const ScalarExpr& expr) { return expr.op() == ScalarOp::scalar && expr.name().starts_with('#'); }

ScalarExpr count(const std::string& name) { return ScalarExpr::scalar(name, ElementType::f32); }

/// Appends the indices that a product of `cast(f32, index(k))` multiplies; false where it is none.
bool take_factors(const ScalarExpr& product, std::vector<int>& factors) {
  if (product.op() == ScalarOp::mul && product.type() == ElementType::f32)
    return take_factors(product.args()[0], factors) && take_factors(product.args()[1], factors);
  if (product.op() != ScalarOp::cast || product.type() != ElementType::f32 || product.args()[0].op() != ScalarOp::index)
    return false;
  factors.push_back(product.args()[0].ordinal());
  return true;
}

bool is_identity(const ScalarExpr& view) { return view.op() == ScalarOp::scalar && view.name() == "m"; }

}  // namespace

std::optional<double> constant_value(const ScalarExpr& expr) {
  bool constant = true;
  expr.visit([&](const ScalarExpr& node) {
    constant = constant && node.op() != ScalarOp::read && node.op() != ScalarOp::index && node.op() != ScalarOp::scalar;
  });
  if (!constant) return std::nullopt;
  return evaluate(expr, [](int) { return 0.0; }, [](int) -> std::int64_t { return 0; }, [](const std::string&) { return 0.0; });
}

ScalarExpr with_scalars(const ScalarExpr& expr, const std::map<std::string, ScalarExpr>& values) {
  return expr.rewrite([&](const ScalarExpr& node) {
    const auto found = node.op() == ScalarOp::scalar ? values.find(node.name()) : values.end();
    return found == values.end() ? node : found->second;
  });
}

ScalarExpr view_of(const ScalarExpr& view, const ScalarExpr& value, const std::string& points) {
  return with_scalars(view, {{"m", value}, {"n", count(points)}, {"n_total", count(kPointsTotal)}});
}

ScalarExpr viewed_value(const Subject& subject, const Statement& statement) {
  ScalarExpr value = statement.value;
  for (const Composite& composite : subject.composites) {
    const bool member = statement.name != composite.lead && is_member(composite, statement.name);
    if (!member || is_identity(composite.view)) continue;
    value = value.rewrite([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::read) return node;
      const bool leading = statement.reads[node.ordinal()].tensor == composite.lead_tensor;
      return leading ? view_of(composite.view, node, kPointsThrough) : node;
    });
  }
  return value;
}

bool matches(const ScalarExpr& actual, const ScalarExpr& expected, std::vector<CountUse>& counts) {
  if (is_count(expected)) {
    counts.push_back({expected.name(), {}});
    return take_factors(actual, counts.back().factors);
  }
  if (actual.op() != expected.op() || actual.type() != expected.type() || actual.args().size() != expected.args().size())
    return false;
  switch (actual.op()) {
    case ScalarOp::constant:
      if (actual.number() != expected.number() && (actual.number() == actual.number() || expected.number() == expected.number()))
        return false;
      break;
    case ScalarOp::index:
    case ScalarOp::read:
      if (actual.ordinal() != expected.ordinal()) return false;
      break;
    case ScalarOp::scalar:
      if (actual.name() != expected.name()) return false;
      break;
    default:
      break;
  }
  for (std::size_t k = 0; k < actual.args().size(); ++k) {
    if (!matches(actual.args()[k], expected.args()[k], counts)) return false;
  }
  return true;
}

bool matches_value(const TileOp& op, const ScalarExpr& expected) {
  bool counted = false;
  expected.visit([&](const ScalarExpr& node) { counted = counted || is_count(node); });
  if (!counted && op.value.equals(expected)) return true;  // which looks at shared parts once
  std::vector<CountUse> counts;
  return matches(op.value, expected, counts);
}

}  // namespace nestor::proof
