// Points: which thread has them, that slots are enough for them, and that vectors start and end where they may; sums of points that stay in
// registers.
#include "codegen/gpu/simt/proof/block_meet.h"
#include "codegen/gpu/simt/proof/block_paths.h"
#include "codegen/gpu/simt/proof/block_vectors.h"
#include "codegen/tile/analysis/conditions.h"

namespace nestor::nvptx {
namespace {

bool uses_dim(const IntExpr& expr, const OpDim& dim) { return expr.defined() && expr.uses(dim.var); }
bool bounds_use(const OpDim& dim, const OpDim& other) { return dim.lower.uses(other.var) || dim.upper.uses(other.var); }

class PointProver {
 public:
  PointProver(BlockProof& proof, const OpSite& site) : proof_(proof), site_(site), op_(proof.op(site.op)) {}

  void run() {
    roles();
    if (!proof_.good()) return;
    bounds();
    slots();
    kinds();
    if (op_.ahead > 0) copies_ahead();
    if (op_.vectors) vectors();
    const auto strided = [](const StridedRead& read) { return read.stride != 0 || read.offset != 0; };
    if (!op_.vectors && (op_.write_vector || std::count(op_.read_vectors.begin(), op_.read_vectors.end(), true) > 0 ||
                         std::any_of(op_.strided_reads.begin(), op_.strided_reads.end(), strided)))
      proof_.fail("{} moves vectors along no vectors of columns", name());
  }

 private:
  const std::string& name() const { return op_.op.name; }
  bool spread(int d) const { return op_.roles[d] != DimRole::serial; }
  int dim_count() const { return static_cast<int>(op_.op.dims.size()); }
  const OpDim& dim(int d) const { return proof_.dim(op_, d); }

  /// One column at most; rows in order; the rest serial.
  void roles() {
    std::vector<int> rows;
    int columns = 0;
    for (int d = 0; d < dim_count(); ++d) {
      const DimRole role = op_.roles[d];
      if (role == DimRole::row) rows.push_back(d);
      if (role == DimRole::column && (d != op_.column || ++columns > 1))
        proof_.fail("{}: {} is another column", name(), dim(d).var);
    }
    if (columns != (op_.column >= 0 ? 1 : 0) || rows != op_.rows) proof_.fail("{}: roles of dims do not agree", name());
    for (const int d : rows) {
      if (dim(d).reduced) proof_.fail("{}: {} is summed over and spread over groups", name(), dim(d).var);
    }
  }

  /// Bounds are known where they are needed: those of spread dims to all threads, those of serial dims after the dims before them.
  void bounds() {
    for (int d = 0; d < dim_count(); ++d) {
      for (int other = 0; other < dim_count(); ++other) {
        if (!bounds_use(dim(d), dim(other))) continue;
        const bool later = !spread(other) && (other >= d || (dim(other).reduced && !dim(d).reduced && op_.op.reduction));
        const bool within_column = other == op_.column && (op_.vectors || op_.reduces_columns());
        if (spread(d) || later || within_column || other == op_.divided || op_.product)
          proof_.fail("{}: the bounds of {} need {}, which is not known there", name(), dim(d).var, dim(other).var);
      }
      if (spread(d) && dim(d).max_extent) prove_extent(proof_, site_, d);
    }
    if (op_.vectors && op_.column >= 0 && uses_dim(op_.op.guard, dim(op_.column)))
      proof_.fail("{}: its guard differs within a vector of {}", name(), dim(op_.column).var);
  }

  void slots() {
    if (op_.unroll_rows && !op_.row_bound()) proof_.fail("{}: slots for a number of rows that is not known", name());
    if (op_.unroll_columns && !op_.column_bound()) proof_.fail("{}: slots for a number of columns that is not known", name());
  }

