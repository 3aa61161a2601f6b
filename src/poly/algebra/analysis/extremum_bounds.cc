// Bounds of what is relative to an extremum of its own.
//
// A term is exp(c (a - m)) with c > 0 and a <= m, so that it is at most 1; the point that made m has the term exp(0) = 1. Products that are
// rounded before they are subtracted, and 16-bit terms, stay within a factor of 2 of that.
#include "poly/algebra/analysis/extremum_bounds.h"

#include <isl/map.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "poly/algebra/analysis/online_plan.h"
#include "poly/algebra/values/few_terms.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

constexpr double kRounding = 2, kMostPoints = 0x1p31;

/// The tensor of the extremum if the value is an exponential that reads one, or an element of a temporary that holds such.
std::optional<std::string> lead_of(const Nest& nest, const Statement& statement, const ScalarExpr& value) {
  const ScalarExpr bare = strip_casts(value);
  if (bare.op() == ScalarOp::read) {
    const std::string& tensor = statement.reads.at(bare.ordinal()).tensor;
    const Statement* definition = is_elementwise_temporary(nest, tensor) ? sole_definition(nest, tensor) : nullptr;
    if (definition == nullptr || strip_casts(definition->value).op() == ScalarOp::read) return std::nullopt;
    return lead_of(nest, *definition, definition->value);
  }
  if (bare.op() != ScalarOp::exp && bare.op() != ScalarOp::exp2) return std::nullopt;
  for (const Access& read : statement.reads) {
    if (!reads_tensor(statement, bare, read.tensor)) continue;
    for (const Statement* writer : writers_of(nest, read.tensor)) {
      if (writer->reduction == ReductionOp::max || writer->reduction == ReductionOp::min) return read.tensor;
    }
  }
  return std::nullopt;
}

struct SumOfExponentials {
  const Statement* lead;
  OnlinePlan plan;
  bool covers;  ///< all that the lead has taken
  double most;  ///< what the sum is at most
};

/// Statements that are being recognised: an extremum's terms may ask for ranges of quotients by other sums, whose terms ask for its own.
class Recognising {
 public:
  explicit Recognising(const std::string& statement) : fresh_(open().insert(statement).second), statement_(statement) {}
  ~Recognising() {
    if (fresh_) open().erase(statement_);
  }
  Recognising(const Recognising&) = delete;
  Recognising& operator=(const Recognising&) = delete;
  bool again() const { return !fresh_; }

 private:
  static std::set<std::string>& open() {
    thread_local std::set<std::string> statements;
    return statements;
  }

  bool fresh_;
  std::string statement_;
};

std::optional<SumOfExponentials> recognise(const Nest& nest, const Statement& update) {
  if (update.reduction != ReductionOp::add || !starts_from(nest, update, 0) || !is_read_when_complete(nest, update))
    return std::nullopt;
  const Recognising recognising(update.name);
  if (recognising.again()) return std::nullopt;
  const auto extremum = lead_of(nest, update, update.value);
  if (!extremum) return std::nullopt;
  for (const Statement* lead : writers_of(nest, *extremum)) {
    if (!lead->reduction) continue;
    const auto plan = analyse_online(nest, lead->name);
    if (!plan || std::find(plan->followers.begin(), plan->followers.end(), update.name) == plan->followers.end()) continue;
    const double points = std::pow(kMostPoints, static_cast<double>(reduced_dims(update).size()));
    const bool covers =
        covers_lead(nest, update, *lead, plan->lead_instances.at(update.name), plan->lead_elements.at(update.name));
    return SumOfExponentials{lead, *plan, covers, kRounding * kMostHeld * points};
  }
  return std::nullopt;
}

