// Ranges from the least distance of each alternative over a tile, which is linear in the loop's variable.
#include "codegen/gpu/mma/plan/tensor_ranges.h"

#include "codegen/gpu/mma/plan/tile_intervals.h"
#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/mask_cnf.h"
#include "support/error.h"

#include <algorithm>
#include <set>
#include <string>

namespace nestor::nvptx {
namespace {

using Side = Stretch::Side;

IntExpr widest(const IntExpr& a, const IntExpr& b) { return a.defined() ? max(a, b) : b; }
IntExpr lowest(const IntExpr& a, const IntExpr& b) { return a.defined() ? min(a, b) : b; }

/// The iterations at which one clause holds: those below `below`, from `above` on, and all where `always` is not 0. Undefined: no such
/// part.
struct ClauseRange {
  IntExpr below, above, always;
  bool linear = true;  ///< all alternatives are among them

  /// `bound`, or `otherwise` where the clause holds at all iterations.
  IntExpr unless(const IntExpr& bound, const IntExpr& otherwise) const {
    return always.defined() ? IntExpr::make(IntOp::select, {always, otherwise, bound}) : bound;
  }

  bool has_hole() const { return below.defined() && above.defined() && !everywhere(); }
  /// Both parts meet.
  bool everywhere() const {
    if (!below.defined() || !above.defined()) return false;
    const Affine overlap = affine_of(below - above);
    return overlap.is_constant() && overlap.constant >= 0;
  }

  /// Adds the iterations at which a distance is >= 0; undefined: no number.
  void add(const std::optional<IntExpr>& distance, const std::string& var) {
    const IntExpr along = distance ? linear_along(*distance, var) : IntExpr();
    const auto slope = distance ? along.coefficient(var) : std::nullopt;
    if (!slope) {
      linear = false;
      return;
    }
    const IntExpr rest = along.substitute(var, IntExpr(0));
    if (*slope == 0) {
      const IntExpr holds = IntExpr::make(IntOp::ge, {rest, IntExpr(0)});
      always = always.defined() ? IntExpr::make(IntOp::logical_or, {always, holds}) : holds;
    } else if (*slope < 0) {  // var <= rest / -slope
      below = widest(below, floor_div(rest, -*slope) + IntExpr(1));
    } else {  // var >= -rest / slope, rounded up
      above = lowest(above, floor_div(IntExpr(0) - rest + IntExpr(*slope - 1), *slope));
    }
  }
};

/// Iterations at which all of several clauses hold: from `from` up to `to`, but for those from `hole` up to `beyond`. Clauses whose
/// alternatives all grow, or all fall, along the loop hold in an interval; those with alternatives of both kinds fail in one.
class CommonRange {
 public:
  CommonRange(IntExpr lower, IntExpr upper) : from(lower), to(upper), lower_(std::move(lower)), upper_(std::move(upper)) {}

  void restrict(const ClauseRange& holds) {
    if (holds.everywhere()) return;
    if (holds.has_hole()) {
      hole = lowest(hole, holds.unless(holds.below, upper_));
      beyond = widest(beyond, holds.unless(holds.above, lower_));
    } else if (holds.below.defined()) {
      to = min(to, holds.unless(holds.below, upper_));
    } else if (holds.above.defined()) {
      raise(holds.unless(holds.above, lower_));
    } else if (!holds.always.defined() || holds.always.is_constant(0)) {
      none = true;
    } else if (!holds.always.as_constant()) {
      always_ = always_.defined() ? always_ && holds.always : holds.always;
    }
  }

  /// To be called once, behind all clauses: then lower <= from <= to, and from <= hole <= beyond <= to.
  void close() {
    const auto first_missing = hole.defined() ? hole.as_constant() : std::nullopt, first = lower_.as_constant();
    if (first_missing && first && *first_missing <= *first) {  // nothing before the hole
      raise(beyond);
      hole = beyond = {};
    }
    if (from_moved) from = min(from, upper_);
    if (always_.defined()) to = IntExpr::make(IntOp::select, {always_, to, from});
    if (to.str() != upper_.str()) to = max(to, from);
    if (!hole.defined()) return;
    hole = min(max(hole, from), to);
    beyond = min(max(beyond, hole), to);
  }

  /// To be called behind close(): keeps the iterations, from `first` on, at which all clauses have held for `back` iterations too.
  void shift(const IntExpr& first, int back) {
    from = from_moved ? min(from + IntExpr(back), upper_) : first;
    if (hole.defined()) {
      hole = max(hole, from);
      beyond = min(beyond + IntExpr(back), upper_);
    }
    if (to.str() != upper_.str()) to = max(to, hole.defined() ? beyond : from);
  }

  IntExpr from, to, hole, beyond;  ///< `hole` undefined: none
  bool from_moved = false, none = false;

 private:
  void raise(const IntExpr& bound) {
    from = max(from, bound);
    from_moved = true;
  }

