// Simultaneous assignment of tuple components, made sequential.
#pragma once

#include <vector>

#include "frontend/statement_draft.h"
#include "frontend/values/names.h"

namespace nestor {

/// Reorders the components of one definition so that each reads the others' elements before they are overwritten. Where
/// components need each other's old values in a circle, the value is first saved in an extra tensor (added to `tensors`) by
/// an extra statement at the front.
void order_simultaneous(std::vector<StatementDraft>& components, std::vector<TensorRef>& tensors, NameTable& tensor_names,
                        NameTable& statement_names);

}  // namespace nestor
