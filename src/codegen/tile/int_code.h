// Integer expressions whose variables have been looked up: for expressions that are evaluated many times.
#pragma once

#include "support/int_expr.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

/// Numbers of variables: a place for each name.
class VariableSlots {
 public:
  /// The same place for the same name; a new one is added.
  int of(const std::string& name) { return slots_.try_emplace(name, static_cast<int>(slots_.size())).first->second; }
  std::size_t size() const { return slots_.size(); }
  const std::map<std::string, int>& all() const { return slots_; }

 private:
  std::map<std::string, int> slots_;
};

/// Stands where a variable has no value.
inline constexpr std::int64_t kNoValue = std::numeric_limits<std::int64_t>::min();

/// An expression over the places of variables.
class IntCode {
 public:
  IntCode() = default;
  IntCode(const IntExpr& expr, VariableSlots& slots);
  /// Of an expression that is not undefined.
  bool defined() const { return defined_; }
  /// `values`: of all places. Throws what IntExpr::evaluate() throws, and InternalError where a variable has no value.
  std::int64_t evaluate(const std::int64_t* values) const { return linear_ ? linear(values) : by_tree(values); }
  /// What it is along one variable: so much now, and so much more with each step of it.
  struct Line {
    std::int64_t now = 0, step = 0;
  };
  /// Nothing where it is not linear, a variable has no value, or numbers grow too large.
  std::optional<Line> along(int slot, const std::int64_t* values) const;
  bool uses(int slot) const;
  /// The expressions whose conjunction it is: itself, or the parts of an `and`; none where it is undefined.
  std::vector<IntCode> conjuncts() const;

 private:
  std::int64_t linear(const std::int64_t* values) const {
    std::int64_t sum = constant_;
    bool wrong = false;
    for (const auto& [slot, factor] : factors_) {
      std::int64_t term = 0;
      wrong |= values[slot] == kNoValue || __builtin_mul_overflow(factor, values[slot], &term) ||
               __builtin_add_overflow(sum, term, &sum);
    }
    if (wrong) refuse(values);
    return sum;
  }
  std::int64_t by_tree(const std::int64_t* values) const;
  void refuse(const std::int64_t* values) const;
  bool defined_ = false, linear_ = false;
  std::int64_t constant_ = 0;                          ///< linear: this and
  std::vector<std::pair<int, std::int64_t>> factors_;  ///< so many times what these places hold
  IntOp op_ = IntOp::constant;                         ///< otherwise
  std::vector<IntCode> args_;
};

}  // namespace nestor
