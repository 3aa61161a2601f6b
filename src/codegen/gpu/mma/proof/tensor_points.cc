// Sets of points. Guards and bounds are those of the kernel's body; masks, roles and tested iterations those of the plan.
#include "codegen/gpu/mma/proof/tensor_points.h"

#include "codegen/proof/model/outcome.h"
#include "poly/isl/isl_tools.h"

#include <isl/constraint.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

constexpr const char* kNoIteration = "#iteration";
constexpr const char* kNoTerm = "#term";

isl::set bounded(const isl::set& set, int coordinate, bool upper, std::int64_t value) {
  const auto at = static_cast<unsigned>(coordinate);
  return isl::manage(upper ? isl_set_upper_bound_si(set.copy(), isl_dim_set, at, static_cast<int>(value))
                           : isl_set_lower_bound_si(set.copy(), isl_dim_set, at, static_cast<int>(value)));
}

isl::set between(const isl::set& set, int coordinate, std::int64_t count) {
  return bounded(bounded(set, coordinate, false, 0), coordinate, true, count - 1);
}

isl::set projected(const isl::set& set, int coordinate) {
  return isl::manage(isl_set_project_out(set.copy(), isl_dim_set, static_cast<unsigned>(coordinate), 1));
}

isl::set inserted(const isl::set& set, int coordinate) {
  return isl::manage(isl_set_insert_dims(set.copy(), isl_dim_set, static_cast<unsigned>(coordinate), 1));
}

isl::set at_zero(const isl::set& set, int coordinate) {
  return between(inserted(projected(set, coordinate), coordinate), coordinate, 1);
}

/// Sizes and coordinates of the block that bounds and conditions name.
std::set<std::string> parameter_names(const TensorPlan& plan) {
  std::set<std::string> names(plan.program->sizes.begin(), plan.program->sizes.end());
  for (const GridLoop& loop : plan.kernel->grid) names.insert(loop.var);
  for (const LaunchLoop& loop : plan.kernel->launch_loops) names.insert(loop.var);
  for (const SizeConstraint& constraint : plan.program->valid) {
    for (const auto& [name, factor] : constraint.terms) names.insert(name);
  }
  for (const auto& [name, value] : plan.program->fixed_sizes) names.insert(name);
  return names;
}

IntExpr linear(const SizeConstraint& constraint) {
  IntExpr sum(constraint.constant);
  for (const auto& [name, factor] : constraint.terms) sum = sum + IntExpr(factor) * IntExpr::variable(name);
  return sum;
}

std::vector<IntExpr> facts_of(const TensorPlan& plan) {
  std::vector<IntExpr> facts;
  const auto at_least = [&](const IntExpr& a, const IntExpr& b) { facts.push_back(IntExpr::make(IntOp::ge, {a, b})); };
  for (const SizeConstraint& constraint : plan.program->valid) {
    const IntExpr sum = linear(constraint);
    if (constraint.modulus > 0) {
      facts.push_back(IntExpr::make(IntOp::eq, {mod(sum, constraint.modulus), IntExpr(0)}));
    } else {
      facts.push_back(IntExpr::make(constraint.equality ? IntOp::eq : IntOp::ge, {sum, IntExpr(0)}));
    }
  }
  for (const auto& [name, value] : plan.program->fixed_sizes)
    facts.push_back(IntExpr::make(IntOp::eq, {IntExpr::variable(name), IntExpr(value)}));
  for (const LaunchLoop& loop : plan.kernel->launch_loops) {
    at_least(IntExpr::variable(loop.var), loop.lower);
    at_least(loop.upper - IntExpr(1), IntExpr::variable(loop.var));
  }
  for (const GridLoop& loop : plan.kernel->grid) {
    const IntExpr from_lower = IntExpr::variable(loop.var) - loop.lower;
    at_least(from_lower, IntExpr(0));
    at_least(IntExpr(loop.step) * (loop.count - IntExpr(1)), from_lower);
    if (loop.step > 1) facts.push_back(IntExpr::make(IntOp::eq, {mod(from_lower, loop.step), IntExpr(0)}));
  }
  if (plan.kernel->condition.defined()) facts.push_back(plan.kernel->condition);
  return facts;
}

void add_names(const IntExpr& expr, std::set<std::string>& names) {
  if (expr.defined()) collect_variables(expr, names);
}

void add_names(const EventNode& node, std::set<std::string>& names) {
  for (const IntExpr& expr : {node.lower, node.upper, node.condition}) add_names(expr, names);
  for (const EventNode& child : node.children) add_names(child, names);
}

