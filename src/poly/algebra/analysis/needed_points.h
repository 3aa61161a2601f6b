// Domains cut down to what is read, and selects that are decided on them.
#pragma once

#include "poly/nest/nest.h"

namespace nestor {

/// Sets the statement's domain, in a form as simple as the sizes' context allows.
void narrow(const Nest& nest, Statement& statement, const isl::set& domain);

/// Backward bounds: no temporary is computed where nobody reads it, or where it is written anew before. Readers come after writers, so one sweep from the end suffices
/// for nests without cycles between tensors; with cycles the result is still right, only larger than it could be.
void shrink_to_need(Nest& nest);

/// Replaces selects whose conditions hold everywhere on a statement's domain, or nowhere, and drops statements without points.
void decide_selects(Nest& nest);

}  // namespace nestor
