// Rule "columns_last": tiles of operands of products start where tensor copies can begin.
//
// Pattern    r_e += a_p b_q, where a and b are tensors of 16 bits, and the last index of a moves along a term and, by steps other than
//            multiples of 16 bytes, along a dim of e of few values, as the taps of a filter do in its gradient
//            (r[o, c, s, t] += g[n, o, y, x] a[n, c, y + s, x + t]); another dim of e, c, that b does not follow is an index of a by itself,
//            and has 16 values or more, or an unknown number.
// Rewrite    a is read from a copy whose last index is c, a'[n, y + s, x + t, c].
// Conditions the sum is alone in its loops; each operand follows a dim of e that the other does not.
// Proof      a' has the elements of a under other indices, complete before the sum begins; an order of indices is a bijection.
// Rounding   none: elements are copied.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "poly/algebra/layout/index_order.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "columns_last";
constexpr std::int64_t kFewest = 16;  ///< columns of a tile; dims of the result with fewer are taps

/// Do tiles of the operand start at other elements than multiples of 16 bytes, as a dim of the result shifts its terms along memory? One of
/// few values, as taps have: others may be rows of tiles.
bool starts_anywhere(const Nest& nest, const Statement& sum, const Access& read) {
  const std::vector<int> reduced = reduced_dims(sum);
  const auto is_reduced = [&](int dim) { return std::find(reduced.begin(), reduced.end(), dim) != reduced.end(); };
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(read);
  bool terms = false, shifts = false;
  for (const auto& [dim, factor] : moving.empty() ? std::map<int, std::int64_t>{} : moving.back()) {
    terms = terms || is_reduced(dim);
    const bool taps = known_value(nest, extent_of(nest, sum.domain, dim)).value_or(kFewest) < kFewest;
    shifts = shifts || (!is_reduced(dim) && taps && factor % kAlignedHalves != 0);
  }
  return terms && shifts;
}

/// The longest dim of the result that the operand alone follows, by an index of its own before the last one; -1: there is none.
int longest_own_column(const Nest& nest, const Statement& sum, std::size_t operand, std::size_t other) {
  const std::vector<int> reduced = reduced_dims(sum);
  const int last = static_cast<int>(dims_of_indices(sum, sum.reads[operand]).size()) - 1;
  int longest = -1;
  std::int64_t most = 0;
  for (int dim = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
    if (std::find(reduced.begin(), reduced.end(), dim) != reduced.end() || depends_on_dim(sum.reads[other].relation, dim))
      continue;
    const int own = own_index(sum, sum.reads[operand], dim);
    const std::int64_t extent =
        known_value(nest, extent_of(nest, sum.domain, dim)).value_or(std::numeric_limits<std::int64_t>::max());
    if (own < 0 || own == last || extent < std::max(kFewest, most + 1)) continue;
    longest = dim;
    most = extent;
  }
  return longest;
}

/// Ordinals of operands to copy, with the dim that comes last. Sets `why` where there are none.
std::map<std::size_t, int> columns_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of two 16-bit tensors";
  const auto halves = half_products(sum);
  if (!halves || !sum.indices.empty()) return {};
  const auto [a, b] = *halves;
  why = "each operand follows no dim of the result that the other does not";
  if (!follows_own_dim(sum, a, b) || !follows_own_dim(sum, b, a)) return {};
  why = "tiles of its operands start at multiples of 16 bytes, or no other index may come last";
  std::map<std::size_t, int> columns;
  for (const auto& [operand, other] : {std::pair(a, b), std::pair(b, a)}) {
    const Access& read = sum.reads[operand];
    if (nest.tensor(read.tensor).role == TensorRole::temporary || !starts_anywhere(nest, sum, read)) continue;
    if (const int column = longest_own_column(nest, sum, operand, other); column >= 0) columns[operand] = column;
  }
  if (columns.empty()) return {};
  why = "it shares its loops with other statements of its definition";
  if (!alone_in_group(nest, sum.name)) return {};
  why = "";
  return columns;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return columns_of(nest, statement, why).empty() ? "" : "operands of " + statement.name + " are copied, with columns last";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  const Statement& sum = nest.statement(name);
  std::string why;
  const std::map<std::size_t, int> columns = columns_of(nest, sum, why);
  if (columns.empty()) refuse_rule(kName, name, why);
  Nest result = nest;
  Statement rest = sum;
  for (const auto& [operand, column] : columns) {
    const Access& read = sum.reads[operand];
    const int count = static_cast<int>(dims_of_indices(sum, read).size());
    rest.reads[operand] = read_of_copy(result, nest, sum, read, with_last(count, own_index(sum, read, column)));
  }
  rest.group = result.statement(name).group;
  replace_statement(result, rest);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& columns_last_rule() {
  static const Rule rule{kName,
                         "operands that a result's dim shifts along memory are copied, with columns last (argument: statement)",
                         "a copy has the same elements under other indices, complete before the sum begins",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
