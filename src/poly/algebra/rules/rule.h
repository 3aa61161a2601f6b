// A rule of algebra: a rewrite of a nest that changes the order or the grouping of arithmetic, proved.
#pragma once

#include "poly/nest/composite.h"
#include "poly/nest/nest.h"

#include <string>
#include <vector>

namespace nestor {

/// What a rule does to a nest: a rewritten nest, and reductions that may now be accumulated together.
struct RuleResult {
  Nest nest;
  std::vector<Composite> composites;
  bool reassociation = false;
};

/// A place where a rule applies.
struct RuleMatch {
  std::string rule;
  std::vector<std::string> target;  ///< arguments for apply_rule after the rule's name, e.g. the lead statement
  std::string description;
};

/// A rule: pattern (find), rewrite (apply), and what to say about it.
struct Rule {
  std::string name;
  std::string summary;   ///< one line
  std::string proof;     ///< short statement of why it holds, with its source
  std::string rounding;  ///< effect on rounding error
  std::vector<RuleMatch> (*find)(const Nest& nest);
  /// Throws UserError when the target is no match, saying which side condition fails.
  RuleResult (*apply)(const Nest& nest, const std::vector<std::string>& target);
  /// Tensors that must be finite in masked places (docs/values.md) for the rewrite to keep NaN where it is; null: none ever.
  std::vector<std::string> (*finite)(const Nest& nest) = nullptr;
  bool finite_everywhere = false;  ///< at all elements: data decides which places are masked
};

}  // namespace nestor
