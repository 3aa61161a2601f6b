// Meetings as sets of integers: sizes, variables of both sides, lanes and groups.
#include "codegen/gpu/simt/proof/block_meet.h"

#include "codegen/gpu/simt/proof/block_sides.h"
#include "codegen/tile/analysis/conditions.h"
#include "poly/isl/context.h"
#include "support/error.h"

#include <fmt/ranges.h>
#include <isl/point.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace nestor::nvptx {
namespace {

/// isl operations that one question may take: milliseconds.
constexpr std::uint64_t kMeetingBudget = 100'000;

/// isl text over dims x0, x1, ...; each name of an expression has one.
class IslText {
 public:
  /// The dim of a variable.
  std::string of(const std::string& name) {
    const auto [found, added] = dims_.try_emplace(name, fmt::format("x{}", names_.size()));
    if (added) names_.push_back(name);
    return found->second;
  }

  std::string of(const IntExpr& expr) {
    const auto arg = [&](std::size_t k) { return of(expr.args()[k]); };
    switch (expr.op()) {
      case IntOp::constant:
        return fmt::format("({})", expr.value());
      case IntOp::variable:
        return of(expr.name());
      case IntOp::add:
        return fmt::format("({} + {})", arg(0), arg(1));
      case IntOp::sub:
        return fmt::format("({} - {})", arg(0), arg(1));
      case IntOp::mul: {
        const auto a = expr.args()[0].as_constant(), b = expr.args()[1].as_constant();
        if (!a && !b) return unknown(expr);
        return a ? fmt::format("({} * {})", *a, arg(1)) : fmt::format("({} * {})", *b, arg(0));
      }
      case IntOp::floor_div:
      case IntOp::mod: {
        const auto divisor = expr.args()[1].as_constant();
        if (!divisor || *divisor <= 0) return unknown(expr);
        return expr.op() == IntOp::mod ? fmt::format("(({}) mod {})", arg(0), *divisor)
                                       : fmt::format("floor(({})/{})", arg(0), *divisor);
      }
      case IntOp::min:
      case IntOp::max:
        if (any_extremum_) return unknown(expr);
        if (conditions_ > 0) return extremum(expr, arg(0), arg(1));
        return fmt::format("{}({}, {})", expr.op() == IntOp::min ? "min" : "max", arg(0), arg(1));
      case IntOp::select:
        return either(expr, holds(expr.args()[0]), arg(1), arg(2));
      default:
        return either(expr, holds(expr), "1", "0");
    }
  }

  /// The expression is not 0.
  std::string holds(const IntExpr& expr) {
    ++conditions_;
    std::string text = condition(expr);
    --conditions_;
    return text;
  }

  /// value < upper: below each of the values of a minimum.
  std::string below(const std::string& value, const IntExpr& upper) {
    if (upper.op() == IntOp::min) return fmt::format("{} and {}", below(value, upper.args()[0]), below(value, upper.args()[1]));
    return fmt::format("{} < {}", value, of(upper));
  }

  /// value >= lower: not below any of the values of a maximum.
  std::string at_least(const std::string& value, const IntExpr& lower) {
    if (lower.op() == IntOp::max)
      return fmt::format("{} and {}", at_least(value, lower.args()[0]), at_least(value, lower.args()[1]));
    return fmt::format("{} >= {}", value, of(lower));
  }

  void state(std::string text) { constraints_.push_back(std::move(text)); }
  void forget_exactness() { exact_ = false; }
  /// From here on minima and maxima are any integers, the same wherever the same stands.
  void take_any_extremum() { any_extremum_ = true; }
  bool exact() const { return exact_; }
  isl::set set() const {
    std::vector<std::string> dims;
    for (std::size_t k = 0; k < names_.size(); ++k) dims.push_back(fmt::format("x{}", k));
    return isl::set(isl_context(), fmt::format("{{ [{}] : {} }}", fmt::join(dims, ", "), fmt::join(constraints_, " and ")));
  }

