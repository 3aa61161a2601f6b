// Rule "fixed_extremum": exponentials of bounded terms are taken relative to a number instead of their extremum.
//
// Pattern    m_i = max_j a_ij;  p_ij = exp(c (a_ij - m_i)), and sums of terms that are homogeneous in p, as for the rule online; |a| <= A by the
//            functions that a comes from (cap tanh(x), a sigmoid) and the ranges of scalars.
// Rewrite    m becomes a number; the search for the extremum, its reader's dependence on it and all corrections of sums disappear.
// Conditions results do not change when m moves and the sums with it (free_reference.h): quotients of sums, m plus the logarithm of one;
//            with B = c A log2 e and the number R the terms lie in [2^(-B-R), 2^(B-R)], which must be normal with room for sums:
//            [2^-100, 2^60] in f32 and bf16, [2^-14, 2^15] where terms meet f16 values (and may be rounded to that type). A NaN among
//            the terms reaches all sums of its row, as every follower takes every term; if terms may be -inf, no result tells a row of
//            nothing else by its sums of 0 (0 / 0 is NaN, as the definition has it).
// Proof      exp(c (a - m)) = exp(c (R - m)) exp(c (a - R)): each sum is multiplied by a number of its row, on which no result depends.
//            K. Hong et al., FlashDecoding++, 2023, arXiv:2311.01282, assume such a number for scores seen in practice; here it is proved.
// Rounding   Terms keep their relative precision. Sums may be 2^60 times larger or 2^100 times smaller than with the extremum.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "poly/algebra/analysis/free_reference.h"
#include "poly/algebra/analysis/infinite_rows.h"
#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/rules/online.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/error.h"

namespace nestor {
namespace {

constexpr const char* kName = "fixed_extremum";

/// Exponents of 2 that a term may have.
struct Exponents {
  double least, most;
};
constexpr Exponents kWide{-100, 60}, kHalf{-14, 15};

/// Terms that meet values of f16, or are f16, may be rounded to that type.
Exponents exponents_for(const Nest& nest, const OnlinePlan& plan) {
  bool half = false;
  const auto look = [&](const std::string& name) {
    const Statement& statement = nest.statement(name);
    half = half || nest.tensor(statement.write.tensor).type == ElementType::f16;
    for (const Access& read : statement.reads) half = half || nest.tensor(read.tensor).type == ElementType::f16;
    statement.value.visit([&](const ScalarExpr& node) { half = half || node.type() == ElementType::f16; });
  };
  for (const std::string& mediator : plan.mediators) look(mediator);
  for (const std::string& follower : plan.followers) look(follower);
  return half ? kHalf : kWide;
}

/// The largest value of a rate; infinite where a scalar has no limit.
double largest(const Nest& nest, const Statement& lead, const Monomial& rate) { return range_of(nest, lead, to_expr(rate)).high; }

/// What takes the extremum's place, a number over scalars; nullopt, with the condition that fails in `why`, where nothing can.
std::optional<Monomial> reference_for(const Nest& nest, const std::string& lead, std::string& why) {
  const Statement& statement = nest.statement(lead);
  const bool maximum = statement.reduction == ReductionOp::max;
  if (!maximum && statement.reduction != ReductionOp::min) {
    why = "it is no reduction by max or min";
    return std::nullopt;
  }
  const ValueRange terms = range_of(nest, statement, statement.value);
  if (!terms.bounded() || (maximum ? terms.plus_infinity : terms.minus_infinity)) {
    why = "nothing bounds its terms: they are neither values of a bounded function nor limited by the ranges of scalars";
    return std::nullopt;
  }
  const auto plan = analyse_online(nest, lead, &why);
  if (!plan) return std::nullopt;
  why = objection_to_free_reference(nest, *plan);
  if (!why.empty()) return std::nullopt;
  if (!sums_pass_nan(nest, *plan, &why)) return std::nullopt;
  const bool may_be_infinite = maximum ? terms.minus_infinity : terms.plus_infinity;
  if (may_be_infinite && infinite_rows_show(nest, *plan, false, &why)) return std::nullopt;
  const auto rate = common_rate(*plan);
  if (!rate) {
    why = "its terms fall at different rates";
    return std::nullopt;
  }
  // A minimum leads with a negative rate: the exponent is |rate| times the negated terms.
  const Monomial speed{std::fabs(rate->coefficient), rate->factors};
  const double bound = std::max(std::fabs(terms.low), std::fabs(terms.high));
  const double reach = bound * largest(nest, statement, speed) * std::numbers::log2e;
  const Exponents allowed = exponents_for(nest, *plan);
  const double relative = std::min(reach, -allowed.least - reach);  // of the largest term: 1, while the least one is normal
  if (!(reach - relative <= allowed.most)) {
    why = fmt::format("its terms reach 2^{:.4g} and 2^{:.4g}: no number leaves all of them within 2^{} and 2^{}", -reach, reach,
                      allowed.least, allowed.most);
    return std::nullopt;
  }
  const double natural = (maximum ? 1 : -1) * relative * std::numbers::ln2;
  return multiply({natural, {}}, power(speed, -1));
}

/// The expression with `reference` for what it reads of `extremum`, taken together with the factors around it.
ScalarExpr with_reference(const Statement& statement, const ScalarExpr& expr, const std::string& extremum,
                          const Monomial& reference) {
  const auto is_extremum = [&](const ScalarExpr& factor) { return plain_read_of(statement, factor, extremum).has_value(); };
  if (is_extremum(expr)) return to_expr(reference);
  if (expr.op() == ScalarOp::mul || expr.op() == ScalarOp::div) {
    Monomial product = product_of(expr);
    const auto found = std::find_if(product.factors.begin(), product.factors.end(),
                                    [&](const auto& factor) { return factor.second == 1 && is_extremum(factor.first); });
    if (found != product.factors.end()) {
      product.factors.erase(found);
      return to_expr(multiply(product, reference));
    }
  }
  std::vector<ScalarExpr> args;
  for (const ScalarExpr& arg : expr.args()) args.push_back(with_reference(statement, arg, extremum, reference));
  return args.empty() ? expr : expr.with_args(std::move(args));
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::vector<RuleMatch> matches;
  for (const Statement& statement : nest.statements) {
    std::string why;
    if (!statement.reduction || !reference_for(nest, statement.name, why)) continue;
    matches.push_back({kName, {statement.name}, fmt::format("a number takes the place of {}", statement.write.tensor)});
  }
  return matches;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string lead = statement_argument(nest, kName, target, 1);
  std::string why;
  const auto reference = reference_for(nest, lead, why);
  if (!reference) refuse_rule(kName, lead, why);
  const std::string extremum = nest.statement(lead).write.tensor;
  Nest result = nest;
  for (Statement& statement : result.statements) {
    if (statement.write.tensor == extremum) continue;
    statement.value = with_reference(statement, statement.value, extremum, *reference);
    compact(statement);
  }
  drop_unused(result);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& fixed_extremum_rule() {
  static const Rule rule{
      kName,
      "exponentials of bounded terms are relative to a number instead of their extremum",
      "exp(c (a - m)) = exp(c (R - m)) exp(c (a - R)), and no result depends on a factor of a row's sums; Hong et al. 2023",
      "none relative to a term; sums may be 2^60 times larger or 2^100 times smaller",
      find,
      apply};
  return rule;
}

}  // namespace nestor
