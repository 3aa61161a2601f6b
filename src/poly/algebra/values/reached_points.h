// Where the value of a statement evaluates one of its reads: elsewhere the element is not looked at, and need not exist.
#pragma once

#include "poly/nest/nest.h"

namespace nestor {

/// Those of `points`, { Statement[dims] }, at which `value` comes to read `read`: all but points where a select takes its other side, or
/// the first operand of `and` and `or` decides, by a condition that is affine in the statement's indices (condition_set).
isl::set reached_points(const Nest& nest, const Statement& statement, const ScalarExpr& value, int read, const isl::set& points);

/// The largest sizes for which no read is reached at an instance where its access has no element: 2^31 - 1, or a power of 2 where
/// conditions on indices wrap around 32 bits beyond. Throws UserError that names the statement, the tensor and the instances where a
/// read is reached, or may be: where data decide, nothing is known.
std::int64_t guarded_sizes(const Nest& nest);

}  // namespace nestor
