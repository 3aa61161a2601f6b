// Arguments of rules, and refusals.
#include "poly/algebra/rules/rule_list.h"

#include "support/error.h"

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

void refuse_rule(const std::string& rule, const std::string& target, const std::string& reason) {
  if (target.empty()) user_error("rule {} does not apply: {}", rule, reason);
  user_error("rule {} does not apply to {}: {}", rule, target, reason);
}

}  // namespace nestor
