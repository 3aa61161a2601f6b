// Bounds of intervals as minima, maxima and one choice: proofs go through every case of them.
#include "codegen/gpu/mma/plan/tile_intervals.h"

#include "codegen/tile/analysis/affine.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace nestor::nvptx {
namespace {

bool same(const IntExpr& a, const IntExpr& b) { return affine_of(a) == affine_of(b); }

/// By how much `a` is above `b`; nothing where that is no number.
std::optional<std::int64_t> above(const IntExpr& a, const IntExpr& b) {
  const Affine gap = affine_of(a - b);
  return gap.is_constant() ? std::optional(gap.constant) : std::nullopt;
}

IntExpr smaller(const IntExpr& a, const IntExpr& b) {
  const auto gap = above(a, b);
  return gap ? (*gap <= 0 ? a : b) : min(a, b);
}

IntExpr larger(const IntExpr& a, const IntExpr& b) {
  const auto gap = above(a, b);
  return gap ? (*gap >= 0 ? a : b) : max(a, b);
}

/// The same sum of multiples of variables in one order, so that equal bounds look equal; others as they are.
IntExpr in_one_order(const IntExpr& expr) {
  const Affine form = affine_of(expr);
  const auto is_name = [](const auto& term) {
    return std::all_of(term.first.begin(), term.first.end(),
                       [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; });
  };
  if (!std::all_of(form.terms.begin(), form.terms.end(), is_name)) return expr;
  IntExpr sum;
  for (const auto& [name, factor] : form.terms) {
    const IntExpr term = IntExpr(factor) * IntExpr::variable(name);
    sum = sum.defined() ? sum + term : term;
  }
  return sum.defined() ? sum + IntExpr(form.constant) : IntExpr(form.constant);
}

/// floor(expr / divisor) with a constant of at least 0 and less than the divisor before the division.
IntExpr quotient(const IntExpr& expr, std::int64_t divisor) {
  const std::int64_t constant = affine_of(expr).constant;
  const std::int64_t whole = (constant - (constant % divisor + divisor) % divisor) / divisor;
  return floor_div(in_one_order(expr - IntExpr(whole * divisor)), divisor) + IntExpr(whole);
}

/// Where the interval ends if it starts from `from`, whether its condition holds or not.
IntExpr end_of(const Interval& interval) {
  return interval.holds.defined() ? IntExpr::make(IntOp::select, {interval.holds, interval.to, interval.from}) : interval.to;
}

IntExpr start_of(const Interval& interval) {
  return interval.holds.defined() ? IntExpr::make(IntOp::select, {interval.holds, interval.from, interval.to}) : interval.from;
}

/// The union of two intervals of which one begins where the other one ends; nothing where that does not show. Either may be empty, or end
/// before the loop starts.
std::optional<Interval> chain_of(const Interval& a, const Interval& b, const Interval& within) {
  for (const auto& [before, next] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (!before->end.defined() || !next->first.defined() || !same(before->end, next->first)) continue;
    const IntExpr from = smaller(start_of(*before), next->from);
    return Interval{
        before->holds.defined() ? larger(from, within.from) : from, larger(before->to, end_of(*next)), {}, before->first, {}};
  }
  return std::nullopt;
}

/// The union of two intervals of `within` as one; nothing where it does not show that it is.
std::optional<Interval> union_of(const Interval& a, const Interval& b, const Interval& within) {
  const bool start = same(a.from, b.from), end = same(a.to, b.to);
  if (start && end) {
    const bool always = !a.holds.defined() || !b.holds.defined();
    return Interval{a.from, a.to, always ? IntExpr() : IntExpr::make(IntOp::logical_or, {a.holds, b.holds}), a.first, a.end};
  }
  if (start) return Interval{a.from, larger(end_of(a), end_of(b)), {}, a.first, {}};
  if (!end) return std::nullopt;
  const IntExpr from = smaller(start_of(a), start_of(b));
  // One that does not hold starts where it ends, which may be before all iterations.
  const bool before = (a.holds.defined() || b.holds.defined()) && !same(a.to, within.to);
  return Interval{before ? larger(from, within.from) : from, a.to, {}};
}

bool never_holds(const Interval& interval) { return interval.holds.defined() && interval.holds.is_constant(0); }

}  // namespace

std::optional<Interval> interval_of(const std::vector<IntExpr>& piece, const std::string& var, const Interval& within,
                                    const DistanceOf& distance_of) {
  IntExpr from = within.from, to = within.to, holds;
  std::vector<IntExpr> firsts, ends;
  for (const IntExpr& asked : piece) {
    std::optional<IntExpr> distance = distance_of(asked);
    if (distance) distance = linear_along(*distance, var);
    const auto slope = distance ? distance->coefficient(var) : std::nullopt;
    if (!slope) return std::nullopt;
    const IntExpr rest = distance->substitute(var, IntExpr(0));
    if (*slope < 0) {  // var <= rest / -slope
      ends.push_back(quotient(rest, -*slope) + IntExpr(1));
      to = smaller(to, ends.back());
    } else if (*slope > 0) {  // var >= -rest / slope, rounded up
      firsts.push_back(quotient(IntExpr(0) - rest + IntExpr(*slope - 1), *slope));
      from = larger(from, firsts.back());
    } else if (const auto known = rest.as_constant(); !known || *known < 0) {
      const IntExpr condition = IntExpr::make(IntOp::ge, {rest, IntExpr(0)});
      holds = holds.defined() ? holds && condition : condition;
    }
  }
  if (!same(from, within.from)) from = smaller(from, within.to);
  const auto only = [](const std::vector<IntExpr>& bounds) { return bounds.size() == 1 ? bounds.front() : IntExpr(); };
  return Interval{from, to, holds, only(firsts), only(ends)};
}

std::vector<Interval> joined(std::vector<Interval> intervals, const Interval& within) {
  if (!std::all_of(intervals.begin(), intervals.end(), never_holds)) std::erase_if(intervals, never_holds);
  const auto join = [&](const auto& both_of) {
    for (std::size_t a = 0; a < intervals.size(); ++a) {
      for (std::size_t b = intervals.size(); --b > a;) {
        if (auto both = both_of(intervals[a], intervals[b])) {
          intervals[a] = std::move(*both);
          intervals.erase(intervals.begin() + static_cast<std::ptrdiff_t>(b));
          b = intervals.size();
        }
      }
    }
  };
  join([&](const Interval& a, const Interval& b) { return union_of(a, b, within); });
  join([&](const Interval& a, const Interval& b) { return chain_of(a, b, within); });
  for (Interval& interval : intervals) {
    if (same(interval.to, within.to)) {
      interval = {start_of(interval), interval.to};
    } else {
      interval = {interval.from, larger(end_of(interval), interval.from)};
    }
  }
  return intervals;
}

std::vector<Interval> in_order(const Interval& a, const Interval& b) {
  const IntExpr gap = smaller(a.to, b.to), beyond = larger(gap, larger(a.from, b.from));
  return {{smaller(a.from, b.from), gap}, {beyond, larger(a.to, b.to)}};
}

}  // namespace nestor::nvptx
