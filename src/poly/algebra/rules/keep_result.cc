// Rule "keep_result": what is returned and used again is kept apart from the copy that is returned.
//
// Pattern    an output t, elementwise defined, t_e = f_e, that later statements read (a sum that is returned and normalised as well).
// Rewrite    t'_e = f_e; t_e = t'_e; later statements read t', a temporary of the same type. A schedule can keep t' in registers or
//            shared memory, where t itself must be written to memory and read back. Those that wait for all of t, as for a sum of all its
//            elements, go on to read t: no schedule could keep t' that long.
// Conditions t has one definition, alone in its group, and is no reduction; all readers come after it.
// Proof      t' and t are equal element by element, and neither is written again; t is written before all that reads it.
// Rounding   none: t' has the type of t.
#include <isl/map.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

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

/// Elements of a tensor that the instances of statements need through temporaries that they read: { Statement[..] -> t[..] }.
class ElementsBehind {
 public:
  ElementsBehind(const Nest& nest, std::string tensor) : nest_(nest), tensor_(std::move(tensor)) {}

  /// Of what the statement does not read itself; nothing: there are none.
  std::optional<isl::map> of(const Statement& statement) {
    const auto [known, added] = found_.try_emplace(statement.name);
    if (!added) return known->second;
    std::optional<isl::map> found;
    const auto add = [&](const isl::map& more) { found = found ? found->unite(more) : more; };
    for (const Access& read : statement.reads) {
      if (read.tensor == tensor_ || nest_.tensor(read.tensor).role != TensorRole::temporary) continue;
      for (const Statement* writer : writers_of(nest_, read.tensor)) {
        if (writer->group >= statement.group) continue;
        const isl::map instances = read.relation.apply_range(writer->write.relation.reverse());
        for (const Access& before : writer->reads) {
          if (before.tensor == tensor_) add(instances.apply_range(before.relation));
        }
        if (const auto deeper = of(*writer)) add(instances.apply_range(*deeper));
      }
    }
    return found_[statement.name] = found;
  }

 private:
  const Nest& nest_;
  const std::string tensor_;
  std::map<std::string, std::optional<isl::map>> found_;  ///< by statement
};

/// Does each instance of the statement need elements of the tensor at many places of every index, through what others make of them?
bool waits_for_all(const Nest& nest, const Statement& statement, const std::string& tensor, ElementsBehind& elements) {
  const auto behind = elements.of(statement);
  if (!behind) return false;
  const isl::map needed = behind->intersect_domain(domain_in(nest, statement));
  const int rank = static_cast<int>(nest.tensor(tensor).shape.size());
  for (int k = 0; k < rank; ++k) {
    isl_map* single = isl_map_reset_tuple_id(needed.copy(), isl_dim_out);
    single = isl_map_project_out(single, isl_dim_out, static_cast<unsigned>(k) + 1, static_cast<unsigned>(rank - k - 1));
    single = isl_map_project_out(single, isl_dim_out, 0, static_cast<unsigned>(k));
    if (isl::manage(single).is_single_valued()) return false;
  }
  return rank > 0;
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
  ElementsBehind elements(nest, tensor);
  for (Statement& reader : result.statements) {
    if (waits_for_all(nest, reader, tensor, elements)) continue;
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
