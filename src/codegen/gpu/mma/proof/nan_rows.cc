// Sums that are NaN whatever hidden elements add to them. An exponential relative to a row's maximum is 0 where a tile has ended, unless that
// maximum is -inf or NaN, say since what it starts from is a logarithm. Then the terms of the row's own points are NaN, too.
//
// Take a sum, one row and iteration, and a hidden element beside a point of the op. If all row values that the element's term is made of are
// finite, it is 0. Else one of them is NaN, -inf or inf: for each of these the term is 0, or the point's term is NaN whatever else was read. So
// either nothing is added, or the sum is NaN in the tile program as in the code, and everything after it finds the same.
#include "codegen/gpu/mma/proof/point_sets.h"
#include "codegen/gpu/mma/proof/tensor_effects.h"

#include <limits>

namespace nestor::nvptx {
namespace {

constexpr double kNotFinite[] = {std::numeric_limits<double>::quiet_NaN(), -kInfinity, kInfinity};

}  // namespace

isl::set EffectReader::beside_nan(int k, const isl::set& hidden, const isl::set& terms, int along) {
  const isl::set beside = hidden.intersect(free_along(terms, along));
  if (proof_.op(k).op.reduction != ReductionOp::add || is_none(beside)) return none_of(hidden);
  rows_.emplace().reader = k;
  bool holds = hidden_term(k, beside).is(0);
  for (const int buffer : std::set<int>(rows_->read)) {
    rows_->buffer = buffer;
    for (const double value : kNotFinite) {
      rows_->value = Possible::exactly(value);
      if (holds && !hidden_term(k, beside).is(0))
        holds = (along == kTerm ? visible_read(k, proof_.op(k).form.a) : visible_value(k)).only_nan();
    }
  }
  holds = holds && !rows_->moved;
  rows_.reset();
  return holds ? beside : none_of(hidden);
}

/// A term of a sum, or of a product that takes it from a fragment: another factor keeps NaN, and 0 where it is finite.
Possible EffectReader::hidden_term(int k, const isl::set& hidden) {
  const TensorOp& op = proof_.op(k);
  if (op.kind != TensorOp::Kind::product) return value_at(k, hidden);
  return op.a_ring < 0 ? read_at(k, op.form.a, hidden) : Possible::anything();
}

/// Of any point of op `k`.
Possible EffectReader::visible_value(int k) {
  return possible_values(proof_.op(k).op.value, proof_.plan.program->scalars, [&](int read) { return visible_read(k, read); });
}

Possible EffectReader::visible_read(int k, int read) {
  const TensorOp& op = proof_.op(k);
  const int buffer = op.op.reads[static_cast<std::size_t>(read)].buffer;
  const auto fragment = proof_.plan.fragments.find(buffer);
  if (fragment == proof_.plan.fragments.end() || op.read_rings.contains(read)) return Possible::anything();
  if (fragment->second.columns == 0) return row_at(k, buffer);
  if (rows_->value.is(-kInfinity) && in_extremum(k, read, ReductionOp::max)) return rows_->value;
  if (rows_->value.is(kInfinity) && in_extremum(k, read, ReductionOp::min)) return rows_->value;
  const int writer = writer_before(k, buffer);
  if (writer < 0 || proof_.op(writer).kind != TensorOp::Kind::map || in_place(writer)) return Possible::anything();
  const isl::set found = PointReader::elements(at(k).points, at(k).reads[static_cast<std::size_t>(read)]);
  if (!found.is_subset(PointReader::elements(at(writer).points, at(writer).write))) return Possible::anything();
  return visible_value(writer);
}

/// Has the row's value, as it is now, met all that op `k` reads? Then none of it is beyond, and NaN would have made the value NaN.
bool EffectReader::in_extremum(int k, int read, ReductionOp extremum) const {
  const int buffer = proof_.op(k).op.reads[static_cast<std::size_t>(read)].buffer;
  const int m = writer_before(k, rows_->buffer);
  if (m < 0 || moves(rows_->buffer, k, rows_->reader) || writer_before(k, buffer) > m) return false;
  const TileOp& lead = proof_.op(m).op;
  if (lead.reduction != extremum || lead.value.op() != ScalarOp::read) return false;
  const auto taken = static_cast<std::size_t>(lead.value.ordinal());
  if (lead.reads[taken].buffer != buffer || proof_.op(m).read_rings.contains(lead.value.ordinal())) return false;
  return PointReader::elements(at(k).points, at(k).reads[static_cast<std::size_t>(read)])
      .is_subset(PointReader::elements(at(m).points, at(m).reads[taken]));
}

/// The last op that writes the buffer before op `k` in the same iteration, or -1.
int EffectReader::writer_before(int k, int buffer) const {
  const auto loop = [&](int op) { return proof_.places[static_cast<std::size_t>(op)].loop; };
  for (int w = k; w-- > 0;) {
    if (proof_.op(w).op.write.buffer == buffer) return loop(w) == loop(k) ? w : -1;
  }
  return -1;
}

/// Is the value at op `from` another than at op `to`?
bool EffectReader::moves(int buffer, int from, int to) const {
  const auto loop = [&](int op) { return proof_.places[static_cast<std::size_t>(op)].loop; };
  if (loop(from) != loop(to) && (written_in(loop(from), buffer) || written_in(loop(to), buffer))) return true;
  for (int w = from; w < to; ++w) {
    if (proof_.op(w).op.write.buffer == buffer) return true;
  }
  return false;
}

}  // namespace nestor::nvptx
