// Rule "keep_result": what is returned and used again is kept apart from the copy that is returned.
//
// Pattern    an output t, elementwise defined, t_e = f_e, that later statements read (a sum that is returned and normalised as well).
// Rewrite    t'_e = f_e; t_e = t'_e; the later statements read t', a temporary of the same type. A schedule can keep t' in registers or
//            shared memory, where t itself must be written to memory and read back.
// Conditions t has one definition, alone in its group, and is no reduction; all readers come after it.
// Proof      t' and t are equal element by element, and neither is written again.
// Rounding   none: t' has the type of t.
#include <isl/map.h>

#include <algorithm>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"

namespace nestor {
namespace {

constexpr const char* kName = "keep_result";

std::string objection(const Nest& nest, const Statement& statement) {
  const std::string& tensor = statement.write.tensor;
  if (nest.tensor(tensor).role != TensorRole::output) return "it writes no result";
  const Statement* definition = sole_definition(nest, tensor);
  if (definition == nullptr || definition->name != statement.name) return "its result has several definitions, or is a reduction";
  if (!alone_in_group(nest, statement.name)) return "it shares its loops with other statements of its definition";
  const std::vector<const Statement*> readers = readers_of(nest, tensor);
  if (readers.empty()) return "nobody reads its result";
  const bool later = std::all_of(readers.begin(), readers.end(), [&](const Statement* s) { return s->group > statement.group; });
  return later ? "" : "its result is read before it is written";
}

isl::map into(const isl::map& relation, const std::string& tensor) {
  return isl::manage(isl_map_set_tuple_name(relation.copy(), isl_dim_out, tensor.c_str()));
}

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return objection(nest, statement).empty()
               ? "what uses " + statement.write.tensor + " again reads a copy that may stay on the chip"
               : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  const std::string why = objection(nest, nest.statement(name));
  if (!why.empty()) refuse_rule(kName, name, why);
  const std::string tensor = nest.statement(name).write.tensor;
  Tensor kept = nest.tensor(tensor);
  kept.name = fresh_name(nest, tensor + "_kept");
  kept.role = TensorRole::temporary;
  Nest result = nest;
  result.tensors.push_back(kept);
  for (Statement& reader : result.statements) {
    for (Access& read : reader.reads) {
      if (read.tensor == tensor) read = {kept.name, into(read.relation, kept.name)};
    }
  }
  Statement definition = nest.statement(name);
  definition.write = {kept.name, into(definition.write.relation, kept.name)};
  replace_statement(result, definition);
  Statement store = renamed(nest.statement(name), fresh_name(nest, name + "_store"));
  store.reads = {{kept.name, into(store.write.relation, kept.name)}};
  store.indices.clear();
  store.value = ScalarExpr::read(0, kept.type);
  insert_statement(result, group_end(result, name), store);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& keep_result_rule() {
  static const Rule rule{kName,
                         "a result that is used again is kept apart from the copy that is returned (argument: statement)",
                         "both hold the same elements, which are written once",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
