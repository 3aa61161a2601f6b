// When may a reader of a composite's leading value see the running value instead of the final one?
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "poly/schedule/legality.h"

namespace nestor {

/// Number of outermost loops that the lead, the mediators and the followers of a composite all share.
std::size_t shared_by_all(const Composite& composite, const TreeIndex& index);

/// True when the correction or the view counts points, so that m and r must have seen exactly the same ones.
bool counts_points(const Composite& composite);

/// Mediators of a composite, and those followers that read the leading tensor themselves.
std::vector<std::string> leading_value_readers(const Nest& nest, const Composite& composite);

/// { Lead[dims] -> Reader[dims] } of `dependence` cut down to instances that read the same element of the same tensor;
/// empty when they have no tensor in common.
isl::map matching_instances(const Nest& nest, const Composite& composite, const std::string& reader,
                            const Dependence& dependence);

/// Judges every composite with a statement in `touched` anew: one whose dependences all hold is inactive; one that needs
/// its relaxation and may have it is active. Updates `active`; returns a violation if one needs it and may not have it.
std::optional<Violation> judge_composites(OrderChecker& checker, const std::set<std::string>& touched,
                                          std::vector<std::size_t>& active);

}  // namespace nestor
