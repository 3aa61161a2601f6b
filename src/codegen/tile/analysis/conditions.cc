// Conditions and bounds taken apart.
#include "codegen/tile/analysis/conditions.h"

#include <algorithm>

namespace nestor {

std::vector<IntExpr> conjuncts(const IntExpr& guard) {
  if (!guard.defined()) return {};
  if (const auto value = guard.as_constant(); value && *value != 0) return {};
  if (guard.op() != IntOp::logical_and) return {guard};
  std::vector<IntExpr> parts;
  for (const IntExpr& arg : guard.args()) {
    for (const IntExpr& part : conjuncts(arg)) parts.push_back(part);
  }
  return parts;
}

std::vector<IntExpr> held_by_all_alternatives(const IntExpr& condition) {
  std::vector<IntExpr> held;
  for (const IntExpr& part : conjuncts(condition)) {
    if (part.op() != IntOp::logical_or) {
      held.push_back(part);
      continue;
    }
    const std::vector<IntExpr> second = held_by_all_alternatives(part.args()[1]);
    for (const IntExpr& fact : held_by_all_alternatives(part.args()[0])) {
      const auto same = [text = fact.str()](const IntExpr& other) { return other.str() == text; };
      if (std::any_of(second.begin(), second.end(), same)) held.push_back(fact);
    }
  }
  return held;
}

IntExpr comparison_distance(const IntExpr& comparison) {
  const auto difference = [&] { return comparison.args()[0] - comparison.args()[1]; };
  if (comparison.op() == IntOp::ge || comparison.op() == IntOp::eq) return difference();
  if (comparison.op() == IntOp::gt) return difference() - IntExpr(1);
  return {};
}

void split_terms(const IntExpr& expr, IntOp op, std::vector<IntExpr>& terms) {
  if (expr.op() == op) {
    for (const IntExpr& arg : expr.args()) split_terms(arg, op, terms);
  } else {
    terms.push_back(expr);
  }
}

bool never_negative(const OpDim& dim) {
  std::vector<IntExpr> lowers;
  split_terms(dim.lower, IntOp::max, lowers);
  return std::any_of(lowers.begin(), lowers.end(), [](const IntExpr& lower) { return lower.as_constant().value_or(-1) >= 0; });
}

bool uses_reduced(const TileOp& op, const IntExpr& expr) {
  return std::any_of(op.dims.begin(), op.dims.end(), [&](const OpDim& dim) { return dim.reduced && expr.uses(dim.var); });
}

namespace {

/// What is true wherever `condition` is, for any values of the reduced dims; undefined: nothing is known.
IntExpr without_reduced(const TileOp& op, const IntExpr& condition) {
  if (!uses_reduced(op, condition)) return condition;
  const bool both = condition.op() == IntOp::logical_and;
  if (!both && condition.op() != IntOp::logical_or) return {};
  const IntExpr a = without_reduced(op, condition.args()[0]), b = without_reduced(op, condition.args()[1]);
  if (a.defined() && b.defined()) return IntExpr::make(condition.op(), {a, b});
  return !both ? IntExpr() : a.defined() ? a : b;
}

}  // namespace

IntExpr stored_where(const TileOp& op) { return op.guard.defined() ? without_reduced(op, op.guard) : IntExpr(); }

namespace {

void add_conditions(const ScalarExpr& condition, std::vector<ScalarExpr>& all) {
  if (condition.op() != ScalarOp::logical_and) return all.push_back(condition);
  for (const ScalarExpr& part : condition.args()) add_conditions(part, all);
}

}  // namespace

std::vector<ScalarExpr> conditions_of_term(const ScalarExpr& term, ReductionOp reduction) {
  const ElementType type = term.type() == ElementType::i32 ? ElementType::i32 : ElementType::f32;
  std::vector<ScalarExpr> conditions;
  if (term.op() == ScalarOp::select && term.args()[2].is_constant(neutral_element(reduction, type)))
    add_conditions(term.args()[0], conditions);
  return conditions;
}

}  // namespace nestor
