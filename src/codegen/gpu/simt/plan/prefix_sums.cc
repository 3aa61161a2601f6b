// Prefix sums: out[s] = sum over k <= s of f(k), or over k < s, k >= s, k > s. One pass over the terms makes all of them: the sum of each part
// of the columns, and what stands before the part. Found in the guard of a sum that reads nothing at s. Source: G. Blelloch, Prefix Sums and
// Their Applications, 1990.
#include "codegen/gpu/simt/plan/block_plan.h"
#include "codegen/tile/analysis/conditions.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

bool same(const IntExpr& a, const IntExpr& b) { return affine_of(a) == affine_of(b); }

bool reads_at(const TileOp& op, const std::string& var) {
  const auto in = [&](const IntExpr& index) { return index.uses(var); };
  return std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return uses_any(read, var); }) ||
         std::any_of(op.indices.begin(), op.indices.end(), in);
}

/// Does the guard say k <= s, k < s, k >= s or k > s, and no more?
std::optional<PrefixPlan> order_of(const TileOp& op, const OpDim& kept, const OpDim& summed) {
  const std::vector<IntExpr> conditions = conjuncts(op.guard);
  if (conditions.size() != 1 || conditions[0].op() == IntOp::eq) return std::nullopt;
  const IntExpr distance = comparison_distance(conditions[0]);
  if (!distance.defined()) return std::nullopt;
  const IntExpr s = IntExpr::variable(kept.var), k = IntExpr::variable(summed.var);
  for (const bool backward : {false, true}) {
    for (const bool exclusive : {false, true}) {
      const IntExpr wanted = (backward ? k - s : s - k) - IntExpr(exclusive ? 1 : 0);
      if (same(distance, wanted)) return PrefixPlan{summed, -1, backward, exclusive};
    }
  }
  return std::nullopt;
}

/// Where the last term of sums without it is read as well: are there such elements?
bool has_all_terms(const TileOp& op, const OpDim& dim, const std::vector<Buffer>& buffers) {
  return std::all_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) {
    for (std::size_t p = 0; p < read.index.size(); ++p) {
      if (!read.index[p].uses(dim.var)) continue;
      const Affine rest = affine_of(buffers[static_cast<std::size_t>(read.buffer)].extents[p]) -
                          affine_of(read.index[p].substitute(dim.var, dim.upper));
      if (read.index[p].coefficient(dim.var) != 1 || !rest.is_constant() || rest.constant < 0) return false;
    }
    return true;
  });
}

}  // namespace

std::optional<BlockOp> prefix_sums_of(const TileOp& op, const std::vector<Buffer>& buffers) {
  if (op.kind != OpKind::reduce || !op.reduction || !op.guard.defined() || op.fill) return std::nullopt;
  int summed = -1;
  for (int d = 0; d < static_cast<int>(op.dims.size()); ++d) {
    if (bounds_use_other_dims(op, op.dims[d])) return std::nullopt;
    if (!op.dims[d].reduced && !op.dims[d].parallel && !single_valued(op.dims[d])) return std::nullopt;
    if (!op.dims[d].reduced) continue;
    if (summed >= 0) return std::nullopt;
    summed = d;
  }
  if (summed < 0) return std::nullopt;
  const OpDim& k = op.dims[summed];
  for (int d = 0; d < static_cast<int>(op.dims.size()); ++d) {
    const OpDim& s = op.dims[d];
    if (d == summed || !s.parallel || !op.guard.uses(s.var) || reads_at(op, s.var)) continue;
    if (!same(s.lower, k.lower) || !same(s.upper, k.upper) || s.kind == LoopKind::gpu_lane) continue;
    auto order = order_of(op, s, k);
    const bool reads_result = std::any_of(op.reads.begin(), op.reads.end(),
                                          [&](const TileAccess& read) { return read.buffer == op.write.buffer; });
    if (!order || reads_result || (order->exclusive && !has_all_terms(op, k, buffers))) continue;
    order->kept = d < summed ? d : d - 1;
    BlockOp result;
    result.op = op;
    result.op.guard = {};
    result.op.dims.erase(result.op.dims.begin() + summed);
    const IntExpr here = IntExpr::variable(s.var);
    for (TileAccess& read : result.op.reads) {
      for (IntExpr& index : read.index) index = index.substitute(k.var, here);
    }
    for (IntExpr& index : result.op.indices) index = index.substitute(k.var, here);
    result.prefix = std::move(*order);
    return result;
  }
  return std::nullopt;
}

}  // namespace nestor::nvptx
