// From a proved schedule to a tile program: the loop tree becomes loops, each statement an op at its place.
#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/mask_cnf.h"
#include "codegen/tile/build/claims.h"
#include "codegen/tile/build/composite_ops.h"
#include "codegen/tile/build/index_bounds.h"
#include "codegen/tile/build/op_builder.h"
#include "codegen/tile/build/program_passes.h"
#include "codegen/tile/build/staging.h"
#include "codegen/tile/build/variants.h"
#include "codegen/tile/tile_program.h"
#include "poly/isl/conjunction.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
#include "support/debug.h"
#include "support/error.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

namespace nestor {
namespace {

TileTree shared(TileNode node) { return std::make_shared<const TileNode>(std::move(node)); }

TileTree op_node(TileOp op) {
  TileNode out;
  out.kind = TileNode::Kind::op;
  out.op = std::move(op);
  return shared(std::move(out));
}

/// One node of several, without nested sequences.
TileTree sequence(std::vector<TileTree> children) {
  TileNode out;
  for (TileTree& child : children) {
    if (child->kind == TileNode::Kind::sequence) {
      out.children.insert(out.children.end(), child->children.begin(), child->children.end());
    } else {
      out.children.push_back(std::move(child));
    }
  }
  return out.children.size() == 1 ? out.children[0] : shared(std::move(out));
}

void collect_leaves(const Tree& node, std::vector<std::string>& out) {
  if (node->kind == TreeNode::Kind::leaf) out.push_back(node->name);
  for (const Tree& child : node->children) collect_leaves(child, out);
}

/// { [outer] -> [last] } from { [outer, last] }
isl::map last_as_range(const isl::set& loops) {
  const unsigned outer = static_cast<unsigned>(isl_set_dim(loops.get(), isl_dim_set)) - 1;
  return isl::manage(isl_map_move_dims(isl_map_from_range(loops.copy()), isl_dim_in, 0, isl_dim_out, 0, outer));
}

/// Where scanning has arrived: what is known of the loops around, and the parts of specialised loops chosen.
struct Position {
  std::size_t depth = 0;
  isl::set known;  ///< { [loops around] }
  PartChoice choice;
};

class ProgramBuilder {
 public:
  explicit ProgramBuilder(const Schedule& schedule)
      : schedule_(schedule),
        plan_(make_plan(schedule)),
        storage_(place_tensors(plan_)),
        composites_(schedule.active_composites()),
        previous_(add_previous_values(plan_, storage_)),
        stages_(plan_stages(plan_, storage_)),
        variants_(plan_, storage_) {}

  TileProgram build() {
    TileProgram program;
    const Nest& nest = schedule_.nest();
    program.name = program_variable("nestor_" + nest.op + "_" + nest.variant);
    for (const SizeParam& size : nest.sizes) program.sizes.push_back(size.name);
    program.fixed_sizes = plan_.fixed;
    program.scalars = nest.scalars;
    isl_set* anywhere = isl_set_universe(isl_space_set_from_params(isl_set_get_space(plan_.context.get())));
    program.root = scan(plan_.tree, {0, isl::manage(isl_set_intersect_params(anywhere, plan_.context.copy())), {}});
    program.buffers = claimed_buffers(plan_, storage_, previous_, stages_);
    program.valid = size_constraints(full_context(plan_.schedule->nest()));
    for (SizeConstraint& bound : bounds_of_index_values(nest)) program.valid.push_back(std::move(bound));
    if (const std::int64_t largest = schedule_.guarded_sizes(); largest < std::numeric_limits<std::int32_t>::max()) {
      for (const SizeParam& size : nest.sizes) program.valid.push_back({{{size.name, -1}}, largest});
    }
    for (const Composite& composite : schedule_.composites()) {
      const bool active =
          std::any_of(composites_.begin(), composites_.end(), [&](const Composite& a) { return a.lead == composite.lead; });
      if (!active) program.composites.push_back(composite);
    }
    return finish(std::move(program));
  }

