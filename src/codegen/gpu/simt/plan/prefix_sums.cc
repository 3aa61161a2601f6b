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

/// Are there elements for all values of the dim?
bool has_elements(const TileAccess& access, const OpDim& dim, const std::vector<Buffer>& buffers) {
  for (std::size_t p = 0; p < access.index.size(); ++p) {
    if (!access.index[p].uses(dim.var)) continue;
    const Affine first = affine_of(access.index[p].substitute(dim.var, dim.lower)),
                 behind = affine_of(buffers[static_cast<std::size_t>(access.buffer)].extents[p]) -
                          affine_of(access.index[p].substitute(dim.var, dim.upper));
    if (access.index[p].coefficient(dim.var) != 1 || !first.is_constant() || !behind.is_constant()) return false;
    if (first.constant < 0 || behind.constant < 0) return false;
  }
  return true;
}

/// The dim with one more place where its sums start.
OpDim widened(OpDim dim, bool backward) {
  (backward ? dim.upper : dim.lower) = backward ? dim.upper + IntExpr(1) : dim.lower - IntExpr(1);
  if (dim.max_extent) ++*dim.max_extent;
  return dim;
}

/// Does the guard say k <= s, k < s - 1, k >= s, or the like, and no more? Then each s has one more term than the one before.
std::optional<PrefixPlan> order_of(const TileOp& op, const OpDim& kept, const OpDim& summed, const std::vector<Buffer>& buffers) {
  const std::vector<IntExpr> conditions = conjuncts(op.guard);
  if (conditions.size() != 1 || conditions[0].op() == IntOp::eq) return std::nullopt;
  const IntExpr distance = comparison_distance(conditions[0]);
  if (!distance.defined()) return std::nullopt;
  const IntExpr s = IntExpr::variable(kept.var), k = IntExpr::variable(summed.var);
  const auto of_places = [&](const OpDim& places, std::int64_t apart) {
    return same(places.lower, summed.lower + IntExpr(apart)) && same(places.upper, summed.upper + IntExpr(apart));
  };
  // Sums without their own term read a term that none of them has.
  const auto has_all = [&](const OpDim& places) {
    return std::all_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) {
      OpDim terms = places;
      terms.var = summed.var;
      return has_elements(read, terms, buffers);
    });
  };
  for (const bool backward : {false, true}) {
    const Affine apart = affine_of(backward ? k - s : s - k) - affine_of(distance);
    if (!apart.is_constant()) continue;
    const std::int64_t shift = apart.constant;
    if (shift == 1 && of_places(kept, 0) && has_all(kept)) return PrefixPlan{summed, -1, backward, true};
    if (!of_places(kept, backward ? -shift : shift)) continue;
    // One more place, so that terms stand where their sums do: vectors, registers.
    const OpDim wide = widened(kept, backward);
    const bool scratch = buffers[static_cast<std::size_t>(op.write.buffer)].memory == Memory::scratch;
    if (shift == 1 && scratch && !op.initialize && has_all(wide) && has_elements(op.write, wide, buffers))
      return PrefixPlan{summed, -1, backward, true, 0, true};
    return PrefixPlan{summed, -1, backward, false, shift};
  }
  return std::nullopt;
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
    if (s.kind == LoopKind::gpu_lane) continue;
    auto order = order_of(op, s, k, buffers);
    const bool reads_result =
        std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == op.write.buffer; });
    if (!order || reads_result) continue;
    order->kept = d < summed ? d : d - 1;
    BlockOp result;
    result.op = op;
    result.op.guard = {};
    if (order->widened) result.op.dims[d] = widened(s, order->backward);
    result.op.dims.erase(result.op.dims.begin() + summed);
    const IntExpr here = IntExpr::variable(s.var) + IntExpr(order->backward ? order->shift : -order->shift);
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
