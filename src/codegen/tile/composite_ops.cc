// The theorem of docs/algebra.md, one tile at a time: r := correction(r, m_old, m_new), then terms with m_new.
#include "codegen/tile/composite_ops.h"

#include "poly/isl_tools.h"
#include "support/error.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor {
namespace {

constexpr const char* kSavePrefix = "save ";
constexpr const char* kCorrectPrefix = "correct ";
constexpr const char* kHoldPrefix = "hold ";

/// How many reduction points of the lead come before a tile, up to its end, and in all.
struct PointCounts {
  IntExpr before;
  IntExpr through;
  IntExpr total;
};

bool mentions_scalar(const ScalarExpr& expr, const std::string& name) {
  bool found = false;
  expr.visit([&](const ScalarExpr& node) { found = found || (node.op() == ScalarOp::scalar && node.name() == name); });
  return found;
}

/// Positions of the lead's reduced dims: those its write does not use.
std::vector<int> reduced_dims(const Statement& s) {
  const std::vector<isl::pw_aff> indices = functions_of(s.write.relation);
  std::vector<int> reduced;
  for (std::size_t k = 0; k < s.dims.size(); ++k) {
    const bool used = std::any_of(indices.begin(), indices.end(), [&](const isl::pw_aff& index) {
      return isl_pw_aff_involves_dims(index.get(), isl_dim_in, static_cast<unsigned>(k), 1) == isl_bool_true;
    });
    if (!used) reduced.push_back(static_cast<int>(k));
  }
  return reduced;
}

/// Range { [outer] -> [value of dim k] } of the statement's instances at each outer iteration.
isl::map dim_values(const StatementPlan& plan, int dim, const isl::map& points) {
  const int count = isl_multi_aff_dim(plan.instance.get(), isl_dim_out);
  isl_map* instance = isl_map_from_multi_aff(plan.instance.copy());
  instance = isl_map_intersect_domain(instance, isl_set_flatten(isl_map_wrap(points.copy())));
  instance = isl_map_reset_tuple_id(instance, isl_dim_out);
  instance = isl_map_project_out(instance, isl_dim_out, static_cast<unsigned>(dim) + 1, static_cast<unsigned>(count - dim - 1));
  instance = isl_map_project_out(instance, isl_dim_out, 0, static_cast<unsigned>(dim));
  return isl::manage(isl_map_project_out(instance, isl_dim_in, static_cast<unsigned>(plan.outer.size()),
                                         static_cast<unsigned>(plan.inner.size())));
}

/// The composite's formulas depend on how many points were accumulated.
bool counts_points(const Composite& composite) {
  const auto counts = [](const ScalarExpr& expr) {
    return mentions_scalar(expr, "n") || mentions_scalar(expr, "n_old") || mentions_scalar(expr, "n_total");
  };
  return counts(composite.view) || std::any_of(composite.followers.begin(), composite.followers.end(),
                                               [&](const Follower& f) { return counts(f.correction); });
}

/// Counts along the one dense reduced dim that the rule's side conditions guarantee.
PointCounts count_points(const ProgramPlan& plan, const Composite& composite, const OpBox& box) {
  if (!counts_points(composite)) return {};
  const StatementPlan& lead = plan.plan(composite.lead);
  const std::vector<int> reduced = reduced_dims(*lead.statement);
  if (reduced.size() != 1) internal_error("composite of {}: the reduction must run over one dimension", lead.statement->name);
  const isl::map tile = dim_values(lead, reduced[0], box.points).coalesce();
  isl_map* everywhere = isl_map_project_out(dim_values(lead, reduced[0], lead.points).release(), isl_dim_in, 0,
                                            static_cast<unsigned>(lead.outer.size()));
  const DimNames names = lead.outer_dim_names(plan), none = plan.names({});
  const auto extreme = [](isl_map* map, bool low) {
    return isl::manage(isl_pw_aff_coalesce(low ? isl_map_dim_min(map, 0) : isl_map_dim_max(map, 0)));
  };
  const auto gisted = [&](const isl::pw_aff& f) { return isl::manage(isl_pw_aff_gist(f.copy(), tile.domain().release())); };
  const IntExpr first = to_int_expr(extreme(isl_map_copy(everywhere), true), none);
  const IntExpr last = to_int_expr(extreme(everywhere, false), none);
  const IntExpr low = to_int_expr(gisted(extreme(tile.copy(), true)), names);
  const IntExpr high = to_int_expr(gisted(extreme(tile.copy(), false)), names);
  return {low - first, high - first + IntExpr(1), last - first + IntExpr(1)};
}

/// Replaces scalar leaves by expressions.
ScalarExpr substitute(const ScalarExpr& expr, const std::map<std::string, ScalarExpr>& values) {
  return expr.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::scalar) return node;
    const auto found = values.find(node.name());
    return found == values.end() ? node : found->second;
  });
}

ScalarExpr as_float(int index_ordinal) { return ScalarExpr::cast(ElementType::f32, ScalarExpr::index(index_ordinal)); }

