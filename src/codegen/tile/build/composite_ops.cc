// The theorem of docs/algebra.md, one tile at a time: r := correction(r, m_old, m_new), then terms with m_new.
#include "codegen/tile/build/composite_ops.h"

#include "codegen/tile/build/guards.h"
#include "codegen/tile/build/point_counts.h"
#include "poly/nest/composite_correction.h"
#include "poly/nest/composite_parts.h"
#include "poly/schedule/order/isl_maps.h"
#include "support/error.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>

namespace nestor {
namespace {

constexpr const char* kSavePrefix = "save ";
constexpr const char* kCorrectPrefix = "correct ";
constexpr const char* kHoldPrefix = "hold ";

ScalarExpr as_float(int index_ordinal) { return ScalarExpr::cast(ElementType::f32, ScalarExpr::index(index_ordinal)); }

/// Adds an integer to the op's values; its ordinal.
int add_index(TileOp& op, const IntExpr& value) {
  op.indices.push_back(value);
  return static_cast<int>(op.indices.size()) - 1;
}

/// The product of the numbers as f32; 0 where nothing is counted.
ScalarExpr count_as_float(TileOp& op, const std::vector<IntExpr>& factors) {
  ScalarExpr count;
  for (const IntExpr& factor : factors) {
    const ScalarExpr number = as_float(add_index(op, factor));
    count = count.defined() ? ScalarExpr::make(ScalarOp::mul, {count, number}) : number;
  }
  return count.defined() ? count : ScalarExpr::constant(0);
}

bool is_identity(const ScalarExpr& view) { return view.op() == ScalarOp::scalar && view.name() == "m"; }

/// Where the lead's element for an instance of `from` is found: through a mediator when `from` reads one.
Access lead_access(const ProgramPlan& plan, const Composite& composite, const StatementPlan& from) {
  for (const Access& read : from.statement->reads) {
    if (read.tensor == composite.lead_tensor) return read;
  }
  for (const std::string& name : composite.mediators) {
    const Statement& mediator = *plan.plan(name).statement;
    for (const Access& read : from.statement->reads) {
      if (read.tensor != mediator.write.tensor) continue;
      const Access inner = lead_access(plan, composite, plan.plan(name));
      const isl::map relation = read.relation.apply_range(mediator.write.relation.reverse()).apply_range(inner.relation);
      return {composite.lead_tensor, relation};
    }
  }
  internal_error("composite of {}: {} does not depend on it", composite.lead, from.statement->name);
}

/// The op's dims that index its write.
std::vector<OpDim> kept_dims(const TileOp& op) {
  std::vector<OpDim> kept;
  for (const OpDim& dim : op.dims) {
    if (!dim.reduced) kept.push_back(dim);
  }
  for (OpDim& dim : kept) dim.parallel = true;
  return kept;
}

/// The elements of the lead's tensor around one tile of the lead.
struct LeadTile {
  const OpBox& box;
  isl::map changed;  ///< { [outer] -> LeadTensor[index] } that the tile adds to
  isl::map saved;    ///< those whose value before the tile is kept: at least the changed ones
};

/// { [outer, kept inner dims] } of the op's dims, from a set over all loops of the statement.
isl::set over_kept(const StatementPlan& statement, const TileOp& op, const isl::set& loops) {
  isl_set* kept = loops.copy();
  for (std::size_t k = op.dims.size(); k-- > 0;) {
    if (op.dims[k].reduced) kept = isl_set_project_out(kept, isl_dim_set, static_cast<unsigned>(statement.outer.size() + k), 1);
  }
  return isl::manage(kept);
}

isl::set flat(const isl::map& points) { return isl::manage(isl_set_flatten(isl_map_wrap(points.copy()))); }

/// Names of the outer loops and of the op's kept dims.
DimNames kept_names(const ProgramPlan& plan, const StatementPlan& statement, const TileOp& op) {
  DimNames names = statement.outer_dim_names(plan);
  for (const OpDim& dim : op.dims) {
    if (!dim.reduced) names.inputs.push_back(dim.var);
  }
  return names;
}

/// Copies the tile's leading values. Points of its box that lie outside of the buffer are left out.
TileOp save_op(const ProgramPlan& plan, const Storage& storage, const StatementPlan& statement, const TileOp& lead,
               const Placement& previous, LeadTile& tile) {
  TileOp op;
  op.name = kSavePrefix + lead.name;
  op.claim.role = OpRole::save;
  op.claim.lead = lead.claim.statement;
  op.dims = kept_dims(lead);
  op.reads = {lead.write};
  op.write = buffer_access(plan, previous, statement, statement.statement->write);
  op.value = ScalarExpr::read(0, ElementType::f32);
  op.kind = OpKind::copy;
  if (tile.saved.is_subset(room(statement, storage.tensors.at(statement.statement->write.tensor)))) return op;
  tile.saved = tile.changed;
  const isl::set box = over_kept(statement, lead, flat(tile.box.hull)),
                 points = over_kept(statement, lead, flat(tile.box.points));
  op.guard = to_condition(points.gist(box), kept_names(plan, statement, lead));
  return op;
}

/// The leading value stays where it was unless it has grown beyond the composite's threshold.
TileOp hold_op(const Composite& composite, const TileOp& lead, const TileOp& save) {
  TileOp op = save;
  op.name = kHoldPrefix + lead.name;
  op.claim.role = OpRole::hold;
  std::swap(op.write, op.reads[0]);
  op.reads.push_back(lead.write);
  op.value = substitute_scalars(composite.held, {{"m_old", op.value}, {"m_new", ScalarExpr::read(1, ElementType::f32)}});
  op.kind = OpKind::map;
  return op;
}

/// Where a follower's accumulators must be corrected at a tile of the lead, and where they are.
class CorrectionTile {
 public:
  CorrectionTile(const ProgramPlan& plan, const Storage& storage, const Composite& composite, const Follower& follower,
                 const LeadTile& tile)
      : plan_(plan),
        storage_(storage),
        composite_(composite),
        statement_(plan.plan(follower.statement)),
        access_(lead_access(plan, composite, statement_)),
        tile_(tile) {
    const Statement& s = *statement_.statement;
    const isl::map row = s.write.relation.intersect_domain(s.domain).reverse().apply_range(access_.relation);
    wanted_ = tile_.changed.apply_range(row.reverse());
  }

