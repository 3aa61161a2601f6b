// Accumulation of error estimates.
#include "autotune/oracle/error_sum.h"

#include "poly/nest/scalar_semantics.h"
#include "support/element_codec.h"
#include "support/system/wide_vectors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace nestor {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
/// Standard deviations aside: a sequential sum of n equal terms shows 0.23 sqrt(n) u.
constexpr double kOrderFactor = 0.5;
constexpr double kDeviationFactor = 0.5;
/// Of the largest relative error, by how much the errors of 16-bit operands spread; and what all terms may have in common, which
/// counts kErrorMargin times.
constexpr double kSpread = 0.7, kShared = 1.05 / kErrorMargin;

}  // namespace

double unit_roundoff(ElementType type) {
  switch (type) {
    case ElementType::f32:
      return 0x1p-24;
    case ElementType::f16:
      return 0x1p-11;
    case ElementType::bf16:
      return 0x1p-8;
    default:
      return 0;
  }
}

double cast_error(ElementType type, double value, double error) {
  if (error == 0 || error == kInfinite) return error;
  const double rounded = round_to(type, value);
  const double low = round_to(type, value - kErrorMargin * error), high = round_to(type, value + kErrorMargin * error);
  if (low == high) return 0;
  if (!std::isfinite(low) || !std::isfinite(high)) return kInfinite;
  return std::max(high - rounded, rounded - low) / kErrorMargin;
}

double larger_error(double a, double error_a, double b, double error_b) {
  if (std::isnan(a) || std::isnan(b)) return std::max(std::isnan(a) ? error_a : 0, std::isnan(b) ? error_b : 0);
  if (a == b) return std::max(error_a, error_b);
  if (std::fabs(a - b) > kErrorMargin * (error_a + error_b)) return a > b ? error_a : error_b;
  return std::max(error_a, error_b);
}

void ErrorSum::start(double value, double error) {
  *this = ErrorSum();
  inherited_ = error;
  special_ = !std::isfinite(value);
  if (special_ || value == 0) return;
  magnitude_ = std::fabs(value);
  simulated_ = static_cast<float>(value);
  terms_ = 1;
  started_ = true;
}

/// So many times doubled or halved, 1 is near the ends of what f32 holds with full precision.
constexpr double kDoublingsOfF32 = 125;

void ErrorSum::go_on_from(double extremum) {
  if (special_ && std::isfinite(extremum)) start(extremum, inherited_);
}

void ErrorSum::add(ReductionOp op, ElementType type, double term, double error, double operand, double before, double sum) {
  if (!std::isfinite(term)) special_ = true;
  switch (op) {
    case ReductionOp::max:
      inherited_ = larger_error(before, inherited_, term, error);
      go_on_from(sum);
      return;
    case ReductionOp::min:
      inherited_ = larger_error(-before, inherited_, -term, error);
      go_on_from(sum);
      return;
    case ReductionOp::mul:
      if (error == 0 && inherited_ == 0 && type == ElementType::i32) return;
      if (std::isfinite(sum)) {
        // Below the normal numbers a step of f32 is all that is left of its precision.
        const bool small = std::fabs(sum) < kSmallestNormal && before != 0 && term != 0;
        inherited_ = std::fabs(before) * error + std::fabs(term) * inherited_ + std::fabs(sum) * 0x1p-24 + (small ? 0x1p-149 : 0);
      }
      if (term != 0 && std::isfinite(term)) {
        const double doublings = std::log2(std::fabs(term));
        (doublings > 0 ? above_ : below_) += std::fabs(doublings);
      }
      return;
    case ReductionOp::add:
      break;
  }
  inherited_ += operand == kInfinite ? kInfinite : error;
  if (special_ || type == ElementType::i32) return;
  squares_ += operand * operand;
  magnitude_ += std::fabs(term);
  simulated_ += static_cast<float>(term);
  deviation_ = std::max(deviation_, std::fabs(static_cast<double>(simulated_) - sum));
  ++terms_;
}

