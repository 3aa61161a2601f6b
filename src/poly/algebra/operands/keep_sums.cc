// Rule "keep_sums": sums of products that meet in one statement, or are results themselves, are stored by statements of their own.
//
// Pattern    r_e += a_p b_q, a sum of products of two 16-bit tensors into an output of f32, or into a temporary of f32 one of whose readers
//            reads another such sum too (the gates of a recurrent cell: f(x W + h U)).
// Rewrite    the sum and what starts it write r', and r_e = r'_e behind it; readers are as before. So each product may have a kernel of its
//            own, which keeps r' in registers and stores r.
// Conditions the sum's initialisers are alone in their loops, as the sum is; nothing else writes r, and nobody reads it before. Where elements
//            have no terms, one statement starts them all.
// Proof      r and r' are equal element by element once the sum is complete.
// Rounding   none: both are f32.
#include <isl/map.h>

#include <algorithm>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "keep_sums";

/// Does the statement read what a sum of products of other tensors has made? Sums that share an operand share their loops.
bool meets_another(const Nest& nest, const Statement& reader, const Statement& sum) {
  const auto reads = [](const Statement& other, const std::string& tensor) {
    return std::any_of(other.reads.begin(), other.reads.end(), [&](const Access& read) { return read.tensor == tensor; });
  };
  const auto is_another = [&](const Statement* writer) {
    return half_products(*writer) &&
           std::none_of(sum.reads.begin(), sum.reads.end(), [&](const Access& read) { return reads(*writer, read.tensor); });
  };
  return std::any_of(reader.reads.begin(), reader.reads.end(), [&](const Access& read) {
    const std::vector<const Statement*> writers = writers_of(nest, read.tensor);
    return read.tensor != sum.write.tensor && std::any_of(writers.begin(), writers.end(), is_another);
  });
}

std::string objection(const Nest& nest, const Statement& sum) {
  const Tensor& tensor = nest.tensor(sum.write.tensor);
  if (!half_products(sum) || tensor.role == TensorRole::input || tensor.type != ElementType::f32)
    return "it is no sum of products of two 16-bit tensors into a tensor of f32";
  const std::vector<const Statement*> starts = initialisers_of(nest, sum);
  const bool apart =
      !starts.empty() && alone_in_group(nest, sum.name) &&
      std::all_of(starts.begin(), starts.end(), [&](const Statement* start) { return alone_in_group(nest, start->name); });
  if (!apart || starts.size() + 1 != writers_of(nest, tensor.name).size())
    return "it starts from nothing, or shares its loops or its result with other statements";
  if (starts.size() > 1 && !always_has_points(nest, sum)) return "some elements have no terms, and several statements start them";
  bool meets = tensor.role == TensorRole::output;
  for (const Statement* reader : readers_of(nest, tensor.name)) {
    if (reader->group <= sum.group) return "its result is read before it is complete";
    if (reader->reduction) return "another reduction reads its result";
    meets = meets || meets_another(nest, *reader, sum);
  }
  return meets ? "" : "no reader of its result reads a sum of products of other tensors";
}

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return objection(nest, statement).empty() ? statement.write.tensor + " is stored from a sum that stays in registers" : "";
  });
}

/// Over the elements of the sum; those too that only have a start, which is one statement then.
Statement store_of(const Nest& nest, const Statement& sum, const std::string& name) {
  isl::map to_like;
  return element_statement(nest, always_has_points(nest, sum) ? sum : *initialisers_of(nest, sum).front(), name, to_like);
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  const Statement& sum = nest.statement(name);
  const std::string why = objection(nest, sum);
  if (!why.empty()) refuse_rule(kName, name, why);
  Tensor kept = nest.tensor(sum.write.tensor);
  kept.name = fresh_name(nest, kept.name + "_kept");
  kept.role = TensorRole::temporary;
  Nest result = nest;
  result.tensors.push_back(kept);
  Statement store = store_of(nest, sum, fresh_name(nest, name + "_store"));
  store.reads = {{kept.name, store.write.relation.set_range_tuple(kept.name)}};
  store.value = ScalarExpr::read(0, kept.type);
  std::vector<std::string> writers{name};
  for (const Statement* start : initialisers_of(nest, sum)) writers.push_back(start->name);
  for (const std::string& writer : writers) {
    Statement statement = result.statement(writer);
    statement.write = {kept.name, statement.write.relation.set_range_tuple(kept.name)};
    replace_statement(result, statement);
  }
  insert_statement(result, group_end(result, name), store);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& keep_sums_rule() {
  static const Rule rule{
      kName,
      "sums of products that are results, or meet in one statement, are stored by statements of their own (argument: statement)",
      "the stored elements are those of the complete sum",
      "none",
      find,
      apply};
  return rule;
}

}  // namespace nestor
