// Steps on bodies: fuse_with, compute_at and fission.
#include <isl/map.h>

#include <algorithm>

#include "poly/schedule/order/running_values.h"
#include "poly/schedule/steps/editor.h"
#include "support/error.h"

namespace nestor {
namespace {

std::size_t position(const TreeNode& sequence, const Tree& child) {
  return static_cast<std::size_t>(std::find(sequence.children.begin(), sequence.children.end(), child) -
                                  sequence.children.begin());
}

/// The sequence that holds both nodes as children, or null.
Tree common_sequence(const Tree& root, const Tree& a, const Tree& b) {
  const std::vector<Tree> above = path_to(root, a.get());
  const std::vector<Tree> other = path_to(root, b.get());
  const Tree& parent = above[above.size() - 2];
  return parent == other[other.size() - 2] && parent->kind == TreeNode::Kind::sequence ? parent : nullptr;
}

/// { P[x] -> C[y] } pairs of instances that should meet in a fused loop: flow dependences either way, or, where a composite
/// relaxes the flow, the instances that use the same element.
std::vector<isl::map> meeting_instances(const NestFacts& facts, const std::string& producer, const std::string& consumer) {
  std::vector<isl::map> result;
  for (std::size_t k = 0; k < facts.dependences().size(); ++k) {
    const Dependence& dependence = facts.dependences()[k];
    if (dependence.kind != DependenceKind::flow) continue;
    const bool forward = dependence.source == producer && dependence.sink == consumer;
    const bool backward = dependence.source == consumer && dependence.sink == producer;
    if (!forward && !backward) continue;
    isl::map relation = dependence.relation;
    for (std::size_t c = 0; c < facts.composites.size(); ++c) {
      for (const RelaxedDependence& relaxed : facts.relaxed(c)) {
        if (relaxed.dependence == k && relaxed.readers_matched) relation = relaxed.match;
      }
    }
    result.push_back(forward ? relation : relation.reverse());
  }
  return result;
}

/// { P[x] -> C[y] } pairs of instances that read one element: what ties two statements with no flow between them.
std::vector<isl::map> sharing_instances(const Nest& nest, const std::string& one, const std::string& other) {
  std::vector<isl::map> result;
  const Statement& a = nest.statement(one);
  const Statement& b = nest.statement(other);
  for (const Access& from : a.reads) {
    for (const Access& to : b.reads) {
      if (from.tensor != to.tensor) continue;
      const isl::map back = to.relation.intersect_domain(b.domain).reverse();
      result.push_back(from.relation.intersect_domain(a.domain).apply_range(back));
    }
  }
  return result;
}

/// True when the two loops have the same value on every pair.
bool always_equal(const isl::map& relation, const LoopSpace& from, std::size_t a, const LoopSpace& to, std::size_t b) {
  const isl::map pairs = in_loop_space(relation, from, to);
  const int at = static_cast<int>(a);
  const int on = static_cast<int>(b);
  if (!isl::manage(isl_map_order_lt(pairs.copy(), isl_dim_in, at, isl_dim_out, on)).is_empty()) return false;
  return isl::manage(isl_map_order_gt(pairs.copy(), isl_dim_in, at, isl_dim_out, on)).is_empty();
}

/// The loops of the perfect chain that starts at `top`.
std::vector<Tree> chain_from(Tree top) {
  std::vector<Tree> chain;
  for (; top->kind == TreeNode::Kind::loop; top = top->children.front()) chain.push_back(top);
  return chain;
}

}  // namespace

void ScheduleEditor::fuse_with() {
  args_.expect(2, 2);
  const Tree moved = loop_argument(0);
  const Tree consumer = loop_argument(1);
  if (moved == consumer) user_error("{}a loop cannot be fused with itself", where());
  const std::size_t depth = static_cast<std::size_t>(loop_depth(data_.tree, moved.get()));
  const Tree sequence = common_sequence(data_.tree, moved, consumer);
  if (!sequence) {
    user_error("{}loops {} and {} are not next to each other in one body; fuse the loops around them first, or reorder", where(),
               moved->name, consumer->name);
  }
  // The statements whose bodies changed places: those of both loops and all between.
  OrderScope scope;
  scope.first_depth = depth;
  scope.last_depth = SIZE_MAX;
  scope.sequence = true;
  const auto [first, last] = std::minmax({position(*sequence, moved), position(*sequence, consumer)});
  for (std::size_t k = first; k <= last; ++k) {
    for (const std::string& statement : statements_under(*sequence->children[k])) scope.part[statement] = static_cast<int>(k);
  }
  scope.across_only = moved->loop_kind == consumer->loop_kind;
  fuse_loops(moved, consumer);
  scopes_.push_back(scope);
}

void ScheduleEditor::fuse_loops(const Tree& moved, const Tree& consumer) {
  const Tree sequence = common_sequence(data_.tree, moved, consumer);
  if (!sequence) internal_error("fuse_loops: {} and {} are not in one sequence", moved->name, consumer->name);
  substitute(statements_under(*moved), moved->name, LinearForm::variable(consumer->name));
  const bool first = position(*sequence, moved) < position(*sequence, consumer);
  const Tree& body = consumer->children.front();
  const Tree joined = first ? make_sequence({moved->children.front(), body}) : make_sequence({body, moved->children.front()});
  std::vector<Tree> children;
  for (const Tree& child : sequence->children) {
    if (child == consumer) children.push_back(with_body(*consumer, joined));
    if (child != consumer && child != moved) children.push_back(child);
  }
  data_.tree = replace_node(data_.tree, sequence.get(), make_sequence(children));
  rename_in_stages(moved->name, consumer->name);
}

std::string ScheduleEditor::producer_loop(const std::string& statement, const Tree& chain, const Tree& consumer,
                                          const std::string& asked) {
  OrderChecker checker(data_);
  bool related = false;
  std::vector<std::string> candidates;
  for (const Tree& loop : chain_from(chain)) candidates.push_back(loop->name);
  const auto loop_position = [&](const std::string& of, const std::string& loop) {
    const std::vector<std::string>& loops = checker.space(of).loops();
    return static_cast<std::size_t>(std::find(loops.begin(), loops.end(), loop) - loops.begin());
  };
  const auto keep_equal = [&](const std::vector<isl::map>& relations, const std::string& other) {
    for (const isl::map& relation : relations) {
      related = true;
      std::erase_if(candidates, [&](const std::string& candidate) {
        return !always_equal(relation, checker.space(statement), loop_position(statement, candidate), checker.space(other),
                             loop_position(other, consumer->name));
      });
    }
  };
  const std::vector<std::string> others = statements_under(*consumer);
  for (const std::string& other : others) keep_equal(meeting_instances(*data_.facts, statement, other), other);
  if (!related) {
    for (const std::string& other : others) keep_equal(sharing_instances(data_.facts->nest, statement, other), other);
  }
  if (!related)
    user_error("{}no flow dependence and no common read ties {} to the statements in loop {}", where(), statement,
               consumer->name);
  if (candidates.empty()) {
    user_error("{}no loop of {} runs along with {} (on the way into {}): split or reorder {}'s loops the same way first", where(),
               statement, consumer->name, asked, statement);
  }
  return candidates.front();
}

void ScheduleEditor::compute_at() {
  args_.expect(2, 2);
  const std::string statement = statement_argument(0).name;
  const std::string asked = loop_argument(1)->name;
  std::size_t start = SIZE_MAX;
  std::set<std::string> moved;
  for (;;) {
    const std::vector<Tree> own = path_to(data_.tree, find_leaf(data_.tree, statement).get());
    const std::vector<Tree> target = path_to(data_.tree, find_loop(data_.tree, asked).get());
    std::size_t parted = 0;
    while (parted < own.size() && parted < target.size() && own[parted] == target[parted]) ++parted;
    if (parted == target.size()) break;
    const Tree& chain = own[parted];
    const Tree& consumer = target[parted];
    if (chain->kind != TreeNode::Kind::loop) {
      user_error("{}{} has no loop left to run along with {}", where(), statement, consumer->name);
    }
    const std::size_t depth = static_cast<std::size_t>(loop_depth(data_.tree, chain.get()));
    start = std::min(start, depth);
    std::string name;
    with_isl_budget(where() + "matching loops", [&] { name = producer_loop(statement, chain, consumer, asked); });
    if (name != chain->name) {
      std::vector<std::string> order{name};
      for (const Tree& loop : chain_from(chain)) {
        if (loop->name == name) break;
        order.push_back(loop->name);
      }
      reorder_loops(order);
    }
    for (const std::string& other : statements_under(*own[parted - 1])) moved.insert(other);
    fuse_loops(find_loop(data_.tree, name), consumer);
  }
  if (moved.empty()) user_error("{}{} is inside loop {} already", where(), statement, asked);
  // Judged by the final order alone: what was reordered on the way is part of it.
  OrderScope scope;
  scope.first_depth = start;
  scope.last_depth = SIZE_MAX;
  scope.sequence = true;
  for (const std::string& name : moved) scope.part[name] = 0;
  scopes_ = {scope};
}

void ScheduleEditor::fission() {
  args_.expect(2, 2);
  const Tree loop = loop_argument(0);
  const std::string statement = statement_argument(1).name;
  const Tree leaf = find_leaf(data_.tree, statement);
  if (!contains(*loop, leaf.get())) user_error("{}statement {} is not inside loop {}", where(), statement, loop->name);
  const Tree body = loop->children.front();
  if (body->kind == TreeNode::Kind::loop && statements_under(*body).size() > 1) {
    user_error("{}the body of {} is loop {} alone: apply fission({}, {}) first", where(), loop->name, body->name, body->name,
               statement);
  }
  std::vector<Tree> head, tail;
  for (const Tree& child : body->children) {
    const bool later = !tail.empty() || contains(*child, leaf.get());
    (later ? tail : head).push_back(child);
  }
  if (head.empty()) user_error("{}nothing comes before {} in loop {}", where(), statement, loop->name);
  std::string name = loop->name + "_f";
  while (find_loop(data_.tree, name)) name += "_f";
  check_new_loop(name, "");
  const std::size_t depth = static_cast<std::size_t>(loop_depth(data_.tree, loop.get()));
  OrderScope scope = scope_below(loop, depth, SIZE_MAX, true);
  TreeNode later = *loop;
  later.name = name;
  const Tree second = with_body(later, make_sequence(tail));
  const std::vector<std::string> moved = statements_under(*second);
  for (const std::string& part : moved) scope.part[part] = 1;
  scope.across_only = true;
  substitute(moved, loop->name, LinearForm::variable(name));
  data_.tree = replace_node(data_.tree, loop.get(), make_sequence({with_body(*loop, make_sequence(head)), second}));
  scopes_.push_back(scope);
  std::vector<StageDirective> copies;
  for (const StageDirective& stage : data_.stages) {
    if (stage.loop != loop->name) continue;
    copies.push_back(stage);
    copies.back().loop = name;
  }
  data_.stages.insert(data_.stages.end(), copies.begin(), copies.end());
  drop_idle_stages();
}

}  // namespace nestor
