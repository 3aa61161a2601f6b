// Linear forms and divisibility of integer expressions.
#include "codegen/tile/analysis/affine.h"

#include <algorithm>
#include <numeric>

namespace nestor::nvptx {
namespace {

void add_scaled(Affine& sum, const Affine& term, std::int64_t factor) {
  sum.constant += factor * term.constant;
  for (const auto& [name, coefficient] : term.terms) {
    std::int64_t& value = sum.terms[name];
    value += factor * coefficient;
    if (value == 0) sum.terms.erase(name);
  }
}

/// The expression with 0 in place of equal parts.
IntExpr without_part(const IntExpr& expr, const IntExpr& part) {
  if (expr.str() == part.str()) return IntExpr(0);
  if (expr.op() != IntOp::add && expr.op() != IntOp::sub && expr.op() != IntOp::mul) return expr;
  const IntExpr a = without_part(expr.args()[0], part), b = without_part(expr.args()[1], part);
  return expr.op() == IntOp::add ? a + b : expr.op() == IntOp::sub ? a - b : a * b;
}

}  // namespace

Affine affine_of(const IntExpr& expr) {
  Affine result;
  switch (expr.op()) {
    case IntOp::constant:
      result.constant = expr.value();
      return result;
    case IntOp::variable:
      result.terms[expr.name()] = 1;
      return result;
    case IntOp::add:
    case IntOp::sub:
      result = affine_of(expr.args()[0]);
      add_scaled(result, affine_of(expr.args()[1]), expr.op() == IntOp::add ? 1 : -1);
      return result;
    case IntOp::mul: {
      const Affine a = affine_of(expr.args()[0]), b = affine_of(expr.args()[1]);
      if (a.is_constant() || b.is_constant()) {
        add_scaled(result, a.is_constant() ? b : a, a.is_constant() ? a.constant : b.constant);
        return result;
      }
      break;
    }
    default:
      break;
  }
  result.terms["[" + expr.str() + "]"] = 1;
  return result;
}

Affine operator-(const Affine& a, const Affine& b) {
  Affine result = a;
  add_scaled(result, b, -1);
  return result;
}

Affine scaled(const Affine& form, std::int64_t factor) {
  Affine result;
  add_scaled(result, form, factor);
  return result;
}

std::vector<IntExpr> quotients_in(const IntExpr& expr) {
  if (expr.op() == IntOp::floor_div && expr.args()[1].as_constant()) return {expr};
  std::vector<IntExpr> found;
  if (expr.op() != IntOp::add && expr.op() != IntOp::sub && expr.op() != IntOp::mul) return found;
  for (const IntExpr& arg : expr.args()) {
    const std::vector<IntExpr> more = quotients_in(arg);
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

IntExpr linear_along(const IntExpr& distance, const std::string& var) {
  if (distance.coefficient(var)) return distance;
  std::vector<IntExpr> quotients = quotients_in(distance);
  std::erase_if(quotients, [&](const IntExpr& quotient) { return !quotient.uses(var); });
  if (quotients.empty()) return distance;
  const IntExpr& quotient = quotients.front();
  const auto is_other = [&](const IntExpr& other) { return other.str() != quotient.str(); };
  if (std::any_of(quotients.begin() + 1, quotients.end(), is_other)) return distance;
  const std::int64_t factor = affine_of(distance).terms[affine_of(quotient).terms.begin()->first];
  const IntExpr rest = without_part(distance, quotient);
  const auto own = rest.coefficient(var), inside = quotient.args()[0].coefficient(var);
  const std::int64_t divisor = *quotient.args()[1].as_constant();
  if (factor == 0 || !own || !inside || *own % factor != 0 || divisor <= 0) return distance;
  const IntExpr dividend = quotient.args()[0] + IntExpr(*own / factor * divisor) * IntExpr::variable(var);
  const IntExpr others = IntExpr(divisor) * floor_div(rest.substitute(var, IntExpr(0)), std::abs(factor));
  return factor > 0 ? dividend + others : others + IntExpr(divisor - 1) - dividend;
}

std::optional<std::int64_t> exact_extent(const OpDim& dim) {
  if (const auto lower = dim.lower.as_constant(), upper = dim.upper.as_constant(); lower && upper) return *upper - *lower;
  const Affine extent = affine_of(dim.upper) - affine_of(dim.lower);
  if (!extent.is_constant()) return std::nullopt;
  return extent.constant;
}

std::optional<std::int64_t> extent_bound(const OpDim& dim) {
  if (const auto exact = exact_extent(dim)) return exact;
  return dim.max_extent;
}

namespace {

/// A number that the expression does not exceed, as far as constants in its extrema and choices say.
std::optional<std::int64_t> greatest(const IntExpr& expr) {
  if (const auto constant = expr.as_constant()) return constant;
  const bool choice = expr.op() == IntOp::select;
  if (!choice && expr.op() != IntOp::min && expr.op() != IntOp::max) return std::nullopt;
  const auto a = greatest(expr.args()[choice ? 1 : 0]), b = greatest(expr.args()[choice ? 2 : 1]);
  if (expr.op() == IntOp::min) return a && b ? std::min(*a, *b) : a ? a : b;
  return a && b ? std::optional(std::max(*a, *b)) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> end_bound(const OpDim& dim) {
  auto end = greatest(dim.upper);
  const auto start = dim.lower.as_constant(), extent = extent_bound(dim);
  if (start && extent) end = end ? std::min(*end, *start + *extent) : *start + *extent;
  return end;
}

std::int64_t known_multiple(const IntExpr& expr, const Multiples& multiples, const std::set<std::string>& size_names,
                            std::int64_t assumed, std::set<std::string>& sizes) {
  const auto of = [&](int k) { return known_multiple(expr.args()[k], multiples, size_names, assumed, sizes); };
  switch (expr.op()) {
    case IntOp::constant:
      return expr.value() < 0 ? -expr.value() : expr.value();
    case IntOp::variable: {
      if (size_names.count(expr.name()) != 0) {
        sizes.insert(expr.name());
        return assumed;
      }
      const auto known = multiples.find(expr.name());
      return known == multiples.end() ? 1 : known->second;
    }
    case IntOp::add:
    case IntOp::sub:
    case IntOp::min:
    case IntOp::max:
    case IntOp::mod:
      return std::gcd(of(0), of(1));
    case IntOp::select:
      return std::gcd(of(1), of(2));
    case IntOp::mul:
      return of(0) * of(1);
    case IntOp::floor_div: {
      const auto divisor = expr.args()[1].as_constant();
      if (!divisor) return 1;
      const std::int64_t numerator = of(0);
      return numerator % *divisor == 0 ? numerator / *divisor : 1;
    }
    default:
      return 1;
  }
}

void collect_variables(const IntExpr& expr, std::set<std::string>& names) {
  if (!expr.defined()) return;
  if (expr.op() == IntOp::variable) names.insert(expr.name());
  for (const IntExpr& arg : expr.args()) collect_variables(arg, names);
}

}  // namespace nestor::nvptx
