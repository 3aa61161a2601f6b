// Rule "reassociate": reductions may be regrouped.
//
// Pattern    any statement r = r (+) t with (+) one of add, mul, min, max.
// Rewrite    none; the result says that the order of a reduction's points is free.
// Conditions none beyond the reduction operator itself, which is associative and commutative over the reals.
// Proof      In a commutative monoid, the fold of a finite family does not depend on order or grouping (N. Bourbaki, Algebra I, §1.5).
// Rounding   min and max: none. Sums: |error| <= (n-1) u sum|t| for every order, and about log2(n) u sum|t| for balanced ones
//            (N. Higham, Accuracy and Stability of Numerical Algorithms, §4.2): the bound does not grow, the result changes in its last bits.
#include <fmt/format.h>

#include "poly/algebra/rules/rule_list.h"

namespace nestor {
namespace {

std::vector<RuleMatch> find(const Nest& nest) {
  for (const Statement& statement : nest.statements) {
    if (statement.reduction) return {{"reassociate", {}, "reductions may be taken in any order and grouping"}};
  }
  return {};
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  expect_arguments("reassociate", target, 0);
  if (find(nest).empty()) refuse_rule("reassociate", "", "the nest has no reduction");
  return {nest, {}, true};
}

}  // namespace

const Rule& reassociate_rule() {
  static const Rule rule{"reassociate",
                         "reductions may be taken in any order and grouping",
                         "a fold over a commutative monoid does not depend on order or grouping",
                         "sums change within the usual bound (n-1) u sum|t|; min and max not at all",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
