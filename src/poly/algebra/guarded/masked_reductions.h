// Reductions of values that a mask hides by a number: what they have of them.
#pragma once

#include <isl/cpp.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "poly/nest/nest.h"

namespace nestor {

/// A reduction, with definitions between it and the mask within its value.
struct MaskedReduction {
  Statement whole;        ///< indices of `hidden` and `count` among its own
  ScalarExpr hidden;      ///< where the mask hides its points
  isl::set points;        ///< these
  ScalarExpr count;       ///< how many of them a row has
  bool always = false;    ///< each row has some
  int dim = -1;           ///< that it reduces
  ScalarExpr row, term;   ///< the value there: their product; no term: the row's value alone
  bool vanishes = false;  ///< what is hidden is neutral, by the range of the scores

  /// The row's value, if it is the same number for all rows.
  std::optional<double> number() const;
};

/// A number that conditions on indices put in place of a value, and where.
class Mask {
 public:
  Mask(const Nest& nest, const Statement& statement) : nest_(nest), statement_(statement) { condition_ = where(statement.value); }

  bool found() const { return numbers_.size() == 1 && !condition_.is_constant(0) && !condition_.is_constant(1); }
  const ScalarExpr& condition() const { return condition_; }
  double number() const { return *numbers_.begin(); }
  /// What the statement computes where nothing is hidden.
  ScalarExpr seen() const;

 private:
  ScalarExpr where(const ScalarExpr& value);

  const Nest& nest_;
  const Statement& statement_;
  std::set<double> numbers_;
  ScalarExpr condition_;
};

/// The reductions that masked scores reach. Nest and statement must outlive it.
class MaskedReductions {
 public:
  MaskedReductions(const Nest& nest, const Statement& scores) : nest_(nest), scores_(scores), mask_(nest, scores) {}

  /// Their names, in order; none, with the reason, if others meet the mask, too.
  std::vector<std::string> names(std::string& why);
  /// One of them, in a nest in which earlier ones may have been rewritten.
  std::optional<MaskedReduction> of(const Nest& nest, const std::string& reduction, std::string& why) const;

 private:
  bool inline_between(const Nest& nest, Statement& reduction, std::string& why) const;
  std::optional<int> masked_read(const Statement& reduction) const;
  bool find_hidden(const Nest& nest, int ordinal, MaskedReduction& masked) const;
  void take_apart(MaskedReduction& masked, int ordinal) const;
  bool vanishes(const Nest& nest, const MaskedReduction& masked) const;
  void start_maxima_from(Nest& seen, double low) const;

  const Nest& nest_;
  const Statement& scores_;
  Mask mask_;
  std::set<std::string> between_;  ///< temporaries
};

}  // namespace nestor
