// Effects of maps, reductions and products, as the emitter makes them of masks and values outside of them.
#include "codegen/gpu/mma/proof/tensor_effects.h"

#include "codegen/gpu/mma/plan/plan_passes.h"
#include "codegen/gpu/mma/proof/point_sets.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace nestor::nvptx {

EffectReader::EffectReader(TensorProof& proof, const std::vector<OpPoints>& points, const PointReader& reader)
    : proof_(proof), points_(points), reader_(reader) {
  for (const FiniteOperand& operand : finite_operands(proof.plan)) finite_.insert(operand.tensor);
}

int EffectReader::columns_of(int buffer) const { return proof_.plan.fragments.at(buffer).columns; }

bool EffectReader::in_place(int k) const {
  const TileOp& op = proof_.op(k).op;
  return std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == op.write.buffer; });
}

/// Does the code of a map test its mask?
bool EffectReader::has_tests(int k) const {
  const TensorOp& op = proof_.op(k);
  return !op.mask.empty() && (op.select || op.keeps || (in_place(k) && !op.outside));
}

/// Where the test of a map fails, does the element stay as it was?
bool EffectReader::keeps_rest(int k) const { return has_tests(k) && !proof_.op(k).outside; }

Effect EffectReader::of(int k, const isl::set& live) {
  switch (proof_.op(k).kind) {
    case TensorOp::Kind::map:
      return map(k, live);
    case TensorOp::Kind::reduce:
      return reduce(k, live);
    case TensorOp::Kind::seldom:
      return seldom(k);
    default:
      return product(k, live);
  }
}

/// Terms are added up at the op's points, as its bounds and guard say, and nothing else changes.
Effect EffectReader::seldom(int k) {
  const OpPoints& own = at(k);
  return {PointReader::elements(own.points, own.write), PointReader::elements(own.points.subtract(own.computed), own.write)};
}

/// What lies beyond the columns that the op goes through becomes 0.
Effect EffectReader::map(int k, const isl::set& live) {
  const TensorOp& op = proof_.op(k);
  const OpPoints& own = at(k);
  const int columns = columns_of(op.op.write.buffer);
  const isl::set tile = reader_.tile(own, std::max(columns, 1));
  const bool fills = op.op.fill.has_value();
  Effect effect{PointReader::elements(fills ? own.dims : own.points, own.write), none_of(tile)};
  const auto spoil = [&](const isl::set& elements) { effect.spoilt = effect.spoilt.unite(elements); };
  const auto filled = [&](const isl::set& computed) {  // elements outside of the guard that are to be filled, and are computed
    const isl::set hidden = computed.intersect(own.dims).subtract(own.points).intersect(live);
    if (fills && !hidden.is_empty() && !value_at(k, hidden).is(*op.op.fill)) spoil(hidden);
  };
  if (own.tested) {
    const isl::set computed = has_tests(k) ? own.computed.intersect(own.mask) : own.computed;
    spoil(tile.subtract(keeps_rest(k) ? own.computed : effect.defined).subtract(own.points));
    if (keeps_rest(k)) spoil(computed.subtract(effect.defined));
    spoil(own.points.subtract(computed));
    filled(computed);
    const isl::set rest = own.dims.subtract(own.points).subtract(computed);
    if (fills && !(has_tests(k) && op.outside == op.op.fill)) spoil(rest);
  }
  if (!is_none(own.untested)) {
    spoil(tile.intersect(own.untested).subtract(own.computed.intersect(effect.defined)));
    filled(own.computed.intersect(own.untested));
  }
  if (in_place(k)) effect.spoilt = effect.spoilt.subtract(unchanged(k, effect.spoilt.intersect(own.computed), live));
  return effect;
}

/// Are all terms that sums of these elements get neutral, as producers have filled them?
bool EffectReader::adds_nothing(int k, const isl::set& points, const isl::set& elements) {
  const TensorOp& op = proof_.op(k);
  if (op.op.reduction != ReductionOp::add) return false;
  const bool product = op.kind == TensorOp::Kind::product;
  const isl::set terms = points.intersect(free_along(elements, product ? kTerm : kTileColumn));
  if (is_none(terms)) return true;
  return product ? op.a_ring < 0 && read_at(k, op.form.a, terms).is(0) : value_at(k, terms).is(0);
}

