// Roles of statements in a composite.
#include "codegen/proof/model/composite_roles.h"

#include <algorithm>

namespace nestor::proof {

bool is_mediator(const Composite& composite, const std::string& statement) {
  return std::find(composite.mediators.begin(), composite.mediators.end(), statement) != composite.mediators.end();
}

bool is_follower(const Composite& composite, const std::string& statement) {
  return std::any_of(composite.followers.begin(), composite.followers.end(),
                     [&](const Follower& follower) { return follower.statement == statement; });
}

bool is_member(const Composite& composite, const std::string& statement) {
  return statement == composite.lead || is_mediator(composite, statement) || is_follower(composite, statement);
}

bool counts_points(const Composite& composite) {
  const auto counts = [](const ScalarExpr& expr) {
    bool found = false;
    if (!expr.defined()) return false;
    expr.visit([&](const ScalarExpr& node) {
      const bool scalar = node.op() == ScalarOp::scalar;
      found = found || (scalar && (node.name() == "n" || node.name() == "n_old" || node.name() == "n_total"));
    });
    return found;
  };
  return counts(composite.view) || std::any_of(composite.followers.begin(), composite.followers.end(),
                                               [&](const Follower& follower) { return counts(follower.correction); });
}

}  // namespace nestor::proof
