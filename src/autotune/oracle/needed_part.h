// The part of a definition that some elements need, where all of it is too much.
#pragma once

#include "autotune/oracle/sample_error.h"
#include "autotune/tensors/host_tensor.h"
#include "poly/nest/nest.h"

#include <atomic>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// `nest` at fixed sizes with those instances alone that `elements`, { Tensor[index] } by tensor, need; of recurrences possibly with some
/// more, so that the steps are a box. Statements without instances are left out. Throws UserError when isl takes too long.
Nest needed_part(const Nest& nest, const Sizes& sizes, const std::map<std::string, isl::set>& elements);

/// Elements of each output of a definition that cannot be evaluated backwards, nor as a whole: boxes at its first and last elements and at
/// a random place (there alone where an element takes seconds), as wide as some seconds allow, with all that they need. Throws UserError where one element takes more than `cost_limit`
/// elementary evaluations, and EvaluationStopped.
std::vector<OracleSample> samples_of_parts(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                                           const HostTensors& inputs, std::uint64_t seed, double cost_limit, int processes,
                                           const std::atomic<bool>* stop);

}  // namespace nestor
