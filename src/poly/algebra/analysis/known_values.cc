// Propagation of known numbers through expressions and elementwise definitions.
#include "poly/algebra/analysis/known_values.h"

#include <cmath>
#include <limits>

#include "poly/algebra/analysis/lead_exponents.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
/// Definitions that are looked through, one in another.
constexpr int kDeepest = 16;

/// Is the result NaN if one argument is?
bool passes_nan(const ScalarExpr& expr) {
  return is_float(expr.type()) && expr.op() != ScalarOp::pow && (expr.op() != ScalarOp::cast || is_float(expr.args()[0].type()));
}

}  // namespace

bool KnownValues::is_nan(const Statement& statement, const ScalarExpr& expr) const {
  const Known value = of(statement, expr, 0);
  return value && std::isnan(*value);
}

KnownValues::Known KnownValues::of(const Statement& statement, const ScalarExpr& expr, int depth) const {
  switch (expr.op()) {
    case ScalarOp::constant:
      return expr.number();
    case ScalarOp::index:
    case ScalarOp::scalar:
      return std::nullopt;
    case ScalarOp::read:
      return of_tensor(statement.reads.at(expr.ordinal()).tensor, depth);
    case ScalarOp::exp:
    case ScalarOp::exp2:
      if (is_exponential(statement, expr)) return lead_stays_ ? kNan : 0;
      break;
    case ScalarOp::sub:  // of what is infinite, if not m then its multiple
      if (plan_ != nullptr && lead_stays_ && expr.args()[0].equals(expr.args()[1]) &&
          reads_tensor(statement, expr, plan_->lead_tensor))
        return kNan;
      break;
    case ScalarOp::select:
      return of_select(statement, expr, depth);
    default:
      break;
  }
  std::vector<ScalarExpr> args;
  for (const ScalarExpr& arg : expr.args()) {
    const Known value = of(statement, arg, depth);
    if (value && std::isnan(*value) && passes_nan(expr)) return kNan;
    if (value) args.push_back(ScalarExpr::constant(*value, arg.type()));
  }
  if (args.size() < expr.args().size()) return std::nullopt;
  return evaluate(
      expr.with_args(std::move(args)), [](int) { return 0.0; }, [](int) { return 0; }, [](const std::string&) { return 0.0; });
}

/// exp(c (a - m)) of a term a that m has seen, in any statement; not of an m that is kept finite.
bool KnownValues::is_exponential(const Statement& statement, const ScalarExpr& expr) const {
  if (plan_ == nullptr || !reads_tensor(statement, expr, plan_->lead_tensor)) return false;
  OnlinePlan found;  // what the exponent would add to the plan
  found.lead_tensor = plan_->lead_tensor;
  LeadExponents exponents(nest_, nest_.statement(plan_->lead), found);
  std::string why;
  return exponents.scale(statement, expr.args()[0], why).has_value() && !exponents.guarded();
}

KnownValues::Known KnownValues::of_select(const Statement& statement, const ScalarExpr& expr, int depth) const {
  const Known yes = of(statement, expr.args()[1], depth), no = of(statement, expr.args()[2], depth);
  if (const Known condition = of(statement, expr.args()[0], depth)) return *condition != 0 ? yes : no;
  const bool same = yes && no && (*yes == *no || (std::isnan(*yes) && std::isnan(*no)));
  return same ? yes : std::nullopt;
}

KnownValues::Known KnownValues::of_tensor(const std::string& tensor, int depth) const {
  if (const auto known = tensors_.find(tensor); known != tensors_.end()) return known->second;
  const Statement* definition = sole_definition(nest_, tensor);
  if (definition == nullptr || depth >= kDeepest) return std::nullopt;
  return of(*definition, definition->value, depth + 1);
}

}  // namespace nestor
