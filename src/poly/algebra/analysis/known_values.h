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
  /// `lead_stays` false: m is infinite, and a number takes its place, so that they are 0.
  KnownValues(const Nest& nest, std::map<std::string, double> tensors, const OnlinePlan* plan = nullptr, bool lead_stays = true)
      : nest_(nest), tensors_(std::move(tensors)), plan_(plan), lead_stays_(lead_stays) {}

  /// The value of an expression of `statement`, through elementwise definitions; nullopt where other values decide it.
  std::optional<double> of(const Statement& statement, const ScalarExpr& expr) const { return of(statement, expr, 0); }
  bool is_nan(const Statement& statement, const ScalarExpr& expr) const;

 private:
  using Known = std::optional<double>;
  Known of(const Statement& statement, const ScalarExpr& expr, int depth) const;
  Known of_choice(const Statement& statement, const ScalarExpr& condition) const;
  Known of_select(const Statement& statement, const ScalarExpr& expr, int depth) const;
  Known of_tensor(const std::string& tensor, int depth) const;
  bool is_exponential(const Statement& statement, const ScalarExpr& expr) const;

  const Nest& nest_;
  std::map<std::string, double> tensors_;
  const OnlinePlan* plan_;
  bool lead_stays_;
};

}  // namespace nestor
