// Shrinking: fewer steps and runs that still show a finding.
#pragma once

#include "soak/case.h"

#include <functional>
#include <string>

namespace nestor::soak {

/// A case of which no single step, and no run, can be left out without losing a verdict equal to that of `outcome`.
Case shrunk(Case found, const Outcome& outcome, const std::function<Outcome(const Case&)>& attempt);

/// The steps, one a line, as step files have them.
std::string steps_text(const Case& shown);

}  // namespace nestor::soak
