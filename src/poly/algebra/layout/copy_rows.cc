// Rule "copy_rows": an operand of products is copied, so that its rows start at multiples of 16 bytes.
//
// Pattern    r_e += a_p b_q, where a is an input of 16 bits of several dims whose last one has a known number of values, more than 8, which
//            is no multiple of 8; each of a and b follows a dim of e that the other does not.
// Rewrite    a'_i = a_i for all elements, before the first such sum; all such sums read a' in place of a. What holds temporaries pads
//            their rows.
// Conditions none beside the pattern.
// Proof      a' has the elements of a under the same indices, complete before they are read. Nobody writes an input.
// Rounding   none: elements are copied.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "copy_rows";
constexpr std::int64_t kShortest = 8;  ///< elements of a row: shorter ones are not padded, and no tile is made of them

/// Ordinals of reads of the tensor that are operands of a product of matrices.
std::vector<std::size_t> operands_of(const Statement& sum, const std::string& tensor) {
  std::vector<std::size_t> found;
  if (sum.reduction != ReductionOp::add || sum.value.op() != ScalarOp::mul || sum.value.type() != ElementType::f32) return found;
  std::vector<std::size_t> factors;
  for (const ScalarExpr& arg : sum.value.args()) {
    const ScalarExpr bare = strip_exact_casts(arg);
    if (bare.op() != ScalarOp::read) return found;
    factors.push_back(static_cast<std::size_t>(bare.ordinal()));
  }
  const std::size_t a = factors.front(), b = factors.back();
  if (a == b || !follows_own_dim(sum, a, b) || !follows_own_dim(sum, b, a)) return found;
  for (const std::size_t ordinal : factors) {
    if (sum.reads[ordinal].tensor == tensor) found.push_back(ordinal);
  }
  return found;
}

struct Reader {
  std::string sum;
  std::vector<std::size_t> operands;  ///< ordinals of its reads
};

/// The sums that are to read the copy. Sets `why` where there is none.
std::vector<Reader> readers_of_rows(const Nest& nest, const std::string& tensor, std::string& why) {
  const auto named = std::find_if(nest.tensors.begin(), nest.tensors.end(), [&](const Tensor& t) { return t.name == tensor; });
  why = "it is no input of 16 bits whose rows are known to be no multiple of 16 bytes";
  if (named == nest.tensors.end() || !has_ragged_rows(nest, *named)) return {};
  why = "its rows are shorter than a piece of a tile";
  if (known_value(nest, named->shape.back()).value_or(0) < kShortest) return {};
  std::vector<Reader> readers;
  for (const Statement& statement : nest.statements) {
    if (auto operands = operands_of(statement, tensor); !operands.empty())
      readers.push_back({statement.name, std::move(operands)});
  }
  why = readers.empty() ? "it is no operand of a sum of products of matrices" : "";
  return readers;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::vector<RuleMatch> matches;
  std::string why;
  for (const Tensor& tensor : nest.tensors) {
    if (!readers_of_rows(nest, tensor.name, why).empty())
      matches.push_back({kName, {tensor.name}, "rows of " + tensor.name + " start at multiples of 16 bytes in a copy"});
  }
  return matches;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  expect_arguments(kName, target, 1);
  std::string why;
  const std::vector<Reader> readers = readers_of_rows(nest, target[0], why);
  if (readers.empty()) refuse_rule(kName, target[0], why);
  Nest result = nest;
  Tensor copied = nest.tensor(target[0]);
  copied.name = fresh_name(result, target[0] + "_rows");
  copied.role = TensorRole::temporary;
  copied.tolerance = {};
  result.tensors.push_back(copied);
  std::size_t before = std::numeric_limits<std::size_t>::max();
  for (const Reader& reader : readers) {
    Statement sum = result.statement(reader.sum);
    for (const std::size_t ordinal : reader.operands)
      sum.reads[ordinal] = {copied.name, sum.reads[ordinal].relation.set_range_tuple(copied.name)};
    replace_statement(result, sum);
    // Before what starts the sum, and before the loops that either stands in.
    const std::size_t first = begin_with_initialisers(result, sum);
    before = std::min({before, group_begin(result, sum.name), group_begin(result, result.statements[first].name)});
  }
  const Statement& reader = nest.statement(readers.front().sum);
  insert_statement(
      result, before,
      copy_statement(nest, nest.tensor(target[0]), reader, reader.reads[readers.front().operands.front()], copied.name));
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& copy_rows_rule() {
  static const Rule rule{kName,
                         "an operand of products is copied into rows that start at multiples of 16 bytes (argument: tensor)",
                         "a copy has the same elements under the same indices, complete before they are read",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