/// What bounds, guards and masks name, and what facts about those name in turn.
std::set<std::string> names_in_bounds(const TensorProof& proof, const std::vector<const TileOp*>& body) {
  std::set<std::string> names;
  add_names(proof.plan.consumer, names);
  for (const OpPlace& place : proof.places) {
    for (const IntExpr& expr : {place.lower, place.upper, place.condition}) add_names(expr, names);
  }
  for (const TileOp* op : body) {
    add_names(op->guard, names);
    for (const OpDim& dim : op->dims) {
      add_names(dim.lower, names);
      add_names(dim.upper, names);
    }
  }
  for (const TensorOp& op : proof.plan.ops) {
    for (const IntExpr& condition : op.mask) add_names(condition, names);
    for (const IntExpr& condition : op.memory_mask) add_names(condition, names);
  }
  const std::vector<IntExpr> facts = facts_of(proof.plan);
  for (std::size_t before = 0; before != names.size();) {
    before = names.size();
    for (const IntExpr& fact : facts) {
      std::set<std::string> own;
      add_names(fact, own);
      if (std::any_of(own.begin(), own.end(), [&](const std::string& name) { return names.contains(name); })) names.merge(own);
    }
  }
  return names;
}

/// What holds of the parameters among `wanted`.
isl::set context_of(const TensorPlan& plan, const std::set<std::string>& wanted) {
  std::set<std::string> names;
  for (const std::string& name : parameter_names(plan)) {
    if (wanted.contains(name)) names.insert(name);
  }
  isl_space* space = isl_space_params_alloc(isl_context().get(), static_cast<unsigned>(names.size()));
  unsigned at = 0;
  for (const std::string& name : names) space = isl_space_set_dim_name(space, isl_dim_param, at++, name.c_str());
  const proof::IntSpace none({}, isl::manage(isl_set_universe(space)));
  isl::set known = none.universe();
  for (const IntExpr& fact : facts_of(plan)) {
    try {
      known = known.intersect(none.where(fact));
    } catch (const proof::OpenObligation&) {  // not linear: less is known
    }
  }
  return isl::manage(isl_set_params(isl_set_coalesce(known.release())));
}

/// lower <= at < upper. Bounds that are extrema or choices stand alone on their side: so they become conjunctions and unions.
isl::set within_bounds(const proof::IntSpace& space, const IntExpr& lower, const IntExpr& at, const IntExpr& upper) {
  return space.at_least(at, lower).intersect(space.at_least(upper, at + IntExpr(1)));
}

bool has_terms(const TensorOp& op) { return op.kind == TensorOp::Kind::product || op.kind == TensorOp::Kind::seldom; }

/// The op with dims of one value as these.
IntExpr at_single_values(const TensorOp& op, const TileOp& body, IntExpr expr) {
  for (int d = 0; d < static_cast<int>(body.dims.size()); ++d) {
    const bool has_role = d == op.row || d == op.column || d == op.pack || (has_terms(op) && d == op.form.k);
    const OpDim& dim = body.dims[static_cast<std::size_t>(d)];
    if (!has_role && expr.defined()) expr = expr.substitute(dim.var, dim.lower);
  }
  return expr;
}

/// Goes through a role's program with what is bound and tested around each event.
struct Untested {
  int op = -1;
  Event::Kind kind = Event::Kind::compute;
  const proof::IntSpace& space;
  isl::set found;
  bool tested = false;

  struct Around {
    std::string var;  ///< bound variable, and what its value and its loop's bounds are
    IntExpr value, lower, upper;
    std::vector<IntExpr> conditions;
    bool masked = true;
  };

  void visit(const EventNode& node, const Around& around) {
    if (node.kind == EventNode::Kind::event) {
      if (node.event.op == op && node.event.kind == kind) meet(around);
      return;
    }
    Around inner = around;
    if (node.kind == EventNode::Kind::condition) inner.conditions.push_back(node.condition);
    if (node.kind == EventNode::Kind::loop) {
      inner = {node.var, IntExpr::variable(node.var), node.lower, node.upper, around.conditions, node.masked};
    } else if (node.kind == EventNode::Kind::sequence && !node.var.empty()) {
      inner.value = around.var.empty() ? node.lower : node.lower.substitute(around.var, around.value);
      inner.var = node.var;
      inner.masked = node.masked;
    }
    for (const EventNode& child : node.children) visit(child, inner);
  }

  void meet(const Around& around) {
    if (around.masked) {
      tested = true;
      return;
    }
    isl::set where = space.universe();
    for (const IntExpr& condition : around.conditions) where = where.intersect(space.where(condition));
    if (!around.var.empty()) {
      const IntExpr at = IntExpr::variable(around.var);
      const bool moves = around.value.uses(around.var);
      // The counter of the loop at which the variable has this value.
      const IntExpr counter = at - (moves ? around.value.substitute(around.var, IntExpr(0)) : IntExpr(0));
      if (!moves) where = where.intersect(space.equal(at, around.value));
      if (around.lower.defined() && moves) where = where.intersect(within_bounds(space, around.lower, counter, around.upper));
    }
    found = found.unite(where);
  }
};

}  // namespace

