// Bottom-up over the expression.
#include "support/substitution.h"

#include <utility>
#include <vector>

namespace nestor {

IntExpr substitute_all(const IntExpr& expr, const std::map<std::string, IntExpr>& values) {
  if (!expr.defined() || expr.op() == IntOp::constant) return expr;
  if (expr.op() == IntOp::variable) {
    const auto found = values.find(expr.name());
    return found == values.end() ? expr : found->second;
  }
  std::vector<IntExpr> rebuilt;
  for (const IntExpr& arg : expr.args()) rebuilt.push_back(substitute_all(arg, values));
  return IntExpr::make(expr.op(), std::move(rebuilt));
}

}  // namespace nestor
