// When may a reader of a composite's leading value see the running value instead of the final one?
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "poly/schedule/order/legality.h"

namespace nestor {

/// Number of outermost loops that the lead, the mediators and the followers of a composite all share.
std::size_t shared_by_all(const Composite& composite, const TreeIndex& index);

/// Judges every composite with a statement in `touched` anew: one whose dependences all hold is inactive; one that needs
/// its relaxation and may have it is active. Updates `active`; returns a violation if one needs it and may not have it.
std::optional<Violation> judge_composites(OrderChecker& checker, const std::set<std::string>& touched,
                                          std::vector<std::size_t>& active);

}  // namespace nestor
