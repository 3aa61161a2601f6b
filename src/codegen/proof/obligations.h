// The obligations of a finished program, each a function that returns when it is shown and throws otherwise (see outcome.h).
#pragma once

#include "codegen/proof/model/subject.h"
#include "codegen/tile/zeroed_operand.h"

#include <vector>

namespace nestor::proof {

/// The sizes that the program admits lie in the nest's context, and its arguments are the nest's.
void prove_interface(const Subject& subject);

/// Each op computes its statement's value, from the statement's elements into the statement's element, and is what its kind says.
void prove_meaning(const Subject& subject);

/// Every instance of every statement runs exactly once.
void prove_coverage(const Subject& subject);

/// Every access of every point lies inside its buffer.
void prove_bounds(const Subject& subject);

/// Points of one op that may run side by side or in any order touch no element in common, but those that a reduction combines.
void prove_points(const Subject& subject);

/// Every dependence that no rule relaxes goes forward in the program's time, and what flows through memory finds its element there.
void prove_order(const Subject& subject);

/// Tasks that run at the same time share no element of arguments or workspaces that one of them writes.
void prove_tasks(const Subject& subject);

/// Points that are no instances harm nothing; copies hold what their readers read.
void prove_extra_points(const Subject& subject);
void prove_stages(const Subject& subject);

/// What ops may multiply by 0 beside their points holds values: it belongs to an input, or was written before the op starts.
/// True when there are such beside inputs.
bool prove_written(const ProgramModel& model, const std::vector<ZeroedOperand>& operands);

/// Composites: saved, moved, corrected and read in the order that their theorem asks for.
void prove_composites(const Subject& subject);

/// { Follower[dims] -> LeadTensor[element] }: the leading value that an instance's term is relative to, through mediators.
isl::map lead_of(const Nest& nest, const Composite& composite, const Statement& reader);

}  // namespace nestor::proof