  /// What an op's kind needs of its dims.
  void kinds() {
    const bool accumulates = op_.op.reduction && op_.op.kind != OpKind::points;
    if ((op_.op.kind == OpKind::reduce || op_.op.kind == OpKind::contract) && !op_.op.reduction)
      proof_.fail("{} combines nothing", name());
    for (int d = 0; d < dim_count(); ++d) {
      if (!dim(d).reduced) continue;
      const bool indexes = std::any_of(op_.op.write.index.begin(), op_.op.write.index.end(),
                                       [&](const IntExpr& index) { return uses_dim(index, dim(d)); });
      if (accumulates && indexes && !has_one_value(dim(d)))
        proof_.fail("{} sums over {}, which its element depends on", name(), dim(d).var);
      if (spread(d) && !accumulates) proof_.fail("{} runs point by point along {}, which is spread", name(), dim(d).var);
    }
    if (op_.op.initialize && !op_.op.reduction) proof_.fail("{} starts a sum that it has not", name());
  }

  void copies_ahead() {
    const TileOp& op = op_.op;
    const bool plain = op.kind == OpKind::copy && op.reads.size() == 1 && !op.guard.defined() && !op.reduction &&
                       op.value.op() == ScalarOp::read && op.value.ordinal() == 0 &&
                       proof_.plan.buffer(op.reads[0].buffer).type == proof_.plan.buffer(op.write.buffer).type;
    if (!plain) return proof_.fail("{} is copied ahead and is more than a copy", name());
    const Placement* place = proof_.plan.placement(op.write.buffer);
    const bool dense = op_.vectors && op_.read_vectors[0];
    const auto bytes = static_cast<std::int64_t>(size_in_bytes(proof_.plan.buffer(op.write.buffer).type));
    if (place != nullptr && place->piece > (dense ? op_.layout.vector : 1) * bytes)
      proof_.fail("{} is copied by pieces of {} bytes, whose elements are no neighbours", name(), place->piece);
  }

  void vectors() {
    if (op_.column < 0 || op_.layout.vector == 1) return proof_.fail("{} has vectors without columns", name());
    const OpDim& column = dim(op_.column);
    const Divisors divisors(proof_, site_, column.var, op_.layout.vector);
    if (!divisors.divide_extent(column, op_.layout.vector))
      proof_.fail("{}: the columns of {} are no whole vectors of {}", name(), column.var, op_.layout.vector);
    if (op_.write_vector) prove_vector(proof_, op_, op_.op.write, column.var, op_.layout.vector, divisors);
    for (std::size_t k = 0; k < op_.read_vectors.size(); ++k) {
      if (op_.read_vectors[k]) prove_vector(proof_, op_, op_.op.reads[k], column.var, op_.layout.vector, divisors);
      if (op_.strided_reads[k].stride != 0 || op_.strided_reads[k].offset != 0)
        prove_strided(proof_, op_, k, column.var, op_.layout.vector, divisors);
    }
  }

  BlockProof& proof_;
  const OpSite& site_;
  const BlockOp& op_;
};

}  // namespace

void prove_extent(BlockProof& proof, const OpSite& site, int d) {
  const BlockOp& op = proof.op(site.op);
  const OpDim& dim = proof.dim(op, d);
  if (!dim.max_extent) return;
  const auto shown = distance_bound(dim.lower, dim.upper);
  if (shown && *shown <= *extent_bound(dim)) return;
  const IntExpr beyond = IntExpr::make(IntOp::gt, {dim.upper - dim.lower, IntExpr(*dim.max_extent)});
  const MeetingAnswer answer = can_hold(proof, site, beyond);
  if (answer.verdict == MeetingAnswer::Verdict::never) return;
  if (answer.verdict == MeetingAnswer::Verdict::meet)
    return proof.fail("{}: {} has more than {} values where {}", op.op.name, dim.var, *dim.max_extent, answer.example);
  proof.leave_open("{}: {} in [{}, {}) is not known to have at most {} values", op.op.name, dim.var, dim.lower.str(),
                   dim.upper.str(), *dim.max_extent);
}

namespace {

/// Sums are stored for points outside of the guard as well, as far as reduced dims decide it. The tile program's proof has not seen these.
void prove_stored_inside(BlockProof& proof, const OpSite& site) {
  const BlockOp& planned = proof.op(site.op);
  const TileOp& op = planned.op;
  if (!planned.stores_sums() || (!op.guard.defined() && !planned.own_sums) || proof.plan.in_registers(op.write)) return;
  Toucher toucher;
  toucher.site = &site;
  toucher.access = &op.write;
  toucher.writes = true;
  toucher.kept_only = planned.own_sums.has_value();
  const MeetingAnswer answer = can_leave(proof, toucher);
  if (answer.verdict == MeetingAnswer::Verdict::never) return;
  if (answer.verdict == MeetingAnswer::Verdict::meet)
    return proof.fail("{} stores outside of {} where {}", op.name, proof.name(op.write), answer.example);
  proof.leave_open("{} is not known to store inside of {}", op.name, proof.name(op.write));
}

IntExpr both(const IntExpr& a, const IntExpr& b) { return a.defined() ? IntExpr::make(IntOp::logical_and, {a, b}) : b; }

/// Sums that read other elements of what they write: a sum in a register is what memory would have when it is read. Neighbouring sums are made
/// together where the terms of each are one stretch from one start, and those that all of them have read what is done before.
class OwnSumProver {
 public:
  OwnSumProver(BlockProof& proof, const OpSite& site)
      : proof_(proof), site_(site), op_(proof.op(site.op)), tile_(op_.op), sums_(*op_.own_sums) {}

