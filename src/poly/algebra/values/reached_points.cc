// Descent into a value, with the points that come to each part of it.
#include "poly/algebra/values/reached_points.h"

#include "poly/algebra/values/condition.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <map>
#include <string>
#include <utility>

namespace nestor {
namespace {

/// Sizes that are tried: where even the least power does not help, it is not for integers that wrap around.
constexpr std::int64_t kLargestSize = 2147483647, kLargestPower = std::int64_t{1} << 30, kLeastPower = 1 << 20;

class Reach {
 public:
  Reach(const Nest& nest, const Statement& statement, int read, const isl::set& points)
      : nest_(nest), statement_(statement), read_(read), none_(points.subtract(points)) {}

  isl::set of(const ScalarExpr& expr, const isl::set& points) {
    if (!expr.reads(read_)) return none_;
    // The address of its argument list identifies a node; equal sets of points are one object.
    const std::pair<const void*, const isl_set*> key{&expr.args(), points.get()};
    if (const auto known = known_.find(key); known != known_.end()) return known->second.first;
    const isl::set found = expr.op() == ScalarOp::read ? points : of_args(expr, points).coalesce();
    known_.emplace(key, std::pair(found, points));
    return found;
  }

 private:
  isl::set of_args(const ScalarExpr& expr, const isl::set& points) {
    const auto& args = expr.args();
    isl::set found = of(args[0], points);
    const bool decides = expr.op() == ScalarOp::select || expr.op() == ScalarOp::logical_and || expr.op() == ScalarOp::logical_or;
    const Outcomes outcomes = decides ? outcomes_of(args[0], points) : Outcomes{points, points};
    for (std::size_t k = 1; k < args.size(); ++k) {
      const bool if_true = expr.op() == ScalarOp::logical_and || (expr.op() == ScalarOp::select && k == 1);
      found = found.unite(of(args[k], if_true ? outcomes.true_at : outcomes.false_at));
    }
    return found;
  }

  /// Points at which a condition may hold, and may not.
  struct Outcomes {
    isl::set true_at, false_at;
  };

  Outcomes outcomes_of(const ScalarExpr& condition, const isl::set& points) {
    if (condition.op() == ScalarOp::logical_not) {
      const Outcomes outcomes = outcomes_of(condition.args()[0], points);
      return {outcomes.false_at, outcomes.true_at};
    }
    if (condition.op() == ScalarOp::logical_and || condition.op() == ScalarOp::logical_or) {
      const Outcomes a = outcomes_of(condition.args()[0], points), b = outcomes_of(condition.args()[1], points);
      if (condition.op() == ScalarOp::logical_and) return {a.true_at.intersect(b.true_at), a.false_at.unite(b.false_at)};
      return {a.true_at.unite(b.true_at), a.false_at.intersect(b.false_at)};
    }
    const auto holds = condition_set(nest_, statement_, condition, true);
    if (!holds) return {points, points};  // data decide, or integers that may wrap around
    return {points.intersect(*holds), points.subtract(*holds)};
  }

  const Nest& nest_;
  const Statement& statement_;
  int read_;
  isl::set none_;
  std::map<std::pair<const void*, const isl_set*>, std::pair<isl::set, isl::set>> known_;  ///< what is reached, of which points
};

isl::set with_sizes_up_to(const isl::set& domain, std::int64_t largest) {
  isl_set* set = domain.copy();
  for (unsigned k = 0; k < static_cast<unsigned>(isl_set_dim(domain.get(), isl_dim_param)); ++k)
    set = isl_set_upper_bound_val(set, isl_dim_param, k, isl_val_int_from_si(isl_set_get_ctx(domain.get()), largest));
  return isl::manage(set);
}

/// Instances at which the read has no element.
isl::set without_element(const Nest& nest, const Statement& statement, const Access& read) {
  const isl::set present = read.relation.domain();
  // Nearly always, and at once.
  if (isl_set_plain_is_universe(present.get()) == isl_bool_true) return isl::set::empty(statement.domain.space());
  return domain_in(nest, statement).subtract(present);
}

/// For sizes up to `largest`: why a read may be reached where it has no element; "" where none is.
std::string objection(const Nest& nest, const Statement& statement, const isl::set& missing, std::size_t read,
                      std::int64_t largest) {
  Statement place = statement;
  place.domain = with_sizes_up_to(domain_in(nest, statement), largest);
  const isl::set reached =
      reached_points(nest, place, statement.value, static_cast<int>(read), with_sizes_up_to(missing, largest));
  if (reached.is_empty()) return "";
  const isl::set shown = isl::manage(isl_set_gist_params(reached.copy(), place.domain.params().release())).coalesce();
  return fmt::format(
      "statement {} may read an element of {} that its access does not have, at {}; a select must take its other side there, by "
      "a "
      "condition on indices whose integers do not wrap around 32 bits",
      statement.name, statement.reads[read].tensor, isl_text(shown));
}

}  // namespace

isl::set reached_points(const Nest& nest, const Statement& statement, const ScalarExpr& value, int read, const isl::set& points) {
  return Reach(nest, statement, read, points).of(value, points);
}

std::int64_t guarded_sizes(const Nest& nest) {
  std::int64_t largest = kLargestSize;
  for (const Statement& statement : nest.statements) {
    for (std::size_t k = 0; k < statement.reads.size(); ++k) {
      const isl::set missing = without_element(nest, statement, statement.reads[k]);
      if (missing.is_empty()) continue;
      std::string why = objection(nest, statement, missing, k, largest);
      for (std::int64_t power = kLargestPower; !why.empty() && power >= kLeastPower; power /= 2) {
        if (power >= largest) continue;
        why = objection(nest, statement, missing, k, power);
        largest = power;
      }
      if (!why.empty()) user_error("{}", why);
    }
  }
  return largest;
}

}  // namespace nestor
