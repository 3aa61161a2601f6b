// Conditions of selects as isl sets.
#include "poly/algebra/values/condition.h"

#include <isl/aff.h>

#include <cmath>
#include <cstdlib>

#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/scalar_share.h"

namespace nestor {
namespace {

/// Choices in one comparison, each of which doubles the work.
constexpr int kMostChoices = 8;
/// Largest magnitudes that i32 and f32 have all integers up to.
constexpr std::int64_t kLargestInteger = 2147483647, kLargestExact = 1 << 24;

class Integers {
 public:
  Integers(const Nest& nest, const Statement& statement, bool check_indices)
      : statement_(statement), check_indices_(check_indices), domain_(domain_in(nest, statement)) {
    for (unsigned k = 0; k < static_cast<unsigned>(isl_set_dim(domain_.get(), isl_dim_param)); ++k) {
      domain_ = isl::manage(isl_set_upper_bound_si(domain_.release(), isl_dim_param, k, kLargestInteger));
    }
  }

  /// The expression as an affine function, if every step of its arithmetic is exact.
  std::optional<isl::pw_aff> of(const ScalarExpr& expr) const {
    const auto value = plain(expr);
    const bool exact = expr.op() == ScalarOp::index && !check_indices_;
    return value && (exact || fits(*value, expr.type())) ? value : std::nullopt;
  }

 private:
  bool fits(const isl::pw_aff& value, ElementType type) const {
    if (type != ElementType::i32 && type != ElementType::f32) return false;
    const std::int64_t most = type == ElementType::i32 ? kLargestInteger : kLargestExact;
    const auto at_most = [&](const isl::pw_aff& number) {
      const isl::pw_aff bound = isl::set::universe(statement_.domain.space()).pw_aff_on_domain(static_cast<long>(most));
      return domain_.is_subset(number.le_set(bound));
    };
    return at_most(value) && at_most(value.neg());
  }

  std::optional<isl::pw_aff> plain(const ScalarExpr& expr) const {
    switch (expr.op()) {
      case ScalarOp::index:
        return statement_.indices.at(expr.ordinal());
      case ScalarOp::constant: {
        if (std::trunc(expr.number()) != expr.number() || std::fabs(expr.number()) > 1e15) return std::nullopt;
        return isl::set::universe(statement_.domain.space()).pw_aff_on_domain(static_cast<long>(expr.number()));
      }
      case ScalarOp::cast:
        return of(expr.args()[0]);
      case ScalarOp::neg: {
        const auto a = of(expr.args()[0]);
        return a ? std::optional(a->neg()) : std::nullopt;
      }
      case ScalarOp::add:
      case ScalarOp::sub: {
        const auto a = of(expr.args()[0]), b = of(expr.args()[1]);
        if (!a || !b) return std::nullopt;
        return expr.op() == ScalarOp::add ? a->add(*b) : a->sub(*b);
      }
      case ScalarOp::abs: {
        const auto a = of(expr.args()[0]);
        return a ? std::optional(a->max(a->neg())) : std::nullopt;
      }
      case ScalarOp::mul:
        return product(expr);
      case ScalarOp::min:
      case ScalarOp::max: {
        const auto a = of(expr.args()[0]), b = of(expr.args()[1]);
        if (!a || !b) return std::nullopt;
        return expr.op() == ScalarOp::min ? a->min(*b) : a->max(*b);
      }
      case ScalarOp::div:
        return quotient(expr);
      case ScalarOp::bit_and:
        return remainder(expr);
      default:
        return std::nullopt;
    }
  }

  /// Of integers by a constant other than 0, towards minus infinity.
  std::optional<isl::pw_aff> quotient(const ScalarExpr& expr) const {
    const ScalarExpr& divisor = expr.args()[1];
    if (expr.type() != ElementType::i32 || divisor.op() != ScalarOp::constant || divisor.number() == 0) return std::nullopt;
    const auto whole = of(expr.args()[0]);
    return whole ? std::optional(floor_quotient(*whole, static_cast<long>(divisor.number()))) : std::nullopt;
  }

  static isl::pw_aff floor_quotient(const isl::pw_aff& whole, long divisor) {
    const isl::pw_aff dividend = divisor < 0 ? whole.neg() : whole;
    const isl::val by(whole.ctx(), std::abs(divisor));
    return isl::manage(isl_pw_aff_floor(isl_pw_aff_scale_down_val(dividend.copy(), by.copy())));
  }

  /// The bits below a power of 2.
  std::optional<isl::pw_aff> remainder(const ScalarExpr& expr) const {
    for (const int k : {0, 1}) {
      const ScalarExpr& bits = expr.args()[k];
      if (bits.op() != ScalarOp::constant || bits.number() < 0 || bits.number() >= static_cast<double>(kLargestInteger)) continue;
      const long modulus = static_cast<long>(bits.number()) + 1;
      if ((modulus & (modulus - 1)) != 0) continue;
      if (const auto whole = of(expr.args()[1 - k])) return whole->sub(floor_quotient(*whole, modulus).scale(modulus));
    }
    return std::nullopt;
  }

