// Prefix sums: that the body's op is a sum over what stands before, or behind, each element, whose terms do not ask which element it is; that
// each thread, lane and warp adds its own terms in the order of the columns.
#include "codegen/gpu/simt/proof/block_paths.h"
#include "codegen/tile/analysis/conditions.h"
#include "support/rounding.h"

namespace nestor::nvptx {
namespace {

bool uses(const TileAccess& access, const std::string& var) {
  return std::any_of(access.index.begin(), access.index.end(), [&](const IntExpr& index) { return index.uses(var); });
}

/// What no point of the body touches lies inside of the buffer all the same, wherever `var` is at one of the places.
bool lies_inside(const BlockProof& proof, const TileAccess& access, const std::string& var, const OpDim& places) {
  const Buffer& buffer = proof.plan.buffer(access.buffer);
  for (std::size_t p = 0; p < access.index.size(); ++p) {
    if (!access.index[p].uses(var)) continue;
    const Affine along = affine_of(access.index[p] - IntExpr::variable(var));
    const Affine first = affine_of(access.index[p].substitute(var, places.lower)),
                 behind = affine_of(buffer.extents[p]) - affine_of(access.index[p].substitute(var, places.upper - IntExpr(1)));
    if (!along.is_constant() || !first.is_constant() || !behind.is_constant()) return false;
    if (first.constant < 0 || behind.constant < 1) return false;
  }
  return true;
}

void prove_prefix(BlockProof& proof, const BlockOp& op) {
  const std::string& name = op.op.name;
  const bool plain = !op.product && op.divided < 0 && !op.deferred && !op.fused && op.warp_lead < 0 && op.joins < 0 &&
                     op.ahead == 0 && op.window.empty() && op.layout.run == 1 && proof.plan.cluster == 1;
  const int kept = op.prefix->kept, dims = static_cast<int>(op.op.dims.size());
  if (!plain || op.op.kind != OpKind::reduce || !op.op.reduction || op.op.guard.defined() || kept < 0 || kept >= dims)
    return proof.fail("{} cannot have sums of prefixes", name);
  for (int d = 0; d < dims; ++d) {
    const bool serial = op.roles[d] == DimRole::serial;
    if (proof.dim(op, d).reduced || (d == kept && op.roles[d] == DimRole::row))
      proof.fail("{}: sums of prefixes do not run along {}", name, proof.dim(op, d).var);
    if (d != kept && serial && !has_one_value(proof.dim(op, d)))
      proof.fail("{} adds points of several {} into one sum", name, proof.dim(op, d).var);
  }
  const int lanes = op.layout.lanes;
  if (op.column == kept && (lanes <= kWarpThreads ? !is_power_of_two(lanes) : lanes % kWarpThreads != 0))
    proof.fail("{}: shuffles do not scan the {} lanes of a row", name, lanes);
}

}  // namespace

std::string prefix_difference(const BlockProof& proof, const TileOp& body, const PrefixPlan& prefix, TileOp& terms) {
  terms = body;
  terms.guard = {};
  const auto found = std::find_if(terms.dims.begin(), terms.dims.end(), [&](const OpDim& dim) { return dim.var == prefix.summed.var; });
  if (found == terms.dims.end() || !found->reduced) return "it does not sum over " + prefix.summed.var;
  const OpDim summed = *found;
  terms.dims.erase(found);
  if (prefix.kept < 0 || prefix.kept >= static_cast<int>(terms.dims.size())) return "its sums end nowhere";
  OpDim& kept = terms.dims[static_cast<std::size_t>(prefix.kept)];
  for (const OpDim& dim : body.dims) {
    for (const OpDim& other : body.dims) {
      if (dim.lower.uses(other.var) || dim.upper.uses(other.var)) return "bounds of its dims hang on each other";
    }
  }
  if (kept.reduced || (prefix.exclusive && prefix.shift != 0) || (prefix.widened && !prefix.exclusive))
    return fmt::format("{} is no end of sums", kept.var);
  // How far places lie from the terms that they are the last to have.
  const std::int64_t apart = prefix.widened ? 1 : prefix.shift;
  const IntExpr forth(prefix.backward ? -apart : apart);
  if (!same_expr(kept.lower, summed.lower + forth) || !same_expr(kept.upper, summed.upper + forth))
    return fmt::format("{} has other places than the terms", kept.var);
  if (prefix.widened) {
    if (prefix.backward) kept.upper = kept.upper + IntExpr(1);
    if (!prefix.backward) kept.lower = kept.lower - IntExpr(1);
    if (kept.max_extent) ++*kept.max_extent;
    if (body.initialize || proof.plan.buffer(body.write.buffer).memory != Memory::scratch ||
        !lies_inside(proof, body.write, kept.var, kept))
      return fmt::format("{} has a place that is not its own", kept.var);
  }
  const IntExpr s = IntExpr::variable(kept.var), k = IntExpr::variable(summed.var);
  const IntExpr wanted = (prefix.backward ? k - s : s - k) - IntExpr(prefix.exclusive ? 1 : prefix.shift);
  const IntExpr place = s + IntExpr(prefix.backward ? prefix.shift : -prefix.shift);
  const bool compares = body.guard.defined() && (body.guard.op() == IntOp::ge || body.guard.op() == IntOp::gt);
  if (!compares || !same_expr(comparison_distance(body.guard), wanted)) return "its sums have other terms";
  if (uses(body.write, summed.var)) return fmt::format("its result hangs on {}", summed.var);
  for (TileAccess& read : terms.reads) {
    if (uses(read, kept.var) || read.buffer == body.write.buffer) return fmt::format("its terms hang on {}", kept.var);
    if (prefix.exclusive && !lies_inside(proof, read, summed.var, kept)) return "a term that no sum has may not be there";
    for (IntExpr& index : read.index) index = index.substitute(summed.var, place);
  }
  for (IntExpr& index : terms.indices) {
    if (index.uses(kept.var)) return fmt::format("its terms hang on {}", kept.var);
    index = index.substitute(summed.var, place);
  }
  return "";
}

void prove_prefixes(BlockProof& proof) {
  for (const BlockOp& op : proof.plan.ops) {
    if (op.prefix) prove_prefix(proof, op);
  }
}

}  // namespace nestor::nvptx
