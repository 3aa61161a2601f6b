// Boxes, guards, indices and classification of ops.
#include "codegen/tile/build/op_builder.h"

#include "codegen/tile/analysis/affine.h"
#include "poly/isl/conjunction.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
#include "support/error.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace nestor {
namespace {

/// { [outer, inner] } from { [outer] -> [inner] }
isl::set flattened(const isl::map& points) { return isl::manage(isl_set_flatten(isl_map_wrap(points.copy()))); }

/// The affine functions of a piecewise one, whatever their domains.
std::vector<isl::aff> affine_pieces(const isl::pw_aff& function) {
  std::vector<isl::aff> values;
  isl_pw_aff_foreach_piece(
      function.get(),
      [](isl_set* set, isl_aff* piece, void* user) {
        isl_set_free(set);
        static_cast<std::vector<isl::aff>*>(user)->push_back(isl::manage(piece));
        return isl_stat_ok;
      },
      &values);
  return values;
}

/// Pulls a function of the statement's dims back to its loops, simplified for the statement's instances: elsewhere it may be another one.
isl::pw_aff pulled_back(const StatementPlan& statement, const isl::pw_aff& function) {
  const isl::set instances = statement.loops.range();
  isl_pw_aff* named =
      isl_pw_aff_set_tuple_id(function.copy(), isl_dim_in, isl_multi_aff_get_tuple_id(statement.instance.get(), isl_dim_out));
  isl_pw_aff* back = isl_pw_aff_pullback_multi_aff(named, statement.instance.copy());
  // One piece has the value wherever there are instances, whatever their parts.
  if (is_union(instances) && isl_pw_aff_n_piece(back) == 1) {
    const isl::pw_aff everywhere(affine_pieces(isl::manage(back)).front());
    return isl::manage(isl_pw_aff_gist(everywhere.copy(), conjunction_around(instances).release()));
  }
  return isl::manage(isl_pw_aff_coalesce(isl_pw_aff_gist(isl_pw_aff_intersect_domain(back, instances.copy()), instances.copy())));
}

/// The indices of an access over the statement's loops, as ops compute them.
std::vector<isl::pw_aff> computed_indices(const StatementPlan& statement, const Access& access) {
  std::vector<isl::pw_aff> functions = functions_of(access.relation.intersect_domain(statement.statement->domain));
  for (isl::pw_aff& function : functions) function = pulled_back(statement, function);
  return functions;
}

/// { [outer, inner] -> [index] } at instances; at other points what an op may compute there, which is any piece of the function.
isl::map computed_index(const StatementPlan& statement, const isl::pw_aff& function) {
  const std::vector<isl::aff> pieces = affine_pieces(function);
  if (pieces.size() == 1) return isl::manage(isl_map_from_aff(pieces.front().copy()));
  const isl::set instances = statement.loops.range();
  isl::map all = isl::manage(isl_map_from_pw_aff(function.copy())).intersect_domain(instances);
  for (const isl::aff& piece : pieces) {
    const isl::set elsewhere = instances.complement();
    all = all.unite(isl::manage(isl_map_from_aff(piece.copy())).intersect_domain(elsewhere));
  }
  return all;
}

/// { [outer, inner] -> Tensor[index] } at these loops, as ops compute it.
isl::map elements_at(const StatementPlan& statement, const Access& access, const isl::set& loops) {
  isl_map* elements =
      isl_map_from_domain_and_range(loops.copy(), isl_set_universe(isl_space_set_alloc(isl_context().get(), 0, 0)));
  for (const isl::pw_aff& function : computed_indices(statement, access))
    elements = isl_map_flat_range_product(elements, computed_index(statement, function).release());
  return isl::manage(isl_map_set_tuple_id(elements, isl_dim_out, isl_map_get_tuple_id(access.relation.get(), isl_dim_out)));
}

/// The origin of a buffer along one index as a function of the statement's loops.
isl::pw_aff origin_at(const StatementPlan& statement, const isl::aff& origin) {
  const isl::space loops = statement.instance.space().domain();
  const int scope = isl_aff_dim(origin.get(), isl_dim_in);
  const unsigned all = static_cast<unsigned>(statement.outer.size() + statement.inner.size());
  isl_multi_aff* project = isl_multi_aff_identity(isl_space_map_from_set(loops.copy()));
  project = isl_multi_aff_drop_dims(project, isl_dim_out, static_cast<unsigned>(scope), all - static_cast<unsigned>(scope));
  return isl::manage(isl_pw_aff_pullback_multi_aff(isl_pw_aff_from_aff(origin.copy()), project));
}

std::vector<OpDim> make_dims(const StatementPlan& statement, const OpBox& box) {
  std::vector<OpDim> dims;
  for (std::size_t k = 0; k < statement.inner.size(); ++k) {
    const PlannedLoop& loop = statement.inner[k];
    OpDim dim;
    dim.var = program_variable(loop.name);
    dim.lower = box.dims[k].lower;
    dim.upper = box.dims[k].upper;
    dim.max_extent = box.dims[k].max_extent;
    dim.kind = loop.kind;
    dim.factor = loop.factor;
    dims.push_back(std::move(dim));
  }
  return dims;
}

/// Which dims of an op its statement's dependences on itself run along, given equal loops outside of the dim.
class CarriedDims {
 public:
  CarriedDims(const ProgramPlan& plan, const StatementPlan& statement) : outer_(statement.outer.size()) {
    for (const Dependence& d : plan.schedule->dependences()) {
      if (d.source != d.sink || d.source != statement.statement->name) continue;
      const isl::map at_loops = d.relation.apply_domain(statement.loops).apply_range(statement.loops);
      (d.reduction ? accumulations_ : ordinary_).push_back(at_loops);
    }
  }

