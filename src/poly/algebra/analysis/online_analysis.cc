// Which statements are homogeneous in exp(c (a - m)), and so can be corrected when m moves.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "poly/algebra/analysis/finite_lead.h"
#include "poly/algebra/analysis/lead_exponents.h"
#include "poly/algebra/analysis/online_plan.h"
#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/values/few_terms.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"

namespace nestor {
namespace {

/// What scalars are taken to multiply without overflow.
constexpr double kRoomForScalars = 0x1p100;

/// How a value depends on m: as a multiple of base^(-value * m), with a number times scalars. 0 is no dependence; zero fits any.
struct Degree {
  Monomial value{0, {}};
  ScalarOp base = ScalarOp::exp;
  bool zero = false;
};

bool is_free(const Degree& degree) { return degree.value.coefficient == 0; }

bool same_degree(const Degree& a, const Degree& b) {
  return is_free(a) || is_free(b) ? is_free(a) == is_free(b) : same_product(a.value, b.value) && a.base == b.base;
}

class OnlineAnalysis {
 public:
  OnlineAnalysis(const Nest& nest, const Statement& lead) : nest_(nest), lead_(lead), exponents_(nest, lead, plan_) {
    plan_.lead = lead.name;
    plan_.lead_tensor = lead.write.tensor;
  }

  std::optional<OnlinePlan> run(std::string* why) {
    std::string reason = objection_to_lead();
    if (reason.empty()) {
      for (std::size_t k = position_of(nest_, lead_.name) + 1; k < nest_.statements.size(); ++k) classify(nest_.statements[k]);
      if (plan_.followers.empty()) reason = reason_.empty() ? "no sum has terms with exp(c * (a - m)) of its result m" : reason_;
    }
    if (!reason.empty()) {
      if (why != nullptr) *why = reason;
      return std::nullopt;
    }
    keep_needed_mediators();
    const bool multiplied = std::any_of(plan_.lead_factors.begin(), plan_.lead_factors.end(), is_multiplied);
    plan_.infinite_terms = !exponents_.guarded() && may_be_infinite(lead_);
    plan_.masked = plan_.infinite_terms && starts_infinite();
    if (plan_.infinite_terms && selects_) {
      if (why != nullptr)
        *why = fmt::format("some terms are 1 where {} is infinite, others are not: no finite value of it serves both",
                           plan_.lead_tensor);
      return std::nullopt;
    }
    if (plan_.infinite_terms && multiplied && plan_.lead_factors.size() > 1) {
      if (why != nullptr)
        *why = fmt::format(
            "its exponents multiply {} by different factors before they subtract it, of which some overflow before others",
            plan_.lead_tensor);
      return std::nullopt;
    }
    if (plan_.masked && nest_.tensor(plan_.lead_tensor).type != ElementType::f32) {
      if (why != nullptr)
        *why = fmt::format("all terms of a row may be infinite, and {} is no f32 that could be kept finite", plan_.lead_tensor);
      return std::nullopt;
    }
    return plan_;
  }

 private:
  std::string objection_to_lead() const {
    if (!lead_.reduction || (*lead_.reduction != ReductionOp::max && *lead_.reduction != ReductionOp::min)) {
      return "it is no reduction by max or min";
    }
    if (initialisers_of(nest_, lead_).empty()) return fmt::format("{} has several reductions", lead_.write.tensor);
    if (reduced_dims(lead_).size() != 1) return "it does not reduce over exactly one dimension";
    if (reads_tensor(lead_, lead_.value, lead_.write.tensor)) return "its terms read its own result";
    return "";
  }

  std::nullopt_t refuse(const Statement& statement, const std::string& reason) {
    if (reason_.empty()) reason_ = fmt::format("in {}, {}", statement.name, reason);
    return std::nullopt;
  }

  /// Where a = m = -inf the guard has 1 already, and keeps it: the exponential is not evaluated there.
  std::optional<Degree> degree_of_guard(const Statement& statement, const ScalarExpr& guard) {
    const bool before = exponents_.guarded();
    const auto degree = degree_of(statement, guard.args()[2]);
    exponents_.set_guarded(before);
    selects_ = true;
    return degree;
  }