/// Adds an integer to the op's values; its ordinal.
int add_index(TileOp& op, const IntExpr& value) {
  op.indices.push_back(value);
  return static_cast<int>(op.indices.size()) - 1;
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

TileOp save_op(const TileOp& lead, int previous_buffer) {
  TileOp op;
  op.name = kSavePrefix + lead.name;
  op.claim.role = OpRole::save;
  op.claim.lead = lead.claim.statement;
  op.dims = kept_dims(lead);
  op.reads = {lead.write};
  op.write = lead.write;
  op.write.buffer = previous_buffer;
  op.value = ScalarExpr::read(0, ElementType::f32);
  op.kind = OpKind::copy;
  return op;
}

/// The leading value stays where it was unless it has grown beyond the composite's threshold.
TileOp hold_op(const Composite& composite, const TileOp& lead, int previous_buffer) {
  TileOp op = save_op(lead, previous_buffer);
  op.name = kHoldPrefix + lead.name;
  op.claim.role = OpRole::hold;
  std::swap(op.write, op.reads[0]);
  op.reads.push_back(lead.write);
  op.value = substitute(composite.held, {{"m_old", op.value}, {"m_new", ScalarExpr::read(1, ElementType::f32)}});
  op.kind = OpKind::map;
  return op;
}

TileOp correct_op(const ProgramPlan& plan, const Storage& storage, const Composite& composite, const Follower& follower,
                  int previous_buffer, const PointCounts& counts, const OpBox& box) {
  const StatementPlan& statement = plan.plan(follower.statement);
  if (statement.outer_names() != plan.plan(composite.lead).outer_names()) {
    user_error(
        "{} and {} accumulate together, so their tiles must lie in the same loops: keep further loops of {} innermost and "
        "private",
        composite.lead, follower.statement, follower.statement);
  }
  GuardPlan unguarded;
  unguarded.guarded = false;
  const TileOp accumulate = make_op(plan, storage, statement, box, unguarded);
  TileOp op;
  op.name = kCorrectPrefix + follower.statement;
  op.claim.role = OpRole::correct;
  op.claim.statement = follower.statement;
  op.claim.lead = composite.lead;
  op.dims = kept_dims(accumulate);
  op.write = accumulate.write;
  const TileAccess now =
      buffer_access(plan, storage.tensors.at(composite.lead_tensor), statement, lead_access(plan, composite, statement));
  TileAccess before = now;
  before.buffer = previous_buffer;
  op.reads = {accumulate.write, before, now};
  const bool counted = counts.total.defined();
  const auto count = [&](const IntExpr& value) { return counted ? as_float(add_index(op, value)) : ScalarExpr::constant(0); };
  const ScalarExpr n_before = count(counts.before), n_through = count(counts.through), total = count(counts.total);
  const ScalarExpr r = ScalarExpr::read(0, ElementType::f32);
  const ScalarExpr m_old =
      substitute(composite.view, {{"m", ScalarExpr::read(1, ElementType::f32)}, {"n", n_before}, {"n_total", total}});
  const ScalarExpr m_new =
      substitute(composite.view, {{"m", ScalarExpr::read(2, ElementType::f32)}, {"n", n_through}, {"n_total", total}});
  op.value =
      substitute(follower.correction, {{"r", r}, {"m_old", m_old}, {"m_new", m_new}, {"n_old", n_before}, {"n_total", total}});
  if (counted) {
    const ScalarExpr started = ScalarExpr::make(ScalarOp::lt, {ScalarExpr::constant(0), n_before});
    op.value = ScalarExpr::make(ScalarOp::select, {started, op.value, r});
  }
  op.kind = OpKind::map;
  op.seldom = composite.threshold > 0;
  return op;
}

}  // namespace

std::map<std::string, int> add_previous_values(const ProgramPlan& plan, Storage& storage) {
  std::map<std::string, int> previous;
  for (const Composite& composite : plan.schedule->active_composites()) {
    const Placement& placement = storage.tensors.at(composite.lead_tensor);
    Buffer buffer = storage.buffers[static_cast<std::size_t>(placement.buffer)];
    buffer.name += "_previous";
    previous[composite.lead] = static_cast<int>(storage.buffers.size());
    storage.buffers.push_back(std::move(buffer));
  }
  return previous;
}

std::vector<TileOp> lead_ops(const ProgramPlan& plan, const Storage& storage, const Composite& composite, int previous_buffer,
                             const TileOp& lead, const std::map<std::string, OpBox>& boxes) {
  const PointCounts counts = count_points(plan, composite, boxes.at(composite.lead));
  std::vector<TileOp> ops{save_op(lead, previous_buffer), lead};
  if (composite.threshold > 0) ops.push_back(hold_op(composite, lead, previous_buffer));
  for (const Follower& follower : composite.followers) {
    const auto box = boxes.find(follower.statement);
    if (box == boxes.end()) continue;
    ops.push_back(correct_op(plan, storage, composite, follower, previous_buffer, counts, box->second));
  }
  return ops;
}

void apply_view(const ProgramPlan& plan, const Composite& composite, const std::map<std::string, OpBox>& boxes,
                const StatementPlan& reader, TileOp& op) {
  if (is_identity(composite.view)) return;
  const PointCounts counts = count_points(plan, composite, boxes.at(composite.lead));
  const auto count = [&](const IntExpr& value) {
    return value.defined() ? as_float(add_index(op, value)) : ScalarExpr::constant(0);
  };
  const ScalarExpr n = count(counts.through), total = count(counts.total);
  op.value = op.value.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read ||
        reader.statement->reads[static_cast<std::size_t>(node.ordinal())].tensor != composite.lead_tensor)
      return node;
    return substitute(composite.view, {{"m", node}, {"n", n}, {"n_total", total}});
  });
}

}  // namespace nestor