  const Access& lead_element() const { return access_; }

  /// May the correction run over the follower's own box? `guarded`: over its instances alone.
  bool covered_by(const OpBox* box, bool guarded) const {
    if (box == nullptr || !tile_.box.points.domain().is_subset(box->points.domain())) return false;
    const Access& write = statement_.statement->write;
    const isl::map& run = guarded ? box->points : box->hull;
    const isl::map corrected = touched_by(statement_, write, run);
    if (!guarded) {  // it changes nothing where no term is, but there may be another task's elements
      const isl::map extra = corrected.subtract(touched_by(statement_, write, box->points));
      if (!extra.is_empty() && !are_nobodys(plan_, write.tensor, extra)) return false;
    }
    const isl::map rows = touched_by(statement_, access_, run).intersect_domain(tile_.box.points.domain());
    return wanted_.is_subset(corrected) && rows.is_subset(tile_.saved) &&
           corrected.is_subset(room(statement_, storage_.tensors.at(write.tensor)));
  }

  /// What makes the op, over the follower's own box, run at the rows of its instances alone.
  IntExpr guard_of(const TileOp& accumulate, const OpBox& box) const {
    const isl::set rows = over_kept(statement_, accumulate, flat(box.points)),
                   all = over_kept(statement_, accumulate, flat(box.hull));
    return to_condition(rows.gist(all), kept_names(plan_, statement_, accumulate));
  }

  /// { [outer, inner] } the loops' values at which the wanted accumulators are reached, reduced loops left free. Throws UserError when
  /// some are not.
  isl::set reaching() const {
    const isl::map instance = isl::manage(isl_map_from_multi_aff(statement_.instance.copy()));
    const isl::map elements = instance.apply_range(statement_.statement->write.relation);
    const isl::map wanted =
        isl::manage(isl_map_add_dims(wanted_.copy(), isl_dim_in, static_cast<unsigned>(statement_.inner.size())));
    const LoopSpace loops(*statement_.statement, plan_.schedule->form(statement_.statement->name), statement_.loop_names());
    const isl::set reached = elements.intersect(wanted).domain().intersect(loops.constraints());
    const isl::map found = isl::manage(isl_map_project_out(elements.intersect_domain(reached).release(), isl_dim_in,
                                                           static_cast<unsigned>(statement_.outer.size()),
                                                           static_cast<unsigned>(statement_.inner.size())));
    if (!wanted_.is_subset(found)) {
      user_error(
          "{} moves while accumulators of {} that are not in the same tile depend on it: give {} and {} the same loops around "
          "their tiles",
          composite_.lead_tensor, statement_.statement->name, composite_.lead, statement_.statement->name);
    }
    return reached;
  }

