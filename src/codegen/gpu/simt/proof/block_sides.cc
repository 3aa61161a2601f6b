// Sides of meetings, and arithmetic that tells most elements apart: where equal indices leave a difference of positions no other value
// than 0, the positions are equal.
#include "codegen/gpu/simt/proof/block_sides.h"
#include "codegen/tile/analysis/conditions.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace nestor::nvptx {
namespace {

using Pair = std::pair<const SideVariable*, const SideVariable*>;

std::optional<std::int64_t> position_count(const IntExpr& lower, const IntExpr& upper, std::int64_t step) {
  const auto bound = distance_bound(lower, upper);
  return bound ? std::optional(std::max<std::int64_t>(ceil_div(*bound, step), 0)) : std::nullopt;
}

/// A constant that the value never falls below (`least`) or exceeds, as far as its form and the variables' own bounds show one.
std::optional<std::int64_t> constant_bound(const IntExpr& expr, bool least, const std::vector<SideVariable>& variables) {
  const auto arg = [&](std::size_t k, bool low) { return constant_bound(expr.args()[k], low, variables); };
  switch (expr.op()) {
    case IntOp::constant:
      return expr.value();
    case IntOp::variable:
      for (const SideVariable& variable : variables) {
        if (variable.name == expr.name()) return least ? variable.low : variable.high;
      }
      return std::nullopt;
    case IntOp::add:
    case IntOp::sub: {
      const auto a = arg(0, least), b = arg(1, (expr.op() == IntOp::add) == least);
      if (!a || !b) return std::nullopt;
      return expr.op() == IntOp::add ? *a + *b : *a - *b;
    }
    case IntOp::mul: {
      const auto factor = expr.args()[0].as_constant();
      const auto other = factor ? arg(1, (*factor >= 0) == least) : std::nullopt;
      return other ? std::optional(*factor * *other) : std::nullopt;
    }
    case IntOp::min:
    case IntOp::max: {
      const auto a = arg(0, least), b = arg(1, least);
      const bool one_is_enough = (expr.op() == IntOp::max) == least;
      if (!a || !b) return !one_is_enough ? std::nullopt : a ? a : b;
      return expr.op() == IntOp::min ? std::min(*a, *b) : std::max(*a, *b);
    }
    default:
      return std::nullopt;
  }
}

/// Is it made of sizes, shared variables and names of positions in linear terms alone?
bool is_linear(const IntExpr& expr) {
  const Affine form = affine_of(expr);
  return std::none_of(form.terms.begin(), form.terms.end(),
                      [](const auto& term) { return term.first[0] == '[' && term.first.find(kSideMark) != std::string::npos; });
}

/// coefficient * t with low <= t <= high, in a sum that is 0.
struct Term {
  std::int64_t coefficient = 0, low = 0, high = 0;
  int pair = -1;  ///< t is the difference of a pair's positions; -1: one position
  bool bounded = false;
};

/// sum(terms) + constant = 0
struct Equation {
  std::vector<Term> terms;
  std::int64_t constant = 0;
  bool usable = true;  ///< everything in it is bounded or a difference
};

/// Values of differences that a system of equations leaves.
class Differences {
 public:
  Differences(const Side& a, const Side& b, std::vector<Pair> pairs) : pairs_(std::move(pairs)), zero_(pairs_.size(), false) {
    for (std::size_t k = 0; k < pairs_.size(); ++k) {
      partner_[pairs_[k].first->name] = static_cast<int>(k);
      partner_[pairs_[k].second->name] = static_cast<int>(k);
    }
    for (const Side* side : {&a, &b}) {
      for (const SideVariable& variable : side->variables()) variables_[variable.name] = &variable;
    }
  }

  /// a - b = 0
  void add(const Affine& difference) {
    Equation equation;
    equation.constant = difference.constant;
    std::set<int> done;
    for (const auto& [name, coefficient] : difference.terms) {
      const auto variable = variables_.find(name);
      if (variable == variables_.end()) {  // a shared variable that does not cancel, or what is not linear
        equation.usable = false;
        continue;
      }
      const auto found = partner_.find(name);
      const int pair = found == partner_.end() ? -1 : found->second;
      if (pair >= 0 && is_difference(difference, pair)) {
        if (done.insert(pair).second) equation.terms.push_back(difference_term(difference, pair));
      } else {
        const SideVariable& own = *variable->second;
        equation.terms.push_back({coefficient, own.low.value_or(0), own.high.value_or(0), -1, own.low && own.high});
      }
    }
    equations_.push_back(std::move(equation));
  }