  std::optional<Degree> degree_of_sum(const Statement& statement, const ScalarExpr& a, const ScalarExpr& b) {
    const auto x = degree_of(statement, a);
    const auto y = degree_of(statement, b);
    if (!x || !y) return std::nullopt;
    if (x->zero) return y;
    if (y->zero || same_degree(*x, *y)) return x;
    return refuse(statement, "terms that depend on the leading value in different ways are added");
  }

  std::optional<Degree> degree_of_product(const Statement& statement, const ScalarExpr& a, const ScalarExpr& b) {
    const auto x = degree_of(statement, a);
    const auto y = degree_of(statement, b);
    if (!x || !y) return std::nullopt;
    const bool zero = x->zero || y->zero;
    if (is_free(*x)) return Degree{y->value, y->base, zero};
    if (is_free(*y)) return Degree{x->value, x->base, zero};
    if (x->base != y->base) return refuse(statement, "exp and exp2 of the leading value are mixed");
    const Monomial unit{1, y->value.factors};
    if (!same_product({1, x->value.factors}, unit))
      return refuse(statement, "exponentials of different multiples of the leading value are multiplied");
    return Degree{{x->value.coefficient + y->value.coefficient, x->value.factors}, x->base, zero};
  }

  std::optional<Degree> degree_of_quotient(const Statement& statement, const ScalarExpr& expr) {
    const auto below = degree_of(statement, expr.args()[1]);
    if (!below) return std::nullopt;
    if (!is_free(*below)) return refuse(statement, "it divides by a term that depends on the leading value");
    return degree_of(statement, expr.args()[0]);
  }

  std::optional<Degree> degree_of_select(const Statement& statement, const ScalarExpr& expr) {
    if (reads_tensor(statement, expr.args()[0], plan_.lead_tensor)) {
      if (exponents_.is_guard(expr)) return degree_of_guard(statement, expr);
      return refuse(statement, "the leading value decides a select");
    }
    const auto condition = degree_of(statement, expr.args()[0]);
    if (!condition || !is_free(*condition)) {
      return refuse(statement, "a term that depends on the leading value decides a select");
    }
    return degree_of_sum(statement, expr.args()[1], expr.args()[2]);
  }

  std::optional<Degree> degree_of_read(const Statement& statement, const ScalarExpr& expr) {
    const std::string& tensor = statement.reads.at(expr.ordinal()).tensor;
    if (tensor == plan_.lead_tensor) return refuse(statement, "the leading value is used outside an exponential");
    if (late_.contains(tensor)) return refuse(statement, tensor + " is final only after the leading value is");
    const auto mediator = tensors_.find(tensor);
    return mediator == tensors_.end() ? Degree{} : mediator->second;
  }

  /// A cast to integers is not linear; one to 16 bits is, up to rounding, where no term overflows that the definition keeps finite.
  std::optional<Degree> degree_of_cast(const Statement& statement, const ScalarExpr& expr) {
    const auto degree = degree_of(statement, expr.args()[0]);
    if (!degree || is_free(*degree)) return degree;
    if (!is_float(expr.type())) {
      return refuse(statement, fmt::format("a cast to {} of a term that depends on the leading value is not linear",
                                           nestor::to_string(expr.type())));
    }
    return fits(statement, expr.type(), expr.args()[0]) ? degree : std::nullopt;
  }

  /// Do terms relative to any leading value so far fit into the type? They are larger than those relative to the final one.
  bool fits(const Statement& statement, ElementType type, const ScalarExpr& value) {
    if (type != ElementType::f16 || largest_term(statement, value) * kMostHeld <= largest_of(type)) return true;
    refuse(statement, "a term that depends on the leading value may overflow f16 before the leading value is final");
    return false;
  }

  /// The largest finite magnitude while exponentials of the leading value are at most 1.
  double largest_term(const Statement& statement, const ScalarExpr& expr) const {
    const auto largest = [&](std::size_t k) { return largest_term(statement, expr.args()[k]); };
    switch (expr.op()) {
      case ScalarOp::read: {
        const std::string& tensor = statement.reads.at(expr.ordinal()).tensor;
        const auto mediator = mediator_of_.find(tensor);
        if (mediator == mediator_of_.end()) break;
        const Statement& producer = nest_.statement(mediator->second);
        return largest_term(producer, producer.value);
      }
      case ScalarOp::exp:
      case ScalarOp::exp2:
        if (reads_tensor(statement, expr, plan_.lead_tensor)) return 1;
        break;
      case ScalarOp::neg:
      case ScalarOp::cast:
        return largest(0);
      case ScalarOp::add:
      case ScalarOp::sub:
        return largest(0) + largest(1);
      case ScalarOp::mul:
        return largest(0) * largest(1);
      case ScalarOp::select:
        return std::max(largest(1), largest(2));
      default:
        break;
    }
    return range_of(nest_, statement, expr).magnitude();
  }

