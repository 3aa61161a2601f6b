// Triangular systems: x[t] = b[t] - sum over u < t of a[t, u] x[u]. A sum stays in a register while its terms read elements that are done, and
// neighbouring sums are made together: what they all read is read once, and they read one another from registers.
#include "codegen/gpu/simt/plan/block_plan.h"
#include "codegen/tile/analysis/conditions.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

constexpr int kSumsAtOnce = 16;
constexpr int kLongSumsAtOnce = 4;  ///< whose terms are more than products: their code is long, and needs registers of its own
constexpr int kTermsAtOnce = 4;     ///< of which a read's elements are loaded at once

/// Forms that are 0 or more at every point of the op.
std::vector<Affine> distances_of(const TileOp& op) {
  std::vector<Affine> found;
  for (const IntExpr& part : conjuncts(op.guard)) {
    const IntExpr distance = comparison_distance(part);
    if (distance.defined() && part.op() != IntOp::eq) found.push_back(affine_of(distance));
  }
  for (const OpDim& dim : op.dims) {
    std::vector<IntExpr> lowers, uppers;
    split_terms(dim.lower, IntOp::max, lowers);
    split_terms(dim.upper, IntOp::min, uppers);
    const IntExpr value = IntExpr::variable(dim.var);
    for (const IntExpr& lower : lowers) found.push_back(affine_of(value - lower));
    for (const IntExpr& upper : uppers) found.push_back(affine_of(upper - IntExpr(1) - value));
  }
  return found;
}

/// Is the read's element another one than the write's at every point?
bool reads_another(const TileOp& op, const TileAccess& read) {
  const std::vector<Affine> distances = distances_of(op);
  for (std::size_t k = 0; k < read.index.size(); ++k) {
    const Affine apart = affine_of(read.index[k]) - affine_of(op.write.index[k]);
    if (apart.is_constant() && apart.constant != 0) return true;
    const Affine back = affine_of(op.write.index[k]) - affine_of(read.index[k]);
    for (const Affine& distance : distances) {
      const Affine ahead = apart - distance, behind = back - distance;
      if ((ahead.is_constant() && ahead.constant > 0) || (behind.is_constant() && behind.constant > 0)) return true;
    }
  }
  return false;
}

bool several(const BlockOp& op, int d) { return op.roles[d] == DimRole::serial && !single_valued(op.op.dims[d]); }

/// Sums end before the next one begins, in f32 or i32 as they are stored.
bool keeps_sums(const BlockPlan& plan, const BlockOp& op) {
  const TileOp& tile = op.op;
  const bool plain = tile.kind == OpKind::points && tile.reduction && !tile.initialize && !tile.fill && op.ahead == 0 &&
                     op.warp_lead < 0 && !op.vectors;
  if (!plain || plan.in_registers(tile.write) || plan.buffer(tile.write.buffer).type != op.sum_type()) return false;
  bool sums = false;
  for (int d = 0; d < static_cast<int>(tile.dims.size()); ++d) {
    if (!several(op, d)) continue;
    if (sums && !tile.dims[d].reduced) return false;
    sums = sums || tile.dims[d].reduced;
  }
  return sums && std::all_of(tile.reads.begin(), tile.reads.end(), [&](const TileAccess& read) {
           return read.buffer != tile.write.buffer || reads_another(tile, read);
         });
}

/// The bound of the terms: `end` with term < row + end, from the guard's one condition or the dim's upper bound.
std::optional<std::int64_t> end_of_terms(const TileOp& op, int row, int term) {
  const OpDim &t = op.dims[row], &u = op.dims[term];
  const auto end_in = [&](const IntExpr& last) -> std::optional<std::int64_t> {
    const Affine end = affine_of(last) - affine_of(IntExpr::variable(t.var));
    return end.is_constant() ? std::optional(end.constant + 1) : std::nullopt;
  };
  const std::vector<IntExpr> guards = conjuncts(op.guard);
  if (guards.empty()) return end_in(u.upper - IntExpr(1));
  const IntExpr distance = guards.size() == 1 ? comparison_distance(guards[0]) : IntExpr();
  if (!distance.defined() || guards[0].op() == IntOp::eq || distance.coefficient(u.var) != -1) return std::nullopt;
  const auto end = end_in(distance + IntExpr::variable(u.var));
  if (!end) return std::nullopt;
  // Whatever the guard lets through lies within the dim's bounds.
  const Affine room = affine_of(u.upper) - affine_of(t.upper - IntExpr(1) + IntExpr(*end));
  return room.is_constant() && room.constant >= 0 ? end : std::nullopt;
}

