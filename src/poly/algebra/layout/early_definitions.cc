// Rule "early_definitions": what the loops of a recurrence define without it is defined before them.
//
// Pattern    statements that share the loops of a recurrence, of which one needs nothing that the others compute: the borders of each step
//            of a simulation, which inputs give.
// Rewrite    it gets loops of its own in front: a kernel for all steps, and one less in each.
// Conditions no instance of it follows an instance of another statement of its group that touches the same element, one of them to write
//            it (isl, by the original order); the others still read what they write; and one of them gives other elements of its tensor, so
//            that all steps of that are kept anyway. What a step sums up is started in it.
// Proof      loop distribution: all dependences between it and its group go from it to the others.
// Rounding   none: the same operations on the same values.
// Source     R. Allen, K. Kennedy, "Optimizing Compilers for Modern Architectures", 2001, loop distribution.
#include <fmt/format.h>
#include <isl/map.h>

#include <algorithm>
#include <string>
#include <vector>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "early_definitions";

bool reads_tensor(const Statement& statement, const std::string& tensor) {
  return std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) { return read.tensor == tensor; });
}

/// Does an instance of `second` touch an element behind one of `first`, through these accesses?
bool conflicts(const Nest& nest, const Statement& first, const Access& a, const Statement& second, const Access& b) {
  if (a.tensor != b.tensor) return false;
  const isl::map from = a.relation.intersect_domain(domain_in(nest, first)),
                 to = b.relation.intersect_domain(domain_in(nest, second));
  return !from.apply_range(to.reverse()).intersect(original_order(nest, first.name, second.name)).is_empty();
}

bool depends_on(const Nest& nest, const Statement& statement, const Statement& other) {
  const auto after = [&](const Access& a, const Access& b) { return conflicts(nest, other, a, statement, b); };
  return after(other.write, statement.write) ||
         std::any_of(other.reads.begin(), other.reads.end(), [&](const Access& read) { return after(read, statement.write); });
}

/// Statements of the group, in order.
std::vector<const Statement*> group_of(const Nest& nest, int group) {
  std::vector<const Statement*> all;
  for (const Statement& each : nest.statements) {
    if (each.group == group) all.push_back(&each);
  }
  return all;
}

bool is_early(const Nest& nest, const Statement& statement) {
  const std::vector<const Statement*> group = group_of(nest, statement.group);
  bool recurs = false, shared = false;
  for (const Statement* other : group) {
    if (reads_tensor(statement, other->write.tensor)) return false;
    if (other == &statement) continue;
    const bool same = other->write.tensor == statement.write.tensor;
    if (same && (other->reduction || statement.reduction)) return false;
    shared = shared || same;
    recurs = recurs || std::any_of(group.begin(), group.end(), [&](const Statement* writer) {
               return writer != &statement && reads_tensor(*other, writer->write.tensor);
             });
  }
  return recurs && shared && std::none_of(group.begin(), group.end(), [&](const Statement* other) {
           return other != &statement && depends_on(nest, statement, *other);
         });
}

Nest reordered(const Nest& nest, std::size_t& moves) {
  Nest result = nest;
  std::vector<std::string> names;
  for (const Statement& statement : nest.statements) {
    if (!alone_in_group(nest, statement.name)) names.push_back(statement.name);
  }
  moves = 0;
  for (const std::string& name : names) {
    if (alone_in_group(result, name) || !is_early(result, result.statement(name))) continue;
    const Statement moved = result.statement(name);
    const std::string next = group_of(result, moved.group).front()->name;
    const std::string anchor = next == name ? group_of(result, moved.group)[1]->name : next;
    erase_statement(result, name);
    insert_statement(result, position_of(result, anchor), moved);
    ++moves;
  }
  return result;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::size_t moves = 0;
  reordered(nest, moves);
  if (moves == 0) return {};
  return {{kName, {}, fmt::format("{} statements need nothing of the recurrence whose loops they share", moves)}};
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  expect_arguments(kName, target, 0);
  std::size_t moves = 0;
  Nest result = reordered(nest, moves);
  if (moves == 0) refuse_rule(kName, "", "no statement of a recurrence's loops needs nothing of it");
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& early_definitions_rule() {
  static const Rule rule{kName,
                         "what shares the loops of a recurrence and needs nothing of it gets loops of its own in front",
                         "loop distribution along dependences",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