  std::optional<Degree> degree_of(const Statement& statement, const ScalarExpr& expr) {
    switch (expr.op()) {
      case ScalarOp::constant:
        return Degree{{0, {}}, ScalarOp::exp, expr.number() == 0};
      case ScalarOp::index:
      case ScalarOp::scalar:
        return Degree{};
      case ScalarOp::read:
        return degree_of_read(statement, expr);
      case ScalarOp::neg:
        return degree_of(statement, expr.args()[0]);
      case ScalarOp::cast:
        return degree_of_cast(statement, expr);
      case ScalarOp::add:
      case ScalarOp::sub:
        return degree_of_sum(statement, expr.args()[0], expr.args()[1]);
      case ScalarOp::mul:
        return degree_of_product(statement, expr.args()[0], expr.args()[1]);
      case ScalarOp::div:
        return degree_of_quotient(statement, expr);
      case ScalarOp::select:
        return degree_of_select(statement, expr);
      case ScalarOp::exp:
      case ScalarOp::exp2:
        if (reads_tensor(statement, expr, plan_.lead_tensor)) {
          std::string why;
          const auto scale = exponents_.scale(statement, expr.args()[0], why);
          if (!scale) return refuse(statement, why);
          return Degree{*scale, expr.op(), false};
        }
        break;
      default:
        break;
    }
    for (const ScalarExpr& arg : expr.args()) {
      const auto below = degree_of(statement, arg);
      if (!below) return std::nullopt;
      if (!is_free(*below))
        return refuse(statement, "a term that depends on the leading value passes through a non-linear function");
    }
    return Degree{};
  }

  bool concerned(const Statement& statement) const {
    return std::any_of(statement.reads.begin(), statement.reads.end(),
                       [&](const Access& read) { return read.tensor == plan_.lead_tensor || tensors_.contains(read.tensor); });
  }

  /// { Statement -> LeadTensor }: every element of the leading tensor that an instance depends on through its terms.
  isl::map lead_elements(const Statement& statement) const {
    const isl::set domain = domain_in(nest_, statement);
    std::optional<isl::map> all;
    const auto unite = [&](const isl::map& more) { all = all ? all->unite(more) : more; };
    for (const Access& read : statement.reads) {
      const isl::map relation = read.relation.intersect_domain(domain);
      if (read.tensor == plan_.lead_tensor) unite(relation);
      const auto mediator = elements_.find(read.tensor);
      if (mediator != elements_.end()) unite(relation.apply_range(mediator->second));
    }
    return all->coalesce();
  }

  /// Makes the statement a mediator or a follower, or else notes that its result is not there while the composite runs.
  void classify(const Statement& statement) {
    const bool waits = std::any_of(statement.reads.begin(), statement.reads.end(),
                                   [&](const Access& read) { return late_.contains(read.tensor); });
    if (!concerned(statement) && !waits) return;
    const bool apart = statement.group != lead_.group;
    if (!apart || !concerned(statement) || !join(statement) || statement.reduction) late_.insert(statement.write.tensor);
  }