/// Elements without any point yet, which an op in place leaves at the constant that they have: 0 times a factor.
isl::set EffectReader::unchanged(int k, const isl::set& elements, const isl::set& live) {
  const TensorOp& op = proof_.op(k);
  isl::set untouched =
      elements.intersect(live).subtract(PointReader::at_any_iteration(PointReader::elements(at(k).points, at(k).write)));
  std::optional<double> start;
  for (int w = 0; w < static_cast<int>(proof_.plan.ops.size()) && !is_none(untouched); ++w) {
    const TensorOp& writer = proof_.op(w);
    if (writer.op.write.buffer != op.op.write.buffer) continue;
    if (writer.kind == TensorOp::Kind::map && writer.op.value.op() == ScalarOp::constant && !writer.op.fill) {
      if (start && *start != writer.op.value.number()) return none_of(elements);
      start = writer.op.value.number();
      continue;
    }
    const isl::set& points = writer.op.initialize ? at(w).dims : at(w).points;
    if (w != k && adds_nothing(w, points, PointReader::at_any_iteration(untouched))) continue;
    untouched = untouched.subtract(PointReader::at_any_iteration(PointReader::elements(points, at(w).write)));
  }
  if (!start || is_none(untouched)) return none_of(elements);
  const Possible value = possible_values(op.op.value, proof_.plan.program->scalars, [&](int read) {
    const bool own = op.op.reads[static_cast<std::size_t>(read)].buffer == op.op.write.buffer;
    return own ? Possible::exactly(*start) : read_at(k, read, untouched);
  });
  return value.is(*start) ? untouched : none_of(elements);
}

/// A row's result is that of its points where all others have the neutral element.
Effect EffectReader::reduce(int k, const isl::set& live) {
  const TensorOp& op = proof_.op(k);
  const OpPoints& own = at(k);
  const isl::set tile = reader_.tile(own, 1);
  Effect effect{PointReader::elements(op.op.initialize ? own.dims : own.points, own.write), none_of(tile)};
  const isl::set live_rows = free_along(live, kTileColumn);
  const double neutral = neutral_element(*op.op.reduction, op.op.value.type());
  const auto add = [&](const isl::set& iterations, bool tests) {
    isl::set taken = own.computed.intersect(iterations);
    if (tests) taken = taken.intersect(own.mask);
    const isl::set missing = own.points.intersect(iterations).subtract(taken);
    const isl::set hidden = taken.intersect(live_rows).subtract(own.points);
    isl::set wrong = missing;
    if (!is_none(hidden) && !value_at(k, hidden).is(neutral))
      wrong = wrong.unite(hidden.subtract(beside_nan(k, hidden, taken.intersect(own.points), kTileColumn)));
    effect.spoilt = effect.spoilt.unite(PointReader::elements(wrong, own.write));
  };
  if (own.tested) add(own.iterations, op.select && !op.mask.empty());
  if (!is_none(own.untested)) add(own.untested, false);
  if (op.op.initialize) effect.spoilt = effect.spoilt.unite(tile.subtract(effect.defined));
  return effect;
}

