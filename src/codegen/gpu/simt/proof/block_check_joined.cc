// Passes that serve several sums. Joined reductions: the pass reads for them what they would read later, so nothing in between may write it,
// and its threads, rows and columns must be theirs. Windows, rows of a run that are summed up together: each row's terms must be known
// without the others, be as many for all, and stay in their order; where a row lies must follow from where the first one does.
#include "codegen/gpu/simt/proof/block_proof.h"

#include <algorithm>
#include <tuple>

namespace nestor::nvptx {
namespace {

/// Position among the sites; -1: nowhere.
std::ptrdiff_t position_of(const BlockProof& proof, int op) {
  const auto found = std::find_if(proof.sites.begin(), proof.sites.end(), [&](const OpSite& site) { return site.op == op; });
  return found == proof.sites.end() ? -1 : found - proof.sites.begin();
}

bool has_same_points(const BlockOp& lead, const BlockOp& op) {
  const auto shape = [](const BlockOp& of) {
    return std::tuple(of.layout.lanes, of.layout.groups, of.layout.run, of.layout.vector, of.vectors, of.unroll_rows,
                      of.unroll_columns, of.column, of.divided);
  };
  if (shape(lead) != shape(op) || lead.rows != op.rows || lead.roles != op.roles || lead.op.dims.size() != op.op.dims.size())
    return false;
  const TileOp renamed = with_dims_of(lead.op, op.op);
  return std::equal(lead.op.dims.begin(), lead.op.dims.end(), renamed.dims.begin(), [](const OpDim& a, const OpDim& b) {
    return a.reduced == b.reduced && a.lower.str() == b.lower.str() && a.upper.str() == b.upper.str();
  });
}

void prove_joined_op(BlockProof& proof, int k) {
  const BlockOp& op = proof.op(k);
  const auto at = position_of(proof, k), from = position_of(proof, op.joins);
  if (from < 0 || from >= at || proof.op(op.joins).joins >= 0)
    return proof.fail("{} stands in the pass of no reduction before it", op.op.name);
  const BlockOp& lead = proof.op(op.joins);
  for (const BlockOp* each : {&lead, &op}) {
    const bool plain = each->reduces_columns() && each->op.kind != OpKind::points && !each->fused && !each->deferred &&
                       each->warp_lead < 0 && each->ahead == 0;
    if (!plain || proof.plan.cluster != 1 || (each->crosses_warps() && !each->rows.empty()))
      return proof.fail("{} is no reduction that could share its pass over columns", each->op.name);
  }
  if (!has_same_points(lead, op)) return proof.fail("{} and {} share a pass, but not their points", lead.op.name, op.op.name);
  for (auto between = from; between < at; ++between) {
    const OpSite& site = proof.sites[static_cast<std::size_t>(between)];
    const BlockOp& before = proof.op(site.op);
    if (site.around != proof.sites[static_cast<std::size_t>(at)].around || (between > from && before.joins != op.joins))
      return proof.fail("{} stands between {} and the pass that it is in", before.op.name, op.op.name);
    for (const TileAccess& read : op.op.reads) {
      if (read.buffer == before.op.write.buffer)
        proof.fail("{} reads {} in a pass before {} has written it", op.op.name, proof.name(read), before.op.name);
    }
    if (op.op.write.buffer == before.op.write.buffer)
      proof.fail("{} and {} write one tensor in one pass", op.op.name, before.op.name);
  }
  for (const TileAccess& read : op.op.reads) {
    const Buffer& buffer = proof.plan.buffer(read.buffer);
    const bool input = buffer.memory == Memory::argument && buffer.role == TensorRole::input;
    if (!input && !proof.plan.in_registers(read))
      proof.fail("{} reads {} in a pass that stands before its barrier", op.op.name, proof.name(read));
  }
}

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
  const bool plain = sums && !op.reduces_columns() && op.divided < 0 && op.ahead == 0 && op.warp_lead < 0 && !op.fused &&
                     proof.plan.cluster == 1;
  if (!plain || op.rows.empty() || op.column < 0 || (op.layout.vector > 1 && !op.vectors))
    return proof.fail("{} is no sum whose rows could be summed up together", op.op.name);
  for (const TileAccess& read : op.op.reads) {
    // Where the guard does not hold, an argument's first element is loaded, which there is.
    if (op.op.guard.defined() && (proof.plan.buffer(read.buffer).memory != Memory::argument || read.index.empty()))
      return proof.fail("{}: {} may not be read where the guard does not hold", op.op.name, proof.name(read));
  }
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

void prove_joined(BlockProof& proof) {
  for (int k = 0; k < static_cast<int>(proof.plan.ops.size()); ++k) {
    if (proof.op(k).joins >= 0) prove_joined_op(proof, k);
  }
}

void prove_windows(BlockProof& proof) {
  for (const BlockOp& op : proof.plan.ops) {
    if (!op.window.empty()) prove_window(proof, op);
  }
}

}  // namespace nestor::nvptx
