// Rule "factor_extremum": positive factors leave a maximum or minimum and go to those who read it and its terms.
//
// Pattern    t_j = c x_j elementwise with c > 0, and m = max_j t_j (or min). x_j may be hidden: c x_j + h_j, or a choice between c x_j and h_j,
//            with h_j made of 0 and infinities.
// Rewrite    t'_j = x_j and m' = max_j x_j; every other reader of t sees c t', every reader of m sees c m'. In exp2(t - m) the product
//            joins the difference as one fma, so that a multiplication for each term is saved.
// Conditions c is a product of positive numbers and of scalars whose range is positive; t is a temporary with that one definition; m
//            is a temporary that starts from an infinity, or from a number v, and takes nothing but t. Where m is read by more than exponentials
//            and final results, c (v / c) = v in f32. No reader keeps m finite by a number (finite_lead.h).
// Proof      c > 0 makes x -> c x monotone, rounded or not: max(c x) = c max(x), c (-inf) = -inf, and NaN stays NaN. c is finite, as a scalar
//            with a range is. c x overflows where t did. c x + h = c (x + h) for h of 0 and infinities.
// Rounding   c x - c m with products that an fma does not round: 2^-24 |c m| absolute in the exponent, as where c x was rounded before.
//            A start without an exact quotient: 2^-24 of it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "poly/algebra/analysis/finite_lead.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "support/error.h"

