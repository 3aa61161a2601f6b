// A choice between terms and 0, taken apart.
#include "codegen/tile/seldom_sum.h"

#include "poly/algebra/values/direct_sums.h"
#include "poly/algebra/values/nest_edit.h"

#include <algorithm>
#include <vector>

namespace nestor {

std::optional<SeldomSum> seldom_sum_of(const ScalarExpr& value, std::optional<ReductionOp> reduction) {
  if (reduction != ReductionOp::add || value.type() != ElementType::f32 || value.op() != ScalarOp::select) return std::nullopt;
  const bool adds = !value.args()[1].is_constant(0);
  if (!value.args()[adds ? 2 : 1].is_constant(0)) return std::nullopt;
  return SeldomSum{value.args()[0], adds, value.args()[adds ? 1 : 2]};
}

bool sums_seldom(const Statement& statement) {
  const auto sum = seldom_sum_of(statement.value, statement.reduction);
  if (!sum) return false;
  const std::vector<int> reduced = reduced_dims(statement);
  const auto of_result = [&](const ScalarExpr& node) {
    const isl::map& relation = statement.reads[static_cast<std::size_t>(node.ordinal())].relation;
    for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
      const bool kept = std::find(reduced.begin(), reduced.end(), dim) == reduced.end();
      if (depends_on_dim(relation, dim) && !kept) return false;
    }
    return node.type() == ElementType::f32;
  };
  bool reads = false, fits = true, guards = false;  // of numbers: what is infinite or NaN is rare, whatever the operands are
  sum->condition.visit([&](const ScalarExpr& node) {
    if (node.op() == ScalarOp::index) fits = false;
    guards = guards || tests_finite(node);
    if (node.op() != ScalarOp::read) return;
    reads = true;
    fits = fits && of_result(node);
  });
  // Operands of products are among what it reads.
  bool halves = false;
  sum->term.visit(
      [&](const ScalarExpr& node) { halves = halves || (node.op() == ScalarOp::read && size_in_bytes(node.type()) == 2); });
  return reads && fits && (halves || guards);
}

}  // namespace nestor
