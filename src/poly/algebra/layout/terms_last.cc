// Rule "terms_last": of a sum of products over several dims, neighbouring terms are neighbours in memory.
//
// Pattern    r_e += a_p b_q over several dims, where a and b are tensors of 16 bits, or a is a temporary of f32 (whose parts in bf16 come
//            later), and one of these dims, k, is an index of both by itself
//            (x[n, k, y + s, z + t] w[m, k, s, t], an image with its channels first), has 16 values or more, or an unknown number, and is not
//            the innermost one; or the last index of an operand is something else than k or a dim of e that the other does not follow.
// Rewrite    k becomes the innermost dim of the sum. Such an operand is read from a copy whose last index is k, a'[n, y + s, z + t, k]; a
//            temporary gets such an order of indices itself, and r too, where its last index is none for columns: it
//            is read in strides along that, or has other terms there.
// Conditions the sum is alone in its loops; each operand follows a dim of e that the other does not.
// Proof      a' has the elements of a under other indices, complete before the sum begins; an order of indices is a bijection, and so is an
//            order of dims.
// Rounding   terms are added up in another order.
#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "poly/algebra/layout/index_order.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "terms_last";
constexpr std::int64_t kFewest = 16;  ///< terms that tensor cores take at once

struct Terms {
  int innermost = -1;                 ///< dim of the sum whose terms become neighbours
  std::vector<std::size_t> operands;  ///< ordinals of reads whose last index is another one
};

/// Are neighbouring elements of the operand neighbouring terms, or neighbouring rows of the product?
bool has_runs(const Statement& sum, std::size_t operand, std::size_t other, int term) {
  const Access& read = sum.reads[operand];
  const int last = static_cast<int>(dims_of_indices(sum, read).size()) - 1;
  if (own_index(sum, read, term) == last) return true;
  const std::vector<int> reduced = reduced_dims(sum);
  for (int dim = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
    const bool written = std::find(reduced.begin(), reduced.end(), dim) == reduced.end();
    if (written && !depends_on_dim(sum.reads[other].relation, dim) && own_index(sum, read, dim) == last) return true;
  }
  return false;
}

/// The longest dim of terms that is an index of both operands by itself; -1: there is none.
int longest_own_term(const Nest& nest, const Statement& sum, std::size_t a, std::size_t b) {
  int longest = -1;
  std::int64_t most = 0;
  for (const int dim : reduced_dims(sum)) {
    const std::int64_t extent =
        known_value(nest, extent_of(nest, sum.domain, dim)).value_or(std::numeric_limits<std::int64_t>::max());
    if (extent < std::max(kFewest, most) || own_index(sum, sum.reads[a], dim) < 0 || own_index(sum, sum.reads[b], dim) < 0)
      continue;
    longest = dim;
    most = extent;
  }
  return longest;
}

/// Ordinals of the operands, one of 16 bits, the other of 16 bits or a temporary of f32.
std::optional<std::pair<std::size_t, std::size_t>> operands_of(const Nest& nest, const Statement& sum) {
  if (const auto halves = half_products(sum)) return halves;
  const auto wide = wide_and_half(nest, sum);
  return wide.empty() ? std::nullopt : std::optional(wide.front());
}

/// Sets `why` where there is none.
std::optional<Terms> terms_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of two 16-bit tensors, or of one and a temporary, over several dims";
  const auto operands = operands_of(nest, sum);
  const std::vector<int> reduced = reduced_dims(sum);
  const auto varies = [&](int dim) { return known_value(nest, extent_of(nest, sum.domain, dim)) != 1; };
  if (!operands || !sum.indices.empty() || std::count_if(reduced.begin(), reduced.end(), varies) < 2) return std::nullopt;
  const auto [a, b] = *operands;
  why = "each operand follows no dim of the result that the other does not";
  if (!follows_own_dim(sum, a, b) || !follows_own_dim(sum, b, a)) return std::nullopt;
  why = fmt::format("no dim of {} terms or more is an index of both operands by itself", kFewest);
  Terms terms;
  terms.innermost = longest_own_term(nest, sum, a, b);
  if (terms.innermost < 0) return std::nullopt;
  why = "neighbouring elements of its operands are neighbouring terms or rows";
  // Short runs that both operands have stay where they are.
  const auto ends_both = [&](int dim) {
    const auto ends = [&](const Access& read) {
      return own_index(sum, read, dim) == static_cast<int>(dims_of_indices(sum, read).size()) - 1;
    };
    return dim != terms.innermost && varies(dim) && ends(sum.reads[a]) && ends(sum.reads[b]);
  };
  if (std::any_of(reduced.begin(), reduced.end(), ends_both)) return std::nullopt;
  if (!has_runs(sum, a, b, terms.innermost)) terms.operands.push_back(a);
  if (!has_runs(sum, b, a, terms.innermost)) terms.operands.push_back(b);
  // Another dim that is an index by itself, and long enough, is innermost already.
  const bool kept = own_index(sum, sum.reads[a], reduced.back()) >= 0 && own_index(sum, sum.reads[b], reduced.back()) >= 0 &&
                    known_value(nest, extent_of(nest, sum.domain, reduced.back())).value_or(kFewest) >= kFewest;
  if (terms.operands.empty() && kept) return std::nullopt;
  why = "it shares its loops with other statements of its definition";
  if (!alone_in_group(nest, sum.name)) return std::nullopt;
  why = "";
  return terms;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    const auto terms = terms_of(nest, statement, why);
    return terms ? "neighbouring terms of " + statement.name + " are those along " +
                       statement.dims[static_cast<std::size_t>(terms->innermost)]
                 : "";
  });
}

