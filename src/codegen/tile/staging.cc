// Footprints of readers, and the copy that fills the staged buffer.
#include "codegen/tile/staging.h"

#include "codegen/tile/op_builder.h"
#include "support/error.h"

#include <isl/map.h>

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
  for (const StatementPlan& statement : plan.statements) {
    const auto depth = depth_inside(statement, directive.loop);
    for (const Access& read : statement.statement->reads) {
      if (!depth || read.tensor != directive.tensor) continue;
      const isl::map part = footprint(statement, read, *depth);
      elements = elements ? elements->unite(part) : part;
      stage.reader = &statement;
      stage.depth = *depth;
      stage.readers.push_back(statement.statement->name);
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
  buffer.name += "_staged_" + std::to_string(storage.buffers.size());
  stage.placement = fit_buffer(plan, plan.schedule->nest().tensor(directive.tensor), elements->coalesce(), false, buffer);
  stage.placement.depth = stage.depth;
  for (std::size_t k = 0; k < stage.depth; ++k) stage.placement.scope.push_back(stage.reader->outer[k].name);
  if (!stage.reader->inside_parallel(stage.depth) && stage.reader->inside_parallel(stage.reader->outer.size()))
    buffer.memory = Memory::workspace;
  stage.placement.buffer = static_cast<int>(storage.buffers.size());
  storage.buffers.push_back(std::move(buffer));
  for (const std::string& reader : stage.readers) storage.staged[{reader, stage.tensor}] = stage.placement;
  return stage;
}

}  // namespace

std::vector<StagePlan> plan_stages(const ProgramPlan& plan, Storage& storage) {
  std::vector<StagePlan> stages;
  for (const StageDirective& directive : plan.schedule->stages()) stages.push_back(plan_stage(plan, directive, storage));
  return stages;
}

TileOp stage_op(const ProgramPlan& plan, const Storage& storage, const StagePlan& stage) {
  std::vector<std::string> scope;
  for (const std::string& loop : stage.placement.scope) scope.push_back(program_variable(loop));
  const Buffer& staged = storage.buffers[static_cast<std::size_t>(stage.placement.buffer)];
  const Placement& source = storage.tensors.at(stage.tensor);
  const Buffer& original = storage.buffers[static_cast<std::size_t>(source.buffer)];
  TileOp op;
  op.kind = OpKind::copy;
  op.name = "stage " + stage.tensor;
  op.write.buffer = stage.placement.buffer;
  op.reads = {TileAccess{source.buffer, {}}};
  op.value = ScalarExpr::read(0, staged.type);
  for (std::size_t k = 0; k < staged.extents.size(); ++k) {
    const IntExpr origin = to_int_expr(stage.placement.origin[k], plan.names(scope));
    OpDim dim;
    dim.var = program_variable("stage_" + stage.tensor + "_" + std::to_string(k));
    dim.lower = max(IntExpr(0), IntExpr(0) - origin);
    dim.upper = min(staged.extents[k], original.extents[k] - origin);
    dim.max_extent = staged.extents[k].as_constant();
    dim.parallel = true;
    op.write.index.push_back(IntExpr::variable(dim.var));
    op.reads[0].index.push_back(origin + IntExpr::variable(dim.var));
    op.dims.push_back(std::move(dim));
  }
  return op;
}

}  // namespace nestor
