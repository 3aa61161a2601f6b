// Exponents against the lead's own terms.
#include "poly/algebra/analysis/lead_exponents.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cmath>

#include "poly/algebra/analysis/finite_lead.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"

namespace nestor {
namespace {

bool polynomials_equal(const Polynomial& a, const Polynomial& b) {
  for (const Monomial& term : a) {
    const bool found = std::any_of(b.begin(), b.end(), [&](const Monomial& other) {
      const Monomial ratio = multiply(term, power(other, -1));
      return ratio.factors.empty() && std::fabs(ratio.coefficient - 1) < 1e-6;
    });
    if (!found) return false;
  }
  return a.size() == b.size();
}

}  // namespace

void add_instances(OnlinePlan& plan, const Statement& statement, const isl::map& instances) {
  const auto found = plan.lead_instances.find(statement.name);
  if (found == plan.lead_instances.end()) {
    plan.lead_instances.emplace(statement.name, instances);
  } else {
    found->second = found->second.unite(instances).coalesce();
  }
}

LeadExponents::LeadExponents(const Nest& nest, const Statement& lead, OnlinePlan& plan)
    : nest_(nest), lead_(lead), plan_(plan), value_(polynomial_of(build::as_f32(lead.value))) {}

/// The ordinal of a read of m, or of m kept finite as in finite_lead.
std::optional<int> LeadExponents::lead_read(const Statement& statement, const ScalarExpr& expr) {
  if (const auto inside = inside_finite_lead(*lead_.reduction, expr)) {
    const auto read = plain_read_of(statement, *inside, plan_.lead_tensor);
    guarded_reads_ += read ? 1 : 0;
    return read;
  }
  return plain_read_of(statement, expr, plan_.lead_tensor);
}

std::optional<LeadExponents::LeadFactor> LeadExponents::factor_of_lead(const Statement& statement, const ScalarExpr& expr) const {
  const ScalarExpr bare = strip_exact_casts(expr);
  if (plain_read_of(statement, bare, plan_.lead_tensor) || inside_finite_lead(*lead_.reduction, bare)) return LeadFactor{};
  for (std::size_t k = 0; k < bare.args().size(); ++k) {
    if (!reads_tensor(statement, bare.args()[k], plan_.lead_tensor)) continue;
    auto found = factor_of_lead(statement, bare.args()[k]);
    if (!found || found->subtracted) return found;
    switch (bare.op()) {
      case ScalarOp::add:
      case ScalarOp::sub:
        found->subtracted = true;
        return found;
      case ScalarOp::neg:
        return found;
      case ScalarOp::mul:
        found->value = multiply(found->value, product_of(bare.args()[1 - k]));
        return found;
      case ScalarOp::div:
        found->value = multiply(found->value, power(product_of(bare.args()[1]), -1));
        return found;
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

bool LeadExponents::note_factor(const Statement& statement, const ScalarExpr& exponent) {
  const auto factor = factor_of_lead(statement, exponent);
  if (!factor) return false;
  for (const auto& [expr, power] : factor->value.factors) {
    if (!is_positive(nest_.scalars, strip_casts(expr))) return false;
  }
  const bool known = std::any_of(plan_.lead_factors.begin(), plan_.lead_factors.end(),
                                 [&](const Monomial& other) { return same_product(other, factor->value); });
  if (!known) plan_.lead_factors.push_back(factor->value);
  return true;
}

/// A term c m of an exponent as c and the read of m, c being a number times scalars that are known to be positive.
std::optional<std::pair<Monomial, int>> LeadExponents::multiple_of_lead(const Statement& statement, const Monomial& term) {
  Monomial scale{term.coefficient, {}};
  std::optional<int> ordinal;
  for (const auto& [factor, exponent] : term.factors) {
    if (const auto read = lead_read(statement, factor)) {
      if (exponent != 1 || ordinal) return std::nullopt;
      ordinal = read;
    } else if (is_positive(nest_.scalars, strip_casts(factor))) {
      scale.factors.emplace_back(factor, exponent);
    } else {
      return std::nullopt;
    }
  }
  if (!ordinal) return std::nullopt;
  return std::pair(scale, *ordinal);
}

std::optional<LeadExponents::SplitExponent> LeadExponents::split(const Statement& statement, const ScalarExpr& exponent,
                                                                 std::string& why) {
  SplitExponent parts;
  std::optional<Monomial> scale;
  for (const Monomial& term : polynomial_of(exponent)) {
    const bool has_lead = std::any_of(term.factors.begin(), term.factors.end(),
                                      [&](const auto& f) { return reads_tensor(statement, f.first, plan_.lead_tensor); });
    if (!has_lead) {
      parts.rest.push_back(term);
      continue;
    }
    const auto multiple = multiple_of_lead(statement, term);
    if (!multiple || scale) {
      why = "the exponent is not linear in the leading value, by a factor of known sign";
      return std::nullopt;
    }
    scale = multiply(Monomial{-1, {}}, multiple->first);
    parts.ordinal = multiple->second;
  }
  if (!scale || scale->coefficient == 0) {
    why = "the exponent is not linear in the leading value";
    return std::nullopt;
  }
  parts.scale = *scale;
  return parts;
}

std::optional<Monomial> LeadExponents::scale(const Statement& statement, const ScalarExpr& exponent, std::string& why) {
  const auto refuse = [&](const char* reason) {
    why = reason;
    return std::nullopt;
  };
  const int guarded_before = guarded_reads_;
  const auto parts = split(statement, exponent, why);
  if (!parts) return std::nullopt;
  if ((parts->scale.coefficient > 0) != (*lead_.reduction == ReductionOp::max)) {
    return refuse("the exponent grows beyond all bounds: for a maximum it must fall with m, for a minimum rise");
  }
  InstanceMatch match(lead_, statement);
  if (!match.match(scaled(value_, parts->scale), parts->rest)) {
    return refuse("the exponent is no multiple of the difference between the lead's term and its result");
  }
  if (!note_factor(statement, exponent)) return refuse("the leading value is not simply scaled and subtracted");
  guarded_ = guarded_ && guarded_reads_ > guarded_before;
  match.require(lead_.write, statement.reads[parts->ordinal]);
  const isl::set domain = domain_in(nest_, statement);
  const isl::map instances = match.relation(domain_in(nest_, lead_), domain);
  if (!domain.is_subset(instances.range())) return refuse("it uses terms that the leading value has not seen");
  add_instances(plan_, statement, instances.reverse());
  return parts->scale;
}

bool LeadExponents::is_guard(const ScalarExpr& expr) const {
  const ScalarExpr& condition = expr.args()[0];
  if (condition.op() != ScalarOp::eq || !expr.args()[1].is_constant(1)) return false;
  const ScalarExpr phi = strip_casts(expr.args()[2]);
  if (phi.op() != ScalarOp::exp && phi.op() != ScalarOp::exp2) return false;
  const Polynomial difference = polynomial_of(ScalarExpr::make(ScalarOp::sub, {condition.args()[0], condition.args()[1]}));
  const Polynomial exponent = polynomial_of(phi.args()[0]);
  if (difference.empty() || difference.size() != exponent.size()) return false;
  for (const Monomial& term : exponent) {
    for (const Monomial& other : difference) {
      const Monomial ratio = multiply(term, power(other, -1));
      if (!ratio.factors.empty()) continue;
      return polynomials_equal(exponent, scaled(difference, ratio.coefficient));
    }
  }
  return false;
}

}  // namespace nestor