  /// Sets bounds and guard of the op so that it covers `reached`.
  void fit(TileOp& op, const TileOp& accumulate, const isl::set& reached) const {
    const auto outer = static_cast<unsigned>(statement_.outer.size());
    const isl::set kept = over_kept(statement_, accumulate, reached);
    isl_map* tile = isl_map_move_dims(isl_map_from_range(kept.copy()), isl_dim_in, 0, isl_dim_out, 0, outer);
    const isl::map points = isl::manage(tile);
    const isl::set somewhere = points.domain();
    isl::map hull = isl::manage(
        isl_map_from_domain_and_range(somewhere.copy(), isl_set_universe(isl_space_set_alloc(isl_context().get(), 0, 0))));
    for (unsigned k = 0; k < op.dims.size(); ++k) {
      isl_map* single = isl_map_project_out(points.copy(), isl_dim_out, k + 1, static_cast<unsigned>(op.dims.size()) - k - 1);
      const isl::map values = isl::manage(isl_map_project_out(single, isl_dim_out, 0, k));
      const Interval interval = bounds_of(values, somewhere, statement_.outer_dim_names(plan_));
      op.dims[k].lower = interval.lower;
      op.dims[k].upper = interval.upper;
      op.dims[k].max_extent = interval.max_extent;
      hull = isl::manage(isl_map_flat_range_product(hull.release(), interval.filled.copy()));
    }
    const isl::set tiles = tile_.box.points.domain();
    if (hull.is_subset(points) && tiles.is_subset(somewhere)) return;
    const isl::set box = isl::manage(isl_set_add_dims(tiles.copy(), isl_dim_set, static_cast<unsigned>(op.dims.size())));
    op.guard = to_condition(kept.gist(box), kept_names(plan_, statement_, accumulate));
  }

