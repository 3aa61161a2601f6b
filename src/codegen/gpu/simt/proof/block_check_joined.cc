// Passes that serve several sums. Joined reductions: the pass reads for them what they would read later, so nothing in between may write
// it, and its threads, rows and columns must be theirs. Joined elementwise ops: the same, and no barrier may be due where they stood.
// Prefix sums: the body's op sums over what stands before, or behind, each element, and its terms do not ask which element that is;
// threads, lanes and warps add in the order of the columns. Recurrences: what a thread hands on is what it would read. Windows, rows of a
// run that are summed up together: each row's terms must be known without the others, be as many for all, and stay in their order; where a
// row lies must follow from where the first one does.
#include "codegen/gpu/simt/proof/block_paths.h"
#include "codegen/gpu/simt/proof/block_vectors.h"
#include "codegen/tile/analysis/conditions.h"

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

void prove_sums_columns(BlockProof& proof, const BlockOp& op) {
  const bool plain =
      op.reduces_columns() && op.op.kind != OpKind::points && !op.fused && !op.deferred && op.warp_lead < 0 && op.ahead == 0;
  if (!plain || proof.plan.cluster != 1 || (op.crosses_warps() && !op.rows.empty()))
    proof.fail("{} is no reduction that could share its pass over columns", op.op.name);
}

/// Elementwise ops, computed point by point; a barrier where the second one stood would not be where it is computed.
void prove_joined_map(BlockProof& proof, const BlockOp& lead, const BlockOp& op) {
  for (const BlockOp* each : {&lead, &op}) {
    const bool plain = !each->op.reduction && (each->op.kind == OpKind::map || each->op.kind == OpKind::copy) && !each->product &&
                       !each->prefix && !each->own_sums && each->carried < 0 && each->ahead == 0 && each->window.empty() &&
                       each->warp_lead < 0 && proof.plan.cluster == 1;
    if (!plain) return proof.fail("{} has no points that another op could be computed at", each->op.name);
    const bool guarded =
        proof.plan.buffer(each->op.write.buffer).memory != Memory::argument && !proof.plan.in_registers(each->op.write);
    if (guarded)
      return proof.fail("{} writes {} in a pass that stands before its barrier", each->op.name, proof.name(each->op.write));
  }
  if (op.barrier_before) return proof.fail("{} is computed with {}, before its barrier", op.op.name, lead.op.name);
  if (proof.plan.in_registers(lead.op.write) != proof.plan.in_registers(op.op.write))
    proof.fail("{} and {} are stored by different threads", lead.op.name, op.op.name);
}

void prove_joined_op(BlockProof& proof, int k) {
  const BlockOp& op = proof.op(k);
  const auto at = position_of(proof, k), from = position_of(proof, op.joins);
  if (from < 0 || from >= at || proof.op(op.joins).joins >= 0)
    return proof.fail("{} stands in the pass of no op before it", op.op.name);
  const BlockOp& lead = proof.op(op.joins);
  if (!lead.reduces_columns() && !op.reduces_columns()) {
    prove_joined_map(proof, lead, op);
  } else {
    for (const BlockOp* each : {&lead, &op}) prove_sums_columns(proof, *each);
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

/// Is the read evaluated at every point?
bool always_read(const ScalarExpr& value, int ordinal) {
  if (value.op() == ScalarOp::read) return value.ordinal() == ordinal;
  const bool branches =
      value.op() == ScalarOp::select || value.op() == ScalarOp::logical_and || value.op() == ScalarOp::logical_or;
  for (std::size_t k = 0; k < (branches ? std::min<std::size_t>(value.args().size(), 1) : value.args().size()); ++k) {
    if (always_read(value.args()[k], ordinal)) return true;
  }
  return false;
}

/// The thread has one dim of several points, in whose order it writes what the next point reads. No other point touches that element: the
/// order of points is proved apart.
void prove_carried_read(BlockProof& proof, const BlockOp& op) {
  const std::string& name = op.op.name;
  const TileOp& tile = op.op;
  const bool plain = tile.kind == OpKind::points && !tile.reduction && !tile.guard.defined() && !tile.fill && !op.product &&
                     !op.prefix && op.ahead == 0 && op.warp_lead < 0 && op.divided < 0 && op.window.empty();
  const bool is_float = proof.plan.buffer(tile.write.buffer).type == ElementType::f32 && tile.value.type() == ElementType::f32;
  if (!plain || !is_float || proof.plan.in_registers(tile.write) || op.carried >= static_cast<int>(tile.reads.size()))
    return proof.fail("{} hands no values on from point to point", name);
  int own = -1;
  for (int d = 0; d < static_cast<int>(tile.dims.size()); ++d) {
    if (op.roles[d] != DimRole::serial || has_one_value(tile.dims[d])) continue;
    if (own >= 0) return proof.fail("{}: points follow each other along several dims", name);
    own = d;
  }
  if (own < 0) return proof.fail("{}: no point follows another one", name);
  const std::string& var = tile.dims[own].var;
  TileAccess before = tile.write;
  for (IntExpr& index : before.index) index = index.substitute(var, IntExpr::variable(var) - IntExpr(1));
  for (int k = 0; k < static_cast<int>(tile.reads.size()); ++k) {
    if (tile.reads[k].buffer != tile.write.buffer) continue;
    if (k != op.carried) return proof.fail("{} reads {} in other ways", name, proof.name(tile.write));
  }
  if (!same_access(tile.reads[op.carried], before) || !always_read(tile.value, op.carried))
    proof.fail("{} does not read at each point what it has written at the one before", name);
}

}  // namespace

void prove_carried(BlockProof& proof) {
  for (const BlockOp& op : proof.plan.ops) {
    if (op.carried >= 0) prove_carried_read(proof, op);
  }
}

std::string prefix_difference(const BlockProof& proof, const TileOp& body, const PrefixPlan& prefix, TileOp& terms) {
  terms = body;
  terms.guard = {};
  const auto found =
      std::find_if(terms.dims.begin(), terms.dims.end(), [&](const OpDim& dim) { return dim.var == prefix.summed.var; });
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
