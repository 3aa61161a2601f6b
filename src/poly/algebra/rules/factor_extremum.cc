// Rule "factor_extremum": positive factors leave a maximum or minimum and go to those who read it and its terms.
//
// Pattern    t_j = c x_j elementwise with c > 0, and m = max_j t_j (or min).
// Rewrite    t'_j = x_j and m' = max_j x_j; every other reader of t sees c t', every reader of m sees c m'. In exp2(t - m) the product
//            joins the difference as one fma, so that a multiplication for each term is saved.
// Conditions c is a product of positive numbers and of scalars whose range is positive; t is a temporary with that one definition; m
//            is a temporary that starts from an infinity, or from a number v with c (v / c) = v in f32, and takes nothing but t.
// Proof      c > 0 makes x -> c x monotone, rounded or not: max(c x) = c max(x), c (-inf) = -inf, and NaN stays NaN. c is finite, as a scalar
//            with a range is. c x overflows where t did.
// Rounding   c x - c m with products that an fma does not round: 2^-24 |c m| absolute in the exponent, as where c x was rounded before.
#include <fmt/format.h>

#include <cmath>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "support/error.h"

namespace nestor {
namespace {

/// A value as positive * rest.
struct Split {
  Monomial positive, rest;
};

std::optional<Split> split_value(const Nest& nest, const ScalarExpr& value) {
  const Monomial product = product_of(value);
  if (!(product.coefficient > 0)) return std::nullopt;
  Split split{{product.coefficient, {}}, {1, {}}};
  for (const auto& factor : product.factors)
    (is_positive(nest.scalars, strip_casts(factor.first)) ? split.positive : split.rest).factors.push_back(factor);
  const bool trivial = split.positive.factors.empty() && split.positive.coefficient == 1;
  if (trivial || split.rest.factors.empty()) return std::nullopt;
  return split;
}

/// v / c if c times that is v again in f32.
std::optional<double> exact_quotient(double v, const ScalarExpr& c) {
  if (std::isinf(v)) return v;
  if (c.op() != ScalarOp::constant) return std::nullopt;
  const auto factor = static_cast<float>(c.number()), quotient = static_cast<float>(v) / factor;
  if (!std::isfinite(quotient) || quotient * factor != static_cast<float>(v)) return std::nullopt;
  return quotient;
}

/// What the rule changes.
struct Plan {
  std::string terms, extremum;  ///< tensors
  ScalarExpr factor;
  ScalarExpr rest;  ///< new value of the terms
};

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
  const auto split = split_value(nest, definition->value);
  if (!split)
    return fmt::format("the value of {} has no factor that is known to be positive (a scalar is when its range says so)",
                       plan.terms);
  plan.factor = to_expr(split->positive);
  for (const Statement* start : starts) {
    if (exact_quotient(start->value.number(), plan.factor)) continue;
    return fmt::format("{} starts from {}, which has no exact quotient by {}", plan.extremum, start->value.number(),
                       plan.factor.str({}, {}));
  }
  plan.rest = to_expr(split->rest);
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
    if (starts) statement.value = build::number(*exact_quotient(statement.value.number(), plan.factor));
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
