// Windows: rows of a run that are summed up together. Each row's terms must be known without the others, be as many for all, and stay in
// their order; where a row of the run lies must follow from where its first one does.
#include "codegen/gpu/simt/proof/block_proof.h"

namespace nestor::nvptx {
namespace {

/// Runs start at multiples of their length. Brute force: from each start, each row lies where the emitter takes it to be.
bool rows_follow(const BlockOp& op) {
  std::vector<std::int64_t> radices;
  std::int64_t rows = 1;
  for (std::size_t k = 1; k < op.rows.size(); ++k) {
    const auto extent = extent_bound(op.op.dims[op.rows[k]]);
    if (!extent || *extent < 1) return false;
    radices.push_back(*extent);
    rows *= *extent;
  }
  const auto place = [&](std::int64_t row) {
    std::vector<std::int64_t> at(radices.size() + 1);
    for (std::size_t k = radices.size(); k > 0; row /= radices[--k]) at[k] = row % radices[k - 1];
    at[0] = row;
    return at;
  };
  for (std::int64_t start = 0; start < rows * op.layout.run; start += op.layout.run) {
    for (int row = 0; row < op.layout.run; ++row) {
      const auto from = place(start), to = place(start + row), by = places_in_run(op, row);
      for (std::size_t k = 0; k < to.size(); ++k) {
        if (to[k] != from[k] + by[k]) return false;
      }
    }
  }
  return true;
}

void prove_window(BlockProof& proof, const BlockOp& op) {
  const bool sums = (op.op.kind == OpKind::reduce || op.op.kind == OpKind::contract) && op.op.reduction && !op.product;
  const bool plain = sums && !op.reduces_columns() && op.divided < 0 && op.ahead == 0 && !op.op.guard.defined() &&
                     op.warp_lead < 0 && !op.fused && proof.plan.cluster == 1;
  if (!plain || op.rows.empty() || op.column < 0 || (op.layout.vector > 1 && !op.vectors))
    return proof.fail("{} is no sum whose rows could be summed up together", op.op.name);
  if (!rows_follow(op)) return proof.fail("{}: rows of a run lie no fixed way apart", op.op.name);
  std::size_t next = 0;
  for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
    const OpDim& dim = proof.dim(op, d);
    const bool written = next < op.window.size() && op.window[next] == d;
    next += written ? 1 : 0;
    const auto other_dims = [&](bool rows_only) {
      for (int e = 0; e < static_cast<int>(op.op.dims.size()); ++e) {
        if (rows_only && op.roles[e] != DimRole::row) continue;
        if (dim.lower.uses(proof.dim(op, e).var) || dim.upper.uses(proof.dim(op, e).var)) return true;
      }
      return false;
    };
    if (other_dims(!written)) return proof.fail("{}: {} has other points for other rows of a run", op.op.name, dim.var);
    if (written && (!dim.reduced || op.roles[d] != DimRole::serial || !exact_extent(dim)))
      return proof.fail("{}: {} cannot be written out", op.op.name, dim.var);
    if (!written && next > 0 && dim.reduced && exact_extent(dim) != 1)
      return proof.fail("{}: {} runs within dims that are written out", op.op.name, dim.var);
  }
  if (next != op.window.size()) proof.fail("{}: dims to write out are not in order", op.op.name);
}

}  // namespace

std::int64_t slots_of(const BlockOp& op, std::int64_t rows) {
  const std::int64_t at_once = std::int64_t{op.layout.groups} * op.layout.run;
  return (std::max<std::int64_t>(rows, 1) + at_once - 1) / at_once * op.layout.run;
}

void prove_windows(BlockProof& proof) {
  for (const BlockOp& op : proof.plan.ops) {
    if (!op.window.empty()) prove_window(proof, op);
  }
}

}  // namespace nestor::nvptx