PointReader::PointReader(TensorProof& proof) : proof_(proof) {
  body_ = ops_of(proof.plan.kernel->body);
  everything_ = context_of(proof.plan, parameter_names(proof.plan));
  context_ = context_of(proof.plan, names_in_bounds(proof, body_));
}

proof::IntSpace PointReader::space_of(int k, bool masks, const isl::set& context) const {
  const TensorOp& op = proof_.op(k);
  const bool product = op.kind == TensorOp::Kind::product;
  const auto name = [&](int dim, const std::string& none) {
    return dim < 0 ? none : body_op(k).dims[static_cast<std::size_t>(dim)].var;
  };
  const OpPlace& place = proof_.places[static_cast<std::size_t>(k)];
  const std::string iteration = place.loop < 0 ? kNoIteration : place.var;
  if (masks) return {{iteration, kPack, kRow, product ? "#column of a product" : kColumn, product ? kColumn : kNoTerm}, context};
  return {{iteration, name(op.pack, kPack), name(op.row, kRow), name(op.column, kColumn),
           has_terms(op) ? name(op.form.k, kNoTerm) : kNoTerm},
          context};
}

isl::set PointReader::iterations_of(int k, const proof::IntSpace& space) const {
  const OpPlace& place = proof_.places[static_cast<std::size_t>(k)];
  isl::set all = space.universe().intersect_params(context_);
  if (place.loop < 0) return between(all, kIteration, 1);
  const IntExpr at = IntExpr::variable(place.var);
  all = all.intersect(within_bounds(space, place.lower, at, place.upper));
  return place.condition.defined() ? all.intersect(space.where(place.condition)) : all;
}

/// Iterations without masks at which the events of this kind of the op stand.
isl::set PointReader::untested_of(int k, Event::Kind kind, const proof::IntSpace& space, bool& tested) const {
  Untested walk{k, kind, space, isl::manage(isl_set_empty(isl_set_get_space(space.universe().get())))};
  walk.visit(proof_.plan.consumer, {});
  tested = walk.tested;
  return walk.found;
}

isl::set PointReader::test_reads_of(int k, const proof::IntSpace& space) const {
  bool tested = false;
  isl::set reads = untested_of(k, Event::Kind::read_test, space, tested);
  const auto fragment = proof_.plan.fragments.find(proof_.op(k).op.write.buffer);
  reads = between(reads, kPlace, proof_.plan.pack);
  reads = between(reads, kTileRow, proof_.plan.work_tile_packs());
  reads = between(reads, kTileColumn, fragment == proof_.plan.fragments.end() ? 1 : fragment->second.columns);
  return between(reads, kTerm, 1);
}

Followed PointReader::followed(int k, const TileAccess& access) const {
  Followed result;
  const TensorOp& op = proof_.op(k);
  if (!proof_.plan.fragments.contains(access.buffer)) return result;
  for (const IntExpr& index : access.index) {
    const IntExpr value = at_single_values(op, body_op(k), index);
    const auto is = [&](int dim) {
      return dim >= 0 && affine_of(value) == affine_of(IntExpr::variable(body_op(k).dims[static_cast<std::size_t>(dim)].var));
    };
    const bool term = op.kind == TensorOp::Kind::product && is(op.form.k);
    char letter = '0';
    if (is(op.pack)) letter = 'p';
    if (is(op.row)) letter = 'r';
    if (is(op.column) || term) letter = 'c';
    if (letter == '0' && !affine_of(value).is_constant()) letter = '?';
    if (letter == '0' && affine_of(value).constant != 0) letter = '?';
    if (letter == '?' || (letter != '0' && result.by_index.find(letter) != std::string::npos))
      proof_.fail("{} reaches {} at {}, which is not its own row and column", op.op.name, proof_.plan.buffer(access.buffer).name,
                  index.str());
    result.by_index += letter;
    result.place = result.place || letter == 'p';
    result.row = result.row || letter == 'r';
    result.column = result.column || letter == 'c';
    result.from_term = result.from_term || term;
  }
  return result;
}

isl::set PointReader::conditions(int k, const std::vector<IntExpr>& all) const {
  const proof::IntSpace space = space_of(k, true, context_);
  isl::set where = space.universe();
  for (const IntExpr& condition : all)
    where = where.intersect(space.where(at_single_values(proof_.op(k), body_op(k), condition)));
  return where;
}

