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

/// The last term of sums without their own is read, too, and needed by none: it lies inside of the buffers.
bool has_last_term(const BlockProof& proof, const TileOp& body, const OpDim& summed) {
  for (const TileAccess& read : body.reads) {
    const Buffer& buffer = proof.plan.buffer(read.buffer);
    for (std::size_t p = 0; p < read.index.size(); ++p) {
      if (!read.index[p].uses(summed.var)) continue;
      Affine behind = affine_of(read.index[p]);
      if (behind.terms[summed.var] != 1) return false;
      behind = affine_of(buffer.extents[p]) - affine_of(read.index[p].substitute(summed.var, summed.upper - IntExpr(1)));
      if (!behind.is_constant() || behind.constant < 1) return false;
    }
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
  const OpDim& kept = terms.dims[static_cast<std::size_t>(prefix.kept)];
  for (const OpDim& dim : body.dims) {
    for (const OpDim& other : body.dims) {
      if (dim.lower.uses(other.var) || dim.upper.uses(other.var)) return "bounds of its dims hang on each other";
    }
  }
  if (kept.reduced || !same_expr(kept.lower, summed.lower) || !same_expr(kept.upper, summed.upper))
    return fmt::format("{} has other places than the terms", kept.var);
  const IntExpr s = IntExpr::variable(kept.var), k = IntExpr::variable(summed.var);
  const IntExpr wanted = (prefix.backward ? k - s : s - k) - IntExpr(prefix.exclusive ? 1 : 0);
  const bool compares = body.guard.defined() && (body.guard.op() == IntOp::ge || body.guard.op() == IntOp::gt);
  if (!compares || !same_expr(comparison_distance(body.guard), wanted)) return "its sums have other terms";
  if (uses(body.write, summed.var)) return fmt::format("its result hangs on {}", summed.var);
  for (TileAccess& read : terms.reads) {
    if (uses(read, kept.var) || read.buffer == body.write.buffer) return fmt::format("its terms hang on {}", kept.var);
    for (IntExpr& index : read.index) index = index.substitute(summed.var, s);
  }
  for (IntExpr& index : terms.indices) {
    if (index.uses(kept.var)) return fmt::format("its terms hang on {}", kept.var);
    index = index.substitute(summed.var, s);
  }
  if (prefix.exclusive && !has_last_term(proof, body, summed)) return "a term that no sum has may not be there";
  return "";
}

void prove_prefixes(BlockProof& proof) {
  for (const BlockOp& op : proof.plan.ops) {
    if (op.prefix) prove_prefix(proof, op);
  }
}

}  // namespace nestor::nvptx
