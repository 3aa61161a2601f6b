// Rule "masked_product": a sum of products that data hides in part becomes one of products with a masked operand.
//
// Pattern    r_e = sum over k of select(c, a b, 0) in f32, a and b elements of two tensors, c a condition of data. a, or what c reads beside it, follows a dim
//            of the result that b does not, and b one that neither follows; both follow a dim of k: what tokens of several users add by the
//            matrices of their own. k is one dim, or two, of which the inner one has a known length.
// Rewrite    P_e = sum over k of select(c, a, 0) b. t_e starts from P_e where it is finite, else from 0, and adds up select(c, a b, 0) where it is not;
//            r_e is t_e. That sum has one dim for two, so that a kernel of products does not hold many.
// Conditions the sum starts from 0 into a temporary of f32; start and sum are alone in their loops, and nobody reads it before it is complete;
//            every element has terms, and all values of two dims; nothing writes what it reads from the start of the sum on.
// Proof      where P_e is finite each of its terms is: an infinite one would leave an infinity or NaN. So 0 b is 0 where c hides a b, and all terms are
//            those of r_e. Elsewhere r_e is the sum itself.
// Rounding   as reassociate: terms of 0 more or less.
#include <isl/map.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "poly/algebra/guarded/sum_edit.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/direct_sums.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "masked_product";

/// The product, with the factor that the condition hides in its place.
std::optional<ScalarExpr> with_masked_factor(const Statement& sum) {
  const ScalarExpr& value = sum.value;
  if (sum.reduction != ReductionOp::add || value.op() != ScalarOp::select || value.type() != ElementType::f32)
    return std::nullopt;
  const ScalarExpr &condition = value.args()[0], &product = value.args()[1];
  bool of_data = false;
  condition.visit([&](const ScalarExpr& expr) { of_data = of_data || expr.op() == ScalarOp::read; });
  const auto is_element = [](const ScalarExpr& factor) {
    const ScalarExpr bare = strip_exact_casts(factor);
    return bare.op() == ScalarOp::read && is_float(bare.type());
  };
  if (!of_data || !value.args()[2].is_constant(0) || product.op() != ScalarOp::mul ||
      product.args()[0].equals(product.args()[1]) || !std::all_of(product.args().begin(), product.args().end(), is_element))
    return std::nullopt;
  const std::vector<int> reduced = reduced_dims(sum);
  const auto is_reduced = [&](int dim) { return std::find(reduced.begin(), reduced.end(), dim) != reduced.end(); };
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
    const ScalarExpr masked = build::select(condition, product.args()[k], build::number(0)), &other = product.args()[1 - k];
    bool rows = false, columns = false, terms = false;
    for (int dim = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
      const bool left = varies_along(sum, masked, dim), right = varies_along(sum, other, dim);
      rows = rows || (!is_reduced(dim) && left && !right);
      columns = columns || (!is_reduced(dim) && right && !left);
      terms = terms || (is_reduced(dim) && left && right);
    }
    if (rows && columns && terms) return build::mul(masked, other);
  }
  return std::nullopt;
}

/// The two dims of the sum's terms as one, if it has two; nothing where they cannot be.
std::optional<JoinedDims> joined_terms(const Nest& nest, const Statement& sum) {
  const std::vector<int> reduced = reduced_dims(sum);
  if (reduced.size() != 2) return std::nullopt;
  const auto extent = known_value(nest, extent_of(nest, sum.domain, reduced[1]));
  if (!extent || !have_all_values(nest, sum, reduced[0], reduced[1], *extent)) return std::nullopt;
  return JoinedDims{reduced[0], reduced[1], *extent};
}

/// Sets `why` where the rule does not apply.
std::optional<ScalarExpr> product_of_sum(const Nest& nest, const Statement& sum, std::string& why) {
  why =
      "it is no sum of products of two elements that a condition of data hides, of rows by columns where one of them is hidden "
      "in their place";
  auto product = with_masked_factor(sum);
  if (!product || !can_be_guarded(nest, sum, why, true)) return std::nullopt;
  why = "its terms run along more than one dim, and these are not two with all values, the inner one of a known length";
  if (reduced_dims(sum).size() > 1 && !joined_terms(nest, sum)) return std::nullopt;
  why = "what it reads is written when the sum has begun";
  for (const Access& read : sum.reads) {
    if (!is_written_before(nest, read.tensor, sum)) return std::nullopt;
  }
  return product;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return product_of_sum(nest, statement, why)
               ? statement.name + " is a sum of products with a masked operand, where that is finite"
               : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const ScalarExpr product = required_match(nest, kName, target, product_of_sum);
  SumEdit edit(nest, nest.statement(target[0]));
  const isl::map whole = edit.add_tensor(edit.elements(), "_product");
  edit.add_start(edit.elements(), whole);
  Statement sum = renamed(edit.sum(), fresh_name(edit.nest(), tensor_of(whole) + "_sum"));
  sum.write = {tensor_of(whole), whole.set_domain_tuple(sum.name)};
  sum.value = product;
  edit.insert(sum);
  const ScalarExpr zero = build::number(0);
  Nest result = edit.guard(
      whole, [](const ScalarExpr& found) { return ScalarExpr::make(ScalarOp::logical_not, {is_finite(found)}); },
      [&](const ScalarExpr& found) { return build::select(is_finite(found), found, zero); });
  const Statement& direct = result.statement(target[0]);
  if (const auto joint = joined_terms(result, direct)) {
    Statement joined = with_joined_dims(result, direct, *joint);
    joined.group = direct.group;
    replace_statement(result, joined);
  }
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& masked_product_rule() {
  static const Rule rule{
      kName,
      "a sum of products that data hides in part has a masked operand, where that is finite (argument: statement)",
      "0 b is 0 where b is finite; else the direct sum is taken",
      "as reassociate",
      find,
      apply};
  return rule;
}

}  // namespace nestor