 private:
  TileTree scan(const Tree& node, const Position& at) {
    if (node->kind == TreeNode::Kind::leaf) return scan_leaf(node->name, at);
    if (node->kind == TreeNode::Kind::loop && is_outer(node, at.depth)) return scan_loop(node, at);
    std::vector<TileTree> children;
    for (const Tree& child : node->children) children.push_back(scan(child, at));
    return sequence(std::move(children));
  }

  /// Loops further in are dims of ops.
  bool is_outer(const Tree& loop, std::size_t depth) const {
    std::vector<std::string> leaves;
    collect_leaves(loop, leaves);
    return plan_.plan(leaves.front()).outer.size() > depth;
  }

  TileTree scan_loop(const Tree& loop, const Position& at) {
    const bool cut = variants_.is_cut(loop->name);
    std::vector<TileTree> parts;
    for (int part = 0; part < (cut ? Variants::kParts : 1); ++part) {
      Position inside = at;
      if (cut) inside.choice[loop->name] = part;
      if (TileTree scanned = scan_part(loop, inside)) parts.push_back(std::move(scanned));
    }
    return sequence(std::move(parts));
  }

  /// Iterations { [loops around, loop] } of each statement below that has some, equal ones once; of blocks with tensor cores without those
  /// that another one has too, so that no condition stands between the blocks and what is in them.
  std::vector<isl::set> iterations(const Tree& loop, const Position& at) const {
    std::vector<std::string> leaves;
    collect_leaves(loop, leaves);
    std::vector<isl::set> out;
    for (const std::string& leaf : leaves) {
      const isl::set own = first_loops(variants_.domain(plan_.plan(leaf), at.choice), at.depth + 1).coalesce();
      if (own.is_empty()) continue;
      const auto has_all = [&](const isl::set& all, const isl::set& some) {
        return plan_.tensor_cores ? some.is_subset(all) : some.is_equal(all);
      };
      if (std::any_of(out.begin(), out.end(), [&](const isl::set& other) { return has_all(other, own); })) continue;
      std::erase_if(out, [&](const isl::set& other) { return has_all(own, other); });
      out.push_back(own);
    }
    // Parts on both sides of a diagonal are one loop with bounds of its own.
    if (plan_.tensor_cores && out.size() > 1) {
      isl::set all = out.front();
      for (const isl::set& other : out) all = all.unite(other).coalesce();
      if (isl_set_n_basic_set(all.get()) == 1) return {all};
    }
    return out;
  }

  /// The loop for one part (the whole loop when it is not specialised); null when nothing runs in it.
  TileTree scan_part(const Tree& loop, Position at) {
    const std::vector<isl::set> sets = iterations(loop, at);
    if (sets.empty()) return nullptr;
    std::vector<std::string> leaves;
    collect_leaves(loop, leaves);
    DimNames names = plan_.plan(leaves.front()).outer_dim_names(plan_);
    names.inputs.resize(at.depth);
    TileNode out;
    out.kind = TileNode::Kind::loop;
    out.var = program_variable(loop->name);
    out.loop_kind = loop->loop_kind;
    out.factor = loop->factor;
    out.knobs = loop->knobs;
    const isl::set around = at.known;
    IntExpr condition;
    isl_set* lifted = isl_set_add_dims(around.copy(), isl_dim_set, 1);
    for (const isl::set& set : sets) {
      const isl::map values = last_as_range(set);
      const bool implied = plan_.tensor_cores && sets.size() == 1 && bounds_imply_domain(values, around, names);
      const Interval interval =
          bounds_of(values, sets.size() == 1 && !implied ? around.intersect(values.domain()) : around, names);
      out.lower = out.lower.defined() ? min(out.lower, interval.lower) : interval.lower;
      out.upper = out.upper.defined() ? max(out.upper, interval.upper) : interval.upper;
      if (sets.size() > 1) continue;
      if (!implied) condition = remaining_condition(values.domain(), around, names);
      lifted = isl_set_intersect(lifted, isl_set_flatten(isl_map_wrap(interval.filled.copy())));
    }
    at.known = isl::manage(isl_set_reset_tuple_id(lifted)).coalesce();
    ++at.depth;
    IntExpr used;  // at which iterations something runs
    if (sets.size() == 1 && !has_tasks(loop)) {
      names.inputs.push_back(out.var);
      used = remaining_condition(sets[0], at.known, names);
      if (used.defined()) at.known = at.known.intersect(sets[0]).coalesce();
      if (!used.defined() && plan_.tensor_cores) cut_to_points(leaves, at, names, out);
    }
    std::vector<TileTree> body = staged_copies(loop->name, at);
    body.push_back(scan(loop->children[0], at));
    out.children = {guarded(used, sequence(std::move(body)))};
    return guarded(condition, shared(std::move(out)));
  }

