// Column tests: conditions on values in memory that are the same for all rows of a tile, such as which keys of a sequence are padding.
// The lanes of a warp read one column each, and votes tell all of them every outcome. Most tiles have one outcome at all columns.
#include "codegen/gpu/mma/plan/plan_passes.h"
#include "codegen/gpu/mma/values/hidden_iterations.h"

#include <algorithm>
#include <utility>

namespace nestor::nvptx {
namespace {

constexpr int kFewestColumns = 16;  ///< for which votes pay

bool uses_rows(const TensorOp& op, const IntExpr& index) {
  const auto uses = [&](int dim) { return dim >= 0 && index.uses(op.op.dims[static_cast<std::size_t>(dim)].var); };
  return uses(op.row) || uses(op.pack);
}

/// Is it a condition on elements of arguments that all rows share?
bool is_shared(const TensorPlan& plan, const TensorOp& op, const ScalarExpr& condition) {
  bool shared = condition.type() == ElementType::boolean, reads = false;
  condition.visit([&](const ScalarExpr& node) {
    if (node.op() == ScalarOp::index) shared = shared && !uses_rows(op, op.op.indices[static_cast<std::size_t>(node.ordinal())]);
    if (node.op() != ScalarOp::read) return;
    const TileAccess& access = op.op.reads[static_cast<std::size_t>(node.ordinal())];
    reads = true;
    shared = shared && plan.buffer(access.buffer).role == TensorRole::input && !op.read_rings.contains(node.ordinal()) &&
             std::none_of(access.index.begin(), access.index.end(), [&](const IntExpr& index) { return uses_rows(op, index); });
  });
  return shared && reads;
}

/// The first such condition in the value that is no part of another one.
ScalarExpr find_condition(const TensorPlan& plan, const TensorOp& op, const ScalarExpr& value) {
  if (is_shared(plan, op, value)) return value;
  for (const ScalarExpr& arg : value.args()) {
    if (ScalarExpr found = find_condition(plan, op, arg); found.defined()) return found;
  }
  return {};
}

/// May the part of a value not be asked for, so that what it reads need not exist?
bool is_guarded(const ScalarExpr& value, const ScalarExpr& part) {
  if (value.equals(part)) return false;
  const bool chooses =
      value.op() == ScalarOp::select || value.op() == ScalarOp::logical_and || value.op() == ScalarOp::logical_or;
  for (std::size_t k = 0; k < value.args().size(); ++k) {
    bool within = false;
    value.args()[k].visit([&](const ScalarExpr& node) { within = within || node.equals(part); });
    if (within) return (chooses && k > 0) || is_guarded(value.args()[k], part);
  }
  return false;
}

/// Does every lane have an element in tiles without masks?
bool fills_lanes(const TensorOp& op, int columns, const ScalarExpr& condition) {
  bool guarded = columns % kWarpThreads != 0 || end_bound(op.op.dims[static_cast<std::size_t>(op.column)]) != columns;
  condition.visit(
      [&](const ScalarExpr& node) { guarded = guarded || (node.op() == ScalarOp::read && is_guarded(op.op.value, node)); });
  return !guarded;
}

ScalarExpr given(const ScalarExpr& value, const ScalarExpr& condition, bool outcome) {
  return value.rewrite([&](const ScalarExpr& node) {
    return node.equals(condition) ? ScalarExpr::constant(outcome ? 1 : 0, ElementType::boolean) : without_constants(node);
  });
}

/// A tile of constants is not what is usual; else the outcome with less to compute is.
std::pair<bool, int> cost(const ScalarExpr& value) {
  int nodes = 0;
  value.visit([&](const ScalarExpr&) { ++nodes; });
  return {value.op() == ScalarOp::constant, nodes};
}

void plan_test(const TensorPlan& plan, TensorOp& op) {
  if (op.kind != TensorOp::Kind::map || op.column < 0 || !op.read_rings.empty()) return;
  const auto fragment = plan.fragments.find(op.op.write.buffer);
  if (fragment == plan.fragments.end() || fragment->second.columns < kFewestColumns) return;
  const auto in_place = [&](const TileAccess& read) { return read.buffer == op.op.write.buffer; };
  if (std::any_of(op.op.reads.begin(), op.op.reads.end(), in_place)) return;
  const ScalarExpr condition = find_condition(plan, op, op.op.value);
  if (!condition.defined() || condition.equals(op.op.value)) return;
  const ScalarExpr holds = given(op.op.value, condition, true), fails = given(op.op.value, condition, false);
  const bool usual = cost(holds) <= cost(fails);
  op.test = ColumnTest{condition, usual, usual ? holds : fails, !fills_lanes(op, fragment->second.columns, condition)};
}

}  // namespace

void plan_column_tests(TensorPlan& plan) {
  for (TensorOp& op : plan.ops) plan_test(plan, op);
}

}  // namespace nestor::nvptx
