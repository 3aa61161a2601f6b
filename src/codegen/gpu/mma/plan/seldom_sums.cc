// Which ops have the form.
#include "codegen/gpu/mma/plan/seldom_sums.h"

#include "codegen/tile/analysis/op_shape.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

bool uses_dim(const std::vector<IntExpr>& exprs, const std::string& var) {
  return std::any_of(exprs.begin(), exprs.end(), [&](const IntExpr& expr) { return expr.defined() && expr.uses(var); });
}

/// The only reduced dim; -1: there is none, or more, or what the others run over depends on it.
int only_reduced(const TileOp& op) {
  int found = -1;
  for (int d = 0; d < static_cast<int>(op.dims.size()); ++d) {
    if (!op.dims[static_cast<std::size_t>(d)].reduced) continue;
    if (found >= 0) return -1;
    found = d;
  }
  if (found < 0) return -1;
  const std::string& var = op.dims[static_cast<std::size_t>(found)].var;
  const bool bounds =
      std::any_of(op.dims.begin(), op.dims.end(), [&](const OpDim& dim) { return uses_dim({dim.lower, dim.upper}, var); });
  return bounds || uses_dim({op.guard}, var) ? -1 : found;
}

}  // namespace

std::optional<SeldomSum> seldom_sum(const TileOp& op, const std::vector<Buffer>& buffers, int& k) {
  const auto scratch = [&](const TileAccess& access) {
    return buffers[static_cast<std::size_t>(access.buffer)].memory == Memory::scratch;
  };
  const auto sum = seldom_sum_of(op.value, op.reduction);
  if (!sum || op.kind != OpKind::reduce || op.initialize || !scratch(op.write)) return std::nullopt;
  const int reduced = only_reduced(op);
  if (reduced < 0) return std::nullopt;
  const std::string& var = op.dims[static_cast<std::size_t>(reduced)].var;
  bool tile = false, fits = true;
  sum->condition.visit([&](const ScalarExpr& node) {
    if (node.op() == ScalarOp::index) fits = false;
    if (node.op() != ScalarOp::read) return;
    const TileAccess& access = op.reads[static_cast<std::size_t>(node.ordinal())];
    tile = tile || scratch(access);
    fits = fits && !uses_any(access, var);
  });
  sum->term.visit([&](const ScalarExpr& node) {
    if (node.op() == ScalarOp::read) fits = fits && !scratch(op.reads[static_cast<std::size_t>(node.ordinal())]);
  });
  if (!tile || !fits) return std::nullopt;
  k = reduced;
  return sum;
}

}  // namespace nestor::nvptx