/// The first operand's elements are masked where it is a fragment; else all terms are added up.
Effect EffectReader::product(int k, const isl::set& live) {
  const TensorOp& op = proof_.op(k);
  const OpPoints& own = at(k);
  const isl::set tile = reader_.tile(own, columns_of(op.op.write.buffer));
  Effect effect{PointReader::elements(op.op.initialize ? own.dims : own.points, own.write), none_of(tile)};
  const isl::set live_points = free_along(live, kTerm);
  const bool from_fragment = op.a_ring < 0;
  const auto add = [&](const isl::set& iterations, bool tests) {
    isl::set taken = own.computed.intersect(iterations);
    if (tests) taken = taken.intersect(own.mask);
    isl::set wrong = own.points.intersect(iterations).subtract(taken);
    const isl::set hidden = taken.intersect(live_points).subtract(own.points);
    if (!is_none(hidden)) {
      const isl::set added = terms_added(k, hidden);
      wrong = wrong.unite(added.subtract(beside_nan(k, added, taken.intersect(own.points), kTerm)));
    }
    effect.spoilt = effect.spoilt.unite(PointReader::elements(wrong, own.write));
  };
  if (from_fragment) require_finite(k, own.computed.intersect(live_points));
  if (!from_fragment) add(own.iterations, false);
  if (from_fragment && own.tested) add(own.iterations, op.mask_a && !op.mask.empty());
  if (from_fragment && !is_none(own.untested)) add(own.untested, false);
  if (op.op.initialize) effect.spoilt = effect.spoilt.unite(tile.subtract(effect.defined));
  return effect;
}

/// The hidden points whose terms need not be 0: one is where a factor is and the other is finite. Copies bring zeros from outside of an
/// argument.
isl::set EffectReader::terms_added(int k, const isl::set& hidden) {
  const TensorOp& op = proof_.op(k);
  const TileAccess &a = op.op.reads[static_cast<std::size_t>(op.form.a)], &b = op.op.reads[static_cast<std::size_t>(op.form.b)];
  if (op.a_ring < 0) {
    // Terms that no sum of the row has, and columns that have none: zeros may stand at the first alone.
    const isl::set beyond = hidden.subtract(free_along(at(k).points, kTileColumn));
    const auto added = [&](const isl::set& part) {
      return is_none(part) || read_at(k, op.form.a, part).is(0) ? none_of(part) : part;
    };
    return added(beyond).unite(added(hidden.subtract(beyond)));
  }
  const isl::set all = reader_.known(hidden), in_a = all.intersect(reader_.within(k, a)),
                 in_b = all.intersect(reader_.within(k, b));
  const auto is_finite = [&](const TileAccess& access) { return finite_.contains(proof_.plan.buffer(access.buffer).tensor); };
  isl::set added = in_a.intersect(in_b);
  if (!is_finite(a)) added = added.unite(in_a);
  if (!is_finite(b)) added = added.unite(in_b);
  return added;
}

/// Zeros are multiplied at computed points that the op has not: the certificate says that what they meet is finite, or the argument has ended.
void EffectReader::require_finite(int k, const isl::set& computed) {
  const TensorOp& op = proof_.op(k);
  const TileAccess& b = op.op.reads[static_cast<std::size_t>(op.form.b)];
  const Buffer& buffer = proof_.plan.buffer(b.buffer);
  if (finite_.contains(buffer.tensor)) return;
  if (!is_none(reader_.known(computed.subtract(at(k).points)).intersect(reader_.within(k, b))))
    proof_.fail("{} multiplies zeros by elements of {}, which need not be finite", op.op.name, buffer.name);
}

Possible EffectReader::value_at(int k, const isl::set& hidden) {
  return possible_values(proof_.op(k).op.value, proof_.plan.program->scalars, [&](int read) { return read_at(k, read, hidden); });
}

Possible EffectReader::read_at(int k, int read, const isl::set& hidden) {
  const TensorOp& op = proof_.op(k);
  const int buffer = op.op.reads[static_cast<std::size_t>(read)].buffer;
  const auto fragment = proof_.plan.fragments.find(buffer);
  if (fragment == proof_.plan.fragments.end() || op.read_rings.contains(read)) return Possible::anything();
  if (fragment->second.columns > 0)
    return fragment_at(buffer, k, PointReader::elements(hidden, at(k).reads[static_cast<std::size_t>(read)]));
  return row_at(k, buffer);
}