  bool orders(std::size_t dim) const { return any_carried(ordinary_, dim); }
  /// Two values of the dim add to one element.
  bool accumulates(std::size_t dim) const { return any_carried(accumulations_, dim); }

 private:
  bool any_carried(const std::vector<isl::map>& relations, std::size_t dim) const {
    return std::any_of(relations.begin(), relations.end(), [&](const isl::map& pairs) { return carried(pairs, outer_ + dim); });
  }

  static bool carried(const isl::map& pairs, std::size_t depth) {
    isl::map equal = pairs;
    for (int k = 0; k < static_cast<int>(depth); ++k)
      equal = isl::manage(isl_map_equate(equal.release(), isl_dim_in, k, isl_dim_out, k));
    const int at = static_cast<int>(depth);
    return !isl::manage(isl_map_order_lt(equal.copy(), isl_dim_in, at, isl_dim_out, at)).is_empty() ||
           !isl::manage(isl_map_order_gt(equal.copy(), isl_dim_in, at, isl_dim_out, at)).is_empty();
  }

  std::size_t outer_;
  std::vector<isl::map> ordinary_, accumulations_;
};

bool index_uses(const TileAccess& access, const std::string& var) {
  return std::any_of(access.index.begin(), access.index.end(), [&](const IntExpr& e) { return e.uses(var); });
}

/// The op's contraction, if both of its reads follow every reduced dim and one of them alone some other.
std::optional<Contraction> contraction_over_dims(const TileOp& op) {
  const auto found = contraction_of(op.value, op.reduction);
  if (!found) return std::nullopt;
  const TileAccess &a = op.reads[found->a], &b = op.reads[found->b];
  bool shared_reduced = false, exclusive = false;
  for (const OpDim& dim : op.dims) {
    const bool in_a = index_uses(a, dim.var), in_b = index_uses(b, dim.var);
    if (dim.reduced && in_a && in_b) shared_reduced = true;
    if (dim.reduced && !(in_a && in_b)) return std::nullopt;
    if (!dim.reduced && in_a != in_b) exclusive = true;
  }
  return shared_reduced && exclusive ? found : std::nullopt;
}

/// Does the index number the values of all its dims, as 64 t + c with c in [0, 64)? Those with smaller factors stay below the next one.
bool numbers_dims(const TileOp& op, const IntExpr& index) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::map<std::int64_t, std::int64_t> steps;  // extents of dims by their factors
  for (const OpDim& dim : op.dims) {
    if (!index.uses(dim.var)) continue;
    const auto factor = index.coefficient(dim.var);
    const std::int64_t extent = nvptx::extent_bound(dim).value_or(kMost);
    if (!factor || *factor <= 0 || !steps.emplace(*factor, extent).second) return false;
  }
  std::int64_t reached = 0;
  for (const auto& [factor, extent] : steps) {
    if (factor <= reached) return false;
    const std::int64_t last = std::max<std::int64_t>(extent - 1, 0);
    reached = last > (kMost - reached) / factor ? kMost : reached + factor * last;
  }
  return true;
}

