// SharedNestings: sums of products whose results share inner sums of some factors.
#pragma once

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/nest/nest.h"

#include <functional>
#include <string>
#include <vector>

namespace nestor {

/// A nesting whose inner sums do not follow all other dims, so that several points of these share each.
struct SharedNesting {
  SumNesting nesting;
  std::vector<int> kept;    ///< the other dims that the inner sums follow
  std::vector<int> points;  ///< those, and the inner ones
  double gain = 0;          ///< points of the definition over those that are left, where sizes have their defaults
};

/// Those of a sum in f32 that is alone in its loops and does not read its result, where all points that share an inner sum have the same
/// inner points; the one that leaves fewest points first. Sets `why` where there is none.
std::vector<SharedNesting> shared_nestings(const Nest& nest, const Statement& sum, std::string& why);

/// Adds a temporary of f32 with an element for each point of the kept dims, in front of the group of the statement `before`, that accumulates
/// the factors inside over the inner dims. Returns its name.
std::string accumulate_inside(Nest& nest, const Statement& sum, const SharedNesting& shared, const std::string& suffix,
                              ReductionOp reduction, const std::string& before);

/// A rule that rewrites a sum by one of its nestings. Its arguments: the statement, and the dims of the inner sum.
struct NestingRule {
  const char* name;
  double least_gain;  ///< of nestings that it offers
  /// The nestings of a sum that it takes; sets `why` where there is none.
  std::function<std::vector<SharedNesting>(const Nest&, const Statement& sum, std::string& why)> nestings;
  /// What a match says of a nesting; `dims`: the names of the inner ones.
  std::function<std::string(const Statement& sum, const SharedNesting&, const std::string& dims)> describe;
  const char* missing;  ///< why there is no such nesting; `{}` stands for the dims
  std::function<Nest(const Nest&, const Statement& sum, const SharedNesting&)> rewrite;
};
std::vector<RuleMatch> matches_of(const NestingRule& rule, const Nest& nest);
/// Throws UserError where the arguments name no nesting that the rule takes.
RuleResult apply_nesting(const NestingRule& rule, const Nest& nest, const std::vector<std::string>& target);

}  // namespace nestor
