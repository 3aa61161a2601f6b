// From integer expressions of a tile program to isl: functions of loop variables, and the points at which a condition holds.
#pragma once

#include "poly/isl/context.h"
#include "support/int_expr.h"

#include <string>
#include <vector>

namespace nestor::proof {

/// The variables of one place of a program as a space: { [variables] }, with the parameters of a context.
/// All functions throw OpenObligation where an expression is not piecewise affine or names something that does not exist.
class IntSpace {
 public:
  /// `context`: { [] } or a parameter set whose parameters the space has. Of two equal names the later one counts.
  IntSpace(std::vector<std::string> variables, const isl::set& context);

  const std::vector<std::string>& variables() const { return variables_; }
  isl::set universe() const;
  /// { [variables] -> [value] }
  isl::pw_aff value(const IntExpr& expr) const;
  /// { [variables] : expr != 0 }
  isl::set where(const IntExpr& condition) const;
  /// { [variables] : a >= b }; conjunctions wherever minima and maxima allow it.
  isl::set at_least(const IntExpr& a, const IntExpr& b) const;
  isl::set equal(const IntExpr& a, const IntExpr& b) const;

 private:
  isl::aff variable(const std::string& name) const;
  isl::aff zero() const;
  bool is_affine(const IntExpr& expr) const;
  isl::aff affine(const IntExpr& expr) const;
  isl::set nonnegative(const IntExpr& expr) const;
  isl::set where_not(const IntExpr& condition) const;
  isl::pw_aff indicator(const isl::set& set) const;

  std::vector<std::string> variables_;
  isl::space space_;
};

}  // namespace nestor::proof