  IntExpr lower_, upper_, always_;
};

std::string text_of(const std::vector<std::vector<IntExpr>>& pieces) {
  std::string text;
  for (const std::vector<IntExpr>& piece : pieces) {
    for (const IntExpr& distance : piece) text += distance.str() + ", ";
    text += "; ";
  }
  return text;
}

/// A number that is at most factor * expr, without quotients where the factor is a multiple of what they divide by: d floor(a / d) lies between
/// a - d + 1 and a.
IntExpr without_quotients(const IntExpr& expr, std::int64_t factor) {
  const auto of = [&](std::size_t k, std::int64_t times) { return without_quotients(expr.args()[k], times); };
  switch (expr.op()) {
    case IntOp::add:
      return of(0, factor) + of(1, factor);
    case IntOp::sub:
      return of(0, factor) + of(1, -factor);
    case IntOp::mul:
      for (const std::size_t k : {0, 1}) {
        if (const auto constant = expr.args()[k].as_constant()) return of(1 - k, factor * *constant);
      }
      break;
    case IntOp::floor_div: {
      const auto divisor = expr.args()[1].as_constant();
      if (!divisor || factor % *divisor != 0) break;
      const std::int64_t times = factor / *divisor;
      return of(0, times) - IntExpr(times > 0 ? times * (*divisor - 1) : 0);
    }
    default:
      break;
  }
  return IntExpr(factor) * expr;
}

/// The smallest value of a distance over the op's tile: >= 0 where it is everywhere. Less where the distance has quotients. Nothing where it is not
/// linear.
std::optional<IntExpr> least_distance(const TensorPlan& plan, const TensorOp& op, IntExpr distance) {
  const std::vector<std::string> places{kRow, kColumn, kPack};
  if (std::any_of(places.begin(), places.end(), [&](const std::string& place) { return !distance.coefficient(place); }))
    distance = without_quotients(distance, 1);
  const int column = op.kind == TensorOp::Kind::product ? op.form.k : op.column;
  const std::int64_t columns = op.kind == TensorOp::Kind::product
                                   ? op.k
                                   : (column < 0 ? 1 : end_bound(op.op.dims[static_cast<std::size_t>(column)]).value_or(1));
  for (const auto& [name, extent] : {std::pair(kRow, std::int64_t{plan.work_tile_packs()}), std::pair(kColumn, columns),
                                     std::pair(kPack, std::int64_t{plan.pack})}) {
    const auto slope = distance.coefficient(name);
    if (!slope) return std::nullopt;
    distance = distance.substitute(name, IntExpr(*slope < 0 ? extent - 1 : 0));
  }
  return distance;
}

}  // namespace

LoopBody body_of(const TileNode& loop) {
  const bool conditional = loop.children.size() == 1 && loop.children[0]->kind == TileNode::Kind::condition;
  if (!conditional) return {{}, &loop.children};
  return {loop.children[0]->condition, &loop.children[0]->children};
}

namespace {

[[noreturn]] void refuse(const TensorPlan& plan, const TileNode& loop, const IntExpr& condition) {
  user_error(
      "Kernel '{}' cannot use tensor cores: loop {} leaves out iterations other than a stretch of them in its middle, those "
      "where {} fails.",
      plan.program->name, loop.var, condition.str());
}

/// Where the condition is a union of intervals.
std::vector<Stretch> stretches_of_pieces(const TensorPlan& plan, const TileNode& loop, const IntExpr& condition) {
  std::vector<Interval> intervals;
  for (const std::vector<IntExpr>& piece : pieces_of(condition)) {
    auto interval =
        interval_of(piece, loop.var, {loop.lower, loop.upper}, [](const IntExpr& distance) { return std::optional(distance); });
    if (!interval) refuse(plan, loop, condition);
    intervals.push_back(std::move(*interval));
  }
  intervals = joined(std::move(intervals), {loop.lower, loop.upper});
  if (intervals.empty() || intervals.size() > 2) refuse(plan, loop, condition);
  if (intervals.size() == 2) intervals = in_order(intervals[0], intervals[1]);
  std::vector<Stretch> stretches;
  for (const Interval& interval : intervals) stretches.push_back({interval.from, interval.to});
  return stretches;
}

/// Does the piece `a` of one op, where it holds for a whole tile, tell that the piece `b` of another one does?
bool tells(const TensorPlan& plan, const TensorOp& one, const std::vector<IntExpr>& a, const TensorOp& other,
           const std::vector<IntExpr>& b) {
  return std::all_of(b.begin(), b.end(), [&](const IntExpr& wanted) {
    const auto least = least_distance(plan, other, wanted);
    return least && std::any_of(a.begin(), a.end(), [&](const IntExpr& distance) {
             const auto known = least_distance(plan, one, distance);
             const Affine gap = known ? affine_of(*least - *known) : Affine{{}, -1};
             return gap.is_constant() && gap.constant >= 0;
           });
  });
}

/// The most iterations, as far as it shows, at which one piece of the first op holds for the whole tile and tells the same of the others:
/// one interval of those in `full`, as proofs go through every case of its bounds. Nothing: there are none.
std::optional<Interval> untested_interval(const TensorPlan& plan, const std::string& var, const Interval& full,
                                          const std::vector<const TensorOp*>& ops) {
  const TensorOp& op = *ops.front();
  std::vector<Interval> intervals;
  for (const std::vector<IntExpr>& piece : op.pieces) {
    const bool for_all = std::all_of(ops.begin() + 1, ops.end(), [&](const TensorOp* other) {
      return std::any_of(other->pieces.begin(), other->pieces.end(),
                         [&](const std::vector<IntExpr>& own) { return tells(plan, op, piece, *other, own); });
    });
    const auto least = [&](const IntExpr& distance) { return least_distance(plan, op, distance); };
    auto interval = for_all ? interval_of(piece, var, full, least) : std::nullopt;
    if (interval) intervals.push_back(std::move(*interval));
  }
  intervals = joined(std::move(intervals), full);
  const auto goes_on = [&](const Interval& interval) {  // up to an end of the loop, or along it as far as something else says
    if (affine_of(interval.from) == affine_of(full.from) || affine_of(interval.to) == affine_of(full.to)) return 0;
    return affine_of(interval.to - interval.from).is_constant() ? 2 : 1;
  };
  std::stable_sort(intervals.begin(), intervals.end(),
                   [&](const Interval& a, const Interval& b) { return goes_on(a) < goes_on(b); });
  return intervals.empty() ? std::nullopt : std::optional(intervals.front());
}

}  // namespace

std::vector<Stretch> stretches_of(const TensorPlan& plan, const TileNode& loop) {
  const IntExpr condition = body_of(loop).condition;
  if (!condition.defined()) return {{loop.lower, loop.upper}};
  const std::vector<IntExpr> clauses = clauses_of(condition);
  CommonRange runs(loop.lower, loop.upper);
  int holes = 0;
  for (const IntExpr& clause : clauses) {
    ClauseRange holds;
    for (const IntExpr& distance : alternatives_of(clause)) holds.add(distance, loop.var);
    runs.restrict(holds);
    holes += holds.has_hole() ? 1 : 0;
    if (!holds.linear || runs.none || holes > 1) return stretches_of_pieces(plan, loop, condition);
  }
  // Without a hole, pieces have the shorter bounds.
  if (holes == 0 && joined_clauses(clauses) > 1) return stretches_of_pieces(plan, loop, condition);
  runs.close();
  if (!runs.hole.defined()) return {{runs.from, runs.to}};
  return {{runs.from, runs.hole, Side::below}, {runs.beyond, runs.to, Side::above}};
}

std::vector<TestedRange> tested_ranges(const TensorPlan& plan, const std::string& var, const Stretch& stretch,
                                       const IntExpr& from, const std::vector<int>& ops, int back) {
  CommonRange full(from - IntExpr(back), stretch.upper);
  std::set<std::string> seen, unions;
  std::vector<const TensorOp*> with_pieces;
  for (const int k : ops) {
    const TensorOp& op = plan.ops[static_cast<std::size_t>(k)];
    if (!op.pieces.empty() && unions.insert(text_of(op.pieces)).second)
      with_pieces.insert(op.column >= 0 ? with_pieces.begin() : with_pieces.end(), &op);
    for (const IntExpr& clause : op.pieces.empty() ? op.mask : op.beside_pieces) {
      if (!seen.insert(clause.str()).second) continue;
      ClauseRange holds;
      for (const IntExpr& distance : alternatives_of(clause)) holds.add(least_distance(plan, op, distance), var);
      if (holds.has_hole() && stretch.side != Side::whole) (stretch.side == Side::below ? holds.above : holds.below) = {};
      full.restrict(holds);
    }
  }
  if (full.none || (!with_pieces.empty() && (back > 0 || full.hole.defined()))) return {{from, stretch.upper, true}};
  full.close();
  if (!with_pieces.empty()) {
    const auto untested = untested_interval(plan, var, {full.from, full.to}, with_pieces);
    if (!untested) return {{from, stretch.upper, true}};
    std::vector<TestedRange> cut{
        {from, untested->from, true}, {untested->from, untested->to, false}, {untested->to, stretch.upper, true}};
    std::erase_if(cut, [](const TestedRange& part) { return affine_of(part.from) == affine_of(part.to); });
    return cut;
  }
  if (back > 0) full.shift(from, back);
  std::vector<TestedRange> parts;
  if (full.from_moved) parts.push_back({from, full.from, true});
  if (full.hole.defined()) {
    parts.push_back({full.from, full.hole, false});
    parts.push_back({full.hole, full.beyond, true});
    parts.push_back({full.beyond, full.to, false});
  } else {
    parts.push_back({full.from, full.to, false});
  }
  if (full.to.str() != stretch.upper.str()) parts.push_back({full.to, stretch.upper, true});
  return parts;
}

}  // namespace nestor::nvptx