/// What add() does to each, without its cases: most of the oracle's time goes into sums. One loop, so that the processor goes on with all of
/// them at once: each waits for itself alone.
template <bool kOperands>
void ErrorSum::add_terms(const Terms& terms, double& sum) {
  double exact = sum, magnitude = magnitude_, deviation = deviation_, inherited = inherited_, squares = squares_;
  float simulated = simulated_;
  for (int k = 0; k < terms.count; ++k) {
    const double term = terms.values[k];
    magnitude += std::fabs(term);
    simulated += static_cast<float>(term);
    exact += term;
    // Hardly ever: a branch that is foreseen takes no time.
    const double size = std::fabs(exact);
    if (size > semantics::kFarthestNumber || size <= semantics::kUnderflow) exact = semantics::in_range(exact);
    deviation = std::max(deviation, std::fabs(static_cast<double>(simulated) - exact));
    if constexpr (kOperands) {
      inherited += terms.operands[k] == kInfinite ? kInfinite : terms.errors[k];
      squares += terms.operands[k] * terms.operands[k];
    } else {
      inherited += terms.errors[k];
    }
  }
  sum = exact;
  magnitude_ = magnitude;
  deviation_ = deviation;
  inherited_ = inherited;
  squares_ = squares;
  simulated_ = simulated;
  terms_ += terms.count;
}

inline void ErrorSum::add_finite(const Terms& terms, double& sum) {
  return terms.operands ? add_terms<true>(terms, sum) : add_terms<false>(terms, sum);
}

/// The same from term `first` on of a sum that is infinite or NaN: its size and order say nothing more.
void ErrorSum::add_special(const Terms& terms, int first, double& sum) {
  for (int k = first; k < terms.count; ++k) {
    sum = semantics::in_range(sum + terms.values[k]);
    inherited_ += terms.operands && terms.operands[k] == kInfinite ? kInfinite : terms.errors[k];
  }
}

void ErrorSum::add_all(ReductionOp op, ElementType stored, const Terms& terms, double& sum) {
  const bool finite =
      std::all_of(terms.values, terms.values + terms.count, [](double value) { return std::fabs(value) < kInfinite; });
  const bool floats = stored != ElementType::i32 && terms.type != ElementType::i32;
  const bool added = op == ReductionOp::add && floats;
  if (added && finite && !special_) return add_finite(terms, sum);
  for (int k = 0; k < terms.count; ++k) {
    if (added && special_) return add_special(terms, k, sum);
    const double before = sum;
    sum = semantics::combine(op, terms.type, before, terms.values[k]);
    add(op, stored, terms.values[k], terms.errors[k], terms.operands ? terms.operands[k] : 0, before, sum);
  }
}

void ErrorSum::add_each(ErrorSum* errors, ReductionOp op, ElementType stored, const Terms& terms, double* sums) {
  const bool added = op == ReductionOp::add && stored != ElementType::i32 && terms.type != ElementType::i32;
  for (int k = 0; k < terms.count; ++k) {
    const Terms term{terms.type, terms.values + k, terms.errors + k, terms.operands ? terms.operands + k : nullptr, 1};
    const bool finite = std::fabs(terms.values[k]) < kInfinite && !errors[k].special_;
    if (added && finite)
      errors[k].add_finite(term, sums[k]);
    else
      errors[k].add_all(op, stored, term, sums[k]);
  }
}

