// Unions of conjunctions made simpler: one around all of them, or each with fewer constraints.
#pragma once

#include <isl/cpp.h>

namespace nestor {

/// The constraints of `map`'s parts that hold in all of them, in the same space; `map` itself where it has one part. Masks with "or" give
/// domains and dependences of several parts, most of whose constraints are the same.
isl::map conjunction_around(const isl::map& map);
isl::set conjunction_around(const isl::set& set);

/// A set that is the same within `known`, of whose parts none has a constraint that the others make up for there: { t <= i or (8 <= i and
/// t = 8) } is { t <= i or (8 <= i and t <= 8) }. Parts may meet then. Where they have divisions, parts that the others have are
/// left out, too.
isl::set with_few_constraints(const isl::set& set, const isl::set& known);

/// How many constraints its parts have together.
int constraints_in(const isl::set& set);

/// Has a condition of a part a division?
bool has_divisions(const isl::set& set);

/// Has it more than one part?
bool is_union(const isl::map& map);
bool is_union(const isl::set& set);

}  // namespace nestor
