// The op's value as that of a statement whose instances are the op's points.
#include "codegen/proof/model/reached.h"

#include "poly/algebra/values/reached_points.h"

namespace nestor::proof {

isl::set reached_points(const ProgramModel& model, const OpMember& member, int read, const isl::set& points) {
  Statement place;
  place.name = member.op->name;
  place.dims = member.space->variables();
  place.domain = member.executed;
  for (const IntExpr& index : member.op->indices) place.indices.push_back(member.space->value(index));
  return nestor::reached_points(model.nest(), place, member.op->value, read, points);
}

}  // namespace nestor::proof
