// ProblemData: the arguments of one run and what the definition makes of them, every element.
#pragma once

#include "autotune/check/masked_places.h"
#include "autotune/oracle/oracle.h"
#include "poly/nest/nest.h"
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
/// Of the kind with that name. Throws UserError for an unknown one.
bool is_special(const std::string& kind);

struct ProblemData {
  std::map<std::string, double> scalars;
  HostTensors tensors;  ///< inputs filled; outputs poisoned
  std::vector<OracleSample> expected;
};

/// Throws UserError for sizes that are too expensive to evaluate, more than `cost_limit` elementary operations, or an unknown kind.
/// `finite`: elements of inputs that stay ordinary numbers where the kind would make them infinite or NaN.
ProblemData make_problem_data(const Nest& nest, const Run& run, double cost_limit, const ElementLists& finite = {});

/// Does one of `elements` hold an infinity or NaN?
bool has_special(const ProblemData& data, const ElementLists& elements);

/// The first difference between the definition and `results` (the outputs), "" when there is none: elements that are wrong, and
/// elements that the definition leaves alone and that were written.
std::string difference(const Nest& nest, const ProblemData& data, const HostTensors& results);

}  // namespace nestor::soak
