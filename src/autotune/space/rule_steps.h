// Rule steps: the algebra that a candidate begins with.
#pragma once

#include "autotune/measure/base_schedules.h"

#include <set>
#include <string>
#include <vector>

namespace nestor {

/// Applies each rule in `enabled` wherever it matches, in the order of rules(), until none matches anew. Deterministic.
std::vector<Step> rule_steps(BaseSchedules& schedules, const std::set<std::string>& enabled);

/// Rules that match the nest as it is or after the other rules.
std::vector<std::string> matching_rules(BaseSchedules& schedules);

/// True for rules that pay off almost everywhere; others (those that add work for more parallelism) start disabled.
bool enabled_by_default(const std::string& rule);

/// True for rules that merge several reductions into one composite.
bool makes_composites(const std::string& rule);

}  // namespace nestor
