// Variants: the parts into which specialised loops cut a program, so that full tiles need no tests.
#pragma once

#include "codegen/tile/build/guards.h"
#include "codegen/tile/build/op_builder.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

/// Parts chosen for specialised loops, by name: iterations before the full ones (0), full (1), or after them (2).
using PartChoice = std::map<std::string, int>;

/// The parts of every specialised loop, and what a statement is where some of them are chosen. A specialised loop whose full
/// iterations are not contiguous stays whole.
class Variants {
 public:
  static constexpr int kParts = 3;

  /// Both must outlive the object.
  Variants(const ProgramPlan& plan, const Storage& storage);

  bool is_cut(const std::string& loop) const { return parts_.count(loop) != 0; }

  /// { [outer] } iterations of the statement in the chosen parts. Loops without a choice count whole, so that what encloses them
  /// covers each of their parts.
  isl::set domain(const StatementPlan& statement, const PartChoice& choice) const;

  /// The statement's box there; null where it has no instances.
  const OpBox* box(const StatementPlan& statement, const PartChoice& choice);

  /// How the points of that box which are no instances are treated. There must be a box.
  GuardPlan guard(const StatementPlan& statement, const PartChoice& choice);

 private:
  /// Statement (or what stands for several) and the choices that concern it.
  using Key = std::pair<std::string, PartChoice>;
  Key key_of(const std::string& name, const StatementPlan& statement, const PartChoice& choice) const;

  const ProgramPlan& plan_;
  const Storage& storage_;
  std::map<std::string, std::vector<isl::set>> parts_;  ///< { [loops up to and including it] }, one set a part
  std::map<Key, OpBox> boxes_;
  std::map<Key, std::map<std::string, GuardPlan>> guards_;  ///< of all statements inside the same loops, by name
};

/// The outer iterations of `points`, { [outer] -> [inner] }, at which they do not fill a box of the largest size; none when the boxes
/// have no constant size.
isl::set partial_iterations(const isl::map& points);

/// { [first `count` outer loops] } of a domain { [outer] }.
isl::set first_loops(const isl::set& outer, std::size_t count);

}  // namespace nestor
