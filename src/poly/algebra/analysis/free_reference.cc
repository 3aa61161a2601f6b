// The group of shifts d acts on the values of a nest: m -> m + d, r -> exp(-rate d) r. What follows from these values moves by
// v -> exp(-decay d) v or by v -> v + drift d; results must not move at all.
#include "poly/algebra/analysis/free_reference.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <set>

#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/scaled_quotient.h"

namespace nestor {
namespace {

/// Relative: constants such as log2 e are rounded to f32.
constexpr double kSameRate = 1e-5;

bool is_none(const Monomial& rate) { return rate.coefficient == 0; }

/// a + b where both are multiples of the same scalars.
std::optional<Monomial> sum_of(const Monomial& a, const Monomial& b) {
  if (is_none(a)) return b;
  if (is_none(b)) return a;
  if (!same_product({1, a.factors}, {1, b.factors})) return std::nullopt;
  const double sum = a.coefficient + b.coefficient;
  if (std::fabs(sum) <= kSameRate * std::fabs(a.coefficient)) return Monomial{0, {}};
  return Monomial{sum, a.factors};
}

Monomial times(double factor, Monomial rate) {
  rate.coefficient *= factor;
  return rate;
}

bool same_rate(const Monomial& a, const Monomial& b) {
  const auto difference = sum_of(a, times(-1, b));
  return difference && is_none(*difference);
}

/// exp(v) for base exp, 2^v for exp2: the factor that makes the exponent one of e.
double natural(ScalarOp base) { return base == ScalarOp::exp2 ? std::numbers::ln2 : 1; }

/// How a value moves with the shift d: v -> exp(-decay d) v, or v -> v + drift d. Zero moves either way as it likes.
struct Motion {
  Monomial decay{0, {}}, drift{0, {}};
  bool zero = false;      ///< 0, which any factor leaves as it is
  bool infinite = false;  ///< an infinity (or a lowest finite number that stands for one), which any term leaves as it is
  bool still() const { return is_none(decay) && is_none(drift); }
};

bool same_motion(const Motion& a, const Motion& b) { return same_rate(a.decay, b.decay) && same_rate(a.drift, b.drift); }

class Shift {
 public:
  Shift(const Nest& nest, const OnlinePlan& plan) : nest_(nest), plan_(plan), lead_(nest.statement(plan.lead)) {}

  std::string objection() {
    if (nest_.tensor(plan_.lead_tensor).role != TensorRole::temporary) return plan_.lead_tensor + " is a result";
    tensors_[plan_.lead_tensor].drift = {1, {}};
    const isl::map written = lead_.write.relation.intersect_domain(domain_in(nest_, lead_));
    elements_.emplace(plan_.lead_tensor, isl::manage(isl_set_identity(written.range().release())));
    for (const auto* names : {&plan_.mediators, &plan_.followers}) {
      for (const std::string& name : *names) {
        const std::string& tensor = nest_.statement(name).write.tensor;
        if (nest_.tensor(tensor).role != TensorRole::temporary) return tensor + " is a result";
        tensors_[tensor].decay = times(natural(plan_.base.at(name)), plan_.degree.at(name));
        elements_.emplace(tensor, plan_.lead_elements.at(name));
        members_.insert(name);
      }
    }
    for (const Statement& statement : nest_.statements) {
      if (std::string why = follow(statement); !why.empty()) return why;
    }
    return "";
  }

 private:
  /// Notes how what the statement writes moves; why a result does.
  std::string follow(const Statement& statement) {
    if (statement.name == lead_.name || members_.contains(statement.name)) return "";
    const bool reads_moved = std::any_of(statement.reads.begin(), statement.reads.end(),
                                         [&](const Access& read) { return tensors_.contains(read.tensor); });
    const std::string& written = statement.write.tensor;
    if (!reads_moved) {
      const bool starts = written == plan_.lead_tensor || statement.value.is_constant(0);
      return starts || !tensors_.contains(written) ? "" : fmt::format("{} writes {} as well", statement.name, written);
    }
    const isl::map elements = lead_elements(statement);
    if (!elements.is_single_valued()) return fmt::format("{} reads values of several {}", statement.name, plan_.lead_tensor);
    const auto value = motion_of(statement, statement.value);
    if (statement.reduction && !(value && value->still()))
      return fmt::format("{} accumulates values that move with {}", statement.name, plan_.lead_tensor);
    const auto motion = value ? motion_of_cast(statement, *value, nest_.tensor(written).type, statement.value.type()) : value;
    if (!motion) return why_;
    if (motion->still()) return "";
    if (nest_.tensor(written).role != TensorRole::temporary)
      return fmt::format("{} depends on {} itself", written, plan_.lead_tensor);
    const isl::map by_element =
        statement.write.relation.intersect_domain(domain_in(nest_, statement)).reverse().apply_range(elements).coalesce();
    if (sole_definition(nest_, written) == nullptr || !by_element.is_single_valued())
      return fmt::format("{} has several definitions", written);
    tensors_[written] = *motion;
    elements_.emplace(written, by_element);
    return "";
  }

