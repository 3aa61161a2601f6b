// Accesses of statements that are being built.
#include "frontend/statement_draft.h"

#include "poly/isl/isl_tools.h"

namespace nestor {

isl::map StatementDraft::read_relation(std::size_t k) const {
  const isl::set guard = reads[k].guard.gist(domain).coalesce();
  return relation_of(universe, reads[k].tensor, reads[k].index).intersect_domain(guard).coalesce();
}

}  // namespace nestor
