// Near problems: whose best schedules are worth a try on another problem.
#pragma once

#include "db/database.h"

#include <vector>

namespace nestor {

/// Problems with correct trials on the same device, nearest first by sizes; another variant counts as a size twice as large.
struct NearProblems {
  std::vector<ProblemKey> same_operator;    ///< at other sizes, or another variant
  std::vector<ProblemKey> other_operators;  ///< with sizes of the same names
};

/// At most six of the first and three of the second. Those of the database's own file alone.
NearProblems near_problems(const Database& database, const DeviceIdentity& device, const ProblemKey& problem);

}  // namespace nestor
