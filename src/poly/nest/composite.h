// Composite reductions: what the algebra found may be accumulated together, before the leading value is final.
#pragma once

#include "poly/nest/scalar_expr.h"

#include <string>
#include <vector>

namespace nestor {

/// One accumulator whose terms depend on the leading value, and how it is corrected when the leading value moves.
struct Follower {
  std::string statement;  ///< the reduction statement, r (+)= phi(a_j, m) * g_j
  /// New accumulator value as an expression over: scalar "r" (the accumulator), "m_old" and "m_new" (the leading value
  /// as `view` shows it, before and after the tile), "n_old" (reduction points accumulated before the tile, as f32),
  /// "n_total" (all points of the reduction, as f32) and the nest's own scalars by their names.
  ScalarExpr correction;
};

/// A composite monoid (see docs/algebra.md): `lead` accumulates m; `mediators` are the elementwise statements between the
/// lead and its followers that read m (phi); they may read the running m instead of the final one, because each follower
/// is corrected whenever m moves.
struct Composite {
  std::string rule;                    ///< name of the rule that proved it
  std::string lead;                    ///< the reduction statement that accumulates m
  std::string lead_tensor;             ///< the tensor that holds m
  std::vector<std::string> mediators;  ///< elementwise statements reading m inside the reduction's range
  std::vector<Follower> followers;
  /// m as mediators and corrections see it, over scalars "m" (accumulator), "n" (points so far) and "n_total": identity
  /// for a maximum (a finite number where all terms so far may be -inf), m * (n_total / n) for a mean whose
  /// definition divides by the total.
  ScalarExpr view{};
  /// m as corrections see it where that is not as `view` says, over the same scalars; undefined: as `view` says.
  ScalarExpr reference{};
  const ScalarExpr& corrected_by() const { return reference.defined() ? reference : view; }
  /// Above 0: m is an extremum that stays where it is until terms would grow beyond 2^threshold. `held` is its value after a tile, over
  /// "m_old" (before the tile) and "m_new" (the extremum of that and the tile). 0: m is the extremum; `held` is undefined.
  double threshold = 0;
  ScalarExpr held{};
};

}  // namespace nestor