  /// True: there is no solution at all.
  bool contradict() {
    for (bool changed = true; changed;) {
      changed = false;
      for (Equation& equation : equations_) {
        if (!equation.usable) continue;
        if (!divides(equation)) return true;
        for (std::size_t k = 0; k < equation.terms.size(); ++k) {
          const Outcome outcome = restrict(equation, k);
          if (outcome == Outcome::none) return true;
          changed = changed || outcome == Outcome::zero;
        }
        if (equation.terms.empty() && equation.constant != 0) return true;
      }
      drop_zeros();
    }
    return false;
  }

  bool is_zero(const SideVariable* variable) const {
    const auto found = partner_.find(variable->name);
    return found != partner_.end() && zero_[found->second];
  }

 private:
  enum class Outcome : std::uint8_t { open, zero, none };

  static std::int64_t coefficient_of(const Affine& form, const std::string& name) {
    const auto found = form.terms.find(name);
    return found == form.terms.end() ? 0 : found->second;
  }

  bool is_difference(const Affine& form, int pair) const {
    const Pair& both = pairs_[pair];
    return coefficient_of(form, both.first->name) == -coefficient_of(form, both.second->name) &&
           both.first->by_value == both.second->by_value;
  }

  Term difference_term(const Affine& form, int pair) const {
    const Pair& both = pairs_[pair];
    const SideVariable &a = *both.first, &b = *both.second;
    Term term{coefficient_of(form, a.name), 0, 0, pair, false};
    if (a.low && a.high && b.low && b.high) {
      term.bounded = true;
      term.low = *a.low - std::max(*b.high, *b.low);
      term.high = std::max(*a.high, *a.low) - *b.low;
    }
    return term;
  }

  /// Is the constant a multiple of what divides all terms?
  static bool divides(const Equation& equation) {
    std::int64_t common = 0;
    for (const Term& term : equation.terms) common = std::gcd(common, term.coefficient);
    return common == 0 || equation.constant % common == 0;
  }

  /// What the other terms leave for one of them.
  Outcome restrict(const Equation& equation, std::size_t k) {
    std::int64_t low = equation.constant, high = equation.constant;
    for (std::size_t other = 0; other < equation.terms.size(); ++other) {
      if (other == k) continue;
      const Term& term = equation.terms[other];
      if (!term.bounded) return Outcome::open;
      const std::int64_t x = term.coefficient * term.low, y = term.coefficient * term.high;
      low += std::min(x, y);
      high += std::max(x, y);
    }
    // coefficient * t lies between -high and -low.
    const Term& term = equation.terms[k];
    const std::int64_t c = term.coefficient < 0 ? -term.coefficient : term.coefficient;
    std::int64_t from = -(high >= 0 ? high / c : -((-high + c - 1) / c)), to = low <= 0 ? -low / c : -((low + c - 1) / c);
    if (term.coefficient < 0) std::tie(from, to) = std::pair(-to, -from);
    if (term.bounded) {
      from = std::max(from, term.low);
      to = std::min(to, term.high);
    }
    if (from > to) return Outcome::none;
    if (term.pair < 0 || from != 0 || to != 0 || zero_[term.pair]) return Outcome::open;
    zero_[term.pair] = true;
    return Outcome::zero;
  }

  void drop_zeros() {
    for (Equation& equation : equations_)
      std::erase_if(equation.terms, [&](const Term& term) { return term.pair >= 0 && zero_[term.pair]; });
  }

