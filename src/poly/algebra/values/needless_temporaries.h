// Temporaries that a nest has for its author's sake: defined twice, or as well computed by the statements that need them.
#pragma once

#include <string>
#include <vector>

#include "poly/nest/nest.h"

namespace nestor {

/// Readers of a temporary read an earlier one instead, where statements that differ in nothing but names define both: elements, their
/// starting values and the order of their terms are the same. Nothing that the definitions read is written between them. What nobody reads
/// any more is dropped. Appends the names of the statements that read another tensor now.
void share_equal_definitions(Nest& nest, std::vector<std::string>& changed);

/// Do several elements of what the statement writes share each element that it reads?
bool shares_operands(const Statement& statement);

/// The short definition of a temporary that its readers may compute as well, with less to read and no more to compute; nullptr for others.
/// - One sum alone reads it, or recurrences do, each element once, and it is larger than all that it is made of (terms; decays of states).
/// - Recurrences alone read it, each element once, and it is made of inputs.
/// - It is made of indices and vectors, by arithmetic alone, and elementwise statements read it (masks, biases by distance).
const Statement* computed_by_readers(const Nest& nest, const std::string& tensor);

}  // namespace nestor
