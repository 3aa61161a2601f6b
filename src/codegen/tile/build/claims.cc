// Scopes and origins of buffers in the words of the program.
#include "codegen/tile/build/claims.h"

#include <algorithm>
#include <iterator>

namespace nestor {
namespace {

void claim(const ProgramPlan& plan, const Placement& placement, Buffer& buffer) {
  std::transform(placement.scope.begin(), placement.scope.end(), std::back_inserter(buffer.scope), program_variable);
  for (const isl::aff& origin : placement.origin) buffer.origin.push_back(to_int_expr(origin, plan.names(buffer.scope)));
}

}  // namespace

std::vector<Buffer> claimed_buffers(const ProgramPlan& plan, const Storage& storage,
                                    const std::map<std::string, Placement>& previous, const std::vector<StagePlan>& stages) {
  std::vector<Buffer> buffers = storage.buffers;
  const auto at = [&](int buffer) -> Buffer& { return buffers[buffer]; };
  for (const auto& [tensor, placement] : storage.tensors) claim(plan, placement, at(placement.buffer));
  for (const StagePlan& stage : stages) claim(plan, stage.placement, at(stage.placement.buffer));
  for (const auto& [lead, placement] : previous) claim(plan, placement, at(placement.buffer));
  return buffers;
}

}  // namespace nestor
