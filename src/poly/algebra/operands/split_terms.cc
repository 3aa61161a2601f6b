// Rule "split_terms": a sum of several products a term becomes several sums of one product each.
//
// Pattern    r_e += a_p b_q + c_p d_q (or -, and more of them), products of 16-bit tensors each, or of rows by columns where operands have
//            f32, into a temporary of f32 that starts from 0: the real part of a product of complex numbers.
// Rewrite    r_e += a_p b_q and r'_e += c_p d_q, each with its own start; readers of r read r + r' (or r - r').
// Conditions initialisers and the sum are alone in their loops; nothing else writes r, and nobody reads it before.
// Proof      associativity and commutativity of addition. Infinities and NaN: the same terms are added, whatever their order.
// Rounding   as reassociate.
#include <isl/map.h>

#include <algorithm>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"

namespace nestor {
namespace {

constexpr const char* kName = "split_terms";

struct SignedTerm {
  bool negative = false;
  ScalarExpr value;
};

/// Products that are added up in `value`; false: something else is among them.
bool collect_terms(const Nest& nest, const Statement& sum, const ScalarExpr& value, bool negative,
                   std::vector<SignedTerm>& terms) {
  if ((value.op() == ScalarOp::add || value.op() == ScalarOp::sub) && value.type() == ElementType::f32) {
    return collect_terms(nest, sum, value.args()[0], negative, terms) &&
           collect_terms(nest, sum, value.args()[1], negative != (value.op() == ScalarOp::sub), terms);
  }
  Statement alone = sum;
  alone.value = value;
  terms.push_back({negative, value});
  return half_products(alone) || multiplies_rows_by_columns(nest, alone);
}

std::string objection(const Nest& nest, const Statement& sum) {
  const Tensor& tensor = nest.tensor(sum.write.tensor);
  std::vector<SignedTerm> terms;
  if (sum.reduction != ReductionOp::add || !collect_terms(nest, sum, sum.value, false, terms) || terms.size() < 2 ||
      terms.front().negative)
    return "it is no sum of several products a term, of 16-bit tensors or of rows by columns";
  if (tensor.role != TensorRole::temporary || tensor.type != ElementType::f32 || !starts_from(nest, sum, 0))
    return "it does not add up to a temporary of f32 from 0 on";
  const std::vector<const Statement*> starts = initialisers_of(nest, sum), readers = readers_of(nest, tensor.name);
  const auto stands_apart = [&](const Statement* statement) { return alone_in_group(nest, statement->name); };
  if (!stands_apart(&sum) || !std::all_of(starts.begin(), starts.end(), stands_apart) ||
      starts.size() + 1 != writers_of(nest, tensor.name).size())
    return "it shares its loops or its result with other statements";
  const bool later =
      std::all_of(readers.begin(), readers.end(), [&](const Statement* reader) { return reader->group > sum.group; });
  return later ? "" : "its result is read before it is complete";
}

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return objection(nest, statement).empty() ? statement.name + " becomes a sum for each of its products" : "";
  });
}

/// Readers of the result read the other one as well.
void add_to_readers(Nest& nest, const std::string& tensor, const std::string& other, bool negative) {
  for (Statement& reader : nest.statements) {
    const std::vector<Access> reads = reader.reads;
    for (std::size_t k = 0; k < reads.size(); ++k) {
      if (reads[k].tensor != tensor) continue;
      const int more = add_read(reader, {other, reads[k].relation.set_range_tuple(other)});
      reader.value = reader.value.rewrite([&](const ScalarExpr& node) {
        if (node.op() != ScalarOp::read || node.ordinal() != static_cast<int>(k)) return node;
        return ScalarExpr::make(negative ? ScalarOp::sub : ScalarOp::add, {node, ScalarExpr::read(more, ElementType::f32)});
      });
    }
  }
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  const Statement& sum = nest.statement(name);
  const std::string why = objection(nest, sum);
  if (!why.empty()) refuse_rule(kName, name, why);
  std::vector<SignedTerm> terms;
  collect_terms(nest, sum, sum.value, false, terms);
  Nest result = nest;
  std::string last = name;
  for (std::size_t k = 1; k < terms.size(); ++k) {
    Tensor tensor = nest.tensor(sum.write.tensor);
    tensor.name = fresh_name(result, tensor.name + "_term");
    result.tensors.push_back(tensor);
    const auto into = [&](Statement statement, const std::string& of) {
      statement = renamed(statement, fresh_name(result, of + "_term"));
      statement.write = {tensor.name, statement.write.relation.set_range_tuple(tensor.name)};
      return statement;
    };
    const auto add = [&](const Statement& statement) {
      insert_statement(result, group_end(result, last), statement);
      last = statement.name;
    };
    for (const Statement* start : initialisers_of(nest, sum)) add(into(*start, start->name));
    Statement part = into(sum, name);
    part.value = terms[k].value;
    compact(part);
    add(part);
    add_to_readers(result, sum.write.tensor, tensor.name, terms[k].negative);
  }
  Statement first = sum;
  first.value = terms.front().value;
  compact(first);
  first.group = result.statement(name).group;
  replace_statement(result, first);
  return {std::move(result), {}, true};
}

}  // namespace

const Rule& split_terms_rule() {
  static const Rule rule{kName,
                         "a sum of several products a term becomes a sum for each of them (argument: statement)",
                         "addition is associative and commutative: the same terms are added up",
                         "as reassociate",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
