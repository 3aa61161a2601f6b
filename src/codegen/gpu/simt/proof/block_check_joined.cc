// Reductions whose terms are added up in the pass of another one: the pass reads for them what they would read later, so nothing in between
// may write it, and its threads, rows and columns must be theirs.
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

}  // namespace

void prove_joined(BlockProof& proof) {
  for (int k = 0; k < static_cast<int>(proof.plan.ops.size()); ++k) {
    if (proof.op(k).joins >= 0) prove_joined_op(proof, k);
  }
}

}  // namespace nestor::nvptx