  /// { Statement -> element of the lead's tensor } that what it reads moves with.
  isl::map lead_elements(const Statement& statement) const {
    std::optional<isl::map> all;
    for (const Access& read : statement.reads) {
      const auto found = elements_.find(read.tensor);
      if (found == elements_.end()) continue;
      const isl::map more = read.relation.intersect_domain(domain_in(nest_, statement)).apply_range(found->second);
      all = all ? all->unite(more) : more;
    }
    return all->coalesce();
  }

  std::nullopt_t refuse(const Statement& statement, const std::string& reason) {
    if (why_.empty()) why_ = fmt::format("in {}, {}", statement.name, reason);
    return std::nullopt;
  }

  std::optional<Motion> motion_of_sum(const Statement& statement, const Motion& a, const Motion& b, double sign) {
    if (a.zero) return Motion{b.decay, times(sign, b.drift), b.zero, b.infinite};
    if (b.zero) return a;
    if (is_none(a.decay) && is_none(b.decay)) {
      const auto drift = sum_of(a.drift, times(sign, b.drift));
      if (!drift) return refuse(statement, "values move by different scalars");
      return Motion{{0, {}}, *drift, false, a.infinite || b.infinite};
    }
    if (same_motion(a, b)) return a;
    return refuse(statement, "a sum of values that move differently");
  }

  /// `power` 1: a b; -1: a / b.
  std::optional<Motion> motion_of_product(const Statement& statement, const ScalarExpr& expr, const Motion& a, const Motion& b,
                                          int power) {
    const bool drifts_a = !is_none(a.drift), drifts_b = !is_none(b.drift);
    if (!drifts_a && !drifts_b) {
      const auto decay = sum_of(a.decay, times(power, b.decay));
      if (!decay) return refuse(statement, "factors that decay by different scalars");
      return Motion{*decay, {0, {}}, a.zero || (power > 0 && b.zero), false};
    }
    const Motion& other = drifts_a ? b : a;
    const Monomial factor = product_of(expr.args()[drifts_a ? 1 : 0]);
    const bool number = std::all_of(factor.factors.begin(), factor.factors.end(),
                                    [](const auto& f) { return strip_casts(f.first).op() == ScalarOp::scalar; });
    if (!other.still() || !number || (drifts_b && power < 0))
      return refuse(statement, fmt::format("{} is multiplied by more than scalars", plan_.lead_tensor));
    return Motion{{0, {}}, multiply(drifts_a ? a.drift : b.drift, nestor::power(factor, power)), false, false};
  }

  std::optional<Motion> motion_of_extremum(const Statement& statement, const Motion& a, const Motion& b) {
    if (a.infinite) return b;
    if (b.infinite) return a;
    if (same_motion(a, b)) return a;
    return refuse(statement, "an extremum of values that move differently");
  }

  /// A comparison whose outcome no shift changes: of one sign, or with an infinity.
  std::optional<Motion> motion_of_comparison(const Statement& statement, const Motion& a, const Motion& b) {
    const bool of_sign = is_none(a.drift) && is_none(b.drift) && (a.zero || b.zero);
    const bool with_infinity = is_none(a.decay) && is_none(b.decay) && (a.infinite || b.infinite);
    if (of_sign || with_infinity || same_motion(a, b)) return Motion{};
    return refuse(statement, "a comparison depends on the leading value");
  }

  std::optional<Motion> motion_of_select(const Statement& statement, const ScalarExpr& expr) {
    const auto condition = motion_of(statement, expr.args()[0]);
    const auto a = motion_of(statement, expr.args()[1]), b = motion_of(statement, expr.args()[2]);
    if (!condition || !a || !b) return std::nullopt;
    if (!condition->still()) return refuse(statement, "the leading value decides a select");
    if (a->zero && is_none(b->drift)) return b;
    if (b->zero && is_none(a->drift)) return a;
    if (a->infinite && is_none(b->decay)) return b;
    if (b->infinite && is_none(a->decay)) return a;
    if (same_motion(*a, *b)) return Motion{a->decay, a->drift, a->zero && b->zero, a->infinite && b->infinite};
    return refuse(statement, "a select between values that move differently");
  }

