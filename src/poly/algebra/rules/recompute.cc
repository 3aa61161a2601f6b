// Rule "recompute": a cheap value is computed where it is read.
//
// Pattern    a temporary t, elementwise defined, t_e = f_e, whose readers read each element once each; a reduction is among them. Or t_e is a
//            sum of a few terms that one statement reads, or all are of tensors with fewer dims (distances of points): f_e is that sum.
//            A definition may be that one statement (a vector times a small matrix, element by element).
//            Or one other definition alone reads t, which has as many elements as any tensor: a step of a longer one.
//            A value of a few additions and products may be read by a few points each (channels of a pixel), and be a step then that has a few
//            times less elements than other tensors.
//            What is made of such tensors alone may be read a few times (the axes of a force), and be longer; a sum of them, by the
//            definition of what a reduction reads.
// Rewrite    readers compute f_e in place of reading t_e, rounded to the type of t; t is gone. A schedule then needs no place for t, which
//            may be as large as all that the reduction takes.
// Conditions what f reads is not written again before the readers; f is short; readers of t's elements are one to one, so that f is
//            computed at most once for each reader and element, or few to one.
// Proof      f_e has the same value at the reader, by the first condition, and the cast is the store's. Terms are added in their order, to
//            what the sum starts from; one that starts from 0 begins with its first term where that is never -0 (0 + x² = x²).
// Rounding   none: the same operations on the same values.
#include <isl/map.h>

#include <algorithm>
#include <set>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/few_terms.h"
#include "poly/algebra/values/needless_temporaries.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"
#include "poly/nest/scalar_share.h"

