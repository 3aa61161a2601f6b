// Needed parts: what a value needs whatever its conditions are.
#pragma once

#include "poly/nest/scalar_expr.h"

#include <map>
#include <set>

namespace nestor {

/// For expressions that are alive as long as this is. Takes the square of their parts.
class NeededParts {
 public:
  using Nodes = std::set<const void*>;

  /// node_identity() of the parts that are evaluated whatever conditions say: both sides of a choice have them, or what is around it.
  const Nodes& of(const ScalarExpr& expr);

 private:
  std::map<const void*, Nodes> known_;
};

}  // namespace nestor
