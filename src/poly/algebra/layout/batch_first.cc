// Rule "batch_first": operands of products of matrices side by side in memory are copied, one matrix after the other.
//
// Pattern    r_e += a_p b_q, where a and b are tensors of 16 bits, each follows a dim of e that the other does not, and the last index of a
//            or b follows dims of e that both follow (out[i, j, l] += a[i, q, l] b[j, q, l]): neighbouring elements are of different products.
// Rewrite    a'[batch, others] = a[..], before the sum, which reads a' instead; indices of both kinds keep their order. The same for b, and
//            where r is a temporary its indices are put in such an order, too.
// Conditions the sum is alone in its loops.
// Proof      a' has the elements of a under other indices, complete before the sum begins; an order of indices is a bijection.
// Rounding   none: elements are copied.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
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

constexpr const char* kName = "batch_first";

bool is_batch_index(const std::set<int>& dims, const std::set<int>& batch) {
  return !dims.empty() && std::includes(batch.begin(), batch.end(), dims.begin(), dims.end());
}

IndexOrder batch_first(const std::vector<std::set<int>>& indices, const std::set<int>& batch) {
  IndexOrder order(indices.size());
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = static_cast<int>(k);
  std::stable_partition(order.begin(), order.end(),
                        [&](int k) { return is_batch_index(indices[static_cast<std::size_t>(k)], batch); });
  return order;
}

struct Products {
  std::vector<std::size_t> operands;  ///< ordinals of reads to copy
  std::set<int> batch;                ///< dims of the result that both operands follow
};

/// Sets `why` where there is none.
std::optional<Products> products_of(const Nest& nest, const Statement& statement, std::string& why) {
  why = "it is no sum of products of two 16-bit tensors";
  const auto halves = half_products(statement);
  if (!halves) return std::nullopt;
  const auto [a, b] = *halves;
  const std::vector<int> reduced = reduced_dims(statement);
  Products products;
  bool only_a = false, only_b = false;
  for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
    if (std::find(reduced.begin(), reduced.end(), dim) != reduced.end()) continue;
    const bool in_a = depends_on_dim(statement.reads[a].relation, dim), in_b = depends_on_dim(statement.reads[b].relation, dim);
    only_a = only_a || (in_a && !in_b);
    only_b = only_b || (in_b && !in_a);
    if (in_a && in_b) products.batch.insert(dim);
  }
  why = "each operand follows no dim of the result that the other does not";
  if (!only_a || !only_b) return std::nullopt;
  why = "neighbouring elements of its operands belong to one product";
  for (const std::size_t ordinal : {a, b}) {
    const auto indices = dims_of_indices(statement, statement.reads[ordinal]);
    if (!indices.empty() && is_batch_index(indices.back(), products.batch)) products.operands.push_back(ordinal);
  }
  if (products.operands.empty()) return std::nullopt;
  why = "it shares its loops with other statements of its definition";
  if (!alone_in_group(nest, statement.name)) return std::nullopt;
  why = "";
  return products;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return products_of(nest, statement, why) ? "operands of " + statement.name + " are copied, one product after the other" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  const Statement sum = nest.statement(name);
  std::string why;
  const std::optional<Products> products = products_of(nest, sum, why);
  if (!products) refuse_rule(kName, name, why);
  Nest result = nest;
  Statement rest = sum;
  for (const std::size_t ordinal : products->operands) {
    const Access& read = sum.reads[ordinal];
    const IndexOrder order = batch_first(dims_of_indices(sum, read), products->batch);
    rest.reads[ordinal] = read_of_copy(result, nest, sum, read, order);
  }
  rest.group = result.statement(name).group;
  replace_statement(result, rest);
  // A temporary's layout is nobody else's business.
  if (result.tensor(rest.write.tensor).role == TensorRole::temporary)
    reorder_indices(result, rest.write.tensor, batch_first(dims_of_indices(rest, rest.write), products->batch));
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& batch_first_rule() {
  static const Rule rule{
      kName,
      "operands of products that lie side by side are copied, one product after the other (argument: statement)",
      "a copy has the same elements under other indices, complete before the sum begins",
      "none",
      find,
      apply};
  return rule;
}

}  // namespace nestor
