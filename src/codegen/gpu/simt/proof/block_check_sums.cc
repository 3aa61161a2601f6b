// Sums that read other elements of what they write: a sum in a register is what memory would have when it is read. Neighbouring sums are made
// together where the terms of each are one stretch from one start, and those that all of them have read what is done before.
#include "codegen/gpu/simt/proof/block_meet.h"
#include "codegen/gpu/simt/proof/block_paths.h"
#include "codegen/gpu/simt/proof/block_vectors.h"
#include "codegen/tile/analysis/conditions.h"

namespace nestor::nvptx {
namespace {

IntExpr both(const IntExpr& a, const IntExpr& b) { return a.defined() ? IntExpr::make(IntOp::logical_and, {a, b}) : b; }

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

}  // namespace nestor::nvptx
