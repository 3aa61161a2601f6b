// Rule "bf16x3": a product of matrices of f32 and of f16, or of long sums and of bf16, becomes three products of operands in bf16, which have the
// exponents of f32.
//
// Pattern    r_e = sum over k of a b in f32, a an element of a tensor of f32, b one of f16; or a a long sum of products itself, b one of bf16, as in a
//            chain of products. Each follows k, and a dim of the result that the other does not (a product of matrices).
// Rewrite    a_0 = bf16(a), a_1 = bf16(a - a_0), and b alike. r_e = sum over k of a_1 b_0 + a_0 b_1 + a_0 b_0, in this order.
// Conditions those of bf16x6 (bf16_parts.h); a is no exponential of a difference from the largest of its row, nor over the sum of those: f16 holds
//            such as well.
// Proof      f16 has 11 bits and bf16 has 8, so that a finite b is b_0 + b_1 exactly (in bf16, b_0 alone). a_0 and b_0 are finite numbers with the signs of a and b,
//            and are 0 for no a and b but 0 (and what is below 2^-133). Of an infinite a or b they are its sign, and a_1 or b_1 is a or b. So an
//            infinite a has one infinite term, a_1 b_0, and an infinite b has a_0 b_1: with the signs of a b, or NaN where the other one is 0.
//            Of two infinities both terms have the sign of a b. All else is finite.
// Rounding   a_0 + a_1 is off by 2^-17 of |a| at most, |a_1| <= 2^-8 |a| and |b_1| <= 2^-8 |b|: what is left out of a term is 2^-15 of |a b| at
//            most. As f16, a would be off by 2^-11, and by 2^-25 where it is small: all of it below that. Sums are those of tensor cores.
// Range      partial sums are 2^-7 larger than those of a b at most.
// Source     G. Henry, P. Tang, A. Heinecke, Leveraging the bfloat16 Artificial Intelligence Datatype for Higher-Precision Computations, 2019.
#include <optional>
#include <string>
#include <vector>

#include "poly/algebra/analysis/extremum_bounds.h"
#include "poly/algebra/guarded/bf16_parts.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

constexpr const char* kName = "bf16x3";
constexpr std::size_t kParts = 2;
const std::vector<OrdinalPair> kPairs{{1, 0}, {0, 1}, {0, 0}};  ///< small ones first

/// The reads of f32 and of f16, or of sums and of bf16, whose products the statement adds up.
std::optional<OrdinalPair> mixed_products(const Nest& nest, const Statement& sum) {
  const ScalarExpr& value = sum.value;
  if (sum.reduction != ReductionOp::add || value.op() != ScalarOp::mul) return std::nullopt;
  std::optional<std::size_t> wide, half;
  bool coarse = false;
  for (const ScalarExpr& factor : value.args()) {
    const ScalarExpr read = strip_exact_casts(factor);
    if (read.op() != ScalarOp::read) return std::nullopt;
    if (read.type() == ElementType::f32) wide = static_cast<std::size_t>(read.ordinal());
    if (is_half(read.type())) half = static_cast<std::size_t>(read.ordinal()), coarse = read.type() == ElementType::bf16;
  }
  if (!wide || !half || (coarse && !is_long_sum_of_products(nest, sum.reads[*wide].tensor))) return std::nullopt;
  return OrdinalPair(*wide, *half);
}

/// Sets `why` where the rule does not apply.
std::optional<OrdinalPair> operands_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of elements in f32 and f16, or of long sums in f32 and bf16";
  const auto operands = mixed_products(nest, sum);
  if (!operands || !may_have_parts(nest, sum, *operands, true, why)) return std::nullopt;
  why = "its operand in f32 is relative to the largest of its row, which f16 holds";
  return exponential_term(nest, sum.reads[operands->first].tensor) ? std::nullopt : operands;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return operands_of(nest, statement, why) ? statement.name + " is three sums of products in bf16" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const OrdinalPair operands = required_match(nest, kName, target, operands_of);
  SumEdit edit(nest, nest.statement(target[0]));
  const std::vector<std::string> a = store_parts(edit, operands.first, kParts), b = store_parts(edit, operands.second, kParts);
  return {multiply_parts(edit, operands, a, b, kPairs), {}, false};
}

}  // namespace

const Rule& bf16x3_rule() {
  static const Rule rule{kName,
                         "a product of matrices of f32 and f16 is made of three in bf16, for tensor cores (argument: statement)",
                         "f16 numbers are sums of two in bf16; what is infinite has one infinite term",
                         "2^-15 of each term",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
