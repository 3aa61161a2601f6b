// Value errors: running error analysis of value code, operation by operation.
#pragma once

#include "autotune/oracle/code/value_code.h"
#include "autotune/oracle/rounding_model.h"

namespace nestor {

/// Supplies the errors of the leaves of one chunk of points.
class LeafErrors {
 public:
  virtual ~LeafErrors() = default;
  /// False: all errors are 0, and `out` is left as it is.
  virtual bool read_error(int ordinal, double* out, int count) = 0;
};

/// Beside each value of `values` (all registers of `code`, as ValueCode::run left them) an estimate of how far an evaluation
/// in f32 may be off, to first order: errors of operands propagated, and one rounding. 0: exact. Infinite: nothing is said of the value,
/// because a condition may fall the other way, or f32 overflows where other orders of evaluation do not.
/// W. Kahan's and J. Wilkinson's running error analysis, see N. Higham, Accuracy and Stability of Numerical Algorithms, 3.3.
/// `errors` has as many doubles as `values`. The result lies there, or is zeros that stand elsewhere.
const double* run_errors(const ValueCode& code, const RoundingModel& model, const double* values, double* errors,
                         LeafErrors& leaves, int count);

/// Are all numbers of f32, and finite there?
bool all_exact(const double* results, int count);

/// run_errors() of products of f32 alone, results = a b: they lie in `out`; null where all are 0. Null errors: all 0.
struct ErrorsOfFactor {
  const double *values, *errors;
};
const double* product_errors(const ErrorsOfFactor& a, const ErrorsOfFactor& b, const double* results, int count, double* out);

/// Products of f32, `count` in each of 16 lanes, and their errors: the k-th one of a lane is results[16 k + lane]. The first factor may be
/// `shared`, one number for all lanes. Null errors, of both factors: all 0. `special`: some results are no numbers, leave the range of f32, or
/// may be anything. `exact`: all errors are 0, and not written.
enum class LaneProducts { special, exact, inexact };
LaneProducts product_lanes(const ErrorsOfFactor& a, bool shared, const ErrorsOfFactor& b, int count, double* results,
                           double* errors);

}  // namespace nestor