  /// Cuts the loop to the iterations at which statements have points, if a quotient of its variable ends a stretch of them; these are known then.
  /// Else guards leave out tiles without points.
  void cut_to_points(const std::vector<std::string>& leaves, Position& at, const DimNames& names, TileNode& loop) {
    std::optional<isl::set> some;
    for (const std::string& leaf : leaves) {
      const OpBox* box = variants_.box(plan_.plan(leaf), at.choice);
      if (box == nullptr) continue;
      const isl::set own = first_loops(box->points.domain(), at.depth);
      some = some ? some->unite(own) : own;
    }
    if (!some || at.known.is_subset(*some)) return;
    IntExpr lower = loop.lower, upper = loop.upper;
    for (const IntExpr& clause : nvptx::clauses_of(remaining_condition(some->coalesce(), at.known, names))) {
      const std::vector<IntExpr> alternatives = nvptx::alternatives_of(clause);
      if (alternatives.size() != 1) return;
      const IntExpr distance = nvptx::linear_along(alternatives.front(), loop.var);
      const std::int64_t slope = distance.coefficient(loop.var).value_or(0);
      const IntExpr rest = distance.substitute(loop.var, IntExpr(0));
      if (slope == 0) return;
      if (slope < 0) upper = min(upper, floor_div(rest, -slope) + IntExpr(1));
      if (slope > 0) lower = max(lower, floor_div(IntExpr(slope - 1) - rest, slope));
    }
    loop.lower = lower;
    loop.upper = upper;
    at.known = at.known.intersect(*some).coalesce();
  }

  /// Have the bounds of a loop no iteration where the loop around it leaves it out? Then it needs no condition around it.
  static bool bounds_imply_domain(const isl::map& values, const isl::set& around, const DimNames& names) {
    if (around.is_subset(values.domain())) return true;
    const std::optional<isl::map> written = bounds_of(values, around, names).written;
    return written && written->intersect_domain(around.subtract(values.domain())).is_empty();
  }

  /// Is the loop, or one in it, one over tasks? These must follow each other without a condition between them.
  static bool has_tasks(const Tree& node) {
    return (node->kind == TreeNode::Kind::loop && is_task_loop(node->loop_kind)) ||
           std::any_of(node->children.begin(), node->children.end(), has_tasks);
  }

  /// What of `domain` does not follow from `known`; undefined when all of it does.
  IntExpr remaining_condition(const isl::set& domain, const isl::set& known, const DimNames& names) const {
    if (known.is_subset(domain)) return {};
    const isl::set rest = domain.gist(known);
    return to_condition(plan_.tensor_cores ? with_few_constraints(rest, known) : rest, names);
  }

  static TileTree guarded(const IntExpr& condition, TileTree node) {
    if (!condition.defined()) return node;
    TileNode out;
    out.kind = TileNode::Kind::condition;
    out.condition = condition;
    out.children = {std::move(node)};
    return shared(std::move(out));
  }

