// Rule "chain_order": a product with a product of matrices is taken in the order that needs fewer terms.
//
// Pattern    out_mo = sum over k of x_mk w_ok with w_ok = sum over r of l_rk f_or in a temporary: x (l f) as it is written, where (x l) f has
//            fewer terms.
// Rewrite    t_mr = sum over k of x_mk l_rk, P_mo = sum over r of t_mr f'_or; out starts from P where that is finite, else from 0, and adds up its
//            own terms where P is not (as nest_operands). f' is f; or f up to 2^32 and an infinity beyond, where nothing bounds f. w stays.
// Conditions those of nest_operands for the sum over k and r; w is f32, starts from 0, and has terms for every element; nothing that it reads
//            is written again before the sum; the sum reads w once, as a factor, and reduces one dim.
// Proof      distributive law. A finite P has finite t and f', as 0 times an infinity is NaN. So all x, l and f are finite, f is f', and so are all
//            terms of the definition. Else out has these very terms.
// Rounding   as reassociate, and one product for each point of t. Where t underflows, f is 2^32 at most.
// Source     T. Cormen et al., Introduction to Algorithms, matrix-chain multiplication.
#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/guarded/nested_operand.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/direct_sums.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "chain_order";
/// Of the points of the definition to those that are left: a kernel and a guard more are worth it.
constexpr double kLeastGain = 4;

/// The sum of terms that makes the temporary, of which the statement has all elements when it begins; null: it is made otherwise.
const Statement* sum_before(const Nest& nest, const std::string& tensor, const Statement& reader) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  if (nest.tensor(tensor).role != TensorRole::temporary || nest.tensor(tensor).type != ElementType::f32 || writers.size() != 2)
    return nullptr;
  const Statement& sum = *writers.back();
  const bool plain = sum.reduction == ReductionOp::add && starts_from(nest, sum, 0) && always_has_points(nest, sum) &&
                     alone_in_group(nest, sum.name) && !reads_tensor(sum, sum.value, tensor);
  return plain && sum.group < reader.group && may_recompute(nest, sum, reader) ? &sum : nullptr;
}

/// { name[dims of a, dims of b] -> a } and the like for b, on the pairs of `pairs`, { a -> b }.
struct JointPoints {
  isl::set domain;
  isl::map to_first, to_second;
};

JointPoints joint_points(const isl::map& pairs, const std::string& name) {
  const auto first = static_cast<int>(isl_map_dim(pairs.get(), isl_dim_in)),
             second = static_cast<int>(isl_map_dim(pairs.get(), isl_dim_out));
  const isl::set domain = isl::manage(isl_set_set_tuple_name(isl_set_flatten(isl_map_wrap(pairs.copy())), name.c_str()));
  const auto part = [&](isl_set* target, int from, int count) {
    isl_map* map = isl_map_from_domain_and_range(domain.copy(), target);
    for (int k = 0; k < count; ++k) map = isl_map_equate(map, isl_dim_in, from + k, isl_dim_out, k);
    return isl::manage(map);
  };
  return {domain, part(pairs.domain().release(), 0, first), part(pairs.range().release(), first, second)};
}

/// The sum over its own dim and those of the sum that makes its operand `tensor`.
Statement joint_sum(const Nest& nest, const Statement& sum, const Statement& inner) {
  const auto read =
      std::find_if(sum.reads.begin(), sum.reads.end(), [&](const Access& access) { return access.tensor == inner.write.tensor; });
  const isl::map pairs =
      read->relation.intersect_domain(sum.domain).apply_range(inner.write.relation.intersect_domain(inner.domain).reverse());
  const std::vector<int> reduced = reduced_dims(inner);
  const JointPoints joint = joint_points(pairs.apply_range(onto_dims(inner, reduced, "terms")), sum.name);
  Statement result = sum;
  result.domain = joint.domain;
  for (const int dim : reduced) result.dims.push_back(fresh_dim(nest, result.dims, inner.dims[static_cast<std::size_t>(dim)]));
  result.domain = isl::manage(with_dim_names(result.domain.release(), result.dims));
  result.reads.clear();
  result.write.relation = joint.to_first.apply_range(sum.write.relation).gist_domain(result.domain);
  const isl::map to_inner =
      joint.to_first.apply_range(pairs).intersect(joint.to_second.apply_range(onto_dims(inner, reduced, "terms").reverse()));
  const ScalarExpr terms = import_value(result, inner, to_inner, inner.value);
  result.value = import_value(result, sum, joint.to_first, sum.value).rewrite([&](const ScalarExpr& node) {
    const bool is_inner =
        node.op() == ScalarOp::read && result.reads[static_cast<std::size_t>(node.ordinal())].tensor == inner.write.tensor;
    return is_inner ? terms : node;
  });
  compact(result);
  return result;
}