  std::optional<isl::pw_aff> product(const ScalarExpr& expr) const {
    for (const int k : {0, 1}) {
      const ScalarExpr& factor = expr.args()[k];
      if (factor.op() != ScalarOp::constant || std::trunc(factor.number()) != factor.number()) continue;
      if (std::fabs(factor.number()) > static_cast<double>(kLargestInteger)) continue;
      const auto other = of(expr.args()[1 - k]);
      if (other) return other->scale(static_cast<long>(factor.number()));
    }
    return std::nullopt;
  }

  const Statement& statement_;
  const bool check_indices_;
  isl::set domain_;
};

/// Conditions built of comparisons. A choice between values is taken apart where it is compared: what is compared is a number on either side.
class Conditions {
 public:
  Conditions(const Nest& nest, const Statement& statement, bool check_indices)
      : integers_(nest, statement, check_indices), space_(statement.domain.space()) {}

  std::optional<isl::set> holds(const ScalarExpr& condition) const {
    switch (condition.op()) {
      case ScalarOp::constant:
        return always(condition.number() != 0);
      case ScalarOp::logical_not:
        return complement(holds(condition.args()[0]));
      case ScalarOp::logical_and:
      case ScalarOp::logical_or: {
        const auto a = holds(condition.args()[0]), b = holds(condition.args()[1]);
        if (!a || !b) return std::nullopt;
        return condition.op() == ScalarOp::logical_and ? a->intersect(*b) : a->unite(*b);
      }
      case ScalarOp::select:
        return chosen(condition.args()[0], holds(condition.args()[1]), holds(condition.args()[2]));
      case ScalarOp::cast:
        return is_boolean(condition) ? holds_as_number(condition.args()[0]) : std::nullopt;
      case ScalarOp::lt:
      case ScalarOp::le:
      case ScalarOp::eq:
        return compared(condition.op(), condition.args()[0], condition.args()[1]);
      default:
        return std::nullopt;
    }
  }

 private:
  static bool is_boolean(const ScalarExpr& expr) { return expr.type() == ElementType::boolean; }

  isl::set always(bool holds) const { return holds ? isl::set::universe(space_) : isl::set::empty(space_); }

  static std::optional<isl::set> complement(const std::optional<isl::set>& set) {
    return set ? std::optional(set->complement()) : std::nullopt;
  }

  std::optional<isl::set> chosen(const ScalarExpr& condition, const std::optional<isl::set>& yes,
                                 const std::optional<isl::set>& no) const {
    const auto first = holds(condition);
    if (!first || !yes || !no) return std::nullopt;
    return first->intersect(*yes).unite(first->complement().intersect(*no));
  }

  /// A number counts as true unless it is 0.
  std::optional<isl::set> holds_as_number(const ScalarExpr& value) const {
    return is_boolean(value) ? holds(value) : complement(compared(ScalarOp::eq, value, ScalarExpr::constant(0, value.type())));
  }

  /// Is the node a choice between numbers, or a condition as a number?
  static bool is_choice(const ScalarExpr& node) {
    return node.op() == ScalarOp::select || (node.op() == ScalarOp::cast && !is_boolean(node) && is_boolean(node.args()[0]));
  }

  static int choices(const ScalarExpr& value) {
    int count = 0;
    value.visit([&](const ScalarExpr& node) { count += is_choice(node) ? 1 : 0; });
    return count;
  }

  static std::optional<ScalarExpr> first_choice(const ScalarExpr& value) {
    std::optional<ScalarExpr> found;
    value.visit([&](const ScalarExpr& node) {
      if (!found && is_choice(node)) found = node;
    });
    return found;
  }

  std::optional<isl::set> compared(ScalarOp op, const ScalarExpr& a, const ScalarExpr& b) const {
    if (choices(a) + choices(b) > kMostChoices) return std::nullopt;
    for (const bool left : {true, false}) {
      const ScalarExpr& side = left ? a : b;
      const auto choice = first_choice(side);
      if (!choice) continue;
      const auto with = [&](const ScalarExpr& value) {
        const ScalarExpr changed = side.rewrite([&](const ScalarExpr& node) { return node.equals(*choice) ? value : node; });
        return left ? compared(op, changed, b) : compared(op, a, changed);
      };
      if (choice->op() == ScalarOp::select) return chosen(choice->args()[0], with(choice->args()[1]), with(choice->args()[2]));
      const auto number = [&](double value) { return ScalarExpr::constant(value, choice->type()); };
      return chosen(choice->args()[0], with(number(1)), with(number(0)));
    }
    if (a.op() == ScalarOp::constant && b.op() == ScalarOp::constant) {
      const double x = a.number(), y = b.number();
      return always(op == ScalarOp::lt ? x < y : op == ScalarOp::le ? x <= y : x == y);
    }
    const auto x = integers_.of(a), y = integers_.of(b);
    if (!x || !y) return std::nullopt;
    if (op == ScalarOp::lt) return x->lt_set(*y);
    return op == ScalarOp::le ? x->le_set(*y) : x->eq_set(*y);
  }

  const Integers integers_;
  const isl::space space_;
};

}  // namespace

std::optional<isl::set> condition_set(const Nest& nest, const Statement& statement, const ScalarExpr& condition,
                                      bool check_indices) {
  if (!is_short(condition)) return std::nullopt;
  return Conditions(nest, statement, check_indices).holds(condition);
}

}  // namespace nestor