  void run() {
    const bool plain = tile_.kind == OpKind::points && tile_.reduction && !tile_.initialize && !tile_.fill && !op_.product &&
                       !op_.prefix && !op_.fused && !op_.vectors && op_.ahead == 0 && op_.warp_lead < 0 && op_.carried < 0 &&
                       op_.joins < 0 && op_.window.empty();
    if (!plain || proof_.plan.in_registers(tile_.write) || proof_.plan.buffer(tile_.write.buffer).type != op_.sum_type())
      return proof_.fail("{} has no sums that could stay in registers", tile_.name);
    sums_end();
    for (const TileAccess& read : tile_.reads) {
      if (read.buffer == tile_.write.buffer) reads_another(read);
    }
    if (sums_.at_once != 1) together();
    if (sums_.at_once != 1 && sums_.width != 1) vectors();
  }

 private:
  bool several(int d) const { return op_.roles[d] == DimRole::serial && !has_one_value(tile_.dims[d]); }
  int dim_count() const { return static_cast<int>(tile_.dims.size()); }
  IntExpr variable(int d) const { return IntExpr::variable(tile_.dims[d].var); }

  /// A thread has all terms of a sum before it goes on to another one.
  void sums_end() {
    bool terms = false;
    for (int d = 0; d < dim_count(); ++d) {
      if (!several(d)) continue;
      terms = terms || tile_.dims[d].reduced;
      const bool moves = std::any_of(tile_.write.index.begin(), tile_.write.index.end(),
                                     [&](const IntExpr& index) { return index.uses(tile_.dims[d].var); });
      if (tile_.dims[d].reduced && moves)
        return proof_.fail("{} sums over {}, which its element depends on", tile_.name, tile_.dims[d].var);
      if (terms && !tile_.dims[d].reduced)
        return proof_.fail("{}: sums go on after others have begun along {}", tile_.name, tile_.dims[d].var);
    }
  }

  void never(const IntExpr& condition, int left_out, const std::string& what) {
    std::set<int> dims;
    for (int d = 0; d < dim_count(); ++d) {
      if (d != left_out) dims.insert(d);
    }
    const MeetingAnswer answer = can_hold(proof_, site_, condition, dims);
    if (answer.verdict == MeetingAnswer::Verdict::never) return;
    if (answer.verdict == MeetingAnswer::Verdict::meet) return proof_.fail("{}: {} where {}", tile_.name, what, answer.example);
    proof_.leave_open("{}: it is not known that never {}", tile_.name, what);
  }

  void reads_another(const TileAccess& read) {
    IntExpr same = tile_.guard;
    for (std::size_t k = 0; k < read.index.size(); ++k)
      same = both(same, IntExpr::make(IntOp::eq, {read.index[k], tile_.write.index[k]}));
    never(same, -1, "a term reads the sum that it is added to");
  }

