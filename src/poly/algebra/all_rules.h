// Algebra: rewrites of a nest that change the order or the grouping of arithmetic, each proved.
#pragma once

#include "poly/algebra/rules/rule.h"

#include <string>
#include <vector>

namespace nestor {

/// All rules, in the order in which `find_matches` tries them.
const std::vector<Rule>& rules();
/// Throws UserError listing the rules when `name` is none of them.
const Rule& rule(const std::string& name);
std::vector<RuleMatch> find_matches(const Nest& nest);

/// Applies the rule at every place, those that its own applications make included, up to once for each statement; returns the matches in order.
std::vector<RuleMatch> apply_everywhere(const Rule& rule, Nest& nest);

/// The nest after the rule of that name everywhere.
Nest with_rule_everywhere(const std::string& name, Nest nest);

/// The nest, and the simpler one where rule simplify leaves temporaries out: what has a tensor of its own in a definition, as the terms of a sum,
/// has none there.
std::vector<Nest> forms_with_fewer_tensors(const Nest& nest);

}  // namespace nestor
