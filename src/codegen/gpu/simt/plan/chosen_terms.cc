// Sums of which data says where their only terms stand: the weight of a label, an entry of a table. A term changes nothing unless its place along
// one dim is a number that is the same for all terms. A thread looks at that place instead of at all.
// And terms of which data says to which of many sums they belong: counts of words, gradients of a table's rows. A thread goes through the terms
// once for all of its sums.
#include "codegen/gpu/simt/plan/block_plan.h"

#include "codegen/tile/analysis/conditions.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace nestor::nvptx {
namespace {

/// Sums of a thread from which on it looks for their terms, where most terms are for the block. Of fewer it keeps all in registers, and compares
/// each term with each. Where other blocks have sums along the dim, too, most terms are for those.
constexpr std::int64_t kFewestScattered = 16;

using PickDim = std::function<bool(const OpDim&)>;

/// Has the expression the same value at all points that differ in these dims alone?
bool is_common(const TileOp& op, const ScalarExpr& expr, const PickDim& along) {
  bool common = true;
  const auto examine = [&](const IntExpr& index) {
    for (const OpDim& dim : op.dims) common = common && !(along(dim) && index.uses(dim.var));
  };
  expr.visit([&](const ScalarExpr& node) {
    if (node.op() == ScalarOp::index) examine(op.indices[static_cast<std::size_t>(node.ordinal())]);
    if (node.op() != ScalarOp::read) return;
    const TileAccess& read = op.reads[static_cast<std::size_t>(node.ordinal())];
    common = common && read.buffer != op.write.buffer;
    std::for_each(read.index.begin(), read.index.end(), examine);
  });
  return common;
}

/// The dim along which the index, which follows no other of these dims, moves by one; -1: there is none.
int dim_of_index(const BlockOp& op, const IntExpr& index, const PickDim& along) {
  const Affine form = affine_of(index);
  int found = -1;
  for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
    const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
    if (!along(dim) || !index.uses(dim.var)) continue;
    const auto term = form.terms.find(dim.var);
    const bool moves = term != form.terms.end() && std::abs(term->second) == 1;
    if (found >= 0 || !moves || single_valued(dim)) return -1;
    found = d;
  }
  // A subterm that is not linear has the dim inside.
  const bool linear = std::all_of(form.terms.begin(), form.terms.end(), [](const auto& term) { return term.first[0] != '['; });
  return linear ? found : -1;
}

/// Do the dim's bounds depend on none of these dims?
bool bounds_are_common(const TileOp& op, const OpDim& dim, const PickDim& along) {
  return std::none_of(op.dims.begin(), op.dims.end(), [&](const OpDim& other) {
    return along(other) && (dim.lower.uses(other.var) || dim.upper.uses(other.var));
  });
}

/// Do bounds of a dim depend on this one?
bool is_bound(const TileOp& op, const OpDim& dim) {
  return std::any_of(op.dims.begin(), op.dims.end(),
                     [&](const OpDim& other) { return other.lower.uses(dim.var) || other.upper.uses(dim.var); });
}

/// Is the expression the same along the dim, where all bounds are?
bool is_same_along(const TileOp& op, const ScalarExpr& expr, const OpDim& dim) {
  return is_common(op, expr, [&](const OpDim& other) { return &other == &dim; }) && !is_bound(op, dim);
}

bool is_reduced(const OpDim& dim) { return dim.reduced; }
bool is_kept(const OpDim& dim) { return !dim.reduced; }
bool is_any(const OpDim&) { return true; }

