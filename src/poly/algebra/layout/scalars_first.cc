// Rule "scalars_first": a single value that inputs give is defined before all loops.
//
// Pattern    a temporary without dims, defined elementwise by inputs and such temporaries, behind statements that have loops: the bound of a step
//            that its number says, between the update's definitions.
// Rewrite    it is defined first. Statements on both sides of it may share their loops then.
// Conditions it is alone, it is the tensor's only definition, nothing before reads or writes the tensor, and nothing writes what it reads.
// Proof      no dependence leads to it (loop distribution).
// Rounding   none: the same operations on the same values.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"

namespace nestor {
namespace {

constexpr const char* kName = "scalars_first";

/// Is it a single value, made of tensors in `known` alone, that no statement of the nest touches before?
bool is_single_value(const Nest& nest, const Statement& statement, const std::set<std::string>& known) {
  const std::string& tensor = statement.write.tensor;
  if (statement.reduction || !statement.dims.empty() || nest.tensor(tensor).role != TensorRole::temporary ||
      sole_definition(nest, tensor) != &statement || !alone_in_group(nest, statement.name))
    return false;
  const std::vector<const Statement*> readers = readers_of(nest, tensor);
  return std::all_of(statement.reads.begin(), statement.reads.end(),
                     [&](const Access& read) { return known.contains(read.tensor); }) &&
         std::all_of(readers.begin(), readers.end(), [&](const Statement* reader) { return reader->group > statement.group; });
}

Nest reordered(const Nest& nest, std::size_t& moves) {
  Nest result = nest;
  std::set<std::string> known;  // inputs that nothing writes, and what stands in front
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::input && writers_of(nest, tensor.name).empty()) known.insert(tensor.name);
  }
  std::size_t front = 0;
  moves = 0;
  for (const Statement& statement : nest.statements) {
    if (!is_single_value(nest, statement, known)) continue;
    known.insert(statement.write.tensor);
    if (position_of(result, statement.name) != front) {
      const Statement moved = result.statement(statement.name);
      erase_statement(result, moved.name);
      insert_statement(result, front, moved);
      ++moves;
    }
    ++front;
  }
  return result;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::size_t moves = 0;
  reordered(nest, moves);
  if (moves == 0) return {};
  return {{kName, {}, fmt::format("{} single values of inputs stand between loops", moves)}};
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  expect_arguments(kName, target, 0);
  std::size_t moves = 0;
  Nest result = reordered(nest, moves);
  if (moves == 0) refuse_rule(kName, "", "no single value of inputs stands behind a loop");
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& scalars_first_rule() {
  static const Rule rule{
      kName, "single values that inputs give are defined before all loops", "loop distribution along dependences", "none", find,
      apply};
  return rule;
}

}  // namespace nestor
