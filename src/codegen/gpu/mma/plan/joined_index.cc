// Quotients and remainders as isl writes them: x / p, and x - p * (x / p).
#include "codegen/gpu/mma/plan/joined_index.h"

#include "codegen/tile/analysis/affine.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

/// The only quotient by a constant in the expression that uses the variable; undefined: there is none, or another one.
IntExpr quotient_in(const IntExpr& expr, const std::string& var) {
  if (expr.op() == IntOp::floor_div && expr.uses(var)) return expr;
  IntExpr found;
  for (const IntExpr& arg : expr.args()) {
    const IntExpr inner = quotient_in(arg, var);
    if (inner.defined() && found.defined() && inner.str() != found.str()) return {};
    if (inner.defined()) found = inner;
  }
  return found;
}

/// Does a term of the form move with the variable?
bool moves(const Affine& form, const std::string& var) {
  return std::any_of(form.terms.begin(), form.terms.end(),
                     [&](const auto& term) { return term.first.find(var) != std::string::npos; });
}

}  // namespace

std::optional<JoinedIndex> joined_along(const std::vector<IntExpr>& index, const std::string& var) {
  std::vector<int> users;
  for (int p = 0; p < static_cast<int>(index.size()); ++p) {
    if (index[static_cast<std::size_t>(p)].uses(var)) users.push_back(p);
  }
  if (users.size() != 2) return std::nullopt;
  if (index[static_cast<std::size_t>(users[0])].op() != IntOp::floor_div) std::swap(users[0], users[1]);
  const IntExpr &high = index[static_cast<std::size_t>(users[0])], &low = index[static_cast<std::size_t>(users[1])];
  const IntExpr quotient = quotient_in(low, var);
  if (!quotient.defined()) return std::nullopt;
  const IntExpr& at = quotient.args()[0];
  const auto period = quotient.args()[1].as_constant();
  const bool fits = period && *period > 1 && at.coefficient(var) == 1 &&
                    affine_of(low) == affine_of(at - IntExpr(*period) * quotient) &&
                    !moves(affine_of(high) - affine_of(quotient), var);
  return fits ? std::optional(JoinedIndex{users[0], users[1], *period, at}) : std::nullopt;
}

std::int64_t multiple_of(const JoinedIndex& joined, const std::string& var) {
  std::set<std::string> sizes;
  return joined.period == 0 ? 0 : known_multiple(joined.at.substitute(var, IntExpr(0)), {}, {}, 1, sizes);
}

}  // namespace nestor::nvptx
