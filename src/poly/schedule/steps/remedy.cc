// What would make an illegal step legal: tried out, not guessed, wherever a trial is possible.
#include <algorithm>
#include <functional>

#include "poly/schedule/steps/editor.h"
#include "support/error.h"

namespace nestor {
namespace {

constexpr std::int64_t kLargestTried = 4;

bool is_legal(ScheduleData data, const std::vector<Step>& steps) {
  try {
    for (const Step& step : steps) data = ScheduleEditor::applied(data, step, false);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

Step make_step(const std::string& name, std::vector<nlohmann::json> args) { return Step{name, std::move(args)}; }

std::string first_then(const std::vector<Step>& before, const Step& step) {
  std::string text = "apply ";
  for (std::size_t k = 0; k < before.size(); ++k) text += (k > 0 ? ", " : "") + describe(before[k]);
  return text + ", then " + describe(step);
}

/// Tries `make(f)` followed by `step` for small factors.
std::string try_factors(const ScheduleData& before, const Step& step,
                        const std::function<std::vector<Step>(std::int64_t)>& make) {
  for (std::int64_t factor = 1; factor <= kLargestTried; ++factor) {
    std::vector<Step> steps = make(factor);
    const std::vector<Step> preparation = steps;
    steps.push_back(step);
    if (is_legal(before, steps)) return first_then(preparation, step);
  }
  return "";
}

/// The loop that a step names in one of its arguments, by full or bare name; null if there is none.
Tree named_loop(const ScheduleData& data, const nlohmann::json& argument) {
  if (!argument.is_string()) return nullptr;
  const std::string name = argument.get<std::string>();
  if (Tree exact = find_loop(data.tree, name)) return exact;
  Tree found;
  for (const std::string& loop : loop_names(data.tree)) {
    if (!loop.ends_with("." + name)) continue;
    if (found) return nullptr;
    found = find_loop(data.tree, loop);
  }
  return found;
}

/// Skewing two loops of a reordering step before it.
std::string skew_for_order(const ScheduleData& before, const Step& step) {
  std::vector<Tree> loops;
  const std::size_t named = step.name == "tile" ? 2 : step.args.size();
  for (std::size_t k = 0; k < named; ++k) {
    if (Tree loop = named_loop(before, step.args[k])) loops.push_back(loop);
  }
  for (const Tree& outer : loops) {
    for (const Tree& inner : loops) {
      if (outer == inner || !contains(*outer, inner.get())) continue;
      const std::string found = try_factors(
          before, step, [&](std::int64_t f) { return std::vector<Step>{make_step("skew", {outer->name, inner->name, f})}; });
      if (!found.empty()) return found;
    }
  }
  return "";
}

/// Wavefront: the loop to be marked is skewed against a neighbour, which then runs outside it.
std::string wavefront(const ScheduleData& before, const Step& step, const Tree& outer, const Tree& inner) {
  const auto prepare = [&](std::int64_t f) {
    return std::vector<Step>{make_step("skew", {outer->name, inner->name, f}), make_step("reorder", {inner->name, outer->name})};
  };
  Step marks_outer = step;
  marks_outer.args[0] = outer->name;
  return try_factors(before, marks_outer, prepare);
}

std::string for_mark(const ScheduleData& before, const Step& step) {
  const Tree loop = step.args.empty() ? nullptr : named_loop(before, step.args[0]);
  if (!loop) return "";
  const Tree& body = loop->children.front();
  if (body->kind == TreeNode::Kind::loop) {
    const std::string found = wavefront(before, step, loop, body);
    if (!found.empty()) return found;
  }
  const std::vector<Tree> path = path_to(before.tree, loop.get());
  const Tree& parent = path[path.size() - 2];
  if (parent->kind == TreeNode::Kind::loop) {
    const std::string found = wavefront(before, step, parent, loop);
    if (!found.empty()) return found;
  }
  if (body->kind != TreeNode::Kind::sequence) return "";
  for (std::size_t k = 1; k < body->children.size(); ++k) {
    const Step cut = make_step("fission", {loop->name, statements_under(*body->children[k]).front()});
    if (is_legal(before, {cut, step})) return first_then({cut}, step);
  }
  return "";
}

/// Fusion: what stands between comes along, the joint loop stands at the other place, or the consumer runs later.
std::string for_fusion(const ScheduleData& before, const Step& step) {
  const Tree moved = named_loop(before, step.args.at(0));
  const Tree consumer = named_loop(before, step.args.at(1));
  if (!moved || !consumer) return "";
  const Step swapped = make_step("fuse_with", {consumer->name, moved->name});
  if (is_legal(before, {swapped})) return describe(swapped) + " instead, which keeps the other loop's place";
  const Tree sequence = path_to(before.tree, moved.get()).rbegin()[1];
  for (const Tree& between : sequence->children) {
    if (between->kind != TreeNode::Kind::loop || between == moved || between == consumer) continue;
    const Step joins = make_step("fuse_with", {between->name, consumer->name});
    if (is_legal(before, {joins, step})) return first_then({joins}, step);
  }
  return try_factors(before, step, [&](std::int64_t distance) {
    std::vector<Step> steps;
    for (const std::string& statement : statements_under(*consumer)) {
      steps.push_back(make_step("shift", {statement, consumer->name, distance}));
    }
    return steps;
  });
}

bool covers(const Composite& composite, const Dependence& dependence) {
  if (composite.lead != dependence.source || composite.lead_tensor != dependence.tensor) return false;
  const auto& mediators = composite.mediators;
  if (std::find(mediators.begin(), mediators.end(), dependence.sink) != mediators.end()) return true;
  return std::any_of(composite.followers.begin(), composite.followers.end(),
                     [&](const Follower& follower) { return follower.statement == dependence.sink; });
}

std::string for_reduction(const ScheduleData& before, const Step& step, const Violation& violation,
                          const std::string& statement) {
  const bool tasks = violation.loop_kind == LoopKind::parallel || violation.loop_kind == LoopKind::gpu_block;
  if (tasks) {
    std::string rule = fmt::format("apply_rule({}, {}, ...)", kSplitReduction, statement);
    for (const RuleOffer& offer : before.facts->offers()) {
      if (offer.rule == kSplitReduction && !offer.target.empty() && offer.target.front() == statement) rule = offer.step;
    }
    return fmt::format(
        "parts of a reduction that run at once need accumulators of their own: {} before the loop steps, then {} "
        "on the loop over the parts",
        rule, step.name);
  }
  if (before.facts->reassociation) return "";
  for (const RuleOffer& offer : before.facts->offers()) {
    if (offer.reassociation) return offer.step + " before the loop steps frees the order of reductions";
  }
  return "";
}

}  // namespace

std::string find_remedy(const ScheduleData& before, const Step& step, const Violation& violation) {
  const Dependence& dependence = before.facts->dependences()[violation.dependence];
  if (dependence.reduction) {
    const std::string found = for_reduction(before, step, violation, dependence.source);
    if (!found.empty()) return found;
  }
  if (dependence.kind == DependenceKind::flow && violation.note.empty()) {
    for (const RuleOffer& offer : before.facts->offers()) {
      const bool lifts = std::any_of(offer.composites.begin(), offer.composites.end(),
                                     [&](const Composite& composite) { return covers(composite, dependence); });
      if (lifts) return offer.step + " before the loop steps lets this reader work on the running value";
    }
  }
  if (step.name == "tile" || step.name == "reorder") return skew_for_order(before, step);
  if (step.name == "fuse_with") return for_fusion(before, step);
  if (is_concurrent(violation.loop_kind) && step.name != "fission" && step.name != "reverse") return for_mark(before, step);
  return "";
}

}  // namespace nestor
