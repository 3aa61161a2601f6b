// Points: which thread has them, that slots are enough for them, and that vectors start and end where they may.
#include "codegen/gpu/simt/proof/block_meet.h"
#include "codegen/gpu/simt/proof/block_vectors.h"

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

}  // namespace

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