namespace nestor {
namespace {

/// A value as positive * rest.
struct Split {
  Monomial positive;
  ScalarExpr rest;
};

/// Is the value 0 or an infinity, whatever is chosen?
bool is_unscaled(const ScalarExpr& value) {
  if (value.op() == ScalarOp::select) return is_unscaled(value.args()[1]) && is_unscaled(value.args()[2]);
  return value.op() == ScalarOp::constant && (value.number() == 0 || std::isinf(value.number()));
}

std::optional<Split> split_value(const Nest& nest, const ScalarExpr& value);

/// Of a sum with, or a choice between, a value with a factor and one that no factor changes.
std::optional<Split> split_hidden(const Nest& nest, const ScalarExpr& value) {
  const std::size_t first = value.op() == ScalarOp::select ? 1 : 0;
  for (const std::size_t k : {first, first + 1}) {
    if (!is_unscaled(value.args()[2 * first + 1 - k])) continue;
    auto split = split_value(nest, value.args()[k]);
    if (!split) continue;
    std::vector<ScalarExpr> args = value.args();
    args[k] = split->rest;
    split->rest = value.with_args(std::move(args));
    return split;
  }
  return std::nullopt;
}

std::optional<Split> split_value(const Nest& nest, const ScalarExpr& value) {
  if (value.op() == ScalarOp::add || value.op() == ScalarOp::select) return split_hidden(nest, value);
  const Monomial product = product_of(value);
  if (!(product.coefficient > 0)) return std::nullopt;
  Monomial positive{product.coefficient, {}}, rest{1, {}};
  for (const auto& factor : product.factors)
    (is_positive(nest.scalars, strip_casts(factor.first)) ? positive : rest).factors.push_back(factor);
  const bool trivial = positive.factors.empty() && positive.coefficient == 1;
  if (trivial || rest.factors.empty()) return std::nullopt;
  return Split{positive, to_expr(rest)};
}

/// v / c, if it and c times that are finite in f32. `exact`: c times it is v again.
std::optional<double> quotient_of(double v, const ScalarExpr& c, bool exact) {
  if (std::isinf(v)) return v;
  if (c.op() != ScalarOp::constant) return std::nullopt;
  const auto factor = static_cast<float>(c.number()), quotient = static_cast<float>(v) / factor;
  if (!std::isfinite(quotient) || !std::isfinite(quotient * factor)) return std::nullopt;
  if (exact && quotient * factor != static_cast<float>(v)) return std::nullopt;
  return quotient;
}

/// Does the expression read the tensor other than in exponentials, or to choose by it? `rounded`: it may read it plainly, too.
bool reads_exactly(const Statement& statement, const ScalarExpr& expr, const std::string& tensor, bool rounded) {
  if (expr.op() == ScalarOp::read) return !rounded && statement.reads.at(expr.ordinal()).tensor == tensor;
  const bool compares = expr.op() == ScalarOp::lt || expr.op() == ScalarOp::le || expr.op() == ScalarOp::eq ||
                        expr.op() == ScalarOp::min || expr.op() == ScalarOp::max;
  rounded = (rounded || expr.op() == ScalarOp::exp || expr.op() == ScalarOp::exp2) && !compares;
  return std::any_of(expr.args().begin(), expr.args().end(),
                     [&](const ScalarExpr& arg) { return reads_exactly(statement, arg, tensor, rounded); });
}

bool is_read(const Nest& nest, const std::string& tensor) {
  return std::any_of(nest.statements.begin(), nest.statements.end(),
                     [&](const Statement& statement) { return reads_tensor(statement, statement.value, tensor); });
}

/// Must the tensor's elements be exact? Not where exponentials alone read them, and results that nobody reads again.
bool is_exact(const Nest& nest, const std::string& tensor) {
  return std::any_of(nest.statements.begin(), nest.statements.end(), [&](const Statement& statement) {
    const bool result = nest.tensor(statement.write.tensor).role == TensorRole::output && !is_read(nest, statement.write.tensor);
    return reads_exactly(statement, statement.value, tensor, result);
  });
}

/// What the rule changes.
struct Plan {
  std::string terms, extremum;  ///< tensors
  ScalarExpr factor;
  ScalarExpr rest;     ///< new value of the terms
  bool exact = false;  ///< starts need exact quotients
};

/// Does the reader see the lead's extremum as finite_lead makes it?
bool keeps_finite(const Statement& reader, const Statement& lead) {
  bool found = false;
  reader.value.visit([&](const ScalarExpr& node) {
    const auto inside = inside_finite_lead(*lead.reduction, node);
    found = found || (inside && reads_tensor(reader, *inside, lead.write.tensor));
  });
  return found;
}

std::string objection(const Nest& nest, const Statement& lead, Plan& plan) {
  if (lead.reduction != ReductionOp::max && lead.reduction != ReductionOp::min) return "it is no reduction by max or min";
  if (lead.value.op() != ScalarOp::read) return "its term is not one element of a temporary";
  plan.terms = lead.reads.at(lead.value.ordinal()).tensor;
  plan.extremum = lead.write.tensor;
  for (const std::string& name : {plan.terms, plan.extremum}) {
    const Tensor& tensor = nest.tensor(name);
    if (tensor.role != TensorRole::temporary || tensor.type != ElementType::f32) return name + " is no temporary of type f32";
  }
  const Statement* definition = sole_definition(nest, plan.terms);
  if (definition == nullptr) return plan.terms + " has several definitions";
  const std::vector<const Statement*> starts = initialisers_of(nest, lead);
  if (starts.empty()) return plan.extremum + " has several reductions";
  for (const Statement* start : starts) {
    if (start->value.op() != ScalarOp::constant) return plan.extremum + " does not start from a number";
  }
  for (const Statement* reader : readers_of(nest, plan.extremum)) {
    if (keeps_finite(*reader, lead))
      return fmt::format("{} keeps {} finite by a number, which would no longer be seen", reader->name, plan.extremum);
  }
  const auto split = split_value(nest, definition->value);
  if (!split)
    return fmt::format("the value of {} has no factor that is known to be positive (a scalar is when its range says so)",
                       plan.terms);
  plan.factor = to_expr(split->positive);
  plan.exact = is_exact(nest, plan.extremum);
  for (const Statement* start : starts) {
    if (quotient_of(start->value.number(), plan.factor, plan.exact)) continue;
    return fmt::format("{} starts from {}, which has no {} quotient by {}", plan.extremum, start->value.number(),
                       plan.exact ? "exact" : "finite", plan.factor.str({}, {}));
  }
  plan.rest = split->rest;
  return "";
}

/// The statement with `factor` times what it reads of `tensor`.
void scale_reads(Statement& statement, const std::string& tensor, const ScalarExpr& factor) {
  statement.value = statement.value.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read) return node;
    const bool scaled = statement.reads.at(node.ordinal()).tensor == tensor;
    return scaled ? build::mul(node, factor) : node;
  });
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::vector<RuleMatch> matches;
  for (const Statement& statement : nest.statements) {
    Plan plan;
    if (!statement.reduction || !objection(nest, statement, plan).empty()) continue;
    matches.push_back(
        {"factor_extremum", {statement.name}, fmt::format("the factor of {} leaves {}", plan.terms, statement.name)});
  }
  return matches;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string lead = statement_argument(nest, "factor_extremum", target, 1);
  Plan plan;
  const std::string why = objection(nest, nest.statement(lead), plan);
  if (!why.empty()) refuse_rule("factor_extremum", lead, why);
  Nest result = nest;
  for (Statement& statement : result.statements) {
    const bool starts = statement.write.tensor == plan.extremum && !statement.reduction;
    if (statement.name == lead) continue;
    if (statement.write.tensor == plan.terms) statement.value = plan.rest;
    if (starts) statement.value = build::number(*quotient_of(statement.value.number(), plan.factor, plan.exact));
    scale_reads(statement, plan.terms, plan.factor);
    scale_reads(statement, plan.extremum, plan.factor);
    compact(statement);
  }
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& factor_extremum_rule() {
  static const Rule rule{"factor_extremum",
                         "positive factors leave a maximum and go to those who read it and its terms",
                         "max(c x) = c max(x) for c > 0",
                         "2^-24 of the scaled extremum, absolute in the exponent",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
