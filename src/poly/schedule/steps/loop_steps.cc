// Steps on one chain of loops, and the algebra step.
#include <fmt/ranges.h>

#include <algorithm>

#include "poly/algebra/all_rules.h"
#include "poly/algebra/reprove.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"
#include "poly/schedule/steps/editor.h"
#include "support/error.h"

namespace nestor {
namespace {

/// The composites that still hold for the rewritten nest, less those that `found` replaces, and `found`.
std::vector<Composite> merged(const std::vector<Composite>& known, const std::vector<Composite>& found, const Nest& nest) {
  std::vector<Composite> result = reprove(nest, known);
  std::erase_if(result, [&](const Composite& old) {
    return std::any_of(found.begin(), found.end(), [&](const Composite& fresh) { return fresh.lead == old.lead; });
  });
  result.insert(result.end(), found.begin(), found.end());
  return result;
}

/// Why the nest is not well formed; "" where it is. `valid`: what it was made of, where that is known to be.
std::string objection_to_form(const Nest& nest, const Nest* valid = nullptr) {
  try {
    valid != nullptr ? validate_changes(*valid, nest) : validate(nest);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

/// What is left of an access within a domain without points may be no function, and has no points, either.
void empty_accesses_of_empty_domains(Nest& nest) {
  for (Statement& statement : nest.statements) {
    const isl::set domain = domain_in(nest, statement);
    if (!domain.is_empty()) continue;
    const auto empty = [&](Access& access) { access.relation = access.relation.intersect_domain(domain); };
    empty(statement.write);
    std::for_each(statement.reads.begin(), statement.reads.end(), empty);
  }
}

}  // namespace

void ScheduleEditor::apply_rule() {
  args_.expect(1, SIZE_MAX);
  const bool first =
      std::all_of(data_.steps.begin(), data_.steps.end(), [](const auto& each) { return each->name == "apply_rule"; });
  if (!first) user_error("{}algebra comes before any loop step; start from the nest and apply the rule first", where());
  std::vector<std::string> target;
  for (std::size_t k = 1; k < args_.count(); ++k) {
    const nlohmann::json& value = step_.args[k];
    target.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  const NestFacts& facts = *data_.facts;
  const Rule& applied = rule(args_.text(0));
  std::optional<RuleResult> found;
  std::vector<Composite> composites;
  with_isl_budget("step `" + describe(step_) + "`", [&] {
    found = applied.apply(facts.nest, target);
    empty_accesses_of_empty_domains(found->nest);
    composites = merged(facts.composites, found->composites, found->nest);
  });
  RuleResult& result = *found;
  if (const std::string why = objection_to_form(result.nest, &facts.nest); !why.empty() && objection_to_form(facts.nest).empty())
    user_error("{}the rule leaves a nest that is not well formed, which is a bug of Nestor: {}", where(), why);
  std::vector<std::shared_ptr<const Step>> steps = std::move(data_.steps);
  data_ = original_order_of(std::make_shared<const NestFacts>(facts.original, std::move(result.nest), std::move(composites),
                                                              facts.reassociation || result.reassociation, facts.known_orders()));
  data_.steps = std::move(steps);
}

void ScheduleEditor::split() {
  args_.expect(4, 4);
  split_loop(loop_argument(0)->name, args_.integer(1, 1, kLargestFactor), args_.text(2), args_.text(3));
}

void ScheduleEditor::split_loop(const std::string& name, std::int64_t factor, const std::string& outer,
                                const std::string& inner) {
  const Tree loop = find_loop(data_.tree, name);
  const bool keeps_kind =
      loop->loop_kind == LoopKind::serial || loop->loop_kind == LoopKind::parallel || loop->loop_kind == LoopKind::gpu_block;
  if (!keeps_kind)
    user_error("{}loop {} is marked {}; split it first and mark a part", where(), name, to_string(loop->loop_kind));
  check_new_loop(outer, name);
  check_new_loop(inner, name);
  if (outer == inner) user_error("{}the two parts need different names", where());
  const std::vector<std::string> statements = statements_under(*loop);
  LinearForm value;
  value.add(LinearForm::variable(outer), factor).add(LinearForm::variable(inner));
  substitute(statements, name, value);
  for (const std::string& statement : statements) {
    std::vector<LinearForm>& constraints = data_.forms.change(statement).constraints;
    constraints.push_back(LinearForm::variable(inner));
    constraints.push_back(LinearForm{{{inner, -1}}, factor - 1});
  }
  TreeNode top = *loop;
  top.name = outer;
  top.specialized = false;
  data_.tree = replace_node(data_.tree, loop.get(), with_body(top, make_loop(inner, loop->children.front())));
  rename_in_stages(name, inner);
}

void ScheduleEditor::tile() {
  args_.expect(8, 8);
  const std::string x = loop_argument(0)->name;
  const std::string y = loop_argument(1)->name;
  if (x == y) user_error("{}tile takes two different loops", where());
  const std::vector<Tree> chain = perfect_chain({find_loop(data_.tree, x), find_loop(data_.tree, y)});
  if (chain.front()->name != x) user_error("{}loop {} is outside {}: name the outer one first", where(), y, x);
  const std::string xo = args_.text(2), yo = args_.text(3), xi = args_.text(4), yi = args_.text(5);
  split_loop(x, args_.integer(6, 1, kLargestFactor), xo, xi);
  split_loop(y, args_.integer(7, 1, kLargestFactor), yo, yi);
  reorder_loops({xo, yo, xi, yi});
}

std::vector<Tree> ScheduleEditor::perfect_chain(const std::vector<Tree>& wanted) const {
  std::vector<Tree> longest;
  for (const Tree& loop : wanted) {
    std::vector<Tree> path = path_to(data_.tree, loop.get());
    if (path.size() > longest.size()) longest = std::move(path);
  }
  std::size_t first = longest.size();
  for (const Tree& loop : wanted) {
    const auto found = std::find(longest.begin(), longest.end(), loop);
    if (found == longest.end()) {
      user_error("{}loops {} and {} are not nested in one another", where(), loop->name, longest.back()->name);
    }
    first = std::min(first, static_cast<std::size_t>(found - longest.begin()));
  }
  const std::vector<Tree> chain(longest.begin() + static_cast<std::ptrdiff_t>(first), longest.end());
  for (std::size_t k = 0; k < chain.size(); ++k) {
    if (chain[k]->kind == TreeNode::Kind::loop) continue;
    const Tree& taken = chain[k + 1];
    const auto other =
        std::find_if(chain[k]->children.begin(), chain[k]->children.end(), [&](const Tree& c) { return c != taken; });
    const bool before = other < std::find(chain[k]->children.begin(), chain[k]->children.end(), taken);
    const std::string cut = statements_under(before ? *taken : **other).front();
    user_error("{}the loops from {} to {} are no perfect chain: {} is in loop {} too. Apply fission({}, {}) first", where(),
               chain.front()->name, chain.back()->name, statements_under(**other).front(), chain[k - 1]->name, chain[k - 1]->name,
               cut);
  }
  return chain;
}

void ScheduleEditor::reorder() {
  args_.expect(2, SIZE_MAX);
  std::vector<std::string> order;
  for (std::size_t k = 0; k < args_.count(); ++k) {
    order.push_back(loop_argument(k)->name);
    if (std::count(order.begin(), order.end(), order.back()) > 1) user_error("{}loop {} is named twice", where(), order.back());
  }
  reorder_loops(order);
}

void ScheduleEditor::reorder_loops(const std::vector<std::string>& order) {
  std::vector<Tree> wanted;
  wanted.reserve(order.size());
  for (const std::string& name : order) wanted.push_back(find_loop(data_.tree, name));
  const std::vector<Tree> chain = perfect_chain(wanted);
  std::vector<Tree> result;
  std::size_t next = 0;
  for (const Tree& loop : chain) {
    const bool moves = std::find(wanted.begin(), wanted.end(), loop) != wanted.end();
    result.push_back(moves ? wanted[next++] : loop);
  }
  Tree body = chain.back()->children.front();
  for (std::size_t k = result.size(); k-- > 0;) body = with_body(*result[k], body);
  const std::size_t depth = static_cast<std::size_t>(loop_depth(data_.tree, chain.front().get()));
  data_.tree = replace_node(data_.tree, chain.front().get(), body);
  scopes_.push_back(scope_below(body, depth, depth + chain.size() - 1, false));
}

void ScheduleEditor::skew() {
  args_.expect(3, 3);
  const Tree outer = loop_argument(0);
  const Tree inner = loop_argument(1);
  const std::int64_t factor = args_.integer(2, -kLargestFactor, kLargestFactor);
  if (outer == inner || !contains(*outer, inner.get())) {
    user_error("{}loop {} must be inside {}", where(), inner->name, outer->name);
  }
  // y' = y + f*x: at equal x the order of y stays, so every dependence holds as before.
  LinearForm value = LinearForm::variable(inner->name);
  value.add(LinearForm::variable(outer->name), -factor);
  substitute(statements_under(*inner), inner->name, value);
}

void ScheduleEditor::shift() {
  args_.expect(3, 3);
  const std::string statement = statement_argument(0).name;
  const Tree loop = loop_argument(1);
  const std::int64_t distance = args_.integer(2, -kLargestFactor, kLargestFactor);
  if (!contains(*loop, find_leaf(data_.tree, statement).get())) {
    user_error("{}statement {} is not inside loop {}; it is inside {}", where(), statement, loop->name,
               fmt::join(TreeIndex(data_.tree).loop_names(statement), ", "));
  }
  LinearForm value = LinearForm::variable(loop->name);
  value.constant = -distance;
  substitute({statement}, loop->name, value);
  const std::size_t depth = static_cast<std::size_t>(loop_depth(data_.tree, loop.get()));
  OrderScope scope = scope_below(loop, depth, SIZE_MAX, true);
  scope.part[statement] = 1;
  scope.across_only = true;
  scopes_.push_back(scope);
}

void ScheduleEditor::reverse() {
  args_.expect(1, 1);
  const Tree loop = loop_argument(0);
  substitute(statements_under(*loop), loop->name, LinearForm{{{loop->name, -1}}, 0});
  const std::size_t depth = static_cast<std::size_t>(loop_depth(data_.tree, loop.get()));
  scopes_.push_back(scope_below(loop, depth, depth, false));
}

}  // namespace nestor
