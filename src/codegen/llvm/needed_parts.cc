// Parts of operands, and of choices what both sides have.
#include "codegen/llvm/needed_parts.h"

#include "poly/nest/scalar_share.h"

#include <algorithm>
#include <functional>
#include <iterator>

namespace nestor {

const NeededParts::Nodes& NeededParts::of(const ScalarExpr& expr) {
  const auto done = known_.find(node_identity(expr));
  if (done != known_.end()) return done->second;
  Nodes nodes{node_identity(expr)};
  const bool chooses = expr.op() == ScalarOp::select;
  const std::size_t count =
      chooses || expr.op() == ScalarOp::logical_and || expr.op() == ScalarOp::logical_or ? 1 : expr.args().size();
  for (std::size_t k = 0; k < count; ++k) {
    const Nodes& more = of(expr.args()[k]);
    nodes.insert(more.begin(), more.end());
  }
  if (chooses) {
    const Nodes &yes = of(expr.args()[1]), &no = of(expr.args()[2]);
    std::set_intersection(yes.begin(), yes.end(), no.begin(), no.end(), std::inserter(nodes, nodes.end()), std::less<>());
  }
  return known_.emplace(node_identity(expr), std::move(nodes)).first->second;
}

}  // namespace nestor