  /// Names and values of a point, without what is positions of no interest.
  std::string describe(const isl::set& set) const {
    isl_point* point = isl_set_sample_point(set.copy());
    std::vector<std::string> values;
    for (std::size_t k = 0; k < names_.size(); ++k) {
      isl_val* value = isl_point_get_coordinate_val(point, isl_dim_set, static_cast<int>(k));
      values.push_back(fmt::format("{} = {}", names_[k].substr(0, names_[k].find('#')), isl_val_get_num_si(value)));
      isl_val_free(value);
    }
    isl_point_free(point);
    return fmt::format("{}", fmt::join(values, ", "));
  }

 private:
  std::string condition(const IntExpr& expr) {
    const auto arg = [&](std::size_t k) { return of(expr.args()[k]); };
    const auto part = [&](std::size_t k) { return holds(expr.args()[k]); };
    switch (expr.op()) {
      case IntOp::ge:
        return fmt::format("({} >= {})", arg(0), arg(1));
      case IntOp::gt:
        return fmt::format("({} > {})", arg(0), arg(1));
      case IntOp::eq:
        return fmt::format("({} = {})", arg(0), arg(1));
      case IntOp::logical_and:
        return fmt::format("({} and {})", part(0), part(1));
      case IntOp::logical_or:
        return fmt::format("({} or {})", part(0), part(1));
      case IntOp::logical_not:
        return fmt::format("(not {})", part(0));
      default:
        return fmt::format("({} != 0)", of(expr));
    }
  }

  /// A variable of its own for an expression. `facts(variable)` say what it is, the first time.
  std::string variable_for(const IntExpr& expr, const std::function<std::string(const std::string&)>& facts) {
    const std::string name = "[" + expr.str() + "]";
    const bool known = dims_.count(name) != 0;
    std::string value = of(name);
    if (!known) state(facts(value));
    return value;
  }

  /// isl reads no extrema in the parentheses of a condition.
  std::string extremum(const IntExpr& expr, const std::string& a, const std::string& b) {
    const char* sign = expr.op() == IntOp::min ? "<=" : ">=";
    return variable_for(expr, [&](const std::string& value) {
      return fmt::format("({0} = {1} or {0} = {2}) and {0} {3} {1} and {0} {3} {2}", value, a, b, sign);
    });
  }

  std::string either(const IntExpr& expr, const std::string& condition, const std::string& yes, const std::string& no) {
    return variable_for(expr, [&](const std::string& value) {
      return fmt::format("(({0} and {1} = {2}) or ((not {0}) and {1} = {3}))", condition, value, yes, no);
    });
  }

  /// What is not linear is any integer, the same wherever the same stands.
  std::string unknown(const IntExpr& expr) {
    exact_ = false;
    return of("[" + expr.str() + "]");
  }

