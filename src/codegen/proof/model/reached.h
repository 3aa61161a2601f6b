// Where the value of an op evaluates one of its reads: elsewhere the element is not looked at, and need not exist.
#pragma once

#include "codegen/proof/model/program_model.h"

namespace nestor::proof {

/// Those of `points`, { [loops, dims] }, at which the op's value comes to its read `read`: all but points where a select takes its
/// other side, or the first operand of `and` and `or` decides, by a condition that is affine in the op's indices.
isl::set reached_points(const ProgramModel& model, const OpMember& member, int read, const isl::set& points);

}  // namespace nestor::proof
