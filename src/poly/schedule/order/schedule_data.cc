// The original order of a nest as a loop tree.
#include "poly/schedule/order/schedule_data.h"

#include <algorithm>
#include <map>
#include <string>

#include "poly/schedule/order/loop_tree.h"
#include "support/error.h"

namespace nestor {
namespace {

/// The loops of one group of statements: they share all of them.
Tree group_tree(const std::vector<const Statement*>& group) {
  std::vector<Tree> leaves;
  for (const Statement* statement : group) leaves.push_back(make_leaf(statement->name));
  Tree tree = make_sequence(leaves);
  const Statement& first = *group.front();
  for (std::size_t k = first.dims.size(); k-- > 0;) tree = make_loop(first.name + "." + first.dims[k], tree);
  return tree;
}

LoopForm original_form(const Statement& statement, const Statement& first) {
  LoopForm form;
  for (const std::string& dim : first.dims) {
    if (std::count(first.dims.begin(), first.dims.end(), dim) > 1) internal_error("two dims of {} are named {}", first.name, dim);
    form.dims.push_back(LinearForm::variable(first.name + "." + dim));
  }
  if (statement.dims.size() != first.dims.size()) {
    internal_error("statements {} and {} share a group but not their dimensions", first.name, statement.name);
  }
  return form;
}

}  // namespace

ScheduleData original_order_of(std::shared_ptr<const NestFacts> facts) {
  ScheduleData data;
  const std::vector<Statement>& statements = facts->nest.statements;
  std::vector<Tree> groups;
  std::map<std::string, LoopForm> forms;
  for (std::size_t begin = 0; begin < statements.size();) {
    std::vector<const Statement*> group;
    std::size_t end = begin;
    for (; end < statements.size() && statements[end].group == statements[begin].group; ++end) {
      group.push_back(&statements[end]);
      forms[statements[end].name] = original_form(statements[end], statements[begin]);
    }
    groups.push_back(group_tree(group));
    begin = end;
  }
  data.tree = make_root(groups);
  data.forms = StatementForms(forms);
  data.facts = std::move(facts);
  return data;
}

}  // namespace nestor
