// Footprints of readers, and the copy that fills the staged buffer.
#include "codegen/tile/build/staging.h"

#include "codegen/tile/build/op_builder.h"
#include "support/error.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>

namespace nestor {
namespace {

std::optional<std::size_t> depth_inside(const StatementPlan& plan, const std::string& loop) {
  for (std::size_t k = 0; k < plan.outer.size(); ++k) {
    if (plan.outer[k].name == loop) return k + 1;
  }
  return std::nullopt;
}

StagePlan plan_stage(const ProgramPlan& plan, const StageDirective& directive, Storage& storage) {
  StagePlan stage;
  stage.tensor = directive.tensor;
  stage.loop = directive.loop;
  std::optional<isl::map> elements;
  bool tasks_read = false;
  for (const StatementPlan& statement : plan.statements) {
    const auto depth = depth_inside(statement, directive.loop);
    for (const Access& read : statement.statement->reads) {
      if (!depth || read.tensor != directive.tensor) continue;
      const isl::map part = footprint(statement, read, *depth);
      elements = elements ? elements->unite(part) : part;
      stage.reader = &statement;
      stage.depth = *depth;
      stage.readers.push_back(statement.statement->name);
      tasks_read = tasks_read || statement.inside_parallel(statement.outer.size());
    }
  }
  if (!elements)
    user_error("stage({}, {}): no statement whose tile lies inside the loop reads {}", directive.tensor, directive.loop,
               directive.tensor);
  const Placement& source = storage.tensors.at(directive.tensor);
  if (source.depth != 0)
    user_error("stage({}, {}): {} is already local to the loop {}", directive.tensor, directive.loop, directive.tensor,
               source.scope.back());
  Buffer buffer = buffer_for(plan.schedule->nest().tensor(directive.tensor), Memory::scratch);
  buffer.role = TensorRole::temporary;
  buffer.stages = directive.stages;
  buffer.name += "_staged_" + std::to_string(storage.buffers.size());
  stage.placement = fit_buffer(plan, plan.schedule->nest().tensor(directive.tensor), elements->coalesce(), false, buffer);
  stage.placement.depth = stage.depth;
  for (std::size_t k = 0; k < stage.depth; ++k) stage.placement.scope.push_back(stage.reader->outer[k].name);
  if (!stage.reader->inside_parallel(stage.depth) && tasks_read) buffer.memory = Memory::workspace;
  stage.placement.buffer = static_cast<int>(storage.buffers.size());
  storage.buffers.push_back(std::move(buffer));
  for (const std::string& reader : stage.readers) storage.staged[{reader, stage.tensor}] = stage.placement;
  return stage;
}

/// { [scope] -> [x] } index `k` relative to the copy's origin, of elements that the copy has room for and the tensor has.
isl::map present_elements(const Placement& copy, const Placement& source, std::size_t k) {
  isl_map* elements = isl_map_intersect_range(copy.held.copy(), source.held.range().release());
  const int rank = isl_map_dim(elements, isl_dim_out);
  elements = isl_map_reset_tuple_id(elements, isl_dim_out);
  elements = isl_map_project_out(elements, isl_dim_out, static_cast<unsigned>(k) + 1, static_cast<unsigned>(rank - 1) - k);
  elements = isl_map_project_out(elements, isl_dim_out, 0, static_cast<unsigned>(k));
  isl_map* back = isl_map_from_aff(isl_aff_neg(copy.origin[k].copy()));
  // Sizes may stand in another order where a rule of algebra made the readers.
  elements = isl_map_align_params(elements, isl_map_get_space(back));
  back = isl_map_align_params(back, isl_map_get_space(elements));
  return isl::manage(isl_map_sum(elements, back)).coalesce();
}

}  // namespace

std::vector<StagePlan> plan_stages(const ProgramPlan& plan, Storage& storage) {
  std::vector<StagePlan> stages;
  for (const StageDirective& directive : plan.schedule->stages()) stages.push_back(plan_stage(plan, directive, storage));
  return stages;
}

TileOp stage_op(const ProgramPlan& plan, const Storage& storage, const StagePlan& stage, const isl::set& known) {
  std::vector<std::string> scope;
  scope.reserve(stage.placement.scope.size());
  for (const std::string& loop : stage.placement.scope) scope.push_back(program_variable(loop));
  const DimNames names = plan.names(scope);
  const Buffer& staged = storage.buffers[stage.placement.buffer];
  const Placement& source = storage.tensors.at(stage.tensor);
  TileOp op;
  op.kind = OpKind::copy;
  op.name = "stage " + stage.tensor;
  op.claim.role = OpRole::stage;
  op.write.buffer = stage.placement.buffer;
  op.reads = {TileAccess{source.buffer, {}}};
  op.value = ScalarExpr::read(0, staged.type);
  for (std::size_t k = 0; k < staged.extents.size(); ++k) {
    const IntExpr origin = to_int_expr(stage.placement.origin[k], names);
    const isl::map present = present_elements(stage.placement, source, k);
    const Interval interval = bounds_of(present, known, names);
    if (!interval.filled.intersect_domain(known).is_subset(present)) {
      user_error("stage({}, {}): the elements of index {} that the tensor has there are no interval; stage it at another loop",
                 stage.tensor, stage.loop, k);
    }
    OpDim dim;
    dim.var = program_variable("stage_" + stage.tensor + "_" + std::to_string(k));
    dim.lower = interval.lower;
    dim.upper = interval.upper;
    dim.max_extent = interval.max_extent ? interval.max_extent : staged.extents[k].as_constant();
    dim.parallel = true;
    op.write.index.push_back(IntExpr::variable(dim.var));
    op.reads[0].index.push_back(origin + IntExpr::variable(dim.var));
    op.dims.push_back(std::move(dim));
  }
  return op;
}

}  // namespace nestor