  std::vector<Pair> pairs_;
  std::vector<char> zero_;
  std::map<std::string, int> partner_;
  std::map<std::string, const SideVariable*> variables_;
  std::vector<Equation> equations_;
};

/// Do equal positions of the rows mean equal groups? A row's number counts through the extents of all row dims but the first.
bool same_radices(const BlockOp& a, const BlockOp& b) {
  if (a.layout.groups != b.layout.groups || a.layout.run != b.layout.run || a.layout.lanes != b.layout.lanes ||
      a.rows.size() != b.rows.size())
    return false;
  if (a.rows.size() <= 1) return true;
  if (!a.row_bound() || !b.row_bound()) return false;
  for (std::size_t k = 1; k < a.rows.size(); ++k) {
    if (extent_bound(a.op.dims[a.rows[k]]) != extent_bound(b.op.dims[b.rows[k]])) return false;
  }
  return true;
}

/// Equal values are equal positions where both count from one lower bound.
bool same_position(const SideVariable& a, const SideVariable& b, const Differences& differences) {
  if (!differences.is_zero(&a)) return false;
  return !a.by_value || (affine_of(a.lower) == affine_of(b.lower) && a.lower.str().find(kSideMark) == std::string::npos);
}

bool same_group(const Side& a, const Side& b, const Differences& differences) {
  if (a.op().layout.groups == 1 && b.op().layout.groups == 1) return true;
  using Rows = Toucher::Rows;
  if (a.toucher().rows == Rows::first && b.toucher().rows == Rows::first) return true;
  if (a.toucher().rows != Rows::by_row || b.toucher().rows != Rows::by_row || !same_radices(a.op(), b.op())) return false;
  for (std::size_t k = 0; k < a.op().rows.size(); ++k) {
    if (!same_position(*a.of_dim(a.op().rows[k]), *b.of_dim(b.op().rows[k]), differences)) return false;
  }
  return true;
}

bool same_lane(const Side& a, const Side& b, const Differences& differences) {
  if (a.op().layout.lanes == 1 && b.op().layout.lanes == 1) return true;
  using Columns = Toucher::Columns;
  if (a.toucher().columns == Columns::first && b.toucher().columns == Columns::first) return true;
  if (a.toucher().columns != Columns::by_column || b.toucher().columns != Columns::by_column) return false;
  return a.op().layout == b.op().layout && same_position(*a.of_dim(a.op().column), *b.of_dim(b.op().column), differences);
}

bool same_where_it_counts(const Meeting& meeting, const Side& a, const Side& b, const Differences& differences) {
  switch (meeting.apart) {
    case Meeting::Apart::thread:
      return a.op().layout.threads() == b.op().layout.threads() && same_group(a, b, differences) && same_lane(a, b, differences);
    case Meeting::Apart::point:
      return std::all_of(a.variables().begin(), a.variables().end(), [&](const SideVariable& variable) {
        const int d = variable.axis->dim;
        return d < 0 || a.op().roles[d] == DimRole::serial || differences.is_zero(&variable);
      });
    case Meeting::Apart::nothing:
      return false;
    case Meeting::Apart::block:
      break;
  }
  return std::all_of(a.variables().begin(), a.variables().end(), [&](const SideVariable& variable) {
    return variable.axis->kind != Axis::Kind::grid || differences.is_zero(&variable);
  });
}

}  // namespace

Side::Side(const BlockProof& proof, const Meeting& meeting, bool is_a)
    : toucher_(is_a ? meeting.a : meeting.b),
      op_(&proof.op(toucher_->site->op)),
      shared_nodes_(meeting.apart == Meeting::Apart::block ? 0 : meeting.shared),
      axes_(proof.axes(*toucher_->site)) {
  const auto& around = toucher_->site->around;
  const auto is_shared = [&](const Axis& axis) {
    if (axis.kind == Axis::Kind::dim || meeting.apart == Meeting::Apart::block) return false;
    if (axis.node == nullptr) return true;
    return std::find(around.begin(), around.begin() + static_cast<std::ptrdiff_t>(shared_nodes_), axis.node) !=
           around.begin() + static_cast<std::ptrdiff_t>(shared_nodes_);
  };
  for (const Axis& axis : axes_) {
    if (axis.kind == Axis::Kind::name) {
      values_.emplace_back(axis.var, closed(axis.lower));
    } else if (is_shared(axis)) {
      shared_.push_back(axis);
    } else {
      if (toucher_->kept_only && axis.dim >= 0 && op_->op.dims[axis.dim].reduced) continue;
      SideVariable variable;
      variable.axis = &axis;
      variable.name = axis.var + kSideMark + (is_a ? "a" : "b") + std::to_string(variables_.size());
      variable.lower = closed(axis.lower);
      variable.upper = closed(axis.upper);
      variable.by_value = axis.step == 1 && !is_linear(variable.lower);
      const IntExpr name = IntExpr::variable(variable.name);
      variable.value = variable.by_value ? name : variable.lower + IntExpr(axis.step) * name;
      if (variable.by_value) {
        variable.low = constant_bound(variable.lower, true, variables_);
        if (const auto end = constant_bound(variable.upper, false, variables_)) variable.high = *end - 1;
      } else {
        auto extent = position_count(axis.lower, axis.upper, axis.step);
        if (axis.dim >= 0 && !extent) extent = extent_bound(op_->op.dims[axis.dim]);
        variable.low = 0;
        if (extent) variable.high = *extent - 1;
      }
      values_.emplace_back(axis.var, variable.value);
      variables_.push_back(std::move(variable));
    }
  }
}

IntExpr Side::closed(const IntExpr& expr) const {
  IntExpr result = expr;
  for (std::size_t k = values_.size(); k-- > 0;) result = result.substitute(values_[k].first, values_[k].second);
  return result;
}

const SideVariable* Side::of_dim(int dim) const {
  for (const SideVariable& variable : variables_) {
    if (variable.axis->dim == dim && dim >= 0) return &variable;
  }
  static const SideVariable kNone{};
  return &kNone;
}

