// What follows for expressions when some tensors hold a known number: NaN, 0, an infinity.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "poly/algebra/analysis/online_plan.h"
#include "poly/nest/nest.h"

namespace nestor {

class KnownValues {
 public:
  /// `tensors` with their number. With a plan, its exponentials exp(c (a - m)) are NaN: m is infinite, and with it each a, or m is NaN.
  KnownValues(const Nest& nest, std::map<std::string, double> tensors, const OnlinePlan* plan = nullptr)
      : nest_(nest), tensors_(std::move(tensors)), plan_(plan) {}

  /// The value of an expression of `statement`, through elementwise definitions; nullopt where other values decide it.
  std::optional<double> of(const Statement& statement, const ScalarExpr& expr) const { return of(statement, expr, 0); }
  bool is_nan(const Statement& statement, const ScalarExpr& expr) const;

 private:
  using Known = std::optional<double>;
  Known of(const Statement& statement, const ScalarExpr& expr, int depth) const;
  Known of_select(const Statement& statement, const ScalarExpr& expr, int depth) const;
  Known of_tensor(const std::string& tensor, int depth) const;

  const Nest& nest_;
  std::map<std::string, double> tensors_;
  const OnlinePlan* plan_;
};

}  // namespace nestor
