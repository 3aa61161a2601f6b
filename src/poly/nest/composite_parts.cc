// The parts of a composite.
#include "poly/nest/composite_parts.h"

#include <isl/map.h>

#include <algorithm>

namespace nestor {

bool is_mediator(const Composite& composite, const std::string& statement) {
  return std::find(composite.mediators.begin(), composite.mediators.end(), statement) != composite.mediators.end();
}

bool is_follower(const Composite& composite, const std::string& statement) {
  return std::any_of(composite.followers.begin(), composite.followers.end(),
                     [&](const Follower& follower) { return follower.statement == statement; });
}

std::vector<std::string> members_of(const Composite& composite) {
  std::vector<std::string> names{composite.lead};
  names.insert(names.end(), composite.mediators.begin(), composite.mediators.end());
  for (const Follower& follower : composite.followers) names.push_back(follower.statement);
  return names;
}

bool reads_tensor(const Statement& statement, const std::string& tensor) {
  return std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) { return read.tensor == tensor; });
}

bool counts_points(const Composite& composite) {
  const auto names_count = [](const ScalarExpr& expr) {
    bool found = false;
    if (!expr.defined()) return false;
    expr.visit([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::scalar) return;
      found = found || node.name() == "n" || node.name() == "n_old" || node.name() == "n_total";
    });
    return found;
  };
  return names_count(composite.view) || std::any_of(composite.followers.begin(), composite.followers.end(),
                                                    [&](const Follower& f) { return names_count(f.correction); });
}

std::vector<std::string> leading_value_readers(const Nest& nest, const Composite& composite) {
  std::vector<std::string> readers;
  for (const Statement& statement : nest.statements) {
    const bool part = is_mediator(composite, statement.name) || is_follower(composite, statement.name);
    if (part && reads_tensor(statement, composite.lead_tensor)) readers.push_back(statement.name);
  }
  return readers;
}

isl::map matching_instances(const Nest& nest, const Composite& composite, const std::string& reader,
                            const Dependence& dependence) {
  isl::map result = dependence.relation;
  bool common = false;
  for (const Access& from : nest.statement(composite.lead).reads) {
    isl::map together = isl::manage(isl_map_empty(isl_map_get_space(result.get())));
    bool met = false;
    for (const Access& to : nest.statement(reader).reads) {
      if (to.tensor != from.tensor) continue;
      together = together.unite(from.relation.apply_range(to.relation.reverse()));
      met = true;
    }
    if (!met) continue;
    result = result.intersect(together);
    common = true;
  }
  return common ? result.coalesce() : isl::manage(isl_map_empty(isl_map_get_space(result.get())));
}

}  // namespace nestor
