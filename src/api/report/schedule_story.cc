// Replays steps one by one and says which dependences each of them concerns.
#include "api/report/schedule_story.h"

#include "poly/algebra/all_rules.h"
#include "poly/schedule/steps/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace nestor {
namespace {

/// What decides where a statement runs: its loops, how they run, and its dims over them.
struct StatementPlace {
  std::vector<std::string> loops;
  std::vector<LoopKind> kinds;
  std::vector<LinearForm> dims;
};

void collect(const TreeNode& node, StatementPlace& place, std::vector<std::pair<std::string, StatementPlace>>& found) {
  if (node.kind == TreeNode::Kind::leaf) found.emplace_back(node.name, place);
  if (node.kind == TreeNode::Kind::loop) {
    place.loops.push_back(node.name);
    place.kinds.push_back(node.loop_kind);
  }
  for (const auto& child : node.children) collect(*child, place, found);
  if (node.kind == TreeNode::Kind::loop) {
    place.loops.pop_back();
    place.kinds.pop_back();
  }
}

/// In the order of execution.
std::vector<std::pair<std::string, StatementPlace>> places_in(const Schedule& schedule) {
  std::vector<std::pair<std::string, StatementPlace>> found;
  StatementPlace place;
  collect(*schedule.tree(), place, found);
  for (auto& [name, at] : found) at.dims = schedule.form(name).dims;
  return found;
}

bool same_place(const StatementPlace& a, const StatementPlace& b) {
  return a.loops == b.loops && a.kinds == b.kinds && a.dims == b.dims;
}

/// Statements whose place a step has changed.
std::set<std::string> moved(const Schedule& before, const Schedule& after) {
  std::set<std::string> names;
  const auto old_places = places_in(before);
  for (const auto& [name, place] : places_in(after)) {
    const auto old =
        std::find_if(old_places.begin(), old_places.end(), [&, &name = name](const auto& p) { return p.first == name; });
    if (old == old_places.end() || !same_place(old->second, place)) names.insert(name);
  }
  return names;
}

/// Steps that cut a loop in place, or say how it is run by a machine: they move no instance before another.
bool keeps_order(const Step& step) {
  static const std::set<std::string> names{"split", "unroll", "serial", "stage", "specialize", "streaming"};
  return names.contains(step.name) || find_knob_step(step.name) != nullptr;
}

std::string help_of(const std::string& name) {
  for (const StepHelp& entry : step_help()) {
    if (entry.name == name) return entry.help;
  }
  return "";
}

nlohmann::json rule_facts(const Step& step) {
  const Rule& applied = rule(step.args.front().get<std::string>());
  return {"what: " + applied.summary, "proof: " + applied.proof, "rounding: " + applied.rounding};
}

void explain(const Schedule& before, const Schedule& after, const Step& step, nlohmann::json& entry) {
  entry["help"] = help_of(step.name);
  entry["facts"] = nlohmann::json::array();
  if (step.name == "apply_rule") {
    entry["why"] = "A rule of algebra with a proof on paper; its side conditions were checked on this nest.";
    entry["facts"] = rule_facts(step);
    return;
  }
  if (keeps_order(step)) {
    entry["why"] = "No instance moves before another: the order of all instances is as it was.";
    return;
  }
  const std::set<std::string> names = moved(before, after);
  for (const Dependence& dependence : after.dependences()) {
    if (names.contains(dependence.source) || names.contains(dependence.sink)) entry["facts"].push_back(describe(dependence));
  }
  const std::size_t concerned = entry["facts"].size();
  entry["why"] = concerned == 0 ? std::string("No dependence touches the statements that move.")
                                : fmt::format(
                                      "{} of {} dependences touch what moves; exact check: each keeps its source before its "
                                      "sink, or a rule relaxes it.",
                                      concerned, after.dependences().size());
}

/// Texts by index; equal ones are one.
class Texts {
 public:
  int index_of(const std::string& text) {
    const auto found = std::find(texts_.begin(), texts_.end(), text);
    if (found != texts_.end()) return static_cast<int>(found - texts_.begin());
    texts_.push_back(text);
    return static_cast<int>(texts_.size()) - 1;
  }
  const std::vector<std::string>& all() const { return texts_; }

 private:
  std::vector<std::string> texts_;
};

}  // namespace

nlohmann::json story_of(const Schedule& schedule) {
  Texts texts;
  Schedule current(schedule.original_nest());
  nlohmann::json story{{"start", texts.index_of(current.str())}, {"steps", nlohmann::json::array()}};
  for (const Step& step : schedule.steps()) {
    Schedule next = current.apply(step);
    nlohmann::json entry{{"step", describe(step)}, {"name", step.name}, {"text", texts.index_of(next.str())}};
    explain(current, next, step, entry);
    story["steps"].push_back(std::move(entry));
    current = std::move(next);
  }
  story["texts"] = texts.all();
  return story;
}

nlohmann::json dependences_json(const Schedule& schedule) {
  nlohmann::json list = nlohmann::json::array();
  for (const Dependence& dependence : schedule.dependences()) {
    list.push_back({{"kind", to_string(dependence.kind)},
                    {"source", dependence.source},
                    {"sink", dependence.sink},
                    {"tensor", dependence.tensor},
                    {"text", describe(dependence)},
                    {"reduction", dependence.reduction}});
  }
  return list;
}

}  // namespace nestor