namespace nestor {
namespace {

constexpr const char* kName = "recompute";
constexpr int kMostNodes = 24, kMostNodesOfShared = 64, kMostReaders = 3;
constexpr int kMostNodesOfSlight = 20;  ///< of a value without functions, which a few points may compute each for itself
constexpr int kMostNodesOfOwn = 256;    ///< of a definition that adds up sums of its own, with these

/// Equal parts count once, as they are computed once.
int nodes_of(const ScalarExpr& value) {
  int nodes = 0;
  share_nodes(value).visit([&](const ScalarExpr&) { ++nodes; });
  return nodes;
}

/// Does the value take a few additions and products, and nothing that is slow?
bool is_slight(const ScalarExpr& value) {
  bool plain = value.type() == ElementType::f32;
  value.visit([&](const ScalarExpr& expr) {
    static const std::set<ScalarOp> kPlain{ScalarOp::read, ScalarOp::constant, ScalarOp::scalar, ScalarOp::cast, ScalarOp::neg,
                                           ScalarOp::add,  ScalarOp::sub,      ScalarOp::mul,    ScalarOp::div};
    plain = plain && kPlain.contains(expr.op());
  });
  return plain && nodes_of(value) <= kMostNodesOfSlight;
}

/// Is each element read at most once by this access, or once for each of the few points of dims that the access does not follow?
bool reads_elements(const Nest& nest, const Statement& reader, const Access& read, bool a_few_times) {
  isl::map relation = read.relation.intersect_domain(domain_in(nest, reader));
  if (isl_map_is_injective(relation.get()) == isl_bool_true) return true;
  std::vector<int> others;
  for (int dim = 0; dim < static_cast<int>(reader.dims.size()); ++dim) {
    if (!depends_on_dim(read.relation, dim)) others.push_back(dim);
  }
  if (!a_few_times || others.empty() || few_values(domain_in(nest, reader), others).empty()) return false;
  for (auto dim = others.rbegin(); dim != others.rend(); ++dim)
    relation = isl::manage(isl_map_project_out(relation.release(), isl_dim_in, static_cast<unsigned>(*dim), 1));
  return isl_map_is_injective(relation.get()) == isl_bool_true;
}

/// Does a reduction read what the statement defines?
bool defines_term(const Nest& nest, const Statement& statement) {
  if (!is_elementwise_temporary(nest, statement.write.tensor)) return false;
  const std::vector<const Statement*> readers = readers_of(nest, statement.write.tensor);
  return std::any_of(readers.begin(), readers.end(), [](const Statement* reader) { return reader->reduction.has_value(); });
}

/// Does one definition alone read what was a sum of a few terms, each element once, where both are short enough to be one?
bool is_own(const Nest& nest, const Statement& sum) {
  const std::vector<const Statement*> readers = readers_of(nest, sum.write.tensor);
  if (readers.size() != 1 || readers.front()->reduction) return false;
  int reads = 0;
  for (const Access& read : readers.front()->reads) {
    if (read.tensor == sum.write.tensor && (++reads > 1 || !reads_elements(nest, *readers.front(), read, false))) return false;
  }
  return nodes_of(sum.value) + nodes_of(readers.front()->value) <= kMostNodesOfOwn;
}

/// Is it a step of one other definition, with as many elements as any tensor has? A block could not keep those either.
bool is_step(const Nest& nest, const Statement& statement, const std::vector<const Statement*>& readers) {
  if (readers.size() != 1 || readers.front()->reduction || statement.reads.empty()) return false;
  const double times = is_slight(statement.value) ? static_cast<double>(kFewValues) : 1;
  const double own = times * default_elements(nest, nest.tensor(statement.write.tensor));
  return std::all_of(nest.tensors.begin(), nest.tensors.end(),
                     [&](const Tensor& tensor) { return default_elements(nest, tensor) <= own; });
}

/// Of the statement that defines the temporary; `sum`: by what was a sum of a few terms.
std::string objection_to(const Nest& nest, const Statement& statement, bool sum) {
  const std::string& tensor = statement.write.tensor;
  if (!is_elementwise_temporary(nest, tensor)) return "it is not the only definition of a temporary, or is a reduction";
  const bool shares = shares_operands(statement);
  const bool own = sum && is_own(nest, statement);
  if (!own && nodes_of(statement.value) > (shares ? kMostNodesOfShared : kMostNodes)) return "its value is long";
  const std::vector<const Statement*> readers = readers_of(nest, tensor);
  if (readers.size() > kMostReaders) return "too many statements read it";
  const bool steps = !sum && is_step(nest, statement, readers);
  const bool a_few_times = shares || is_slight(statement.value);
  bool sums = own;
  for (const Statement* reader : readers) {
    if (reader->group <= statement.group) return "it is read before it is written";
    if (!may_recompute(nest, statement, *reader)) return "what it reads is written again before " + reader->name;
    for (const Access& read : reader->reads) {
      if (read.tensor == tensor && !reads_elements(nest, *reader, read, a_few_times))
        return reader->name + " reads its elements several times";
    }
    sums = sums || reader->reduction.has_value() || (sum && defines_term(nest, *reader));
  }
  return sums || steps ? "" : "no reduction reads it, nor one definition alone";
}

/// The nest in which the statement defines the temporary by one value.
Nest with_value(const Nest& nest, const Statement& statement) {
  if (!statement.reduction) return nest;
  return with_sum_as_value(nest, statement.name).value_or(nest);
}

std::string objection(const Nest& nest, const Statement& statement) {
  if (!statement.reduction) return objection_to(nest, statement, false);
  const Nest defined = with_value(nest, statement);
  const Statement& value = defined.statement(statement.name);
  const bool read_by_one = readers_of(defined, value.write.tensor).size() == 1;
  if (!value.reduction && !read_by_one && !shares_operands(value)) return "each of its elements is made of others";
  return objection_to(defined, value, true);
}

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return objection(nest, statement).empty() ? "what reads " + statement.write.tensor + " computes it, so that it needs no place"
                                              : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  const std::string why = objection(nest, nest.statement(name));
  if (!why.empty()) refuse_rule(kName, name, why);
  const Nest defined = with_value(nest, nest.statement(name));
  const std::string tensor = defined.statement(name).write.tensor;
  const auto reads_it = [&](const Access& read) { return read.tensor == tensor; };
  Nest result = defined;
  for (Statement& reader : result.statements) {
    for (auto read = std::find_if(reader.reads.begin(), reader.reads.end(), reads_it); read != reader.reads.end();
         read = std::find_if(reader.reads.begin(), reader.reads.end(), reads_it))
      inline_read(defined, reader, static_cast<int>(read - reader.reads.begin()));
  }
  drop_unused(result);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& recompute_rule() {
  static const Rule rule{kName,
                         "a cheap value that reductions read is computed there (argument: statement)",
                         "the same operations on the same values, wherever they are",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
