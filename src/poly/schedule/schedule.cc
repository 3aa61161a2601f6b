// Schedule: construction, the persistent step list, and what it tells about itself.
#include "poly/schedule/schedule.h"

#include <algorithm>

#include "poly/schedule/isl_maps.h"
#include "poly/schedule/loop_tree.h"
#include "poly/schedule/state.h"
#include "poly/schedule/steps/editor.h"
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

std::string_view to_string(LoopKind kind) {
  switch (kind) {
    case LoopKind::serial:
      return "serial";
    case LoopKind::parallel:
      return "parallel";
    case LoopKind::vectorize:
      return "vectorize";
    case LoopKind::unroll:
      return "unroll";
    case LoopKind::gpu_block:
      return "gpu_block";
    case LoopKind::gpu_warp:
      return "gpu_warp";
    case LoopKind::gpu_lane:
      return "gpu_lane";
  }
  return "serial";
}

ScheduleData original_order_of(std::shared_ptr<const NestFacts> facts) {
  ScheduleData data;
  const std::vector<Statement>& statements = facts->nest.statements;
  std::vector<Tree> groups;
  for (std::size_t begin = 0; begin < statements.size();) {
    std::vector<const Statement*> group;
    std::size_t end = begin;
    for (; end < statements.size() && statements[end].group == statements[begin].group; ++end) {
      group.push_back(&statements[end]);
      data.forms[statements[end].name] = original_form(statements[end], statements[begin]);
    }
    groups.push_back(group_tree(group));
    begin = end;
  }
  data.tree = make_root(groups);
  data.facts = std::move(facts);
  return data;
}

Schedule::Schedule(Nest nest) {
  Nest copy = nest;
  auto facts = std::make_shared<const NestFacts>(std::move(nest), std::move(copy), std::vector<Composite>{}, false);
  state_ = std::make_shared<const State>(original_order_of(std::move(facts)));
}

Schedule Schedule::apply(const Step& step) const {
  return Schedule(std::make_shared<const State>(ScheduleEditor::applied(*state_, step, true)));
}

Schedule Schedule::apply_all(const std::vector<Step>& steps) const {
  Schedule schedule = *this;
  for (const Step& step : steps) schedule = schedule.apply(step);
  return schedule;
}

const Nest& Schedule::nest() const { return state_->facts->nest; }
const Nest& Schedule::original_nest() const { return state_->facts->original; }
const std::vector<Dependence>& Schedule::dependences() const { return state_->facts->dependences(); }
const std::vector<Composite>& Schedule::composites() const { return state_->facts->composites; }
bool Schedule::reassociation_allowed() const { return state_->facts->reassociation; }
const Tree& Schedule::tree() const { return state_->tree; }
const std::vector<Step>& Schedule::steps() const { return state_->steps; }
const std::vector<StageDirective>& Schedule::stages() const { return state_->stages; }
const std::vector<std::string>& Schedule::streaming_tensors() const { return state_->streaming; }

std::vector<Composite> Schedule::active_composites() const {
  std::vector<Composite> active;
  for (const std::size_t index : state_->active) active.push_back(state_->facts->composites[index]);
  return active;
}

const LoopForm& Schedule::form(const std::string& statement) const {
  const auto found = state_->forms.find(statement);
  if (found == state_->forms.end()) internal_error("the schedule has no statement {}", statement);
  return found->second;
}

std::vector<std::string> Schedule::loops_of(const std::string& statement) const {
  return TreeIndex(state_->tree).loop_names(statement);
}

isl::map Schedule::loop_relation(const std::string& statement) const {
  return isl_guarded("the loops of " + statement, [&] {
    const Statement& definition = nest().statement(statement);
    return loop_relation_of(definition, LoopSpace(definition, form(statement), loops_of(statement)));
  });
}

}  // namespace nestor
