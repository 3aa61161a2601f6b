// Rule "inline_terms": a tensor of terms, each made of elements that many of them share, is computed where the terms are read.
//
// Pattern    a temporary t, elementwise defined, t_e = f_e, where each access of f reads an element for many e: t is larger than what it is made
//            of (products of two matrices' elements, differences of points, a bias of distances). Its readers read each element once: a
//            sum of the terms, or what is made of them element by element. A cheap f may have a few readers, and elementwise ones that read
//            its elements several times.
// Rewrite    readers compute f_e in place of reading t_e, rounded to the type of t; t is gone. A sum of terms becomes a sum of products, as it
//            would have been defined without t.
// Conditions what f reads is not written again before the readers.
// Proof      f_e has the same value at the reader, by the condition, and the cast is the store's.
// Rounding   none: the same operations on the same values.
#include <algorithm>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/element_reads.h"
#include "poly/algebra/values/nest_edit.h"

namespace nestor {
namespace {

constexpr const char* kName = "inline_terms";
constexpr int kMostNodes = 24, kMostReaders = 3;

bool is_cheap(const ScalarExpr& value) { return !has_functions(value) && nodes_of(value) <= kMostNodes; }

std::string objection(const Nest& nest, const Statement& statement) {
  const std::string& tensor = statement.write.tensor;
  if (statement.reduction || !is_elementwise_temporary(nest, tensor)) return "it is not the only definition of a temporary";
  if (!shares_operands(statement)) return "what it is made of is as large";
  const std::vector<const Statement*> readers = readers_of(nest, tensor);
  if (readers.empty() || readers.size() > kMostReaders) return "none or too many statements read it";
  const bool cheap = is_cheap(statement.value);
  if (readers.size() > 1 && !cheap) return "several statements read it, and its value takes long";
  for (const Statement* reader : readers) {
    if (reader->group <= statement.group) return "it is read before it is written";
    if (!may_recompute(nest, statement, *reader)) return "what it reads is written again before " + reader->name;
    const bool elementwise = cheap && !reader->reduction;
    for (const Access& read : reader->reads) {
      if (read.tensor == tensor && !elementwise && !reads_elements(nest, *reader, read, false))
        return reader->name + " reads its elements several times";
    }
  }
  return "";
}

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return objection(nest, statement).empty() ? "what reads " + statement.write.tensor + " computes it of what is smaller" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  const std::string why = objection(nest, nest.statement(name));
  if (!why.empty()) refuse_rule(kName, name, why);
  return {with_inlined_tensor(nest, nest.statement(name).write.tensor), {}, false};
}

}  // namespace

const Rule& inline_terms_rule() {
  static const Rule rule{kName,
                         "terms made of elements that many of them share are computed where they are read (argument: statement)",
                         "the same operations on the same values, wherever they are",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
