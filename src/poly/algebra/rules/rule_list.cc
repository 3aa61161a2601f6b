// Matches and arguments of rules, and refusals.
#include "poly/algebra/rules/rule_list.h"

#include "support/error.h"

#include <utility>

namespace nestor {

void expect_arguments(const std::string& rule, const std::vector<std::string>& target, std::size_t count) {
  if (target.size() != count) user_error("rule {} takes {} arguments, not {}", rule, count, target.size());
}

std::string statement_argument(const Nest& nest, const std::string& rule, const std::vector<std::string>& target,
                               std::size_t count) {
  expect_arguments(rule, target, count);
  if (nest.find_statement(target[0]) == nullptr) user_error("rule {}: nest {} has no statement {}", rule, nest.op, target[0]);
  return target[0];
}

std::vector<RuleMatch> matching_statements(const Nest& nest, const std::string& rule,
                                           const std::function<std::string(const Statement&)>& gain) {
  std::vector<RuleMatch> matches;
  for (const Statement& statement : nest.statements) {
    if (std::string text = gain(statement); !text.empty()) matches.push_back({rule, {statement.name}, std::move(text)});
  }
  return matches;
}

void refuse_rule(const std::string& rule, const std::string& target, const std::string& reason) {
  if (target.empty()) user_error("rule {} does not apply: {}", rule, reason);
  user_error("rule {} does not apply to {}: {}", rule, target, reason);
}

}  // namespace nestor
