// Exact backward bounds: which instances of every statement are needed, and which part of every tensor.
#pragma once

#include <isl/cpp.h>

#include <map>
#include <string>
#include <vector>

#include "frontend/statement_draft.h"

namespace nestor {

/// Sets the domain of every statement in `funcs` (producers first). `context` is a set of sizes; `outputs` holds what callers
/// want of each output tensor: { T[index] : ... }. Returns the part of every tensor that is read, written or asked for.
/// Domains are exact, except that an assignment keeps useless instances where leaving them out would complicate its loops.
/// Throws UserError when an update writes outside an output's box, or leaves a part of the box unwritten.
std::map<std::string, isl::set> infer_bounds(std::vector<FuncDraft>& funcs, const isl::set& context,
                                             const std::map<std::string, isl::set>& outputs);

}  // namespace nestor
