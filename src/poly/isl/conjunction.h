// One conjunction around a union of several: what can be shown of it holds for all of them, at the price of one.
#pragma once

#include <isl/cpp.h>

namespace nestor {

/// The constraints of `map`'s parts that hold in all of them, in the same space; `map` itself where it has one part. Masks with "or" give
/// domains and dependences of several parts, most of whose constraints are the same.
isl::map conjunction_around(const isl::map& map);
isl::set conjunction_around(const isl::set& set);

/// Has it more than one part?
bool is_union(const isl::map& map);
bool is_union(const isl::set& set);

}  // namespace nestor
