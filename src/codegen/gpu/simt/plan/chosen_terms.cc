// Sums of which data says where their only terms stand: the weight of a label, an entry of a table. A term changes nothing unless its place along
// one dim is a number that is the same for all terms. A thread looks at that place instead of at all.
#include "codegen/gpu/simt/plan/block_plan.h"

#include <algorithm>
#include <cmath>

namespace nestor::nvptx {
namespace {

/// Conditions of which all must hold.
void add_conditions(const ScalarExpr& condition, std::vector<ScalarExpr>& all) {
  if (condition.op() != ScalarOp::logical_and) return all.push_back(condition);
  for (const ScalarExpr& part : condition.args()) add_conditions(part, all);
}

/// Those without which the term is the reduction's neutral element.
std::vector<ScalarExpr> conditions_of_term(const TileOp& op) {
  const ScalarExpr& value = op.value;
  const ElementType type = value.type() == ElementType::i32 ? ElementType::i32 : ElementType::f32;
  std::vector<ScalarExpr> conditions;
  if (value.op() == ScalarOp::select && value.args()[2].is_constant(neutral_element(*op.reduction, type)))
    add_conditions(value.args()[0], conditions);
  return conditions;
}

/// Has the expression the same value at all points that differ in reduced dims alone?
bool is_common(const TileOp& op, const ScalarExpr& expr) {
  bool common = true;
  const auto examine = [&](const IntExpr& index) {
    for (const OpDim& dim : op.dims) common = common && !(dim.reduced && index.uses(dim.var));
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

/// The dim along which the term's number is an index of the op that moves by one; -1: there is none.
int dim_of_index(const BlockOp& op, const IntExpr& index) {
  const Affine form = affine_of(index);
  int found = -1;
  for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
    const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
    if (!dim.reduced || !index.uses(dim.var)) continue;
    const auto term = form.terms.find(dim.var);
    const bool moves =
        term != form.terms.end() && std::abs(term->second) == 1 && op.roles[static_cast<std::size_t>(d)] == DimRole::serial;
    if (found >= 0 || !moves || single_valued(dim)) return -1;
    found = d;
  }
  // A subterm that is not linear has the dim inside.
  const bool linear = std::all_of(form.terms.begin(), form.terms.end(), [](const auto& term) { return term.first[0] != '['; });
  return linear ? found : -1;
}

/// Do the dim's bounds depend on no term?
bool bounds_are_common(const TileOp& op, const OpDim& dim) {
  return std::none_of(op.dims.begin(), op.dims.end(), [&](const OpDim& other) {
    return other.reduced && (dim.lower.uses(other.var) || dim.upper.uses(other.var));
  });
}

std::optional<ChosenTerm> chosen_term(const BlockOp& op) {
  const bool sums = op.op.reduction && (op.op.kind == OpKind::reduce || op.op.kind == OpKind::contract);
  if (!sums || op.product || op.prefix || op.reduces_columns() || op.op.guard.defined() || op.ahead > 0) return std::nullopt;
  for (const ScalarExpr& condition : conditions_of_term(op.op)) {
    if (condition.op() != ScalarOp::eq || condition.args()[0].type() != ElementType::i32) continue;
    for (const int side : {0, 1}) {
      const ScalarExpr &index = condition.args()[static_cast<std::size_t>(side)],
                       &place = condition.args()[static_cast<std::size_t>(1 - side)];
      if (index.op() != ScalarOp::index || !is_common(op.op, place)) continue;
      const int dim = dim_of_index(op, op.op.indices[static_cast<std::size_t>(index.ordinal())]);
      if (dim >= 0 && bounds_are_common(op.op, op.op.dims[static_cast<std::size_t>(dim)]))
        return ChosenTerm{dim, index.ordinal(), place};
    }
  }
  return std::nullopt;
}

}  // namespace

void choose_terms(BlockPlan& plan) {
  for (BlockOp& op : plan.ops) {
    op.chosen = chosen_term(op);
    divide_sum(op);
  }
}

}  // namespace nestor::nvptx
