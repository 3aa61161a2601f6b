// Propagation of known numbers through expressions and elementwise definitions.
#include "poly/algebra/analysis/known_values.h"

#include <cmath>
#include <limits>

#include "poly/algebra/analysis/lead_exponents.h"
#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/nest_sets.h"

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

/// What chose the lead's term, select(c, a, b), where it is infinite and only one of a and b can be, if `condition` is c.
KnownValues::Known KnownValues::of_choice(const Statement& statement, const ScalarExpr& condition) const {
  if (plan_ == nullptr || !lead_stays_) return std::nullopt;
  const auto lead_value = tensors_.find(plan_->lead_tensor);
  const auto instances = plan_->lead_instances.find(statement.name);
  if (lead_value == tensors_.end() || !std::isinf(lead_value->second) || instances == plan_->lead_instances.end() ||
      !instances->second.is_single_valued())
    return std::nullopt;
  const Statement& lead = nest_.statement(plan_->lead);
  // The lead's term beside the condition, so that both have the same reads.
  Statement seen = statement;
  seen.domain = domain_in(nest_, statement);
  const ScalarExpr first = import_value(seen, lead, instances->second, lead.value);
  seen.value = ScalarExpr::make(ScalarOp::select, {condition, first, first});
  const auto term = [&]() -> const ScalarExpr& { return seen.value.args()[1]; };
  for (int depth = 0; depth < kDeepest && term().op() == ScalarOp::read; ++depth) {
    if (sole_definition(nest_, seen.reads[static_cast<std::size_t>(term().ordinal())].tensor) == nullptr) return std::nullopt;
    inline_read(nest_, seen, term().ordinal());
  }
  if (term().op() != ScalarOp::select || !term().args()[0].equals(seen.value.args()[0])) return std::nullopt;
  const auto is_possible = [&](std::size_t arm) {
    const ValueRange range = range_of(nest_, seen, term().args()[arm]);
    return lead_value->second < 0 ? range.minus_infinity : range.plus_infinity;
  };
  const bool yes = is_possible(1), no = is_possible(2);
  return yes == no ? std::nullopt : Known(yes ? 1 : 0);
}

KnownValues::Known KnownValues::of_select(const Statement& statement, const ScalarExpr& expr, int depth) const {
  const Known yes = of(statement, expr.args()[1], depth), no = of(statement, expr.args()[2], depth);
  Known condition = of(statement, expr.args()[0], depth);
  if (!condition) condition = of_choice(statement, expr.args()[0]);
  if (condition) return *condition != 0 ? yes : no;
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