/// The write index determines the kept dims: each moves an index by itself, or, where nothing is added up, with others that it numbers.
bool writes_once_per_point(const TileOp& op) {
  std::set<std::string> seen;
  for (const IntExpr& index : op.write.index) {
    if (!op.reduction && numbers_dims(op, index)) {
      for (const OpDim& dim : op.dims) {
        if (index.uses(dim.var)) seen.insert(dim.var);
      }
      continue;
    }
    std::string mover;
    for (const OpDim& dim : op.dims) {
      if (!index.uses(dim.var)) continue;
      if (!mover.empty()) return false;
      mover = dim.var;
    }
    if (!mover.empty() && index.coefficient(mover).value_or(0) != 0) seen.insert(mover);
  }
  return std::all_of(op.dims.begin(), op.dims.end(), [&](const OpDim& dim) { return dim.reduced || seen.count(dim.var) != 0; });
}

/// A dim is reduced where the op combines and writes the same element along it; it is parallel where no dependence is carried by it.
/// Where values of a kept dim update one element, out[floor(i / 3)] += x[i], it is neither.
void mark_dims(const ProgramPlan& plan, const StatementPlan& statement, TileOp& op) {
  const CarriedDims carried(plan, statement);
  for (std::size_t k = 0; k < op.dims.size(); ++k) {
    OpDim& dim = op.dims[k];
    const bool ordered = carried.orders(k);
    dim.reduced = op.reduction && !ordered && !index_uses(op.write, dim.var);
    dim.parallel = !ordered && !dim.reduced;
  }
  if (!op.reduction || writes_once_per_point(op)) return;
  for (std::size_t k = 0; k < op.dims.size(); ++k) op.dims[k].parallel = op.dims[k].parallel && !carried.accumulates(k);
}

bool is_plain_read(const ScalarExpr& value) {
  return value.op() == ScalarOp::read || (value.op() == ScalarOp::cast && is_plain_read(value.args()[0]));
}

}  // namespace