/// Does the sum have other terms at some values of the dim than at others, as at the edges of an image?
bool terms_change_along(const Nest& nest, const Statement& sum, int dim) {
  const isl::set domain = domain_in(nest, sum);
  return !without_dims(domain, reduced_dims(sum)).intersect(without_dims(domain, {dim})).is_equal(domain);
}

/// A place of the sum's index that is a column where the last one is none: an operand is read in strides along it, or it has other terms there
/// than elsewhere. -1: all is well.
int better_column(const Nest& nest, const Statement& sum, std::size_t a, std::size_t b) {
  const std::vector<std::set<int>> indices = dims_of_indices(sum, sum.write);
  const auto column_of = [&](std::size_t operand, std::size_t other, std::size_t place) {
    const std::set<int>& dims = indices[place];
    return dims.size() == 1 && depends_on_dim(sum.reads[operand].relation, *dims.begin()) &&
           !depends_on_dim(sum.reads[other].relation, *dims.begin());
  };
  for (const auto& [rows, columns] : {std::pair(a, b), std::pair(b, a)}) {
    const auto is_plain = [&](std::size_t operand, int dim) {
      return !moves_in_strides(sum.reads[operand], {dim}) && !terms_change_along(nest, sum, dim);
    };
    if (indices.empty() || !column_of(rows, columns, indices.size() - 1) || is_plain(rows, *indices.back().begin())) continue;
    for (std::size_t place = indices.size() - 1; place-- > 0;) {
      if (column_of(columns, rows, place) && is_plain(columns, *indices[place].begin())) return static_cast<int>(place);
    }
  }
  return -1;
}

/// The statement with its dims in the order.
Statement with_dims(const Statement& statement, const IndexOrder& order) {
  Statement result = statement;
  std::vector<isl::pw_aff> functions;
  for (const int dim : order) functions.push_back(dim_function(statement.domain, dim));
  const isl::map change = relation_of(statement.domain, statement.name, functions);
  isl_set* domain = statement.domain.apply(change).release();
  for (std::size_t k = 0; k < order.size(); ++k) result.dims[k] = statement.dims[static_cast<std::size_t>(order[k])];
  result.domain = isl::manage(with_dim_names(domain, result.dims));
  const auto moved = [&](Access& access) {
    isl_map* relation = access.relation.apply_domain(change).gist_domain(result.domain).release();
    for (std::size_t k = 0; k < order.size(); ++k)
      relation = isl_map_set_dim_name(relation, isl_dim_in, static_cast<unsigned>(k), result.dims[k].c_str());
    access.relation = isl::manage(relation);
  };
  moved(result.write);
  for (Access& read : result.reads) moved(read);
  return result;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  std::string why;
  const Statement& sum = nest.statement(name);
  const auto terms = terms_of(nest, sum, why);
  if (!terms) refuse_rule(kName, name, why);
  Nest result = nest;
  Statement rest = sum;
  std::set<std::string> reordered;
  for (const std::size_t ordinal : terms->operands) {
    const Access& read = sum.reads[ordinal];
    const IndexOrder order =
        with_last(static_cast<int>(dims_of_indices(sum, read).size()), own_index(sum, read, terms->innermost));
    if (nest.tensor(read.tensor).role != TensorRole::temporary)
      rest.reads[ordinal] = read_of_copy(result, nest, sum, read, order);
  }
  rest.group = result.statement(name).group;
  replace_statement(result, with_dims(rest, with_last(static_cast<int>(sum.dims.size()), terms->innermost)));
  // A temporary's layout is nobody else's business.
  for (const std::size_t ordinal : terms->operands) {
    const Access& read = sum.reads[ordinal];
    if (nest.tensor(read.tensor).role != TensorRole::temporary || !reordered.insert(read.tensor).second) continue;
    reorder_indices(result, read.tensor,
                    with_last(static_cast<int>(dims_of_indices(sum, read).size()), own_index(sum, read, terms->innermost)));
  }
  const auto [a, b] = *operands_of(nest, sum);
  const int column = better_column(nest, sum, a, b);
  if (column >= 0 && nest.tensor(sum.write.tensor).role == TensorRole::temporary)
    reorder_indices(result, sum.write.tensor, with_last(static_cast<int>(dims_of_indices(sum, sum.write).size()), column));
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& terms_last_rule() {
  static const Rule rule{kName,
                         "terms of a sum of products over several dims become neighbours in memory (argument: statement)",
                         "a copy has the same elements under other indices; an order of dims is a bijection",
                         "terms are added up in another order",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
