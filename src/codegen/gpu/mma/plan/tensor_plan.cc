// What is known of a tensor plan's ops and their accesses.
#include "codegen/gpu/mma/plan/tensor_plan.h"

namespace nestor::nvptx {
int runs_along(const std::vector<IntExpr>& index, const std::string& var) {
  int found = -1;
  for (int p = 0; p < static_cast<int>(index.size()); ++p) {
    if (!index[static_cast<std::size_t>(p)].uses(var)) continue;
    if (found >= 0 || index[static_cast<std::size_t>(p)].coefficient(var) != 1) return -1;
    found = p;
  }
  return found;
}

std::vector<int> copied_order(std::size_t rank, int row_index, int pack_index) {
  std::vector<int> order;
  if (pack_index < 0) return order;
  for (int p = 0; p + 1 < static_cast<int>(rank); ++p) {
    if (p != row_index && p != pack_index) order.push_back(p);
  }
  order.insert(order.end(), {row_index, pack_index, static_cast<int>(rank) - 1});
  return order;
}

bool leads(const TensorOp& op) { return op.kind == TensorOp::Kind::product && op.a_ring >= 0; }

bool writes_zero(const TileOp& op) { return op.value.is_constant(0) && !op.reduction; }

bool scales(const TileOp& op, int buffer) {
  if (op.write.buffer != buffer || op.reduction || op.value.op() != ScalarOp::mul) return false;
  const auto is_sum = [&](const ScalarExpr& expr) {
    return expr.op() == ScalarOp::read && op.reads[static_cast<std::size_t>(expr.ordinal())].buffer == buffer;
  };
  const auto uses_sum = [&](const ScalarExpr& expr) {
    bool found = false;
    expr.visit([&](const ScalarExpr& node) { found = found || is_sum(node); });
    return found;
  };
  const ScalarExpr &a = op.value.args()[0], &b = op.value.args()[1];
  return (is_sum(a) && !uses_sum(b)) || (is_sum(b) && !uses_sum(a));
}

}  // namespace nestor::nvptx
