// Who is who in a composite, as the proof reads it.
#pragma once

#include "poly/nest/composite.h"

#include <string>

namespace nestor::proof {

bool is_mediator(const Composite& composite, const std::string& statement);
bool is_follower(const Composite& composite, const std::string& statement);
/// Lead, mediator or follower.
bool is_member(const Composite& composite, const std::string& statement);

/// A composite's ops depend on how many points were accumulated.
bool counts_points(const Composite& composite);

}  // namespace nestor::proof
