// What compared elements tell of a kernel: most of what is compared with may be anything, or the same everywhere.
#pragma once

#include "autotune/oracle/sample_error.h"
#include "poly/nest/nest.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// What was compared of an output, over several cases.
struct OutputComparison {
  std::int64_t elements = 0;
  std::int64_t promised = 0;  ///< of which something is: bounds are finite
  bool differs = false;       ///< in one case or more, no one number would have passed for all elements
};

/// By output. Outputs that have no element in any case are not there.
using Comparison = std::map<std::string, OutputComparison>;

/// Of the samples of one case.
Comparison compared_outputs(const std::vector<OracleSample>& samples, const Nest& nest);

/// Adds those of other cases.
void add(Comparison& comparison, const Comparison& others);

/// All outputs together.
OutputComparison in_total(const Comparison& comparison);

/// What the comparison at the tuned sizes cannot tell, in words: "" where it tells enough. One of
/// - "steps amplify rounding: ..", where more than half of a recurrence's samples may be off by more than they are (after limit_bounds());
/// - "900 of 1200 compared elements of out at the tuned sizes are infinite, NaN ..", where that holds of more than half of an output's;
/// - "all 256 compared elements of out at the tuned sizes are 0, as far as rounding tells ..". `in_full`: of the check at other sizes.
std::string comparison_note(const std::vector<OracleSample>& samples, const Comparison& in_full, const Nest& nest);

}  // namespace nestor