 private:
  const ProgramPlan& plan_;
  const Storage& storage_;
  const Composite& composite_;
  const StatementPlan& statement_;
  const Access access_;
  const LeadTile& tile_;
  isl::map wanted_;  ///< { [outer] -> FollowerTensor[index] }
};

/// The value after the correction: reads 0, 1, 2 of the op are the accumulator, the leading value before and now.
ScalarExpr corrected_value(const Composite& composite, const Follower& follower, const PointCounts& counts, TileOp& op) {
  const bool counted = !counts.total.empty();
  const ScalarExpr n_before = count_as_float(op, counts.before), n_through = count_as_float(op, counts.through),
                   total = count_as_float(op, counts.total);
  const ScalarExpr r = ScalarExpr::read(0, ElementType::f32);
  const ScalarExpr m_old = substitute_scalars(
      composite.corrected_by(), {{"m", ScalarExpr::read(1, ElementType::f32)}, {"n", n_before}, {"n_total", total}});
  const ScalarExpr m_new = substitute_scalars(
      composite.corrected_by(), {{"m", ScalarExpr::read(2, ElementType::f32)}, {"n", n_through}, {"n_total", total}});
  const ScalarExpr value = substitute_scalars(
      follower.correction, {{"r", r}, {"m_old", m_old}, {"m_new", m_new}, {"n_old", n_before}, {"n_total", total}});
  if (!counted) return value;
  return ScalarExpr::make(ScalarOp::select, {ScalarExpr::make(ScalarOp::lt, {ScalarExpr::constant(0), n_before}), value, r});
}

/// Nothing where the tile has no accumulators of the follower, as in a part of a loop that leaves out its terms.
std::optional<TileOp> correct_op(const ProgramPlan& plan, const Storage& storage, const Composite& composite,
                                 const Follower& follower, const Placement& previous, const PointCounter* counter,
                                 const LeadTile& tile, const OpBox* box) {
  const StatementPlan& statement = plan.plan(follower.statement);
  if (statement.outer_names() != plan.plan(composite.lead).outer_names()) {
    user_error(
        "{} and {} accumulate together, so their tiles must lie in the same loops: keep further loops of {} innermost and "
        "private",
        composite.lead, follower.statement, follower.statement);
  }
  const CorrectionTile correction(plan, storage, composite, follower, tile);
  const bool whole_box = correction.covered_by(box, false), own_box = whole_box || correction.covered_by(box, true);
  GuardPlan unguarded;
  unguarded.guarded = false;
  const TileOp accumulate =
      make_op(plan, storage, statement, own_box ? *box : make_box(plan, statement, statement.points.domain()), unguarded);
  TileOp op;
  op.name = kCorrectPrefix + follower.statement;
  op.claim.role = OpRole::correct;
  op.claim.statement = follower.statement;
  op.claim.lead = composite.lead;
  op.dims = kept_dims(accumulate);
  op.write = accumulate.write;
  const isl::set region = own_box ? flat(box->hull) : correction.reaching();
  if (region.is_empty()) return std::nullopt;
  if (!own_box) correction.fit(op, accumulate, region);
  if (own_box && !whole_box) op.guard = correction.guard_of(accumulate, *box);
  const TileAccess now = buffer_access(plan, storage.tensors.at(composite.lead_tensor), statement, correction.lead_element());
  op.reads = {accumulate.write, buffer_access(plan, previous, statement, correction.lead_element()), now};
  std::vector<std::string> absent;
  for (const OpDim& dim : accumulate.dims) {
    if (dim.reduced) absent.push_back(dim.var);
  }
  const PointCounts counts =
      counter != nullptr ? counter->at(statement, correction.lead_element().relation, region, absent) : PointCounts{};
  op.value = corrected_value(composite, follower, counts, op);
  op.seldom = composite.threshold > 0;
  classify(op);
  if (op.kind == OpKind::points)
    user_error("several points of a tile of {} add to one element, so that it cannot be corrected when {} moves",
               follower.statement, composite.lead_tensor);
  return op;
}

/// A place of its own for the value before the tile: like the tensor's, or, where that is an argument, as large as one tile.
Placement place_previous(const ProgramPlan& plan, const Composite& composite, Storage& storage) {
  const StatementPlan& lead = plan.plan(composite.lead);
  Placement placement = storage.tensors.at(composite.lead_tensor);
  Buffer buffer = storage.buffers[placement.buffer];
  if (buffer.memory == Memory::argument) {
    const Tensor& tensor = plan.schedule->nest().tensor(composite.lead_tensor);
    const std::size_t depth = lead.outer.size();
    const bool parallel = lead.inside_parallel(depth);
    buffer = buffer_for(tensor, Memory::scratch);
    buffer.role = TensorRole::temporary;
    placement = fit_buffer(plan, tensor, footprint(lead, lead.statement->write, parallel ? depth : 0).coalesce(), true, buffer);
    placement.depth = parallel ? depth : 0;
    for (std::size_t k = 0; k < placement.depth; ++k) placement.scope.push_back(lead.outer[k].name);
  }
  buffer.name += "_previous";
  placement.buffer = static_cast<int>(storage.buffers.size());
  storage.buffers.push_back(std::move(buffer));
  return placement;
}

}  // namespace

std::map<std::string, Placement> add_previous_values(const ProgramPlan& plan, Storage& storage) {
  std::map<std::string, Placement> previous;
  for (const Composite& composite : plan.schedule->active_composites())
    previous[composite.lead] = place_previous(plan, composite, storage);
  return previous;
}

std::vector<TileOp> lead_ops(const ProgramPlan& plan, const Storage& storage, const Composite& composite,
                             const Placement& previous, const TileOp& lead, const BoxOf& boxes) {
  const StatementPlan& statement = plan.plan(composite.lead);
  const OpBox& box = *boxes(composite.lead);
  const Access& write = statement.statement->write;
  LeadTile tile{box, touched_by(statement, write, box.points), touched_by(statement, write, box.hull)};
  std::optional<PointCounter> counter;
  if (counts_points(composite)) counter.emplace(plan, composite, box);
  std::vector<TileOp> ops{save_op(plan, storage, statement, lead, previous, tile), lead};
  if (composite.threshold > 0) ops.push_back(hold_op(composite, lead, ops[0]));
  for (const Follower& follower : composite.followers) {
    if (auto op = correct_op(plan, storage, composite, follower, previous, counter ? &*counter : nullptr, tile,
                             boxes(follower.statement)))
      ops.push_back(std::move(*op));
  }
  return ops;
}

void apply_view(const ProgramPlan& plan, const Composite& composite, const BoxOf& boxes, const StatementPlan& reader,
                TileOp& op) {
  if (is_identity(composite.view)) return;
  PointCounts counts;
  if (counts_points(composite)) {
    const OpBox *lead = boxes(composite.lead), *own = boxes(reader.statement->name);
    if (lead == nullptr)
      internal_error("{} sees {} where {} has no points", reader.statement->name, composite.lead_tensor, composite.lead);
    counts = PointCounter(plan, composite, *lead).at(reader, lead_access(plan, composite, reader).relation, flat(own->hull));
  }
  const ScalarExpr n = count_as_float(op, counts.through), total = count_as_float(op, counts.total);
  op.value = op.value.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read || reader.statement->reads[node.ordinal()].tensor != composite.lead_tensor) return node;
    return substitute_scalars(composite.view, {{"m", node}, {"n", n}, {"n_total", total}});
  });
}

}  // namespace nestor