/// Which row writes what a term reads, less the term's number.
std::optional<std::int64_t> shift_of(const TileOp& op, const TileAccess& read, int row, int term) {
  const std::string &t = op.dims[row].var, &u = op.dims[term].var;
  std::optional<std::int64_t> shift;
  for (std::size_t k = 0; k < read.index.size(); ++k) {
    const auto of_row = op.write.index[k].coefficient(t), of_term = read.index[k].coefficient(u);
    if (!of_row || of_row != of_term || read.index[k].uses(t) || op.write.index[k].uses(u)) return std::nullopt;
    const Affine apart = affine_of(read.index[k].substitute(u, IntExpr::variable(t))) - affine_of(op.write.index[k]);
    if (!apart.is_constant()) return std::nullopt;
    if (*of_row == 0 ? apart.constant != 0 : apart.constant % *of_row != 0) return std::nullopt;
    if (*of_row == 0) continue;
    const std::int64_t here = apart.constant / *of_row;
    if (shift && *shift != here) return std::nullopt;
    shift = here;
  }
  return shift;
}

/// Is the value made of products and sums alone?
bool has_products_alone(const ScalarExpr& value) {
  switch (value.op()) {
    case ScalarOp::constant:
    case ScalarOp::scalar:
    case ScalarOp::index:
    case ScalarOp::read:
      return true;
    case ScalarOp::add:
    case ScalarOp::sub:
    case ScalarOp::mul:
    case ScalarOp::neg:
    case ScalarOp::cast:
      return std::all_of(value.args().begin(), value.args().end(), has_products_alone);
    default:
      return false;
  }
}

OwnSums own_sums_of(const BlockOp& op) {
  const TileOp& tile = op.op;
  OwnSums sums;
  for (int d = 0; d < static_cast<int>(tile.dims.size()); ++d) {
    if (!several(op, d)) continue;
    int& place = tile.dims[d].reduced ? sums.term : sums.row;
    if (place >= 0) return {};
    place = d;
  }
  if (sums.row < 0 || sums.term < 0) return {};
  const OpDim &row = tile.dims[sums.row], &term = tile.dims[sums.term];
  sums.at_once = has_products_alone(tile.value) ? kSumsAtOnce : kLongSumsAtOnce;
  if (const auto length = extent_bound(row)) sums.at_once = static_cast<int>(std::min<std::int64_t>(sums.at_once, *length));
  if (sums.at_once < 2) return {};
  const auto end = end_of_terms(tile, sums.row, sums.term);
  if (!end || term.lower.uses(row.var)) return {};
  sums.end = *end;
  // The first row has none or more terms.
  const Affine first = affine_of(row.lower + IntExpr(sums.end)) - affine_of(term.lower);
  if (!first.is_constant() || first.constant < 0) return {};
  std::optional<std::int64_t> shift;
  for (const TileAccess& read : tile.reads) {
    if (read.buffer != tile.write.buffer) continue;
    const auto here = shift_of(tile, read, sums.row, sums.term);
    if (!here || (shift && *shift != *here) || *here + sums.end > 0) return {};
    shift = here;
  }
  sums.shift = shift.value_or(0);
  return shift ? sums : OwnSums{};
}

/// Neighbouring terms of a row are neighbours in memory, as a matrix that lies row by row has them.
void load_terms(BlockPlan& plan, const BlockOp& op, OwnSums& sums) {
  const TileOp& tile = op.op;
  const std::set<int> always = unconditional_reads(tile.value);
  sums.vectors.assign(tile.reads.size(), false);
  for (const int k : always) {
    const bool other = tile.reads[static_cast<std::size_t>(k)].buffer != tile.write.buffer;
    if (!other || !can_load_neighbours(plan, op, k, sums.term, kTermsAtOnce, true)) continue;
    sums.vectors[static_cast<std::size_t>(k)] = true;
    sums.width = kTermsAtOnce;
  }
  if (sums.width == 1) sums.vectors.clear();
}

}  // namespace

void keep_sums(BlockPlan& plan) {
  for (BlockOp& op : plan.ops) {
    if (!keeps_sums(plan, op)) continue;
    OwnSums sums = own_sums_of(op);
    if (sums.at_once > 1) load_terms(plan, op, sums);
    op.own_sums = std::move(sums);
  }
}

}  // namespace nestor::nvptx