namespace {

/// Conditions that parts of a union have for themselves: with so few, bounds and guards are cheap as they are.
constexpr int kFewConditions = 3;

/// Is it a union whose parts have many conditions of their own?
bool has_many_conditions(const isl::map& points) {
  if (!is_union(points)) return false;
  const isl::set all = flattened(points);
  return constraints_in(with_few_constraints(all, conjunction_around(all))) > kFewConditions;
}

constexpr std::int64_t kFewTerms = 16;  ///< of a dim: a filter's taps

/// An interval of few values of a reduced dim that short sizes alone cut, whatever the sizes: loops of so many passes can be written out.
/// Nothing for other dims. `values`: { [outer] -> [x] }.
std::optional<Interval> uncut(const StatementPlan& statement, unsigned dim, const Interval& cut, const isl::map& values,
                              const DimNames& outer) {
  const bool fixed = cut.lower.as_constant() && cut.upper.as_constant();
  if (fixed || !statement.statement->reduction || cut.max_extent.value_or(kFewTerms + 1) > kFewTerms) return std::nullopt;
  if (std::any_of(outer.inputs.begin(), outer.inputs.end(),
                  [&](const std::string& name) { return cut.lower.uses(name) || cut.upper.uses(name); }))
    return std::nullopt;
  const auto at = static_cast<unsigned>(statement.outer.size()) + dim;
  for (const isl::pw_aff& index : computed_indices(statement, statement.statement->write)) {
    if (isl_pw_aff_involves_dims(index.get(), isl_dim_in, at, 1) != isl_bool_false) return std::nullopt;
  }
  const isl::set all = at_sizes(values.range(), {});
  if (all.is_empty() || !isl_set_dim_is_bounded(all.get(), isl_dim_set, 0)) return std::nullopt;
  const auto [low, high] = dim_range(all, 0);
  if (high - low + 1 != *cut.max_extent) return std::nullopt;
  isl_map* filled = isl_map_universe(isl_map_get_space(values.get()));
  filled = isl_map_lower_bound_si(filled, isl_dim_out, 0, static_cast<int>(low));
  const isl::map written = isl::manage(isl_map_upper_bound_si(filled, isl_dim_out, 0, static_cast<int>(high)));
  return Interval{IntExpr(low), IntExpr(high + 1), cut.max_extent, written.intersect_domain(values.domain()), written};
}

/// Is a condition of the set on a division of a number that hangs on one of these dims?
bool divides_some(const isl::set& set, const std::vector<unsigned>& dims) {
  struct Search {
    const std::vector<unsigned>& dims;
    bool found = false;
  } search{dims};
  const isl::set explicit_divisions = isl::manage(isl_set_compute_divs(set.copy()));
  isl_set_foreach_basic_set(
      explicit_divisions.get(),
      [](isl_basic_set* part, void* user) {
        auto* search = static_cast<Search*>(user);
        for (int k = 0; k < isl_basic_set_dim(part, isl_dim_div); ++k) {
          const isl::aff division = isl::manage(isl_basic_set_get_div(part, k));
          for (const unsigned dim : search->dims)
            search->found = search->found || isl_aff_involves_dims(division.get(), isl_dim_in, dim, 1) == isl_bool_true;
        }
        isl_basic_set_free(part);
        return isl_stat_ok;
      },
      &search);
  return search.found;
}

/// What holds of all points, without what holds of their outer loops.
isl::map common_bounds(const isl::map& points) {
  const isl::set outer = isl::manage(isl_set_from_basic_set(isl_set_simple_hull(isl_set_remove_divs(points.domain().release()))));
  return isl::manage(isl_map_gist_domain(conjunction_around(points).release(), outer.copy())).intersect_domain(outer);
}

/// Of { [outer] -> [inner] } what reads elements that inputs have, as all points of the statement do: bounds that follow from those of parts, which no
/// part has among its own.
isl::map within_inputs(const ProgramPlan& plan, const StatementPlan& statement, const isl::map& around) {
  isl::set loops = flattened(around);
  for (const Access& read : statement.statement->reads) {
    const Tensor& tensor = plan.schedule->nest().tensor(read.tensor);
    if (tensor.role != TensorRole::input) continue;
    loops = elements_at(statement, read, loops).intersect_range(tensor_box(tensor)).domain();
  }
  isl_map* within = isl_map_move_dims(isl_map_from_range(loops.release()), isl_dim_in, 0, isl_dim_out, 0,
                                      static_cast<unsigned>(statement.outer.size()));
  return isl::manage(within).intersect(around);
}

}  // namespace