  std::map<std::string, std::string> dims_;
  std::vector<std::string> names_;
  std::vector<std::string> constraints_;
  bool exact_ = true, any_extremum_ = false;
  int conditions_ = 0;  ///< around what is written
};

void state_sizes(const TileProgram& program, IslText& text) {
  for (const SizeConstraint& constraint : program.valid) {
    IntExpr sum(constraint.constant);
    for (const auto& [name, coefficient] : constraint.terms) {
      const auto value = program.fixed_sizes.find(name);
      sum = sum + IntExpr(coefficient) * (value == program.fixed_sizes.end() ? IntExpr::variable(name) : IntExpr(value->second));
    }
    if (sum.as_constant()) continue;
    const std::string terms = text.of(sum);
    text.state(constraint.modulus > 0 ? fmt::format("{} mod {} = 0", terms, constraint.modulus)
                                      : fmt::format("{} {} 0", terms, constraint.equality ? "=" : ">="));
  }
}

/// What holds wherever the kernel is launched.
void state_launch(const KernelPlan& kernel, IslText& text) {
  for (const LaunchLoop& loop : kernel.launch_loops) {
    const std::string value = text.of(loop.var);
    text.state(fmt::format("{} >= {} and {}", value, text.of(loop.lower), text.below(value, loop.upper)));
  }
  if (kernel.condition.defined()) text.state(text.holds(kernel.condition));
}

/// A variable takes one of its values.
void state_axis(const Axis& axis, IslText& text) {
  const std::string value = text.of(axis.var);
  if (axis.kind == Axis::Kind::name) return text.state(fmt::format("{} = {}", value, text.of(axis.lower)));
  text.state(text.at_least(value, axis.lower));
  text.state(text.below(value, axis.upper));
  if (axis.step != 1) text.state(fmt::format("({} - {}) mod {} = 0", value, text.of(axis.lower), axis.step));
}

MeetingAnswer answer_of(const IslText& text) {
  const isl::set points = text.set();
  MeetingAnswer result;
  if (points.is_empty()) {
    result.verdict = MeetingAnswer::Verdict::never;
  } else if (text.exact()) {
    result.verdict = MeetingAnswer::Verdict::meet;
    result.example = text.describe(points);
  }
  return result;
}

/// Is the bound one of alternatives, as where loops that run from different places were fused: a minimum from below, a maximum from above?
bool chooses(const IntExpr& bound, IntOp alternative) {
  if (bound.op() == alternative) return true;
  const auto& args = bound.args();
  return std::any_of(args.begin(), args.end(), [&](const IntExpr& arg) { return chooses(arg, alternative); });
}

bool has_chosen_bounds(const Side& side) {
  const auto& variables = side.variables();
  return std::any_of(variables.begin(), variables.end(), [](const SideVariable& variable) {
    return chooses(variable.lower, IntOp::min) || chooses(variable.upper, IntOp::max);
  });
}

/// What a question leaves out. More points are left, so that "never" alone tells. What minima and maxima are; or conditions but for what all
/// their alternatives have in common: those around ops, which mostly say where an op's guard holds at all, and the guards.
enum class Simple : std::uint8_t { nothing, extrema, conditions, all };

class Question {
 public:
  Question(const BlockProof& proof, const Meeting& meeting, const Side& a, const Side& b, Simple simple)
      : proof_(proof), meeting_(meeting), a_(a), b_(b), simple_(simple) {
    if (simple == Simple::extrema) text_.take_any_extremum();
  }

  MeetingAnswer answer(bool launched) {
    state_around(launched);
    state_side(b_);
    for (std::size_t k = 0; k < meeting_.a->access->index.size(); ++k) {
      text_.state(fmt::format("{} = {}", text_.of(a_.closed(meeting_.a->access->index[k])),
                              text_.of(b_.closed(meeting_.b->access->index[k]))));
    }
    if (meeting_.carried != nullptr) state_carried();
    state_apart();
    return answer_of(text_);
  }

  /// Of the first side alone: index `k` lies below 0 or `above` the last one.
  MeetingAnswer outside(std::size_t k, bool above, bool launched) {
    state_around(launched);
    const TileAccess& access = *meeting_.a->access;
    const std::string index = text_.of(a_.closed(access.index[k]));
    text_.state(above ? fmt::format("{} >= {}", index, text_.of(proof_.plan.buffer(access.buffer).extents[k])) : index + " < 0");
    return answer_of(text_);
  }

 private:
  void state_around(bool launched) {
    state_sizes(*proof_.plan.program, text_);
    if (launched) state_launch(*proof_.plan.kernel, text_);
    for (const Axis& axis : a_.shared()) state_axis(axis, text_);
    for (const IntExpr& condition : a_.conditions(true)) state_condition(condition, leaves_out_conditions());
    state_side(a_);
  }

  bool leaves_out_conditions() const { return simple_ == Simple::conditions || simple_ == Simple::all; }