  bool join(const Statement& statement) {
    const auto degree = degree_of(statement, statement.value);
    if (!degree || is_free(*degree)) return false;
    const ElementType stored = nest_.tensor(statement.write.tensor).type;
    if (!is_float(stored) || (statement.reduction && stored == ElementType::f16)) {
      refuse(statement, fmt::format("{} holds terms or sums in {}", statement.write.tensor, nestor::to_string(stored)));
      return false;
    }
    if (!fits(statement, stored, statement.value)) return false;
    const isl::map elements = lead_elements(statement);
    // Coalesced, because what follows compares every piece with every other one: domains with "or" have many that are one.
    const isl::map by_element =
        statement.write.relation.intersect_domain(domain_in(nest_, statement)).reverse().apply_range(elements).coalesce();
    if (!by_element.is_single_valued()) {
      refuse(statement, "one accumulator would need several leading values");
      return false;
    }
    if (!statement.reduction) {
      const bool alone = alone_in_group(nest_, statement.name);
      if (!alone || sole_definition(nest_, statement.write.tensor) == nullptr) return false;
      tensors_[statement.write.tensor] = *degree;
      mediator_of_[statement.write.tensor] = statement.name;
      elements_.emplace(statement.write.tensor, by_element);
      plan_.mediators.push_back(statement.name);
    } else {
      if (*statement.reduction != ReductionOp::add) return false;
      if (!starts_from(nest_, statement, 0)) {
        refuse(statement, "the sum does not start from 0");
        return false;
      }
      if (!is_read_when_complete(nest_, statement)) {
        refuse(statement, fmt::format("{} is read before it is complete", statement.write.tensor));
        return false;
      }
      plan_.followers.push_back(statement.name);
    }
    inherit_instances(statement);
    plan_.lead_elements.emplace(statement.name, by_element);
    plan_.degree[statement.name] = degree->value;
    plan_.base[statement.name] = degree->base;
    return true;
  }

  /// What a statement reads from mediators comes from their instances of the lead.
  void inherit_instances(const Statement& statement) {
    for (const Access& read : statement.reads) {
      const auto mediator = mediator_of_.find(read.tensor);
      if (mediator == mediator_of_.end() || mediator->second == statement.name) continue;
      const Statement& producer = nest_.statement(mediator->second);
      const isl::map to_producer = read.relation.intersect_domain(domain_in(nest_, statement))
                                       .apply_range(producer.write.relation.intersect_domain(producer.domain).reverse());
      add_instances(plan_, statement, to_producer.apply_range(plan_.lead_instances.at(producer.name)));
    }
  }

  void keep_needed_mediators() {
    std::set<std::string> needed;
    const auto need_reads = [&](const std::string& name) {
      for (const Access& read : nest_.statement(name).reads) needed.insert(read.tensor);
    };
    for (const std::string& follower : plan_.followers) need_reads(follower);
    std::vector<std::string> kept;
    for (auto it = plan_.mediators.rbegin(); it != plan_.mediators.rend(); ++it) {
      if (!needed.contains(nest_.statement(*it).write.tensor)) continue;
      need_reads(*it);
      kept.insert(kept.begin(), *it);
    }
    plan_.mediators = kept;
  }

  /// On the side from which the lead starts.
  bool may_be_infinite(const Statement& statement) const {
    const ValueRange range = range_of(nest_, statement, statement.value);
    return *lead_.reduction == ReductionOp::max ? range.minus_infinity : range.plus_infinity;
  }

  /// Itself, or multiplied in the exponents.
  bool starts_infinite() const {
    const auto starts = initialisers_of(nest_, lead_);
    return std::any_of(starts.begin(), starts.end(), [&](const Statement* start) {
      const double magnitude = range_of(nest_, *start, start->value).magnitude();
      return may_be_infinite(*start) ||
             std::any_of(plan_.lead_factors.begin(), plan_.lead_factors.end(), [&](const Monomial& factor) {
               return magnitude * std::fabs(factor.coefficient) > (factor.factors.empty() ? kLargestFloat : kRoomForScalars);
             });
    });
  }

  const Nest& nest_;
  const Statement& lead_;
  OnlinePlan plan_;
  LeadExponents exponents_;
  std::map<std::string, Degree> tensors_;           ///< of mediators' results
  std::set<std::string> late_;                      ///< results that need the final leading value
  std::map<std::string, std::string> mediator_of_;  ///< tensor -> mediator
  std::map<std::string, isl::map> elements_;        ///< { mediator's tensor -> lead tensor }
  std::string reason_;
  bool selects_ = false;  ///< some exponentials are guarded by select(a == m, 1, exp(c (a - m)))
};

}  // namespace

std::optional<OnlinePlan> analyse_online(const Nest& nest, const std::string& lead, std::string* why) {
  return OnlineAnalysis(nest, nest.statement(lead)).run(why);
}

}  // namespace nestor
