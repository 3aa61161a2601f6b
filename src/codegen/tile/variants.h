// Variants: the parts into which specialised loops cut a program, so that full tiles need no tests.
#pragma once

#include "codegen/tile/op_builder.h"

#include <map>
#include <string>
#include <vector>

namespace nestor {

/// One choice for every specialised loop: iterations before the full ones, full, or after them.
struct Variant {
  std::map<std::string, int> choice;        ///< specialised loop -> 0, 1 or 2
  std::string key;                          ///< text of `choice`, unique
  std::map<std::string, isl::set> domains;  ///< statement -> { [outer] } of this variant
  std::map<std::string, OpBox> boxes;       ///< statement -> its box there
};

/// At least one variant; exactly one without specialised loops. A specialised loop whose full iterations are not
/// contiguous stays whole.
std::vector<Variant> make_variants(const ProgramPlan& plan);

/// The variant to use for a statement (its first `depth` loops) under the choices made so far; nullptr when nothing of it
/// is executed there. Variants that differ only in loops which are not around the statement serve alike.
const Variant* find_variant(const std::vector<Variant>& variants, const StatementPlan& statement,
                            const std::map<std::string, int>& choice);

/// The outer iterations of `points`, { [outer] -> [inner] }, at which they do not fill a box of the largest size; none when the boxes
/// have no constant size.
isl::set partial_iterations(const isl::map& points);

/// { [first `count` outer loops] } of a domain { [outer] }.
isl::set first_loops(const isl::set& outer, std::size_t count);

}  // namespace nestor
