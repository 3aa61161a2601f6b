// Error sums: what rounding may do to a reduction, accumulated beside the exact one.
#pragma once

#include "poly/nest/scalar_expr.h"

#include <cstdint>
#include <optional>

namespace nestor {

/// Half the distance of neighbouring numbers, relative, at its largest: 2^-24, 2^-11, 2^-8. 0 for integers and booleans.
double unit_roundoff(ElementType type);
/// From here on a result is infinite in f32.
inline constexpr double kInfiniteFrom = 0x1p128 - 0x1p103;
/// So near to what f32 holds nothing says that no step of another order overflows.
inline constexpr double kNearOverflow = kInfiniteFrom / 1024;
/// Below this f32 may hold 0 instead of a result.
inline constexpr double kSmallestNormal = 0x1p-126;
/// So much larger than the definition's may a rule make sums (docs/algebra.md, Range).
inline constexpr double kRoomOfRules = 0x1p60;

/// An error estimate counts this many times before a result is wrong. Estimates of single operations are bounds, those of sums
/// and of operands in 16 bits are about two standard deviations.
inline constexpr double kErrorMargin = 4;

/// Sums of squared differences may be made of sums that are up to so many times larger (docs/algebra.md, expand_squares).
inline constexpr double kExpandedOrders = 16;

/// Of sums of exponentials, the share of the sum of |terms| that products of halves may be off by (docs/algebra.md, factor_exponential), before
/// kErrorMargin.
inline constexpr double kFactoredShare = 0x1p-16;

/// Error of a value that is rounded to `type`: 0 where no value within `error` of it rounds elsewhere.
double cast_error(ElementType type, double value, double error);

/// Of the larger of two values (of the smaller with negated values).
double larger_error(double a, double error_a, double b, double error_b);

/// Beside an exact reduction: what its terms' errors, the order of its terms and the rounding of operands may make of it.
///
/// Errors that terms inherit add up, since many come from one temporary (a row's mean). Roundings of operands to 16 bits are
/// independent, and add up as squares, with one that all terms share. Accumulation in f32 follows the probabilistic bound
/// sqrt(n) u sum |t| (N. Higham, T. Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019), and in addition what a
/// sequential sum in f32 shows of these terms: those of constant data err all in one direction.
class ErrorSum {
 public:
  /// An assignment: the sum starts anew.
  void start(double value, double error);
  /// One more term; `sum` is the exact result with it. `operand`: error of an operand rounded to 16 bits, 0 for none.
  void add(ReductionOp op, ElementType type, double term, double error, double operand, double before, double sum);
  /// Terms of a chunk and their errors; `operands` may be null. `type` is that of the terms.
  struct Terms {
    ElementType type;
    const double *values, *errors, *operands;
    int count;
  };
  /// One term after the other, as add() and semantics::combine() have them. `stored` is the sum's type; `sum` goes on to the exact result.
  void add_all(ReductionOp op, ElementType stored, const Terms& terms, double& sum);
  /// One term for each of several sums: the k-th one of `terms` for the k-th sum.
  static void add_each(ErrorSum* errors, ReductionOp op, ElementType stored, const Terms& terms, double* sums);
  static constexpr int kLanes = 16;  ///< of add_lanes()
  /// `count` terms of f32 for each of 16 sums: the k-th one of a sum is values[16 k + lane], its error errors[16 k + lane] (null: all 0), and
  /// rounding an operand changes it by `operand` of its value. All are finite. The same as add_all() of each.
  struct LaneTerms {
    const double *values, *errors;
    double operand;
    int count;
  };
  /// False, and nothing is added: some sum is no number, or leaves the range of f32.
  static bool add_lanes(ErrorSum* each, double* sums, const LaneTerms& terms);
  /// Error of the sum. `narrow`: the 16-bit type of the operands. `orders`: it may be made of sums so many times larger, which are
  /// rounded once more. `share`: of the sum of |terms|, by which all of them may be off.
  double error(double sum, std::optional<ElementType> narrow, double orders = 1, double share = 0) const;

 private:
  /// An extremum that is finite leaves infinite terms behind: what is added to it later is rounded.
  void go_on_from(double extremum);
  template <bool kOperands>
  void add_terms(const Terms& terms, double& sum);
  void add_finite(const Terms& terms, double& sum);
  void add_special(const Terms& terms, int first, double& sum);
  template <bool kErrors, bool kOperands>
  static bool add_finite_lanes(ErrorSum* each, double* sums, const LaneTerms& terms);
  static bool add_any_lanes(ErrorSum* each, double* sums, const LaneTerms& terms);
  static bool add_lanes_widely(ErrorSum* each, double* sums, const LaneTerms& terms);
  double inherited_ = 0;
  double squares_ = 0;
  double magnitude_ = 0;
  double deviation_ = 0;          ///< of the simulated sum, at its largest
  double above_ = 0, below_ = 0;  ///< doublings of all factors of a product above 1, and halvings of those below
  float simulated_ = 0;
  std::int32_t terms_ = 0;
  bool special_ = false;  ///< an infinity or NaN among the terms
  bool started_ = false;  ///< from another value than 0, which is one of the terms
};

}  // namespace nestor