/// All lanes at once: each sum alone would wait for itself.
template <bool kErrors, bool kOperands>
[[gnu::always_inline]] inline bool ErrorSum::add_finite_lanes(ErrorSum* each, double* sums, const LaneTerms& terms) {
  std::array<double, kLanes> exact, magnitude, deviation, inherited, squares, largest{}, wrong{};
  std::array<float, kLanes> simulated;
  for (int lane = 0; lane < kLanes; ++lane) {
    exact[lane] = sums[lane];
    magnitude[lane] = each[lane].magnitude_;
    deviation[lane] = each[lane].deviation_;
    inherited[lane] = each[lane].inherited_;
    squares[lane] = each[lane].squares_;
    simulated[lane] = each[lane].simulated_;
  }
  for (int k = 0; k < terms.count; ++k) {
    const double* values = terms.values + std::ptrdiff_t{kLanes} * k;
    const double* errors = terms.errors + (kErrors ? std::ptrdiff_t{kLanes} * k : 0);
    for (int lane = 0; lane < kLanes; ++lane) {
      magnitude[lane] += std::fabs(values[lane]);
      simulated[lane] += static_cast<float>(values[lane]);
      exact[lane] += values[lane];
      const double size = std::fabs(exact[lane]), off = std::fabs(static_cast<double>(simulated[lane]) - exact[lane]);
      largest[lane] = size > largest[lane] ? size : largest[lane];
      wrong[lane] += size <= semantics::kUnderflow && size != 0 ? 1 : 0;
      deviation[lane] = deviation[lane] < off ? off : deviation[lane];
      if constexpr (kErrors) inherited[lane] += errors[lane];
      if constexpr (kOperands) {
        const double operand = terms.operand * std::fabs(values[lane]);
        squares[lane] += operand * operand;
      }
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if (wrong[lane] != 0 || !(largest[lane] <= semantics::kFarthestNumber)) return false;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    sums[lane] = exact[lane];
    each[lane].magnitude_ = magnitude[lane];
    each[lane].deviation_ = deviation[lane];
    each[lane].inherited_ = inherited[lane];
    each[lane].squares_ = squares[lane];
    each[lane].simulated_ = simulated[lane];
    each[lane].terms_ += terms.count;
  }
  return true;
}

[[gnu::always_inline]] inline bool ErrorSum::add_any_lanes(ErrorSum* each, double* sums, const LaneTerms& terms) {
  if (terms.operand != 0)
    return terms.errors ? add_finite_lanes<true, true>(each, sums, terms) : add_finite_lanes<false, true>(each, sums, terms);
  return terms.errors ? add_finite_lanes<true, false>(each, sums, terms) : add_finite_lanes<false, false>(each, sums, terms);
}

NESTOR_AVX2 bool ErrorSum::add_lanes_widely(ErrorSum* each, double* sums, const LaneTerms& terms) {
  return add_any_lanes(each, sums, terms);
}

bool ErrorSum::add_lanes(ErrorSum* each, double* sums, const LaneTerms& terms) {
  if (std::any_of(each, each + kLanes, [](const ErrorSum& sum) { return sum.special_; })) return false;
  return has_avx2() ? add_lanes_widely(each, sums, terms) : add_any_lanes(each, sums, terms);
}

double ErrorSum::error(double sum, std::optional<ElementType> narrow, double orders, double share) const {
  if (std::isnan(inherited_) || inherited_ == kInfinite) return kInfinite;
  if (!std::isfinite(sum)) return special_ ? 0 : kInfinite;
  // Factors in another order may leave f32, or its normal numbers, in between.
  if (above_ >= kDoublingsOfF32 || (below_ >= kDoublingsOfF32 && above_ > 1)) return kInfinite;
  // Partial sums in another order, or before a factor that a rule defers, may be infinite; a start alone is no sum.
  const bool sums = terms_ > (started_ ? 1 : 0);
  if (magnitude_ >= (sums ? kInfiniteFrom / kRoomOfRules : kInfiniteFrom) || std::isnan(squares_) || squares_ == kInfinite)
    return kInfinite;
  double error = inherited_ + share * magnitude_;
  if (terms_ > 1 || orders > 1) {
    const double roundings = std::sqrt(static_cast<double>(terms_)) + (orders > 1 ? 1 : 0);
    error += orders * kOrderFactor * 0x1p-24 * roundings * magnitude_;
    if (std::isfinite(deviation_)) error += orders * kDeviationFactor * deviation_;
  }
  if (narrow) error += kSpread * std::sqrt(squares_) + kShared * unit_roundoff(*narrow) * std::fabs(sum);
  return error;
}

}  // namespace nestor