/// An equation without which terms change nothing, of an index of the op and a number that data says. `along`: the dims among which it chooses.
std::optional<ChosenTerm> chosen_along(const BlockOp& op, const PickDim& along,
                                       const std::function<bool(const ChosenTerm&)>& fits) {
  const bool sums = op.op.reduction && (op.op.kind == OpKind::reduce || op.op.kind == OpKind::contract);
  if (!sums || op.product || op.prefix || op.reduces_columns() || op.op.guard.defined() || op.ahead > 0) return std::nullopt;
  for (const ScalarExpr& condition : conditions_of_term(op.op.value, *op.op.reduction)) {
    if (condition.op() != ScalarOp::eq || condition.args()[0].type() != ElementType::i32) continue;
    for (const int side : {0, 1}) {
      const ScalarExpr &index = condition.args()[static_cast<std::size_t>(side)],
                       &place = condition.args()[static_cast<std::size_t>(1 - side)];
      if (index.op() != ScalarOp::index) continue;
      const ChosenTerm found{dim_of_index(op, op.op.indices[static_cast<std::size_t>(index.ordinal())], along), index.ordinal(),
                             place};
      if (found.dim >= 0 && fits(found)) return found;
    }
  }
  return std::nullopt;
}

std::optional<ChosenTerm> chosen_term(const BlockOp& op) {
  return chosen_along(op, is_reduced, [&](const ChosenTerm& term) {
    const auto dim = static_cast<std::size_t>(term.dim);
    return op.roles[dim] == DimRole::serial && is_common(op.op, term.place, is_reduced) &&
           bounds_are_common(op.op, op.op.dims[dim], is_reduced);
  });
}

/// The sum that a term may change, whoever has it. It is kept in memory from term to term.
std::optional<ChosenTerm> sum_of_terms(const BlockPlan& plan, const BlockOp& op) {
  if (plan.kernel->shape.scatter == 0 || plan.cluster > 1 || plan.buffer(op.op.write.buffer).type != op.sum_type())
    return std::nullopt;
  if (!op.op.initialize && stored_where(op.op).defined()) return std::nullopt;
  return chosen_along(op, is_kept, [&](const ChosenTerm& term) {
    const OpDim& dim = op.op.dims[static_cast<std::size_t>(term.dim)];
    return is_same_along(op.op, term.place, dim) && bounds_are_common(op.op, dim, is_any);
  });
}

/// The same, where the threads of a warp go through the same terms: those of all rows and columns, but for the sum's own dim.
std::optional<ChosenTerm> chosen_sum(const BlockPlan& plan, const BlockOp& op) {
  const auto found = sum_of_terms(plan, op);
  if (!found) return std::nullopt;
  for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
    if (op.roles[d] == DimRole::serial || static_cast<int>(d) == found->dim) continue;
    if (op.roles[d] == DimRole::row || !is_same_along(op.op, found->place, op.op.dims[d])) return std::nullopt;
  }
  return found;
}

}  // namespace

void choose_terms(BlockPlan& plan) {
  for (BlockOp& op : plan.ops) {
    op.chosen = chosen_term(op);
    if (!op.chosen) op.scattered = chosen_sum(plan, op);
    if (op.scattered)
      op.divided = -1;
    else
      divide_sum(op);
  }
}

namespace {

/// Is the dim long enough that each of so many threads looks for the terms of its sums?
bool is_worth_looking(const BlockOp& op, const ChosenTerm& term, int threads) {
  const auto d = static_cast<std::size_t>(term.dim);
  const auto sums = extent_bound(op.op.dims[d]);
  const Affine index = affine_of(op.op.indices[static_cast<std::size_t>(term.index)]);
  return !sums || (index.terms.size() > 1 ? *sums > 1 : *sums >= threads * kFewestScattered);
}

}  // namespace

int column_of_scattered(const BlockPlan& plan, const BlockOp& op) {
  const auto found = sum_of_terms(plan, op);
  if (!found || op.op.write.index.empty()) return -1;
  if (!is_worth_looking(op, *found, 1)) return -1;
  for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
    const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
    if (!dim.reduced && !single_valued(dim) && op.op.write.index.back().coefficient(dim.var) == 1) return d;
  }
  return -1;
}

void settle_scattered(BlockPlan& plan) {
  for (BlockOp& op : plan.ops) {
    if (!op.scattered) continue;
    const bool of_rows = op.roles[static_cast<std::size_t>(op.scattered->dim)] == DimRole::row;
    const bool looks = is_worth_looking(op, *op.scattered, op.threads_along(op.scattered->dim));
    if ((of_rows && op.layout.run > 1) || !looks) op.scattered.reset();  // of a run a thread's rows are neighbours
  }
}

}  // namespace nestor::nvptx