struct Chain {
  Statement joint;
  SharedNesting shared;
};

/// Is the temporary read once, as a factor of the sum's terms?
bool is_factor(const Statement& sum, const std::string& tensor) {
  int factors = 0, reads = 0;
  for (const ScalarExpr& factor : factors_of(sum.value)) factors += plain_read_of(sum, factor, tensor).has_value() ? 1 : 0;
  sum.value.visit([&](const ScalarExpr& node) {
    reads += node.op() == ScalarOp::read && sum.reads[static_cast<std::size_t>(node.ordinal())].tensor == tensor ? 1 : 0;
  });
  return factors == 1 && reads == 1;
}

/// The order with fewest terms. Sets `why` where there is none.
std::optional<Chain> chain_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products over one dim";
  if (sum.value.op() != ScalarOp::mul || sum.value.type() != ElementType::f32 || reduced_dims(sum).size() != 1)
    return std::nullopt;
  if (!can_be_guarded(nest, sum, why)) return std::nullopt;
  std::optional<Chain> best;
  why = "no factor is a sum of products, with which another order has fewer terms";
  for (const Access& read : sum.reads) {
    const Statement* inner = is_factor(sum, read.tensor) ? sum_before(nest, read.tensor, sum) : nullptr;
    if (inner == nullptr) continue;
    const Statement joint = joint_sum(nest, sum, *inner);
    std::string other;
    for (SharedNesting& shared : shared_nestings(nest, joint, other)) {
      if (shared.nesting.inner != reduced_dims(sum) || !nests_operand(joint, shared)) continue;
      const auto points = [&](const std::vector<int>& dims) { return default_points(nest, joint, dims); };
      std::vector<int> own(sum.dims.size());
      for (std::size_t k = 0; k < own.size(); ++k) own[k] = static_cast<int>(k);
      shared.gain = points(own) / (points(shared.points) + points(shared.nesting.outer));
      if (!best || shared.gain > best->shared.gain) best = Chain{joint, shared};
    }
  }
  if (best) why = "";
  return best;
}

/// The chain with a bounded factor outside: an infinity stands for what might make up for inner sums that underflow.
void bound_outside(SumEdit& edit, Chain& chain) {
  ScalarExpr& outside = chain.shared.nesting.outside.front();
  if (range_of(edit.nest(), chain.joint, outside).magnitude() <= kMostRegrouped) return;
  std::vector<int> dims;
  for (const int dim : chain.shared.nesting.outer) {
    if (varies_along(chain.joint, outside, dim)) dims.push_back(dim);
  }
  const DimsView factor(chain.joint, dims);
  const ElementType type = strip_exact_casts(outside).type();
  Tensor tensor = factor.tensor(edit.nest(), fresh_name(edit.nest(), edit.sum().write.tensor + "_bounded"));
  tensor.type = type;
  edit.nest().tensors.push_back(tensor);
  Statement store = factor.over(tensor.name);
  store.write = {tensor.name, isl::manage(isl_set_identity(store.domain.copy()))};
  const ScalarExpr element = import_value(store, chain.joint, factor.to_statement(store), outside);
  const ScalarExpr infinite = build::number(std::numeric_limits<double>::infinity());
  store.value = ScalarExpr::cast(type, build::select(at_most(element, kMostRegrouped), element, infinite));
  edit.insert(store);
  const int read = add_read(chain.joint, {tensor.name, factor.element(tensor.name)});
  outside = build::as_f32(ScalarExpr::read(read, type));
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    const auto chain = chain_of(nest, statement, why);
    return chain && chain->shared.gain >= kLeastGain ? statement.name + " has fewer terms in another order" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  std::string why;
  auto chain = chain_of(nest, nest.statement(name), why);
  if (!chain) refuse_rule(kName, name, why);
  SumEdit edit(nest, nest.statement(name));
  bound_outside(edit, *chain);
  return {with_nested_operand(edit, chain->joint, chain->shared), {}, false};
}

}  // namespace

const Rule& chain_order_rule() {
  static const Rule rule{
      kName,
      "a product with a product of matrices is taken in the order that needs fewer terms (argument: statement)",
      "distributive law: x (l f) = (x l) f, where that is finite; else the direct sum is taken",
      "sums are regrouped; one product for each inner sum",
      find,
      apply};
  return rule;
}

}  // namespace nestor