/// Is the exponent c (y - m), with c > 0 for a maximum m and c < 0 for a minimum, where m is the lead's result and y what that element started from, at every instance?
bool is_term_of_start(const Nest& nest, const Statement& statement, const ScalarExpr& exponent, const Statement& lead) {
  Polynomial rest = polynomial_of(exponent);
  const auto multiple = std::find_if(rest.begin(), rest.end(), [&](const Monomial& term) {
    return term.factors.size() == 1 && term.factors[0].second == 1 &&
           plain_read_of(statement, term.factors[0].first, lead.write.tensor).has_value();
  });
  const std::vector<const Statement*> starts = initialisers_of(nest, lead);
  if (multiple == rest.end() || starts.size() != 1) return false;
  const double factor = -multiple->coefficient;
  if (lead.reduction == ReductionOp::max ? factor <= 0 : factor >= 0) return false;
  const int read = *plain_read_of(statement, multiple->factors[0].first, lead.write.tensor);
  rest.erase(multiple);
  InstanceMatch match(statement, *starts[0]);
  if (!match.match(rest, scaled(polynomial_of(starts[0]->value), factor))) return false;
  match.require(statement.reads.at(read), starts[0]->write);
  const isl::set domain = domain_in(nest, statement);
  return domain.is_subset(match.relation(domain, domain_in(nest, *starts[0])).domain());
}

/// { Statement -> element of the lead's tensor } that a term is relative to: of the statement itself, or of the definition of what it reads.
std::optional<isl::map> reference_of(const Nest& nest, const OnlinePlan& plan, const Statement& statement,
                                     const ScalarExpr& term) {
  const ScalarExpr bare = strip_casts(term);
  isl::map element = statement.write.relation;
  std::string name = statement.name;
  if (bare.op() == ScalarOp::read) {
    const Access& read = statement.reads.at(static_cast<std::size_t>(bare.ordinal()));
    const Statement* definition = is_elementwise_temporary(nest, read.tensor) ? sole_definition(nest, read.tensor) : nullptr;
    if (definition == nullptr) return std::nullopt;
    element = read.relation;
    name = definition->name;
    const ScalarOp op = strip_casts(definition->value).op();
    if (op != ScalarOp::exp && op != ScalarOp::exp2) return std::nullopt;
  } else if (bare.op() != ScalarOp::exp && bare.op() != ScalarOp::exp2) {
    return std::nullopt;
  }
  const auto known = plan.lead_elements.find(name);
  if (known == plan.lead_elements.end()) return std::nullopt;
  return element.apply_range(known->second).intersect_domain(domain_in(nest, statement));
}

}  // namespace

bool covers_lead(const Nest& nest, const Statement& follower, const Statement& lead, const isl::map& lead_instances,
                 const isl::map& lead_elements) {
  const isl::map points =
      follower.write.relation.intersect_domain(domain_in(nest, follower)).reverse().apply_range(lead_instances);
  const isl::map all = lead_elements.apply_range(lead.write.relation.intersect_domain(domain_in(nest, lead)).reverse())
                           .intersect_domain(points.domain());
  return all.is_subset(points);
}

std::optional<ValueRange> exponential_sum(const Nest& nest, const Statement& update) {
  const auto sum = recognise(nest, update);
  if (!sum) return std::nullopt;
  const bool complete = sum->covers && starts_from(nest, *sum->lead, neutral_element(*sum->lead->reduction, ElementType::f32));
  return ValueRange{complete ? 1 / kRounding : 0, sum->most, false, false, true, !always_has_points(nest, update)};
}

std::optional<ValueRange> exponential_sum_with_start(const Nest& nest, const Statement& statement, const ScalarExpr& value) {
  if (value.op() != ScalarOp::add) return std::nullopt;
  for (const std::size_t place : {std::size_t{0}, std::size_t{1}}) {
    const ScalarExpr sum = strip_casts(value.args()[place]), term = strip_casts(value.args()[1 - place]);
    if (sum.op() != ScalarOp::read || (term.op() != ScalarOp::exp && term.op() != ScalarOp::exp2)) continue;
    for (const Statement* update : writers_of(nest, statement.reads.at(sum.ordinal()).tensor)) {
      const auto known = update->reduction ? recognise(nest, *update) : std::nullopt;
      if (known && known->covers && is_term_of_start(nest, statement, term.args()[0], *known->lead))
        return ValueRange{1 / kRounding, known->most + kRounding * kMostHeld, false, false, true, false};
    }
  }
  return std::nullopt;
}

