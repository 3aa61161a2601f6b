// The definitions of a Func as statements whose pure dims are not bounded yet.
#pragma once

#include "frontend/halide_graph.h"
#include "frontend/statement_draft.h"
#include "frontend/values/names.h"

namespace nestor {

/// Translates every definition of `node`. `group` counts up. Throws UserError naming the part that is not affine.
FuncDraft build_statements(const FuncNode& node, HalideGraph& graph, const HalideDefinition& definition,
                           NameTable& statement_names, int& group);

}  // namespace nestor