/// What op `k` finds in a row value: an infinity that rows without points have is read as 0 where the plan says so.
Possible EffectReader::row_at(int k, int buffer) {
  Possible value = Possible::any_finite();
  if (rows_) {
    const bool asked = rows_->buffer < 0 || rows_->buffer == buffer;
    rows_->read.insert(buffer);
    rows_->moved = rows_->moved || (asked && moves(buffer, k, rows_->reader));
    if (rows_->buffer >= 0) value = asked ? rows_->value : Possible::anything();
  } else {
    std::set<int> seen;
    value = row_value(buffer, seen);
  }
  if (!proof_.op(k).finite_rows) return value;
  const auto empty = value_without_points(proof_.plan, buffer);
  if (!empty || !std::isinf(*empty)) return value;
  bool& infinite = *empty < 0 ? value.below : value.above;
  if (infinite) value = value.either(Possible::exactly(0));
  infinite = false;
  return value;
}

/// A row's value is taken to be finite where points made it: a row that is not is not finite in the definition either. Before any point it is
/// what it starts from, or what ops have made of that.
Possible EffectReader::row_value(int buffer, std::set<int>& seen) {
  if (!seen.insert(buffer).second) return Possible::any_finite();
  Possible value;
  for (const TensorOp& op : proof_.plan.ops) {
    if (op.op.write.buffer != buffer) continue;
    if (op.op.reduction) {
      value = value.either(Possible::any_finite());
      if (op.op.initialize) value = value.either(Possible::exactly(neutral_element(*op.op.reduction, op.op.value.type())));
      continue;
    }
    const Possible made = possible_values(op.op.value, proof_.plan.program->scalars, [&](int read) {
      const int source = op.op.reads[static_cast<std::size_t>(read)].buffer;
      const auto found = proof_.plan.fragments.find(source);
      return found != proof_.plan.fragments.end() && found->second.columns == 0 ? row_value(source, seen)
                                                                                : Possible::any_finite();
    });
    value = value.either(made);
  }
  return value;
}

bool EffectReader::written_in(int loop, int buffer) const {
  for (int w = 0; w < static_cast<int>(proof_.plan.ops.size()); ++w) {
    if (proof_.op(w).op.write.buffer == buffer && proof_.places[static_cast<std::size_t>(w)].loop == loop) return true;
  }
  return false;
}

Possible EffectReader::fragment_at(int buffer, int k, const isl::set& elements) {
  Possible value;
  isl::set rest = elements;
  int loop = proof_.places[static_cast<std::size_t>(k)].loop;
  if (loop >= 0 && !written_in(loop, buffer)) {  // every iteration finds what stood there before the loop
    loop = -1;
    rest = PointReader::outside_of_loops(elements);
  }
  for (int w = k; w-- > 0 && !is_none(rest);) {
    if (proof_.op(w).op.write.buffer != buffer) continue;
    if (proof_.places[static_cast<std::size_t>(w)].loop != loop) break;
    isl::set kept = none_of(rest);
    value = value.either(left_by(w, rest, kept));
    rest = kept;
  }
  return is_none(rest) ? value : Possible::anything();  // what another iteration or another loop has left
}

/// What the writer leaves at elements; those that it leaves as they were go to `kept`.
Possible EffectReader::left_by(int writer, const isl::set& elements, isl::set& kept) {
  const TensorOp& op = proof_.op(writer);
  const OpPoints& own = at(writer);
  if (op.kind != TensorOp::Kind::map || !is_none(elements.intersect(own.points))) return Possible::anything();
  Possible value;
  const isl::set inside = elements.intersect(own.computed);
  if (!is_none(elements.subtract(own.computed))) value = Possible::exactly(0);
  isl::set natural = inside.intersect(own.untested);
  if (own.tested) {
    natural = natural.unite(has_tests(writer) ? inside.intersect(own.mask) : inside);
    const isl::set outside = has_tests(writer) ? inside.subtract(own.mask) : none_of(inside);
    if (!is_none(outside) && keeps_rest(writer)) kept = outside;
    if (!is_none(outside) && !keeps_rest(writer)) value = value.either(Possible::exactly(*op.outside));
  }
  if (!is_none(natural)) value = value.either(value_at(writer, natural));
  return value;
}

}  // namespace nestor::nvptx