isl::set visited_iterations(const ProgramPlan& plan, const StatementPlan& statement, const isl::set& exact) {
  if (!plan.tensor_cores || statement.inner.empty()) return exact;
  std::vector<unsigned> blocks, serial;
  for (unsigned k = 0; k < statement.outer.size(); ++k) (is_task_loop(statement.outer[k].kind) ? blocks : serial).push_back(k);
  if (!divides_some(exact, serial)) return exact;
  isl::set visited = isl::manage(isl_set_remove_divs(exact.copy()));
  // Blocks have the values that they have, and so has each loop for itself, as far as that shows without divisions.
  const auto along = [&](const std::vector<unsigned>& kept) {
    isl_set* values = exact.copy();
    for (unsigned k = 0; k < statement.outer.size(); ++k) {
      if (std::find(kept.begin(), kept.end(), k) == kept.end()) values = isl_set_eliminate(values, isl_dim_set, k, 1);
    }
    return values;
  };
  visited = visited.intersect(isl::manage(along(blocks)));
  for (const unsigned loop : serial) visited = visited.intersect(isl::manage(isl_set_remove_divs(along({loop}))));
  return visited.coalesce();
}

OpBox make_box(const ProgramPlan& plan, const StatementPlan& statement, const isl::set& domain) {
  OpBox box;
  box.points = statement.points.intersect_domain(domain);
  const bool visits_others = plan.tensor_cores && !domain.is_subset(box.points.domain());
  const isl::set outer = visits_others ? domain : box.points.domain();
  // Tensor cores compute whole tiles: bounds are what all parts of a mask have in common, and the guard says the rest.
  box.parts = plan.tensor_cores && (visits_others || has_many_conditions(box.points));
  const isl::map around = box.parts ? within_inputs(plan, statement, common_bounds(box.points)) : box.points;
  const unsigned inner = static_cast<unsigned>(statement.inner.size());
  const DimNames names = statement.outer_dim_names(plan);
  const auto values = [&](const isl::map& points, unsigned k) {
    isl_map* single = isl_map_project_out(points.copy(), isl_dim_out, k + 1, inner - k - 1);
    return isl::manage(isl_map_project_out(single, isl_dim_out, 0, k));
  };
  const auto fill_up = [&] {
    isl_map* hull = isl_map_from_domain_and_range(outer.copy(), isl_set_universe(isl_space_set_alloc(isl_context().get(), 0, 0)));
    for (const Interval& dim : box.dims) hull = isl_map_flat_range_product(hull, dim.filled.copy());
    box.hull = isl::manage(hull);
    box.exact = inner == 0 || box.hull.is_subset(box.points);
  };
  for (unsigned k = 0; k < inner; ++k)
    box.dims.push_back(bounds_of(values(around, k), outer, names, values(statement.points, k)));
  fill_up();
  bool wider = false;
  for (unsigned k = 0; !box.exact && !plan.tensor_cores && k < inner; ++k) {
    const auto whole = uncut(statement, k, box.dims[k], values(box.points, k), names);
    wider = wider || whole;
    if (whole) box.dims[k] = *whole;
  }
  if (wider) fill_up();
  return box;
}

isl::map touched_by(const StatementPlan& plan, const Access& access, const isl::map& inner) {
  isl_map* touched = elements_at(plan, access, flattened(inner)).release();
  return isl::manage(isl_map_project_out(touched, isl_dim_in, static_cast<unsigned>(plan.outer.size()),
                                         static_cast<unsigned>(plan.inner.size())));
}

isl::map room(const StatementPlan& statement, const Placement& placement) {
  const unsigned extra = static_cast<unsigned>(statement.outer.size() - placement.depth);
  return isl::manage(isl_map_add_dims(placement.held.copy(), isl_dim_in, extra));
}

IntExpr at_loops(const ProgramPlan& plan, const StatementPlan& statement, const isl::pw_aff& function) {
  return to_int_expr(pulled_back(statement, function), statement.all_names(plan));
}

TileAccess buffer_access(const ProgramPlan& plan, const Placement& placement, const StatementPlan& statement,
                         const Access& access) {
  const DimNames names = statement.all_names(plan);
  TileAccess out;
  out.buffer = placement.buffer;
  const std::vector<isl::pw_aff> indices = computed_indices(statement, access);
  for (std::size_t k = 0; k < indices.size(); ++k)
    out.index.push_back(to_int_expr(indices[k].sub(origin_at(statement, placement.origin[k])).coalesce(), names));
  return out;
}