  void together() {
    const auto is = [&](int d, bool reduced) {
      return d >= 0 && d < dim_count() && several(d) && tile_.dims[d].reduced == reduced;
    };
    bool only = is(sums_.row, false) && is(sums_.term, true) && sums_.at_once > 1;
    for (int d = 0; d < dim_count(); ++d) only = only && (!several(d) || d == sums_.row || d == sums_.term);
    if (!only || stored_where(tile_).defined())
      return proof_.fail("{}: sums that are made together need one dim, and one of terms", tile_.name);
    terms();
    const bool ordered = sums_.shift + sums_.end <= 0;
    if (!ordered) proof_.fail("{}: terms of several sums read one that is not done", tile_.name);
    bool moves = false;
    for (const IntExpr& index : tile_.write.index) moves = moves || index.coefficient(tile_.dims[sums_.row].var).value_or(0) != 0;
    if (!moves) proof_.fail("{}: sums of neighbouring {} are one element", tile_.name, tile_.dims[sums_.row].var);
    for (const TileAccess& read : tile_.reads) {
      if (read.buffer == tile_.write.buffer) reads_rows(read);
    }
  }

  /// Those of a row are all from the start of the terms up to row + end, and no others.
  void terms() {
    const OpDim& term = tile_.dims[sums_.term];
    const IntExpr u = variable(sums_.term), end = variable(sums_.row) + IntExpr(sums_.end);
    const IntExpr below_end = IntExpr::make(IntOp::gt, {end, u});
    if (term.lower.uses(tile_.dims[sums_.row].var))
      return proof_.fail("{}: {} starts elsewhere in each sum", tile_.name, term.var);
    never(both(tile_.guard, IntExpr::make(IntOp::ge, {u, end})), -1, "a sum has more terms");
    const IntExpr counts = both(tile_.guard, IntExpr::make(IntOp::gt, {term.upper, u}));
    never(both(IntExpr::make(IntOp::ge, {u, term.lower}), both(below_end, IntExpr::make(IntOp::logical_not, {counts}))),
          sums_.term, "a sum has fewer terms");
    never(IntExpr::make(IntOp::gt, {term.lower, end}), sums_.term, "terms end before they start");
  }

  /// Whole vectors of terms, counted from their start, are terms of every sum that they are loaded for.
  void vectors() {
    if (sums_.width < 1 || sums_.vectors.size() != tile_.reads.size())
      return proof_.fail("{}: vectors of {} terms", tile_.name, sums_.width);
    const std::string& term = tile_.dims[sums_.term].var;
    const Divisors divisors(proof_, site_, term, sums_.width);
    for (std::size_t k = 0; k < sums_.vectors.size(); ++k) {
      if (!sums_.vectors[k]) continue;
      if (tile_.reads[k].buffer == tile_.write.buffer) return proof_.fail("{} loads sums before they are done", tile_.name);
      if (!unconditional_reads(tile_.value).contains(static_cast<int>(k)))
        return proof_.fail("{}: read {} may not exist at all terms", tile_.name, k);
      prove_vector(proof_, op_, tile_.reads[k], term, sums_.width, divisors);
    }
  }

  /// Term u reads what row u + shift writes.
  void reads_rows(const TileAccess& read) {
    const std::string& row = tile_.dims[sums_.row].var;
    for (std::size_t k = 0; k < read.index.size(); ++k) {
      const IntExpr there = read.index[k].substitute(tile_.dims[sums_.term].var, IntExpr::variable(row) - IntExpr(sums_.shift));
      if (read.index[k].uses(row) || affine_of(there) != affine_of(tile_.write.index[k]))
        return proof_.fail("{}: a term does not read the sum {} behind its own number", tile_.name, sums_.shift);
    }
  }

  BlockProof& proof_;
  const OpSite& site_;
  const BlockOp& op_;
  const TileOp& tile_;
  const OwnSums& sums_;
};

}  // namespace

void prove_own_sums(BlockProof& proof) {
  for (const OpSite& site : proof.sites) {
    if (proof.op(site.op).own_sums) OwnSumProver(proof, site).run();
  }
}

void prove_points(BlockProof& proof) {
  for (const auto& [size, divisor] : proof.plan.size_divisors) {
    if (!is_power_of_two(divisor)) proof.fail("the kernel cannot test that {} is divisible by {}", size, divisor);
  }
  for (const OpSite& site : proof.sites) {
    if (!proof.op(site.op).product) PointProver(proof, site).run();
    prove_stored_inside(proof, site);
  }
}

}  // namespace nestor::nvptx
