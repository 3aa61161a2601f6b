// ProblemData: the arguments of one run and what the definition makes of them, every element.
#pragma once

#include "autotune/measure/oracle.h"
#include "poly/nest.h"
#include "soak/case.h"

#include <map>
#include <string>
#include <vector>

namespace nestor::soak {

/// Names of the ways to fill inputs. The first is ordinary random numbers; `special` ones hold infinities or NaN.
struct DataKind {
  std::string name;
  bool special = false;
};
const std::vector<DataKind>& data_kinds();

struct ProblemData {
  std::map<std::string, double> scalars;
  HostTensors tensors;  ///< inputs filled; outputs poisoned
  std::vector<OracleSample> expected;
};

/// Throws UserError for sizes that are too expensive to evaluate, more than `cost_limit` elementary operations, or an unknown kind.
ProblemData make_problem_data(const Nest& nest, const Run& run, double cost_limit);

/// The first difference between the definition and `results` (the outputs), "" when there is none: elements that are wrong, and
/// elements that the definition leaves alone and that were written.
std::string difference(const Nest& nest, const ProblemData& data, const HostTensors& results);

}  // namespace nestor::soak