namespace {

/// Where a reduction has terms, over the dims that index its results: what the whole guard says of these, which its parts may not.
isl::set with_terms(const StatementPlan& statement, const OpBox& box, const std::vector<OpDim>& dims) {
  isl::set points = flattened(box.points);
  for (std::size_t k = 0; k < dims.size(); ++k) {
    if (dims[k].reduced)
      points =
          isl::manage(isl_set_eliminate(points.release(), isl_dim_set, static_cast<unsigned>(statement.outer.size() + k), 1));
  }
  return points;
}

int comparisons(const IntExpr& condition) {
  const bool joined = condition.op() == IntOp::logical_and || condition.op() == IntOp::logical_or;
  return joined ? comparisons(condition.args()[0]) + comparisons(condition.args()[1]) : 1;
}

/// Which points of the hull are the box's. On tensor cores by the fewest comparisons, as each costs every element.
IntExpr guard_of(const ProgramPlan& plan, const StatementPlan& statement, const OpBox& box) {
  const isl::set points = flattened(box.points), hull = flattened(box.hull);
  const IntExpr guard = to_condition(points.gist(hull), statement.all_names(plan));
  if (!box.parts || !guard.defined()) return guard;
  const IntExpr few = to_condition(with_few_constraints(points, hull), statement.all_names(plan));
  return few.defined() && comparisons(few) < comparisons(guard) ? few : guard;
}

}  // namespace

TileOp make_op(const ProgramPlan& plan, const Storage& storage, const StatementPlan& statement, const OpBox& box,
               const GuardPlan& guard) {
  const Statement& s = *statement.statement;
  TileOp op;
  op.name = s.name;
  op.claim.statement = s.name;
  for (int k = 0; k < isl_multi_aff_dim(statement.instance.get(), isl_dim_out); ++k)
    op.claim.instance.push_back(
        to_int_expr(isl::manage(isl_multi_aff_get_aff(statement.instance.get(), k)), statement.all_names(plan)));
  op.dims = make_dims(statement, box);
  op.write = buffer_access(plan, storage.tensors.at(s.write.tensor), statement, s.write);
  for (const Access& read : s.reads)
    op.reads.push_back(buffer_access(plan, storage.read_placement(s.name, read.tensor), statement, read));
  for (const isl::pw_aff& index : s.indices) op.indices.push_back(at_loops(plan, statement, index));
  op.value = s.value;
  op.reduction = s.reduction;
  mark_dims(plan, statement, op);
  if (guard.guarded && !box.exact) {
    op.guard = guard_of(plan, statement, box);
    op.fill = guard.fill;
    const isl::map stored = touched_by(statement, s.write, box.hull);
    if (s.reduction && !stored.is_subset(room(statement, storage.tensors.at(s.write.tensor)))) {
      const isl::set results = with_terms(statement, box, op.dims).gist(flattened(box.hull));
      const IntExpr condition = to_condition(results, statement.all_names(plan));
      if (condition.defined()) op.guard = condition && op.guard;
    }
  }
  classify(op);
  return op;
}

void classify(TileOp& op, bool any_index) {
  const bool ordered =
      std::any_of(op.dims.begin(), op.dims.end(), [](const OpDim& dim) { return !dim.parallel && !dim.reduced; });
  const bool reads_result =
      std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == op.write.buffer; });
  op.contraction.reset();
  const bool writes_once = writes_once_per_point(op) || (any_index && !op.reduction && !reads_result);
  if (ordered || !writes_once || (op.reduction && reads_result)) {
    op.kind = OpKind::points;
  } else if (op.reduction) {
    op.contraction = contraction_over_dims(op);
    op.kind = op.contraction ? OpKind::contract : OpKind::reduce;
  } else {
    op.kind = is_plain_read(op.value) ? OpKind::copy : OpKind::map;
  }
}

}  // namespace nestor