std::optional<ValueRange> exponential_quotient(const Nest& nest, const Statement& statement, const ScalarExpr& value) {
  if (value.op() != ScalarOp::div) return std::nullopt;
  const ScalarExpr divisor = strip_casts(value.args()[1]);
  if (divisor.op() != ScalarOp::read) return std::nullopt;
  const Access& read = statement.reads.at(static_cast<std::size_t>(divisor.ordinal()));
  for (const Statement* update : writers_of(nest, read.tensor)) {
    const auto sum = update->reduction ? recognise(nest, *update) : std::nullopt;
    if (!sum || !sum->covers || !starts_from(nest, *sum->lead, neutral_element(*sum->lead->reduction, ElementType::f32)))
      continue;
    const auto term = reference_of(nest, sum->plan, statement, value.args()[0]);
    const isl::map of_sum =
        read.relation.apply_range(sum->plan.lead_elements.at(update->name)).intersect_domain(domain_in(nest, statement));
    if (term && term->is_equal(of_sum) && of_sum.is_single_valued())
      return ValueRange{0, kRounding * kRounding, false, false, true, false};
  }
  return std::nullopt;
}

std::optional<ValueRange> exponential_term(const Nest& nest, const std::string& tensor) {
  const Statement* definition = is_elementwise_temporary(nest, tensor) ? sole_definition(nest, tensor) : nullptr;
  if (definition == nullptr || strip_casts(definition->value).op() == ScalarOp::read) return std::nullopt;
  const auto extremum = lead_of(nest, *definition, definition->value);
  if (!extremum) return std::nullopt;
  for (const Statement* lead : writers_of(nest, *extremum)) {
    const auto plan = lead->reduction ? analyse_online(nest, lead->name) : std::nullopt;
    if (plan && plan->lead_elements.contains(definition->name))
      return ValueRange{0, kRounding * kMostHeld, false, false, true, false};
  }
  return std::nullopt;
}

namespace {

/// Values as multiples of the largest magnitude that an element is among: M, at least that of the element.
class MultipleOfLargest {
 public:
  MultipleOfLargest(const Nest& nest, const Statement& statement, const Access& element)
      : nest_(nest), element_(element), elements_(element.relation.intersect_domain(domain_in(nest, statement))) {}

  /// The value is at least so many times M; nothing: it is not known to be. `place`: { Statement -> where the value stands }.
  std::optional<double> least(const Statement& at, const isl::map& place, const ScalarExpr& value) {
    return multiple(at, place, value, false);
  }
  /// The value is not negative, and at most so much by M.
  std::optional<double> most_inverse(const Statement& at, const isl::map& place, const ScalarExpr& value) {
    return multiple(at, place, value, true);
  }
  /// Is M, or what stands in its place, no number so small that it loses digits?
  bool is_normal() const { return floored_ || nest_.tensor(element_.tensor).type == ElementType::f16; }

 private:
  static constexpr double kLeastFloor = 0x1p-60, kLeastFactor = 0x1p-20, kMostFactor = 0x1p20;
  static constexpr int kMostDefinitions = 8;

  static std::optional<double> factor_of(const ScalarExpr& value) {
    if (value.op() != ScalarOp::constant || value.number() < kLeastFactor || value.number() > kMostFactor) return std::nullopt;
    return value.number();
  }

  /// No step of the computation is so large or small that it overflows or loses digits.
  std::optional<double> multiple(const Statement& at, const isl::map& place, const ScalarExpr& value, bool inverse) {
    const auto found = multiple_by_parts(at, place, value, inverse);
    return found && *found >= kLeastFactor && *found <= kMostFactor ? found : std::nullopt;
  }

  std::optional<double> multiple_by_parts(const Statement& at, const isl::map& place, const ScalarExpr& value, bool inverse) {
    const auto of = [&](std::size_t k) { return multiple(at, place, value.args()[k], inverse); };
    switch (value.op()) {
      case ScalarOp::read:
        return of_element(at, place, at.reads.at(static_cast<std::size_t>(value.ordinal())), inverse);
      case ScalarOp::mul:
        for (const std::size_t k : {0, 1}) {
          const auto factor = factor_of(value.args()[k]);
          const auto found = factor ? of(1 - k) : std::nullopt;
          if (found) return *factor * *found;
        }
        return std::nullopt;
      case ScalarOp::div: {
        const auto by = factor_of(value.args()[1]);
        if (const auto found = by ? of(0) : std::nullopt) return *found / *by;
        const auto number = inverse ? factor_of(value.args()[0]) : std::nullopt;
        const auto found = number ? multiple(at, place, value.args()[1], false) : std::nullopt;
        return found ? std::optional(*number / *found) : std::nullopt;
      }
      case ScalarOp::max:
        for (const std::size_t k : {0, 1}) {
          const ScalarExpr& other = value.args()[1 - k];
          if (inverse || other.op() != ScalarOp::constant) continue;
          const auto found = of(k);
          if (!found) continue;
          floored_ = floored_ || other.number() >= kLeastFloor;
          return found;
        }
        return std::nullopt;
      default:
        return std::nullopt;
    }
  }

