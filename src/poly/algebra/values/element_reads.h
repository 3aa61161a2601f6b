// How often readers read each element of a tensor, and what a definition is made of.
#pragma once

#include "poly/nest/nest.h"

namespace nestor {

/// Does the reader's access read each element at most once, or (`a_few_times`) once for each of the few points of dims that it does not follow?
bool reads_elements(const Nest& nest, const Statement& reader, const Access& read, bool a_few_times);

/// Do several elements of what the statement writes share each element that it reads?
bool shares_operands(const Statement& statement);

/// Nodes of the value; equal parts count once, as they are computed once.
int nodes_of(const ScalarExpr& value);

/// Takes the value longer to compute than to read?
bool has_functions(const ScalarExpr& value);

}  // namespace nestor
