// Splitting each statement's loops into program loops and op dims.
#include "codegen/tile/places/plan.h"

#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
#include "support/error.h"
#include "support/knobs.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/space.h>

#include <algorithm>
#include <cctype>

namespace nestor {
namespace {

/// What is around a node: no loop over tasks, such loops alone (which it may form a grid with), or a task and something else.
enum class Around : std::uint8_t { nothing, grid, task };

bool has_stage(const Schedule& schedule, const std::string& loop) {
  const auto& stages = schedule.stages();
  return std::any_of(stages.begin(), stages.end(), [&](const StageDirective& stage) { return stage.loop == loop; });
}

/// Loops over tasks directly inside one another are one grid. Any other one within a task is run by that task, so it is serial here:
/// what it shares with its surroundings in scratch stays within one task.
Tree with_one_grid(const Schedule& schedule, const Tree& node, Around around) {
  if (node->kind == TreeNode::Kind::leaf) return node;
  TreeNode out = *node;
  if (node->kind == TreeNode::Kind::sequence) {
    if (around == Around::grid && node->children.size() > 1) around = Around::task;
  } else if (!is_task_loop(node->loop_kind)) {
    around = around == Around::nothing ? Around::nothing : Around::task;
  } else if (around == Around::task) {
    out.loop_kind = LoopKind::serial;
    out.factor = 0;
    out.knobs.clear();
  } else {
    around = has_stage(schedule, node->name) ? Around::task : Around::grid;
  }
  for (Tree& child : out.children) child = with_one_grid(schedule, child, around);
  return std::make_shared<const TreeNode>(std::move(out));
}

struct Path {
  std::string statement;
  std::vector<const TreeNode*> loops;
};

/// All leaves below `node` with the loops around them.
void collect_paths(const Tree& node, std::vector<const TreeNode*>& around, std::vector<Path>& out) {
  if (node->kind == TreeNode::Kind::leaf) {
    out.push_back({node->name, around});
    return;
  }
  const bool loop = node->kind == TreeNode::Kind::loop;
  if (loop) around.push_back(node.get());
  for (const Tree& child : node->children) collect_paths(child, around, out);
  if (loop) around.pop_back();
}

bool is_private(const TreeNode* loop) {
  const TreeNode* node = loop;
  while (node->kind != TreeNode::Kind::leaf) {
    if (node->children.size() != 1) return false;
    node = node->children[0].get();
  }
  return true;
}

bool spreads_over_lanes(LoopKind kind) { return kind == LoopKind::vectorize || kind == LoopKind::gpu_lane; }

/// Do the iterations of this loop, and of all loops in it, run inside ops? So do private loops, and shared ones whose iterations run
/// side by side. A loop is a program loop for all statements below it or for none.
bool runs_inside_ops(const TreeNode& node) {
  const bool loop = node.kind == TreeNode::Kind::loop;
  if (loop && (is_task_loop(node.loop_kind) || !(is_private(&node) || spreads_over_lanes(node.loop_kind)))) return false;
  return std::all_of(node.children.begin(), node.children.end(), [](const Tree& child) { return runs_inside_ops(*child); });
}

std::size_t first_inner_loop(const Path& path) {
  const auto first =
      std::find_if(path.loops.begin(), path.loops.end(), [](const TreeNode* loop) { return runs_inside_ops(*loop); });
  return static_cast<std::size_t>(first - path.loops.begin());
}

/// { [loops] -> Statement[dims] } from the linear forms.
isl::multi_aff instance_map(const isl::space& params, const Statement& statement, const LoopForm& form,
                            const std::vector<std::string>& loops) {
  const isl::space domain = params.add_unnamed_tuple(static_cast<unsigned>(loops.size()));
  isl_aff_list* affs = isl_aff_list_alloc(domain.ctx().get(), static_cast<int>(form.dims.size()));
  for (const LinearForm& linear : form.dims) {
    isl_aff* aff = isl_aff_zero_on_domain(isl_local_space_from_space(domain.copy()));
    for (const auto& [loop, coefficient] : linear.terms) {
      const auto at = std::find(loops.begin(), loops.end(), loop);
      if (at == loops.end()) {
        isl_aff_free(aff);
        isl_aff_list_free(affs);
        internal_error("statement {} is not inside loop {}", statement.name, loop);
      }
      aff = isl_aff_set_coefficient_si(aff, isl_dim_in, static_cast<int>(at - loops.begin()), static_cast<int>(coefficient));
    }
    affs = isl_aff_list_add(affs, isl_aff_set_constant_si(aff, static_cast<int>(linear.constant)));
  }
  const isl::space range = params.add_named_tuple(statement.name, static_cast<unsigned>(form.dims.size()));
  isl_space* space = isl_space_map_from_domain_and_range(domain.copy(), range.copy());
  return isl::manage(isl_multi_aff_from_aff_list(space, affs));
}

PlannedLoop planned(const TreeNode* loop) { return {loop->name, loop->loop_kind, loop->factor, loop->specialized}; }

/// { [outer] -> [inner] } from the range { [outer, inner] } of the loop relation.
isl::map split_range(const isl::set& range, std::size_t outer) {
  isl_map* map = isl_map_from_range(isl_set_reset_tuple_id(range.copy()));
  return isl::manage(isl_map_move_dims(map, isl_dim_in, 0, isl_dim_out, 0, static_cast<unsigned>(outer)));
}

StatementPlan plan_statement(const Schedule& schedule, const isl::set& context, const Path& path) {
  StatementPlan plan;
  const Nest& nest = schedule.nest();
  plan.statement = &nest.statement(path.statement);
  const std::size_t first_inner = first_inner_loop(path);
  for (std::size_t k = 0; k < path.loops.size(); ++k)
    (k < first_inner ? plan.outer : plan.inner).push_back(planned(path.loops[k]));
  plan.loops = schedule.loop_relation(path.statement).intersect_domain(plan.statement->domain.intersect_params(context));
  plan.points = split_range(plan.loops.range(), first_inner);
  plan.instance = instance_map(context.space(), *plan.statement, schedule.form(path.statement), plan.loop_names());
  return plan;
}

std::map<std::string, std::int64_t> fixed_values(const isl::set& context) {
  std::map<std::string, std::int64_t> fixed;
  for (int k = 0; k < isl_set_dim(context.get(), isl_dim_param); ++k) {
    isl_val* value = isl_set_plain_get_val_if_fixed(context.get(), isl_dim_param, static_cast<unsigned>(k));
    if (value != nullptr && isl_val_is_int(value) == isl_bool_true) {
      fixed[isl_set_get_dim_name(context.get(), isl_dim_param, static_cast<unsigned>(k))] = isl_val_get_num_si(value);
    }
    isl_val_free(value);
  }
  return fixed;
}

}  // namespace

std::string program_variable(const std::string& loop) {
  std::string name = loop;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

bool is_task_loop(LoopKind kind) { return kind == LoopKind::parallel || kind == LoopKind::gpu_block; }

std::vector<std::string> StatementPlan::loop_names() const {
  std::vector<std::string> names = outer_names();
  for (const PlannedLoop& loop : inner) names.push_back(loop.name);
  return names;
}

std::vector<std::string> StatementPlan::outer_names() const {
  std::vector<std::string> names;
  names.reserve(outer.size());
  for (const PlannedLoop& loop : outer) names.push_back(loop.name);
  return names;
}

DimNames StatementPlan::outer_dim_names(const ProgramPlan& plan) const {
  std::vector<std::string> names = outer_names();
  std::transform(names.begin(), names.end(), names.begin(), program_variable);
  return plan.names(std::move(names));
}

DimNames StatementPlan::all_names(const ProgramPlan& plan) const {
  std::vector<std::string> names = loop_names();
  std::transform(names.begin(), names.end(), names.begin(), program_variable);
  return plan.names(std::move(names));
}

bool StatementPlan::inside_parallel(std::size_t depth) const {
  return std::any_of(outer.begin(), outer.begin() + static_cast<std::ptrdiff_t>(depth),
                     [](const PlannedLoop& loop) { return is_task_loop(loop.kind); });
}

const StatementPlan& ProgramPlan::plan(const std::string& statement) const { return statements.at(index.at(statement)); }

namespace {

bool has_tensor_cores(const Tree& node) {
  return grid_shape(node->knobs).warpgroups > 0 || std::any_of(node->children.begin(), node->children.end(), has_tensor_cores);
}

}  // namespace

ProgramPlan make_plan(const Schedule& schedule) {
  ProgramPlan plan;
  plan.schedule = &schedule;
  plan.context = shape_context(schedule.nest());
  plan.fixed = fixed_values(plan.context);
  plan.tree = with_one_grid(schedule, schedule.tree(), Around::nothing);
  plan.tensor_cores = has_tensor_cores(plan.tree);
  std::vector<Path> paths;
  std::vector<const TreeNode*> around;
  collect_paths(plan.tree, around, paths);
  for (const Path& path : paths) {
    plan.index[path.statement] = plan.statements.size();
    plan.statements.push_back(plan_statement(schedule, plan.context, path));
  }
  return plan;
}

std::size_t shared_outer_loops(const StatementPlan& a, const StatementPlan& b) {
  std::size_t depth = 0;
  while (depth < a.outer.size() && depth < b.outer.size() && a.outer[depth].name == b.outer[depth].name) ++depth;
  return depth;
}

isl::map footprint(const StatementPlan& plan, const Access& access, std::size_t depth) {
  const unsigned loops = static_cast<unsigned>(plan.outer.size() + plan.inner.size());
  isl_map* touched = isl_map_apply_range(isl_map_reverse(plan.loops.copy()), access.relation.copy());
  return isl::manage(
      isl_map_project_out(touched, isl_dim_in, static_cast<unsigned>(depth), loops - static_cast<unsigned>(depth)));
}

}  // namespace nestor