  std::optional<double> of_element(const Statement& at, const isl::map& place, const Access& read, bool inverse) {
    if (nest_.tensor(read.tensor).type != ElementType::f32) return std::nullopt;
    const isl::map written = place.apply_range(read.relation.intersect_domain(at.domain));
    if (const Statement* definition = sole_definition(nest_, read.tensor)) {
      if (++definitions_ > kMostDefinitions) return std::nullopt;  // what is made of itself has no end
      return multiple(*definition, written.apply_range(definition->write.relation.intersect_domain(definition->domain).reverse()),
                      definition->value, inverse);
    }
    if (inverse) return std::nullopt;
    for (const Statement* update : writers_of(nest_, read.tensor)) {
      if (update->reduction != ReductionOp::max || update->value.op() != ScalarOp::abs) continue;
      const ScalarExpr term = strip_exact_casts(update->value.args()[0]);
      if (term.op() != ScalarOp::read || !is_read_when_complete(nest_, *update)) continue;
      const Access& found = update->reads.at(static_cast<std::size_t>(term.ordinal()));
      if (found.tensor != element_.tensor) continue;
      const isl::map terms = written.apply_range(update->write.relation.intersect_domain(domain_in(nest_, *update)).reverse())
                                 .apply_range(found.relation);
      if (elements_.is_subset(terms)) return 1;
    }
    return std::nullopt;
  }

  const Nest& nest_;
  const Access element_;
  const isl::map elements_;  ///< { Statement -> element }
  bool floored_ = false;
  int definitions_ = 0;  ///< that were looked at
};

/// A read, and what it is multiplied by: of f16, so that the product does not overflow.
std::pair<ScalarExpr, double> element_and_scale(const Nest& nest, const Statement& statement, const ScalarExpr& value) {
  constexpr double kMostScale = 0x1p20;
  const ScalarExpr plain = strip_exact_casts(value);
  for (const std::size_t k : plain.op() == ScalarOp::mul ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{}) {
    const ScalarExpr factor = plain.args()[k], element = strip_exact_casts(plain.args()[1 - k]);
    const bool scales = factor.op() == ScalarOp::constant && factor.number() >= 1 && factor.number() <= kMostScale;
    if (scales && element.op() == ScalarOp::read &&
        nest.tensor(statement.reads.at(static_cast<std::size_t>(element.ordinal())).tensor).type == ElementType::f16)
      return {element, factor.number()};
  }
  return {plain, 1.0};
}

}  // namespace

std::optional<ValueRange> extremum_quotient(const Nest& nest, const Statement& statement, const ScalarExpr& value) {
  if (value.op() != ScalarOp::div && value.op() != ScalarOp::mul) return std::nullopt;
  constexpr double kRoundings = 1 + 0x1p-20;
  for (const std::size_t place : {std::size_t{0}, std::size_t{1}}) {
    const auto [element, scale] = element_and_scale(nest, statement, value.args()[place]);
    const ScalarExpr& other = value.args()[1 - place];
    const bool quotient = value.op() == ScalarOp::div;
    if (element.op() != ScalarOp::read || (quotient && place == 1)) continue;
    const Access& read = statement.reads.at(static_cast<std::size_t>(element.ordinal()));
    if (nest.tensor(read.tensor).role != TensorRole::input && sole_definition(nest, read.tensor) == nullptr) continue;
    MultipleOfLargest largest(nest, statement, read);
    const isl::map here = isl::manage(isl_set_identity(statement.domain.copy()));
    const auto found = quotient ? largest.least(statement, here, other) : largest.most_inverse(statement, here, other);
    if (!found || !largest.is_normal()) continue;
    const double most = kRoundings * scale * (quotient ? 1 / *found : *found);
    return ValueRange{-most, most, false, false, true, false};
  }
  return std::nullopt;
}

}  // namespace nestor