  void state_condition(const IntExpr& condition, bool simply) {
    if (!simply) return text_.state(text_.holds(condition));
    for (const IntExpr& fact : held_by_all_alternatives(condition)) text_.state(text_.holds(fact));
  }

  void state_side(const Side& side) {
    for (const SideVariable& variable : side.variables()) {
      const std::string name = text_.of(variable.name);
      text_.state(text_.at_least(name, variable.by_value ? variable.lower : IntExpr(0)));
      text_.state(text_.below(text_.of(variable.value), variable.upper));
      if (variable.high) text_.state(fmt::format("{} <= {}", name, *variable.high));
    }
    for (const IntExpr& condition : side.conditions(false)) state_condition(condition, leaves_out_conditions());
    if (const IntExpr guard = side.guard(); guard.defined()) state_condition(guard, simple_ == Simple::all);
  }

  void state_carried() {
    const SideVariable *first = a_.of_axis(meeting_.carried, meeting_.carried->var),
                       *second = b_.of_axis(meeting_.carried, meeting_.carried->var);
    if (first != nullptr && second != nullptr) text_.state(fmt::format("{} < {}", text_.of(first->name), text_.of(second->name)));
  }

  void state_apart() {
    if (meeting_.apart == Meeting::Apart::thread) {
      const std::string a = thread_of(a_, "a"), b = thread_of(b_, "b");
      return text_.state(fmt::format("{} != {}", a, b));
    }
    if (meeting_.apart == Meeting::Apart::nothing) return;
    std::vector<std::string> different;
    for (const auto& [first, second] : partners(meeting_, a_, b_)) {
      const int d = first->axis->dim;
      const bool counts = meeting_.apart == Meeting::Apart::block ? first->axis->kind == Axis::Kind::grid
                                                                  : d >= 0 && a_.op().roles[d] != DimRole::serial;
      if (counts) different.push_back(fmt::format("{} != {}", text_.of(first->name), text_.of(second->name)));
    }
    text_.state(different.empty() ? "1 = 0" : fmt::format("({})", fmt::join(different, " or ")));
  }

  std::string free_number(const std::string& name, std::int64_t count) {
    const std::string text = text_.of(name);
    text_.state(fmt::format("0 <= {} < {}", text, count));
    return text;
  }

  std::string thread_of(const Side& side, const std::string& mark) {
    const Layout& layout = side.op().layout;
    const std::string thread = text_.of("thread " + mark);
    using Rows = Toucher::Rows;
    using Columns = Toucher::Columns;
    if (side.toucher().columns == Columns::any) return free_number("thread " + mark, layout.threads());
    std::string lane = "0", group = "0";
    if (side.toucher().columns == Columns::all) lane = free_number("lane " + mark, layout.lanes);
    if (side.toucher().columns == Columns::by_column)
      lane =
          fmt::format("(floor({}/{}) mod {})", text_.of(side.of_dim(side.op().column)->position()), layout.vector, layout.lanes);
    if (side.toucher().rows == Rows::all) group = free_number("group " + mark, layout.groups);
    if (side.toucher().rows == Rows::by_row) group = group_of_row(side, mark);
    text_.state(fmt::format("{} = {} * {} + {}", thread, layout.lanes, group, lane));
    return thread;
  }

  std::string group_of_row(const Side& side, const std::string& mark) {
    const BlockOp& op = side.op();
    if (op.rows.size() > 1 && !op.row_bound()) {
      text_.forget_exactness();
      return free_number("group " + mark, op.layout.groups);
    }
    std::string row = "0";
    for (const int d : op.rows) {
      const std::int64_t extent = extent_bound(op.op.dims[d]).value_or(1);
      row = fmt::format("({} * {} + {})", d == op.rows.front() ? 0 : extent, row, text_.of(side.of_dim(d)->position()));
    }
    return op.layout.run == 1 ? fmt::format("({} mod {})", row, op.layout.groups)
                              : fmt::format("(floor({}/{}) mod {})", row, op.layout.run, op.layout.groups);
  }