  std::vector<TileTree> staged_copies(const std::string& loop, const Position& at) const {
    std::vector<TileTree> copies;
    for (const StagePlan& stage : stages_) {
      if (stage.loop != loop) continue;
      std::optional<isl::set> needed;
      for (const std::string& reader : stage.readers) {
        const isl::set own = first_loops(variants_.domain(plan_.plan(reader), at.choice), at.depth);
        needed = needed ? needed->unite(own) : own;
      }
      if (!needed || needed->is_empty()) continue;
      DimNames names = stage.reader->outer_dim_names(plan_);
      names.inputs.resize(at.depth);
      copies.push_back(
          guarded(remaining_condition(needed->coalesce(), at.known, names), op_node(stage_op(plan_, storage_, stage, at.known))));
    }
    return copies;
  }

  TileTree scan_leaf(const std::string& name, const Position& at) {
    const StatementPlan& statement = plan_.plan(name);
    const OpBox* box = variants_.box(statement, at.choice);
    if (box == nullptr) return sequence({});
    std::vector<TileTree> nodes;
    for (TileOp& op : ops_at(statement, *box, at.choice)) nodes.push_back(op_node(std::move(op)));
    if (runs_at_all(statement, *box, at)) return sequence(std::move(nodes));
    return guarded(remaining_condition(box->hull.domain(), at.known, statement.outer_dim_names(plan_)),
                   sequence(std::move(nodes)));
  }

  /// May the statement's op run at all iterations around it, those without points of its own too? On tensor cores a product needs no condition
  /// around it then, as where a mask leaves out the tiles of which others store zeros.
  bool runs_at_all(const StatementPlan& statement, const OpBox& box, const Position& at) {
    const std::string& name = statement.statement->name;
    const isl::set others = at.known.subtract(box.hull.domain());
    if (!plan_.tensor_cores || others.is_empty()) return false;
    const GuardPlan guard = variants_.guard(statement, at.choice);
    const auto composed = [&](const Composite& composite) {
      return composite.lead == name || sees_running_value(composite, name);
    };
    if ((guard.guarded && !box.exact) || guard.fill || std::any_of(composites_.begin(), composites_.end(), composed))
      return false;
    isl_map* extra =
        isl_map_from_domain_and_range(others.copy(), isl_set_universe(isl_space_set_alloc(isl_context().get(), 0, 0)));
    for (const Interval& dim : box.dims)
      extra = dim.written ? isl_map_flat_range_product(extra, dim.written->copy()) : isl_map_free(extra);
    return extra != nullptr && may_run_at(plan_, storage_, statement, isl::manage(extra));
  }

  static bool sees_running_value(const Composite& composite, const std::string& statement) {
    return std::find(composite.mediators.begin(), composite.mediators.end(), statement) != composite.mediators.end() ||
           std::any_of(composite.followers.begin(), composite.followers.end(),
                       [&](const Follower& f) { return f.statement == statement; });
  }

  std::vector<TileOp> ops_at(const StatementPlan& statement, const OpBox& box, const PartChoice& choice) {
    const std::string& name = statement.statement->name;
    const BoxOf boxes = [&](const std::string& other) { return variants_.box(plan_.plan(other), choice); };
    TileOp op = make_op(plan_, storage_, statement, box, variants_.guard(statement, choice));
    for (const Composite& composite : composites_) {
      if (sees_running_value(composite, name)) apply_view(plan_, composite, boxes, statement, op);
      if (composite.lead == name) return lead_ops(plan_, storage_, composite, previous_.at(name), op, boxes);
    }
    return {op};
  }

  const Schedule& schedule_;
  ProgramPlan plan_;
  Storage storage_;
  std::vector<Composite> composites_;
  std::map<std::string, Placement> previous_;
  std::vector<StagePlan> stages_;
  Variants variants_;
};

}  // namespace

TileProgram build_tile_program(const Schedule& schedule) {
  const DebugTimer timer("tile program");
  TileProgram program;
  with_isl_budget("building the tile program", [&] { program = ProgramBuilder(schedule).build(); });
  if (debug_enabled(DebugSwitch::tiles)) debug_log(DebugSwitch::tiles, describe(program));
  return program;
}

}  // namespace nestor