OpPoints PointReader::of(int k) const {
  const TensorOp& op = proof_.op(k);
  const TileOp& body = body_op(k);
  const proof::IntSpace space = space_of(k, false, context_);
  OpPoints result;
  result.iterations = iterations_of(k, space);
  const bool product = op.kind == TensorOp::Kind::product;
  const Event::Kind runs = product ? Event::Kind::narrow : Event::Kind::compute;
  result.untested = untested_of(k, runs, space, result.tested).intersect(result.iterations);
  result.test_reads = test_reads_of(k, space);
  isl::set dims = result.iterations, computed = result.iterations;
  const auto axis = [&](int dim, int coordinate, std::int64_t count) {
    if (dim < 0) {
      dims = between(dims, coordinate, 1);
      computed = between(computed, coordinate, 1);
      return;
    }
    const OpDim& of = body.dims[static_cast<std::size_t>(dim)];
    const IntExpr at = IntExpr::variable(of.var);
    dims = dims.intersect(within_bounds(space, at_single_values(op, body, of.lower), at, at_single_values(op, body, of.upper)));
    // The code of a seldom sum runs over the terms that there are.
    const bool as_it_is = coordinate == kTerm && !product;
    computed = as_it_is ? computed.intersect(within_bounds(space, of.lower, at, of.upper)) : between(computed, coordinate, count);
  };
  axis(op.pack, kPlace, proof_.plan.pack);
  axis(op.row, kTileRow, proof_.plan.work_tile_packs());
  const auto columns = op.column < 0 ? 1 : end_bound(body.dims[static_cast<std::size_t>(op.column)]).value_or(0);
  axis(op.column, kTileColumn, product ? op.n : (columns + 7) / 8 * 8);
  axis(has_terms(op) ? op.form.k : -1, kTerm, op.k);
  result.dims = dims;
  result.computed = computed;
  const IntExpr guard = at_single_values(op, body, body.guard);
  result.points = guard.defined() ? dims.intersect(space.where(guard)) : dims;
  result.mask = conditions(k, op.mask);
  result.memory_mask = conditions(k, op.memory_mask);
  result.write = followed(k, body.write);
  for (const TileAccess& read : body.reads) result.reads.push_back(followed(k, read));
  return result;
}

isl::set PointReader::within(int k, const TileAccess& access) const {
  const proof::IntSpace space = space_of(k, false, everything_);
  isl::set inside = space.universe();
  for (std::size_t p = 0; p < access.index.size(); ++p) {
    const IntExpr index = at_single_values(proof_.op(k), body_op(k), access.index[p]);
    inside = inside.intersect(space.at_least(index, IntExpr(0)))
                 .intersect(space.at_least(proof_.plan.buffer(access.buffer).extents[p] - IntExpr(1), index));
  }
  return inside;
}

isl::map PointReader::reached(int k, const isl::set& points, const TileAccess& access) const {
  const proof::IntSpace space = space_of(k, false, everything_);
  std::vector<isl::pw_aff> indices;
  for (const IntExpr& index : access.index) indices.push_back(space.value(at_single_values(proof_.op(k), body_op(k), index)));
  return relation_of(space.universe(), "element", indices).intersect_domain(known(points));
}

isl::set PointReader::equal(int k, const IntExpr& a, const IntExpr& b) const {
  const auto own = [&](const IntExpr& expr) { return at_single_values(proof_.op(k), body_op(k), expr); };
  return space_of(k, false, everything_).equal(own(a), own(b));
}

isl::set PointReader::elements(const isl::set& points, const Followed& access) {
  isl::set result = points;
  if (access.from_term) {  // the k becomes the column
    result = inserted(projected(result, kTileColumn), kTerm);
    result = between(result, kTerm, 1);
  } else {
    result = at_zero(result, kTerm);
  }
  if (!access.column) result = at_zero(result, kTileColumn);
  if (!access.row) result = at_zero(result, kTileRow);
  if (!access.place) result = at_zero(result, kPlace);
  return result;
}

isl::set PointReader::at_any_iteration(const isl::set& elements) { return inserted(projected(elements, kIteration), kIteration); }

isl::set PointReader::outside_of_loops(const isl::set& elements) { return between(at_any_iteration(elements), kIteration, 1); }

isl::set PointReader::tile(const OpPoints& op, int columns) const {
  isl::set all = between(op.iterations, kTerm, 1);
  all = between(all, kPlace, op.write.place ? proof_.plan.pack : 1);
  all = between(all, kTileRow, op.write.row ? proof_.plan.work_tile_packs() : 1);
  return between(all, kTileColumn, op.write.column ? columns : 1);
}

isl::set PointReader::columns_below(const isl::set& points, std::int64_t columns, int coordinate) {
  return bounded(points, coordinate, true, columns - 1);
}

}  // namespace nestor::nvptx