  const BlockProof& proof_;
  const Meeting& meeting_;
  const Side &a_, &b_;
  const Simple simple_;
  IslText text_;
};

/// What is beyond the budget is left open. `ask(launched)`: where the kernel is launched, or wherever, which is the simpler question.
MeetingAnswer within_budget(const KernelPlan& kernel, const std::function<MeetingAnswer(bool launched)>& ask) {
  const auto answer = [&](bool launched) {
    MeetingAnswer result;
    try {
      with_isl_budget("telling accesses apart", [&] { result = ask(launched); }, kMeetingBudget);
    } catch (const Error&) {
      result = {};
    }
    return result;
  };
  const MeetingAnswer anywhere = answer(false);
  const bool everything = kernel.launch_loops.empty() && !kernel.condition.defined();
  return everything || anywhere.verdict == MeetingAnswer::Verdict::never ? anywhere : answer(true);
}

}  // namespace

std::size_t common_nodes(const OpSite& a, const OpSite& b) {
  std::size_t count = 0;
  while (count < a.around.size() && count < b.around.size() && a.around[count] == b.around[count]) ++count;
  return count;
}

MeetingAnswer can_meet(const BlockProof& proof, const Meeting& meeting) {
  const Side a(proof, meeting, true), b(proof, meeting, false);
  if (stay_apart(meeting, a, b)) return {MeetingAnswer::Verdict::never, ""};
  const auto ask = [&](Simple simple) {
    return within_budget(*proof.plan.kernel,
                         [&](bool launched) { return Question(proof, meeting, a, b, simple).answer(launched); });
  };
  // Conditions of tiles at borders have many alternatives, on both sides: their products are beyond the budget.
  for (const Simple simple : {Simple::all, Simple::conditions}) {
    if ((a.has_alternatives() || b.has_alternatives()) && ask(simple).verdict == MeetingAnswer::Verdict::never)
      return {MeetingAnswer::Verdict::never, ""};
  }
  // So have bounds of loops that were fused, which say little beside the conditions of what was fused.
  if ((has_chosen_bounds(a) || has_chosen_bounds(b)) && ask(Simple::extrema).verdict == MeetingAnswer::Verdict::never)
    return {MeetingAnswer::Verdict::never, ""};
  return ask(Simple::nothing);
}

MeetingAnswer can_leave(const BlockProof& proof, const Toucher& toucher) {
  const Meeting alone{&toucher, &toucher, Meeting::Apart::nothing};
  const Side side(proof, alone, true);
  for (std::size_t k = 0; k < toucher.access->index.size(); ++k) {
    for (const bool above : {false, true}) {
      const MeetingAnswer answer = within_budget(*proof.plan.kernel, [&](bool launched) {
        return Question(proof, alone, side, side, Simple::nothing).outside(k, above, launched);
      });
      if (answer.verdict != MeetingAnswer::Verdict::never) return answer;
    }
  }
  return {MeetingAnswer::Verdict::never, ""};
}

MeetingAnswer can_hold(const BlockProof& proof, const OpSite& site, const IntExpr& condition, const std::set<int>& dims) {
  return within_budget(*proof.plan.kernel, [&](bool launched) {
    IslText text;
    state_sizes(*proof.plan.program, text);
    if (launched) state_launch(*proof.plan.kernel, text);
    for (const Axis& axis : proof.axes(site)) {
      if (axis.dim < 0 || dims.contains(axis.dim)) state_axis(axis, text);
    }
    for (const BlockNode* node : site.around) {
      if (node->kind == TileNode::Kind::condition) text.state(text.holds(node->condition));
    }
    text.state(text.holds(condition));
    return answer_of(text);
  });
}

}  // namespace nestor::nvptx
