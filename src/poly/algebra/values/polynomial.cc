// Scalar expressions as sums of products, and matching between statements.
#include "poly/algebra/values/polynomial.h"

#include <isl/aff.h>
#include <isl/map.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "poly/nest/scalar_share.h"

namespace nestor {
namespace {

constexpr std::size_t kLargestExpansion = 64;

void add_factor(Monomial& monomial, const ScalarExpr& expr, int exponent) {
  for (auto it = monomial.factors.begin(); it != monomial.factors.end(); ++it) {
    if (!it->first.equals(expr)) continue;
    it->second += exponent;
    if (it->second == 0) monomial.factors.erase(it);
    return;
  }
  monomial.factors.emplace_back(expr, exponent);
}

bool same_factors(const Monomial& a, const Monomial& b) {
  if (a.factors.size() != b.factors.size()) return false;
  for (const auto& [expr, exponent] : a.factors) {
    bool found = false;
    for (const auto& [other, other_exponent] : b.factors) found = found || (exponent == other_exponent && expr.equals(other));
    if (!found) return false;
  }
  return true;
}

/// False where terms cancel: x - x is NaN for an infinite x, and no 0.
bool add_monomial(Polynomial& sum, const Monomial& monomial) {
  for (Monomial& term : sum) {
    if (!same_factors(term, monomial)) continue;
    term.coefficient += monomial.coefficient;
    return term.coefficient != 0;
  }
  sum.push_back(monomial);
  return true;
}

Polynomial atom(const ScalarExpr& expr) { return {Monomial{1, {{expr, 1}}}}; }

bool is_normal_f32(double value) {
  return std::fabs(value) <= std::numeric_limits<float>::max() && std::fabs(value) >= std::numeric_limits<float>::min();
}

/// Does a factor of one stand under the other? x / x is NaN at 0 and at infinities.
bool cancels(const Monomial& a, const Monomial& b) {
  for (const auto& [expr, exponent] : a.factors) {
    for (const auto& [other, other_exponent] : b.factors) {
      if ((exponent < 0) != (other_exponent < 0) && expr.equals(other)) return true;
    }
  }
  return false;
}

/// Does (x a) b overflow where x (a b) does, and is a b a number of f32? A small excess before a decrease is let pass, and a loss of
/// small values before an increase.
bool may_be_one_number(double a, double b) {
  constexpr double kExcess = 4, kLoss = 0x1p-32;
  if (!is_normal_f32(a * b)) return false;
  const bool falls = std::fabs(a) > 1 && std::fabs(b) < 1, rises = std::fabs(a) < 1 && std::fabs(b) > 1;
  return falls ? std::fabs(a) <= kExcess : !rises || std::fabs(a) >= kLoss;
}

std::optional<Monomial> checked_product(const Monomial& a, const Monomial& b) {
  if (cancels(a, b) || !may_be_one_number(a.coefficient, b.coefficient)) return std::nullopt;
  return multiply(a, b);
}

/// nullopt where the product has too many terms, or where some cancel.
std::optional<Polynomial> product(const Polynomial& a, const Polynomial& b) {
  if (a.size() * b.size() > kLargestExpansion) return std::nullopt;
  Polynomial result;
  for (const Monomial& x : a) {
    for (const Monomial& y : b) {
      if (cancels(x, y) || !add_monomial(result, multiply(x, y))) return std::nullopt;
    }
  }
  return result;
}

std::optional<int> small_power(const ScalarExpr& expr) {
  if (expr.op() != ScalarOp::constant) return std::nullopt;
  for (const int exponent : {1, 2, 3}) {
    if (expr.number() == exponent) return exponent;
  }
  return std::nullopt;
}

Polynomial expanded(const ScalarExpr& expr);
Monomial multiplied(const ScalarExpr& expr);

Polynomial binary_polynomial(const ScalarExpr& expr) {
  const Polynomial a = expanded(expr.args()[0]);
  if (expr.op() == ScalarOp::pow) {
    const auto exponent = small_power(expr.args()[1]);
    std::optional<Polynomial> result = exponent ? std::optional(a) : std::nullopt;
    for (int k = 1; result && k < *exponent; ++k) result = product(*result, a);
    return result ? *result : atom(expr);
  }
  const Polynomial b = expanded(expr.args()[1]);
  switch (expr.op()) {
    case ScalarOp::add:
    case ScalarOp::sub: {
      Polynomial sum = a;
      for (const Monomial& term : scaled(b, expr.op() == ScalarOp::add ? 1 : -1)) {
        if (!add_monomial(sum, term)) return atom(expr);
      }
      return sum;
    }
    case ScalarOp::mul: {
      if (a.empty() || b.empty()) return atom(expr);  // 0 x is NaN for an infinite x
      const auto result = product(a, b);
      return result ? *result : atom(expr);
    }
    default: {
      if (a.empty()) return atom(expr);
      const auto result = product(a, {b.size() == 1 ? power(b[0], -1) : Monomial{1, {{expr.args()[1], -1}}}});
      return result ? *result : atom(expr);
    }
  }
}

bool is_arithmetic(ScalarOp op) {
  return op == ScalarOp::add || op == ScalarOp::sub || op == ScalarOp::mul || op == ScalarOp::div || op == ScalarOp::pow;
}

bool close(double a, double b) { return a == b || std::fabs(a - b) <= 1e-6 * std::fmax(std::fabs(a), std::fabs(b)); }

/// A product of integers that are sizes or indices, such as a number of elements.
bool is_index_product(const ScalarExpr& expr) {
  const auto plain = [](const ScalarExpr& factor) { return factor.op() == ScalarOp::index || is_index_product(factor); };
  return expr.op() == ScalarOp::mul && !is_float(expr.type()) && std::all_of(expr.args().begin(), expr.args().end(), plain);
}

}  // namespace

Monomial multiply(const Monomial& a, const Monomial& b) {
  Monomial result = a;
  result.coefficient *= b.coefficient;
  for (const auto& [expr, exponent] : b.factors) add_factor(result, expr, exponent);
  return result;
}

Monomial power(const Monomial& a, int exponent) {
  Monomial result = a;
  result.coefficient = std::pow(a.coefficient, exponent);
  for (auto& factor : result.factors) factor.second *= exponent;
  return result;
}

Polynomial scaled(const Polynomial& polynomial, double factor) {
  Polynomial result = polynomial;
  for (Monomial& term : result) term.coefficient *= factor;
  return result;
}

Polynomial scaled(const Polynomial& polynomial, const Monomial& factor) {
  Polynomial result = polynomial;
  for (Monomial& term : result) term = multiply(term, factor);
  return result;
}

bool same_product(const Monomial& a, const Monomial& b) {
  return multiply(a, power({1, b.factors}, -1)).factors.empty() && close(a.coefficient, b.coefficient);
}

bool is_positive(const std::vector<ScalarParam>& scalars, const ScalarExpr& expr) {
  switch (expr.op()) {
    case ScalarOp::constant:
      return expr.number() > 0 && std::isfinite(expr.number());
    case ScalarOp::scalar:
      return std::any_of(scalars.begin(), scalars.end(),
                         [&](const ScalarParam& scalar) { return scalar.name == expr.name() && scalar.minimum > 0; });
    case ScalarOp::mul:
    case ScalarOp::div:
      return is_positive(scalars, expr.args()[0]) && is_positive(scalars, expr.args()[1]);
    default:
      return false;
  }
}

bool is_half(ElementType type) { return type == ElementType::f16 || type == ElementType::bf16; }

bool is_float(ElementType type) { return type == ElementType::f32 || is_half(type); }

ScalarExpr strip_casts(const ScalarExpr& expr) {
  ScalarExpr result = expr;
  while (result.op() == ScalarOp::cast && is_float(result.type()) && is_float(result.args()[0].type())) result = result.args()[0];
  return result;
}

ScalarExpr strip_exact_casts(const ScalarExpr& expr) {
  ScalarExpr result = expr;
  while (result.op() == ScalarOp::cast && is_float(result.args()[0].type()) &&
         (result.type() == ElementType::f32 || result.type() == result.args()[0].type())) {
    result = result.args()[0];
  }
  return result;
}

namespace {

// Of expressions that are short, and so are their parts.

Polynomial expanded(const ScalarExpr& expr) {
  if (expr.type() != ElementType::f32) return atom(expr);
  switch (expr.op()) {
    case ScalarOp::constant:
      if (!std::isfinite(expr.number())) return atom(expr);
      return expr.number() == 0 ? Polynomial{} : Polynomial{Monomial{expr.number(), {}}};
    case ScalarOp::neg:
      return scaled(expanded(expr.args()[0]), -1);
    case ScalarOp::cast:
      if (expr.args()[0].type() == ElementType::f32) return expanded(expr.args()[0]);
      return is_index_product(expr.args()[0]) ? Polynomial{multiplied(expr)} : atom(expr);
    default:
      return is_arithmetic(expr.op()) ? binary_polynomial(expr) : atom(expr);
  }
}

Monomial multiplied(const ScalarExpr& expr) {
  if (expr.type() == ElementType::f32) {
    switch (expr.op()) {
      case ScalarOp::constant:
        if (is_normal_f32(expr.number())) return Monomial{expr.number(), {}};
        break;
      case ScalarOp::neg:
        return multiply(Monomial{-1, {}}, multiplied(expr.args()[0]));
      case ScalarOp::mul:
        if (const auto product = checked_product(multiplied(expr.args()[0]), multiplied(expr.args()[1]))) return *product;
        break;
      case ScalarOp::div:
        if (const auto product = checked_product(multiplied(expr.args()[0]), power(multiplied(expr.args()[1]), -1)))
          return *product;
        break;
      case ScalarOp::pow:
        if (const auto exponent = small_power(expr.args()[1])) return power(multiplied(expr.args()[0]), *exponent);
        break;
      case ScalarOp::cast:
        if (expr.args()[0].type() == ElementType::f32) return multiplied(expr.args()[0]);
        if (is_index_product(expr.args()[0])) {
          const auto factor = [&](std::size_t k) {
            return multiplied(ScalarExpr::cast(ElementType::f32, expr.args()[0].args()[k]));
          };
          if (const auto product = checked_product(factor(0), factor(1))) return *product;
        }
        break;
      default:
        break;
    }
  }
  return Monomial{1, {{expr, 1}}};
}

}  // namespace

Polynomial polynomial_of(const ScalarExpr& expr) { return is_short(expr) ? expanded(expr) : atom(expr); }

Monomial product_of(const ScalarExpr& expr) { return is_short(expr) ? multiplied(expr) : Monomial{1, {{expr, 1}}}; }

ScalarExpr to_expr(const Monomial& monomial) {
  ScalarExpr result;
  const auto times = [&](const ScalarExpr& factor) {
    result = result.defined() ? ScalarExpr::make(ScalarOp::mul, {result, factor}) : factor;
  };
  for (const auto& [expr, exponent] : monomial.factors) {
    for (int k = 0; k < exponent; ++k) times(expr);
  }
  if (monomial.coefficient != 1 || !result.defined()) times(ScalarExpr::constant(monomial.coefficient));
  for (const auto& [expr, exponent] : monomial.factors) {
    for (int k = exponent; k < 0; ++k) result = ScalarExpr::make(ScalarOp::div, {result, expr});
  }
  return result;
}

bool reads_tensor(const Statement& statement, const ScalarExpr& expr, const std::string& tensor) {
  bool found = false;
  expr.visit([&](const ScalarExpr& node) {
    found = found || (node.op() == ScalarOp::read && statement.reads.at(node.ordinal()).tensor == tensor);
  });
  return found;
}

std::optional<int> plain_read_of(const Statement& statement, const ScalarExpr& expr, const std::string& tensor) {
  const ScalarExpr bare = strip_exact_casts(expr);
  if (bare.op() != ScalarOp::read || statement.reads.at(bare.ordinal()).tensor != tensor) return std::nullopt;
  return bare.ordinal();
}

bool InstanceMatch::match(const ScalarExpr& a, const ScalarExpr& b) {
  if (a.op() != b.op() || a.type() != b.type() || a.args().size() != b.args().size()) return false;
  switch (a.op()) {
    case ScalarOp::read: {
      const Access& from = a_.reads.at(a.ordinal());
      const Access& to = b_.reads.at(b.ordinal());
      if (from.tensor != to.tensor) return false;
      reads_.emplace_back(a.ordinal(), b.ordinal());
      return true;
    }
    case ScalarOp::index:
      indices_.emplace_back(a.ordinal(), b.ordinal());
      return true;
    case ScalarOp::constant:
      return close(a.number(), b.number());
    case ScalarOp::scalar:
      return a.name() == b.name();
    default:
      break;
  }
  for (std::size_t k = 0; k < a.args().size(); ++k) {
    if (!match(a.args()[k], b.args()[k])) return false;
  }
  return true;
}

namespace {

/// Whether each item of `a` matches an item of `b`, each of these once. `matches` may add to `found`; what it adds and then refuses is taken
/// back.
template <class List, class Matches, class... Found>
bool match_in_any_order(const List& a, const List& b, const Matches& matches, Found&... found) {
  if (a.size() != b.size()) return false;
  std::vector<bool> used(b.size(), false);
  return std::all_of(a.begin(), a.end(), [&](const auto& item) {
    for (std::size_t k = 0; k < b.size(); ++k) {
      if (used[k]) continue;
      auto before = std::tuple(found...);
      if (matches(item, b[k])) {
        used[k] = true;
        return true;
      }
      std::tie(found...) = std::move(before);
    }
    return false;
  });
}

}  // namespace

bool InstanceMatch::match(const Monomial& a, const Monomial& b) {
  const auto matches = [&](const auto& x, const auto& y) { return x.second == y.second && match(x.first, y.first); };
  return close(a.coefficient, b.coefficient) && match_in_any_order(a.factors, b.factors, matches, reads_, indices_);
}

bool InstanceMatch::match(const Polynomial& a, const Polynomial& b) {
  const auto matches = [&](const Monomial& x, const Monomial& y) { return match(x, y); };
  return match_in_any_order(a, b, matches, reads_, indices_);
}

isl::map InstanceMatch::relation(const isl::set& domain_a, const isl::set& domain_b) const {
  isl::map result = isl::manage(isl_map_from_domain_and_range(domain_a.copy(), domain_b.copy()));
  for (const auto& [k, l] : reads_) {
    const isl::map& from = a_.reads.at(k).relation;
    const isl::map& to = b_.reads.at(l).relation;
    result = result.intersect(from.apply_range(to.reverse()));
  }
  for (const auto& [k, l] : indices_) {
    const isl::map from = isl::manage(isl_map_from_pw_aff(a_.indices.at(k).copy()));
    const isl::map to = isl::manage(isl_map_from_pw_aff(b_.indices.at(l).copy()));
    result = result.intersect(from.apply_range(to.reverse()));
  }
  for (const auto& [from, to] : same_element_) result = result.intersect(from.relation.apply_range(to.relation.reverse()));
  return result.coalesce();
}

}  // namespace nestor
