// Corrections of composite reductions as code applies them.
#include "poly/nest/composite_correction.h"

namespace nestor {

ScalarExpr substitute_scalars(const ScalarExpr& expr, const std::map<std::string, ScalarExpr>& values) {
  return expr.rewrite([&](const ScalarExpr& node) {
    const auto found = node.op() == ScalarOp::scalar ? values.find(node.name()) : values.end();
    return found == values.end() ? node : found->second;
  });
}

ScalarExpr settled_correction(const Composite& composite) {
  const ScalarExpr old = ScalarExpr::scalar("m_old", ElementType::f32), m = ScalarExpr::scalar("m_new", ElementType::f32);
  const auto reference = [&](const ScalarExpr& lead) { return substitute_scalars(composite.corrected_by(), {{"m", lead}}); };
  const ScalarExpr before = reference(old), after = reference(m);
  const ScalarExpr stays = ScalarExpr::make(ScalarOp::eq, {before, after});
  const ScalarExpr seen = ScalarExpr::make(ScalarOp::eq, {substitute_scalars(composite.view, {{"m", m}}), m});
  const ScalarExpr correction = substitute_scalars(composite.followers.front().correction, {{"m_old", before}, {"m_new", after}});
  return correction.rewrite([&](const ScalarExpr& node) {
    const bool exception = node.op() == ScalarOp::select && node.args()[0].equals(stays) && node.args()[1].is_constant(1);
    if (!exception) return node;
    const ScalarExpr kept = ScalarExpr::make(ScalarOp::select, {seen, node.args()[1], node.args()[2]});
    return ScalarExpr::make(ScalarOp::select, {stays, kept, node.args()[2]});
  });
}

}  // namespace nestor
