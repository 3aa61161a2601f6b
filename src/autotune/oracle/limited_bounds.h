// Bounds of reference values of a definition, with what its steps make of rounding.
#pragma once

#include "autotune/oracle/sample_error.h"
#include "autotune/tensors/host_tensor.h"
#include "poly/nest/nest.h"

#include <vector>

namespace nestor {

class Reference;

/// Elementary evaluations (a few nanoseconds each) of a definition that is evaluated whole.
inline constexpr double kFullLimit = 2e10;

/// Bounds of samples, cut by limit_bounds(). Of a recurrence it evaluates the definition once more, by evaluate_rounded(), where that cuts any.
/// `reference` has what the samples are of; `inputs` are its own. Any thread may call it, for one process (Reference::evaluate_all()).
void limit_bounds_of(const Reference& reference, const HostTensors& inputs, std::vector<OracleSample>& samples, const Nest& nest,
                     bool narrows, int processes = 1);

}  // namespace nestor
