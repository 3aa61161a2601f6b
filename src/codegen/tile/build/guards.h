// Guards: which ops may run over their whole box although some of its points are no instances.
#pragma once

#include "codegen/tile/build/op_builder.h"

#include <map>
#include <string>

namespace nestor {

/// Do no instances of any statement write these elements of a tensor, { [outer] -> Tensor[index] }?
bool are_nobodys(const ProgramPlan& plan, const std::string& tensor, const isl::map& elements);

/// May the statement's op run at these points beside its own, { [outer] -> [inner] }? It reads inside buffers there, and writes elements of a
/// temporary that nobody owns.
bool may_run_at(const ProgramPlan& plan, const Storage& storage, const StatementPlan& statement, const isl::map& extra);

/// Decides the treatment of every statement at the outer iterations given in `boxes` (by statement name).
///
/// An op needs no test when the extra points only write elements that nobody owns (a temporary's, inside its buffer) and
/// only read inside buffers. A reduction needs none when the extra terms it reads are elements that its producer fills
/// with the neutral value; the producer then keeps its test and gets that fill.
std::map<std::string, GuardPlan> plan_guards(const ProgramPlan& plan, const Storage& storage,
                                             const std::map<std::string, OpBox>& boxes);

}  // namespace nestor
