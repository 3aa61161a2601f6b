// Rule "skip_zeros": a sum of products leaves out the terms that a temporary has zeros for, and reads what the temporary is a copy of.
//
// Pattern    r_e += t_p b_q, where b is a tensor of 16 bits, and t a temporary: zeros, and on a part of its elements x, a copy of a tensor of
//            16 bits (an image with zeros around it: select(inside, x[y + s - 1, c], 0)).
// Rewrite    r_e += x_p b_q, over the points whose element of t is one of x.
// Conditions the sum is alone in its loops and starts from 0; the copy is written last and once; what is left of the domain is one piece;
//            x and b each follow a dim of e that the other does not.
// Proof      r_e + 0 b_q = r_e for a finite b_q. A sum that starts from +0 is never -0, so that +0 or -0 changes nothing. x is complete before
//            the copy, and nobody writes it later.
// Special    b must be finite in masked places (docs/values.md): 0 times an infinity or NaN is NaN.
// Rounding   none: the products are 0.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/zero_parts.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "skip_zeros";

/// The sum without the terms for which the read of `ordinal` has zeros. Sets `why` where there is none.
std::optional<Skipping> without_zeros(const Nest& nest, const Statement& sum, std::size_t ordinal, std::string& why) {
  why = "its temporary is no copy of a 16-bit tensor with zeros beside it";
  const auto is_copy = [](const Statement& writer) {
    const ScalarExpr bare = strip_exact_casts(writer.value);
    return bare.op() == ScalarOp::read && is_half(bare.type());
  };
  auto found = without_constant_terms(nest, sum, ordinal, 0, is_copy, why);
  if (!found) return std::nullopt;
  Skipping result{std::move(*found), {}};
  why = "it is no sum of products of two 16-bit tensors, each of which follows a dim of the result that the other does not";
  const auto halves = half_products(result.reduction);
  if (!halves || !follows_own_dim(result.reduction, halves->first, halves->second) ||
      !follows_own_dim(result.reduction, halves->second, halves->first))
    return std::nullopt;
  why = "";
  return result;
}

std::optional<Skipping> skipping_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of two tensors";
  if (sum.reduction != ReductionOp::add || sum.value.op() != ScalarOp::mul || sum.value.type() != ElementType::f32 ||
      sum.reads.size() != 2 || sum.reads[0].tensor == sum.reads[1].tensor)
    return std::nullopt;
  why = "it does not start from 0, or shares its loops with other statements of its definition";
  if (!starts_from(nest, sum, 0) || !alone_in_group(nest, sum.name)) return std::nullopt;
  for (const std::size_t ordinal : {std::size_t{0}, std::size_t{1}}) {
    if (nest.tensor(sum.reads[ordinal].tensor).role != TensorRole::temporary) continue;
    auto found = without_zeros(nest, sum, ordinal, why);
    if (!found) continue;
    found->others = {sum.reads[1 - ordinal].tensor};
    return found;
  }
  return std::nullopt;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return skipping_of(nest, statement, why) ? "terms of " + statement.name + " that are zeros are left out" : "";
  });
}

std::vector<std::string> finite(const Nest& nest) { return finite_beside_zeros(nest, skipping_of); }

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  return skip_terms(nest, kName, target, skipping_of);
}

}  // namespace

const Rule& skip_zeros_rule() {
  static const Rule rule{
      kName,
      "a sum of products leaves out terms that are zeros, and reads what they stand beside (argument: statement)",
      "a sum that starts from 0 is the same without products of 0 and finite values",
      "none, with finite values in masked places: what met zeros is left out",
      find,
      apply,
      finite};
  return rule;
}

}  // namespace nestor
