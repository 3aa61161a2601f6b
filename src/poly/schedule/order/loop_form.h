// How a statement's dims follow from the loops around it.
#pragma once

#include "poly/isl/linear_form.h"

#include <vector>

namespace nestor {

/// Where a statement's dims come from: dims[k] as a form over the loops around it, and `constraints` (each >= 0) that the
/// loops satisfy besides those of the domain (0 <= inner < factor after a split). The correspondence is one to one.
struct LoopForm {
  std::vector<LinearForm> dims;
  std::vector<LinearForm> constraints;
};

}  // namespace nestor