const SideVariable* Side::of_axis(const BlockNode* node, const std::string& var) const {
  for (const SideVariable& variable : variables_) {
    if (variable.axis->dim < 0 && variable.axis->node == node && variable.axis->var == var) return &variable;
  }
  return nullptr;
}

IntExpr Side::guard() const {
  const TileOp& op = op_->op;
  // Sums of a reduction are stored whatever was added, operands of products and copies ahead are read for other points as well.
  const bool stored = op_->stores_sums() || (op.reduction && op.initialize);
  const bool own_read = op_->own_sums && toucher_->access != &op.write;
  const bool everywhere = (stored && !own_read) || op.fill || op_->product || op_->ahead > 0;
  if (!op.guard.defined()) return {};
  if (!everywhere) return closed(op.guard);
  const bool sums = op.reduction && !op.initialize && toucher_->access == &op.write;
  const IntExpr where = sums ? stored_where(op) : IntExpr();
  return where.defined() ? closed(where) : IntExpr();
}

std::vector<IntExpr> Side::conditions(bool of_shared) const {
  std::vector<IntExpr> result;
  const auto& around = toucher_->site->around;
  for (std::size_t k = of_shared ? 0 : shared_nodes_; k < (of_shared ? shared_nodes_ : around.size()); ++k) {
    if (around[k]->kind == TileNode::Kind::condition) result.push_back(closed(around[k]->condition));
  }
  return result;
}

bool Side::has_alternatives() const {
  std::vector<IntExpr> all = conditions(true);
  for (const IntExpr& own : conditions(false)) all.push_back(own);
  all.push_back(guard());
  return std::any_of(all.begin(), all.end(), [](const IntExpr& condition) {
    const std::vector<IntExpr> parts = conjuncts(condition);
    return std::any_of(parts.begin(), parts.end(), [](const IntExpr& part) { return part.op() == IntOp::logical_or; });
  });
}

std::vector<Pair> partners(const Meeting& meeting, const Side& a, const Side& b) {
  std::vector<Pair> pairs;
  const bool one_op = meeting.a->site->op == meeting.b->site->op;
  for (const SideVariable& variable : a.variables()) {
    if (variable.axis->dim < 0) {
      const BlockNode* node = variable.axis->node;
      const bool by_name = variable.axis->kind == Axis::Kind::grid;
      for (const SideVariable& other : b.variables()) {
        if (other.axis->dim >= 0 || other.axis->var != variable.axis->var) continue;
        if (other.axis->node == node || (by_name && other.axis->kind == Axis::Kind::grid)) pairs.emplace_back(&variable, &other);
      }
      continue;
    }
    const SideVariable* other = one_op ? b.of_dim(variable.axis->dim) : nullptr;
    if (!one_op && variable.axis->dim == a.op().column) other = b.of_dim(b.op().column);
    if (!one_op) {
      const auto row = std::find(a.op().rows.begin(), a.op().rows.end(), variable.axis->dim);
      const auto k = static_cast<std::size_t>(row - a.op().rows.begin());
      if (row != a.op().rows.end() && k < b.op().rows.size()) other = b.of_dim(b.op().rows[k]);
    }
    if (other != nullptr && other->axis != nullptr) pairs.emplace_back(&variable, other);
  }
  return pairs;
}

namespace {

/// What a condition says to be 0.
void zeros_of(const IntExpr& condition, std::vector<Affine>& zeros) {
  if (condition.op() == IntOp::logical_and) {
    for (const IntExpr& arg : condition.args()) zeros_of(arg, zeros);
  } else if (condition.op() == IntOp::eq) {
    zeros.push_back(affine_of(condition.args()[0]) - affine_of(condition.args()[1]));
  }
}

}  // namespace

bool stay_apart(const Meeting& meeting, const Side& a, const Side& b) {
  Differences differences(a, b, partners(meeting, a, b));
  const TileAccess &first = *meeting.a->access, &second = *meeting.b->access;
  for (std::size_t k = 0; k < first.index.size(); ++k) {
    Affine difference = affine_of(a.closed(first.index[k])) - affine_of(b.closed(second.index[k]));
    // What is not linear in positions says nothing; what is made of shared values alone cancels.
    differences.add(difference);
  }
  if (const IntExpr guard = a.guard(), other = b.guard();
      guard.defined() && other.defined() && meeting.a->site == meeting.b->site) {
    std::vector<Affine> zeros, other_zeros;  // one guard's in the same order, or of parts of it; all are 0
    zeros_of(guard, zeros);
    zeros_of(other, other_zeros);
    for (std::size_t k = 0; k < std::min(zeros.size(), other_zeros.size()); ++k) differences.add(zeros[k] - other_zeros[k]);
  }
  return differences.contradict() || same_where_it_counts(meeting, a, b, differences);
}

}  // namespace nestor::nvptx