  /// Integers do not move; 16 bits round what is added, and f16 overflows by what is multiplied.
  std::optional<Motion> motion_of_cast(const Statement& statement, const Motion& a, ElementType to, ElementType from) {
    const bool widens = is_float(to) && is_float(from) && (to == ElementType::f32 || to == from);
    if (widens || a.still()) return a;
    const bool rounds_factor = to == ElementType::bf16 && is_none(a.drift);
    if (rounds_factor) return a;
    return refuse(statement, fmt::format("what moves with {} is cast to {}", plan_.lead_tensor, nestor::to_string(to)));
  }

  std::optional<Motion> motion_of_function(const Statement& statement, const ScalarExpr& expr, const Motion& a) {
    const bool exponential = expr.op() == ScalarOp::exp || expr.op() == ScalarOp::exp2;
    if (exponential && is_none(a.decay)) return Motion{times(-natural(expr.op()), a.drift), {0, {}}, false, false};
    if (expr.op() == ScalarOp::log && is_none(a.drift)) return Motion{{0, {}}, times(-1, a.decay), false, a.zero};
    return refuse(statement, fmt::format("{} passes through {}", plan_.lead_tensor, to_string(expr.op())));
  }

  std::optional<Motion> motion_of(const Statement& statement, const ScalarExpr& expr) {
    switch (expr.op()) {
      case ScalarOp::constant:
        return Motion{{0, {}}, {0, {}}, expr.number() == 0, std::fabs(expr.number()) >= std::numeric_limits<float>::max()};
      case ScalarOp::read: {
        const auto found = tensors_.find(statement.reads.at(expr.ordinal()).tensor);
        return found == tensors_.end() ? Motion{} : found->second;
      }
      case ScalarOp::select:
        return motion_of_select(statement, expr);
      case ScalarOp::sub:
        if (expr.args()[0].equals(expr.args()[1]))
          return Motion{{0, {}}, {0, {}}, true, false};  // marks rows, as m - m does: 0 or NaN
        break;
      case ScalarOp::mul:
        if (const auto quotient = inside_scaled_quotient(expr))  // its powers of two cancel
          return motion_of(statement, ScalarExpr::make(ScalarOp::div, {quotient->first, quotient->second}));
        break;
      default:
        break;
    }
    std::vector<Motion> args;
    for (const ScalarExpr& arg : expr.args()) {
      const auto motion = motion_of(statement, arg);
      if (!motion) return std::nullopt;
      args.push_back(*motion);
    }
    switch (expr.op()) {
      case ScalarOp::cast:
        return motion_of_cast(statement, args[0], expr.type(), expr.args()[0].type());
      case ScalarOp::neg:
        return Motion{args[0].decay, times(-1, args[0].drift), args[0].zero, args[0].infinite};
      case ScalarOp::add:
      case ScalarOp::sub:
        return motion_of_sum(statement, args[0], args[1], expr.op() == ScalarOp::add ? 1 : -1);
      case ScalarOp::mul:
      case ScalarOp::div:
        return motion_of_product(statement, expr, args[0], args[1], expr.op() == ScalarOp::mul ? 1 : -1);
      case ScalarOp::max:
      case ScalarOp::min:
        return motion_of_extremum(statement, args[0], args[1]);
      case ScalarOp::lt:
      case ScalarOp::le:
      case ScalarOp::eq:
        return motion_of_comparison(statement, args[0], args[1]);
      default:
        break;
    }
    const bool still = std::all_of(args.begin(), args.end(), [](const Motion& motion) { return motion.still(); });
    return still ? Motion{} : motion_of_function(statement, expr, args[0]);
  }

  const Nest& nest_;
  const OnlinePlan& plan_;
  const Statement& lead_;
  std::set<std::string> members_;
  std::map<std::string, Motion> tensors_;     ///< those that move
  std::map<std::string, isl::map> elements_;  ///< { element -> element of the lead's tensor }
  std::string why_;
};

}  // namespace

std::optional<Monomial> common_rate(const OnlinePlan& plan) {
  std::optional<Monomial> largest;
  for (const auto& [name, degree] : plan.degree) {
    const Monomial rate = times(natural(plan.base.at(name)), degree);
    if (largest && !same_product({1, largest->factors}, {1, rate.factors})) return std::nullopt;
    if (!largest || std::fabs(rate.coefficient) > std::fabs(largest->coefficient)) largest = rate;
  }
  return largest;
}

std::string objection_to_free_reference(const Nest& nest, const OnlinePlan& plan) { return Shift(nest, plan).objection(); }

}  // namespace nestor
