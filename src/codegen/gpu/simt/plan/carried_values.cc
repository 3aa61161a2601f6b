// Recurrences: h[t] = f(h[t - 1], ...) along a dim that a thread runs through by itself. The value stays in a register from point to point, and
// other reads of the next points need not wait for it.
#include "codegen/gpu/simt/plan/block_plan.h"
#include "poly/nest/scalar_share.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

struct Reads {
  std::set<int> always, conditional;
  std::set<std::pair<const void*, bool>> seen;  ///< parts, in front of conditions and behind

  void collect(const ScalarExpr& expr, bool behind) {
    if (!seen.emplace(node_identity(expr), behind).second) return;
    if (expr.op() == ScalarOp::read) (behind ? conditional : always).insert(expr.ordinal());
    const bool branches =
        expr.op() == ScalarOp::select || expr.op() == ScalarOp::logical_and || expr.op() == ScalarOp::logical_or;
    for (std::size_t k = 0; k < expr.args().size(); ++k) collect(expr.args()[k], behind || (branches && k > 0));
  }
};

/// The one dim of several values that the thread runs through in order; -1: there is none, or more.
int own_dim(const BlockOp& op) {
  int found = -1;
  for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
    if (op.roles[d] != DimRole::serial || single_valued(op.op.dims[d])) continue;
    if (found >= 0) return -1;
    found = d;
  }
  return found;
}

/// Does the access touch at each point what `other` touches at the point before along the dim?
bool lags_behind(const TileAccess& access, const TileAccess& other, const std::string& dim) {
  const IntExpr before = IntExpr::variable(dim) - IntExpr(1);
  return std::equal(access.index.begin(), access.index.end(), other.index.begin(), other.index.end(),
                    [&](const IntExpr& a, const IntExpr& b) { return affine_of(a) == affine_of(b.substitute(dim, before)); });
}

int carried_read(const BlockPlan& plan, const BlockOp& op) {
  const TileOp& tile = op.op;
  const Buffer& buffer = plan.buffer(tile.write.buffer);
  const bool plain = tile.kind == OpKind::points && !tile.reduction && !tile.guard.defined() && !op.product && op.ahead == 0;
  if (!plain || buffer.type != ElementType::f32 || tile.value.type() != ElementType::f32 || plan.in_registers(tile.write))
    return -1;
  const int dim = own_dim(op);
  int found = -1;
  for (int k = 0; dim >= 0 && k < static_cast<int>(tile.reads.size()); ++k) {
    if (tile.reads[k].buffer != tile.write.buffer) continue;
    if (found >= 0 || !lags_behind(tile.reads[k], tile.write, tile.dims[dim].var)) return -1;
    found = k;
  }
  return found >= 0 && unconditional_reads(tile.value).contains(found) ? found : -1;
}

}  // namespace

std::set<int> unconditional_reads(const ScalarExpr& expr) {
  Reads reads;
  reads.collect(expr, false);
  for (const int ordinal : reads.conditional) reads.always.erase(ordinal);
  return reads.always;
}

void carry_values(BlockPlan& plan) {
  for (BlockOp& op : plan.ops) op.carried = carried_read(plan, op);
}

}  // namespace nestor::nvptx
