// The list of rules.
#include "poly/algebra/rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "poly/algebra/rules/moments.h"
#include "poly/algebra/rules/online.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/infinite_rows.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/error.h"

namespace nestor {
namespace {

bool exists(const Nest& nest, const Composite& composite) {
  const auto missing = [&](const std::string& name) { return nest.find_statement(name) == nullptr; };
  return !missing(composite.lead) && std::none_of(composite.mediators.begin(), composite.mediators.end(), missing) &&
         std::none_of(composite.followers.begin(), composite.followers.end(),
                      [&](const Follower& f) { return missing(f.statement); });
}

/// Leaves the mediators that some follower reads, also through others; false where what is left is read by others too.
bool keep_needed_mediators(const Nest& nest, Composite& composite) {
  std::set<std::string> members, needed;
  for (const Follower& follower : composite.followers) members.insert(follower.statement);
  const auto reads_of = [&](const std::string& name) {
    for (const Access& read : nest.statement(name).reads) needed.insert(read.tensor);
  };
  std::for_each(members.begin(), members.end(), reads_of);
  std::vector<std::string> kept;
  for (auto mediator = composite.mediators.rbegin(); mediator != composite.mediators.rend();
       ++mediator) {  // the last reads others
    if (needed.count(nest.statement(*mediator).write.tensor) == 0) continue;
    reads_of(*mediator);
    kept.insert(kept.begin(), *mediator);
  }
  composite.mediators = kept;
  members.insert(kept.begin(), kept.end());
  return std::all_of(kept.begin(), kept.end(), [&](const std::string& mediator) {
    const auto readers = readers_of(nest, nest.statement(mediator).write.tensor);
    return std::all_of(readers.begin(), readers.end(), [&](const Statement* reader) { return members.count(reader->name) > 0; });
  });
}

/// The composite as the rule would find it now, with the followers that it had.
std::optional<Composite> proved_again(const Nest& nest, const Composite& old) {
  if (!exists(nest, old)) return std::nullopt;
  std::optional<Composite> fresh;
  if (old.rule == online_rule().name) {
    const auto plan = analyse_online(nest, old.lead);
    const bool exact = plan && !(plan->masked && infinite_rows_show(nest, *plan, true, nullptr));
    if (exact && (old.threshold == 0 || objection_to_threshold(nest, *plan).empty()))
      fresh = online_composite(nest, *plan, old.threshold);
  } else if (old.rule == moments_rule().name) {
    if (const auto plan = analyse_moments(nest, old.lead)) fresh = moments_composite(*plan);
  }
  if (!fresh) return std::nullopt;
  std::erase_if(fresh->followers, [&](const Follower& follower) {
    return std::none_of(old.followers.begin(), old.followers.end(),
                        [&](const Follower& f) { return f.statement == follower.statement; });
  });
  return fresh->followers.empty() || !keep_needed_mediators(nest, *fresh) ? std::nullopt : fresh;
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all{simplify_rule(),   neutral_terms_rule(),   keep_result_rule(),     defer_factor_rule(),
                                     exp2_scale_rule(), factor_extremum_rule(), fixed_extremum_rule(),  online_rule(),
                                     moments_rule(),    reassociate_rule(),     split_reduction_rule(), reciprocal_rule()};
  return all;
}

const Rule& rule(const std::string& name) {
  std::vector<std::string> names;
  for (const Rule& candidate : rules()) {
    if (candidate.name == name) return candidate;
    names.push_back(candidate.name);
  }
  user_error("\"{}\" is no algebra rule; the rules are {}", name, fmt::join(names, ", "));
}

std::vector<RuleMatch> find_matches(const Nest& nest) {
  std::vector<RuleMatch> all;
  with_isl_budget("finding algebra rules for " + nest.op, [&] {
    for (const Rule& candidate : rules()) {
      std::vector<RuleMatch> found = candidate.find(nest);
      all.insert(all.end(), found.begin(), found.end());
    }
  });
  return all;
}

std::vector<Composite> reprove(const Nest& nest, const std::vector<Composite>& composites) {
  std::vector<Composite> kept;
  for (const Composite& composite : composites) {
    if (const auto again = proved_again(nest, composite)) kept.push_back(*again);
  }
  return kept;
}

void expect_arguments(const std::string& rule, const std::vector<std::string>& target, std::size_t count) {
  if (target.size() != count) user_error("rule {} takes {} arguments, not {}", rule, count, target.size());
}

std::string statement_argument(const Nest& nest, const std::string& rule, const std::vector<std::string>& target,
                               std::size_t count) {
  expect_arguments(rule, target, count);
  if (nest.find_statement(target[0]) == nullptr) user_error("rule {}: nest {} has no statement {}", rule, nest.op, target[0]);
  return target[0];
}

void refuse_rule(const std::string& rule, const std::string& target, const std::string& reason) {
  if (target.empty()) user_error("rule {} does not apply: {}", rule, reason);
  user_error("rule {} does not apply to {}: {}", rule, target, reason);
}

}  // namespace nestor
