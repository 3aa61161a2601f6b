// Rows all of whose terms are infinite: their extremum is -inf (+inf for a minimum), and exp(c (a - m)) = exp(-inf + inf) is NaN for
// each term. A composite sees such a row as one without weight yet, with sums of 0.
#pragma once

#include <string>

#include "poly/algebra/analysis/online_plan.h"
#include "poly/nest/nest.h"

namespace nestor {

/// True if a statement could tell sums of 0 from the NaN that the definition has in such rows; its value is not NaN either way, as 0 / 0 is.
/// Then `why` says which. `lead_stays`: the leading value is still there to be read, infinite.
bool infinite_rows_show(const Nest& nest, const OnlinePlan& plan, bool lead_stays, std::string* why);

/// Statements that could tell them apart become NaN there: value + (m - m), which adds 0 to all other rows. nullopt, with the reason in `why`,
/// where that is not possible.
std::optional<Nest> with_marked_rows(const Nest& nest, const OnlinePlan& plan, std::string* why);

/// True if one NaN among a row's terms makes each of its sums NaN without the leading value: every follower takes every term of its row.
bool sums_pass_nan(const Nest& nest, const OnlinePlan& plan, std::string* why);

}  // namespace nestor
