// The parts of a composite: its members, who of them reads the leading value, and which instances belong together.
#pragma once

#include <isl/cpp.h>

#include <string>
#include <vector>

#include "poly/nest/composite.h"
#include "poly/nest/dependences.h"
#include "poly/nest/nest.h"

namespace nestor {

bool is_mediator(const Composite& composite, const std::string& statement);
bool is_follower(const Composite& composite, const std::string& statement);
/// The lead, the mediators and the followers.
std::vector<std::string> members_of(const Composite& composite);
bool reads_tensor(const Statement& statement, const std::string& tensor);

/// True when the correction or the view counts points, so that m and r must have seen exactly the same ones.
bool counts_points(const Composite& composite);

/// Mediators of a composite, and those followers that read the leading tensor themselves.
std::vector<std::string> leading_value_readers(const Nest& nest, const Composite& composite);

/// { Lead[dims] -> Reader[dims] } of `dependence` cut down to instances that read the same element of the same tensor;
/// empty when they have no tensor in common.
isl::map matching_instances(const Nest& nest, const Composite& composite, const std::string& reader,
                            const Dependence& dependence);

}  // namespace nestor
