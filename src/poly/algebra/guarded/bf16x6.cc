// Rule "bf16x6": a product of matrices in f32 becomes six products of operands in bf16, which tensor cores take; one of f32 and bf16 becomes four.
//
// Pattern    r_e = sum over k of a b in f32, a and b elements of tensors of f32, or b of bf16. Each follows k, which may be several dims, and a dim of the
//            result that the other does not (a product of matrices).
// Rewrite    a_0 = bf16(a), a_1 = bf16(a - a_0), a_2 = bf16(a - a_0 - a_1), and b alike. Of an infinite a they are its sign, 0 and a; of NaN the
//            first and the last are NaN. a_0 of what is beyond the largest of bf16 is that. With
//            p(a, b) = a_1 b_1 + a_0 b_2 + a_2 b_0 + a_0 b_1 + a_1 b_0 + a_0 b_0, in this order:
//            or p(a, b) = a_2 b_0 + a_1 b_0 + a_0 b_1 + a_0 b_0 where b has 8 bits itself, and b_1 is what is infinite or NaN alone,
//            in place: r_e = sum over k of p(a, b), where r_e has 64 terms at most, or terms along several dims, or 2^13 terms at least for 2^16
//            results at most, or a or b, of two tensors, comes from another sum of products;
//            else terms come in chunks o of 64: s_eo = sum over k in o of p(a, b), and P_e = sum over o of s_eo. t_e starts from P_e where
//            |P_e| is finite, else from 0, and adds up a b where it is not; r_e is t_e.
// Conditions the sum starts from 0 into a temporary of f32; start and sum are alone in their loops, and nobody reads it before it is complete;
//            every element has terms; elements of a and b are multiplied 64 times each, as far as sizes are known, but for those that come
//            from a sum of products, whose parts stay with it; no value of k is negative; nothing writes a's and b's tensors from the start of
//            the sum on.
// Proof      f32 has 24 bits, bf16 has 8, so that finite a are a_0 + a_1 + a_2 exactly, but for parts below 2^-133. a_0 and b_0 are finite
//            numbers with the signs of a and b, and are 0 for no a and b but 0 (and what is below 2^-133). So an infinite a has one infinite
//            term, a_2 b_0, and an infinite b has a_0 b_2: with the signs of a b, or NaN where the other one is 0. All else is finite.
//            Parts are the same whoever has made them of the same elements, once these are complete.
// Rounding   nothing is left out of a term where b has 8 bits; else what is, a_1 b_2 + a_2 b_1 + a_2 b_2, is 2^-24 + 2^-32 of |a b| at most, about what f32 makes of the product.
//            Tensor cores cut sums off after each 16 terms: 24 times in a chunk, of which 20 see parts of 2^-8 alone. So s_eo is off by
//            2^-21 of the sum of |a b| at most. The sum over chunks rounds to nearest, as f32 does. In place, kernels on tensor cores add up
//            what an iteration makes apart (codegen/gpu/kernel/part_sums.h), which is a chunk of their own.
// Range      partial sums are 2^-7 larger than those of a b at most.
// Source     G. Henry, P. Tang, A. Heinecke, Leveraging the bfloat16 Artificial Intelligence Datatype for Higher-Precision Computations, 2019;
//            chunks as in H. Ootomo, R. Yokota, Recovering single precision accuracy from Tensor Cores, 2022.
#include <isl/map.h>
#include <isl/set.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "poly/algebra/analysis/extremum_bounds.h"
#include "poly/algebra/guarded/bf16_parts.h"
#include "poly/algebra/guarded/sum_edit.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/direct_sums.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "bf16x6";
constexpr int kChunk = 64;  ///< terms between two roundings to nearest
constexpr std::size_t kParts = 3;
const std::vector<OrdinalPair> kPairs{{1, 1}, {0, 2}, {2, 0}, {0, 1}, {1, 0}, {0, 0}};  ///< small ones first
/// Of a b of bf16 the second part is what is infinite, or NaN, alone.
constexpr std::size_t kPartsOfHalf = 2;
const std::vector<OrdinalPair> kPairsWithHalf{{2, 0}, {1, 0}, {0, 1}, {0, 0}};

using Parts = std::vector<std::string>;  ///< names of tensors

/// The two different reads whose products the statement adds up: of f32, or of f32 and of bf16.
std::optional<OrdinalPair> wide_products(const Statement& sum) {
  const ScalarExpr& value = sum.value;
  if (sum.reduction != ReductionOp::add || value.op() != ScalarOp::mul) return std::nullopt;
  std::vector<std::size_t> wide, half;
  for (const ScalarExpr& factor : value.args()) {
    const ScalarExpr read = strip_exact_casts(factor);
    const bool known = read.op() == ScalarOp::read && (read.type() == ElementType::f32 || read.type() == ElementType::bf16);
    if (!known) return std::nullopt;
    (read.type() == ElementType::f32 ? wide : half).push_back(static_cast<std::size_t>(read.ordinal()));
  }
  if (wide.empty()) return std::nullopt;
  const OrdinalPair operands(wide.front(), half.empty() ? wide.back() : half.front());
  return operands.first == operands.second ? std::nullopt : std::optional(operands);
}

/// Sets `why` where the rule does not apply.
std::optional<OrdinalPair> operands_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of two elements in f32, or in f32 and bf16";
  const auto operands = wide_products(sum);
  if (!operands || !may_have_parts(nest, sum, *operands, false, why)) return std::nullopt;
  why = "its operand in f32 comes from products, and kernels take halves of it beside bf16";
  const std::string& wide = sum.reads[operands->first].tensor;
  const bool mixed = is_half(nest.tensor(sum.reads[operands->second].tensor).type);
  return mixed && (exponential_term(nest, wide) || comes_from_matrix_products(nest, wide)) ? std::nullopt : operands;
}

class SixProducts {
 public:
  SixProducts(const Nest& nest, const Statement& sum, OrdinalPair operands)
      : edit_(nest, sum), operands_(operands), reduced_(reduced_dims(sum).front()) {}

  Nest apply() {
    std::map<std::string, Parts> parts;  // by tensor
    for (const std::size_t operand : {operands_.first, operands_.second}) {
      const std::string& tensor = read(operand).tensor;
      if (!parts.contains(tensor)) parts[tensor] = store_parts(edit_, operand, is_half(operand) ? kPartsOfHalf : kParts);
    }
    const Parts &a = parts.at(read(operands_.first).tensor), &b = parts.at(read(operands_.second).tensor);
    const std::string &first = read(operands_.first).tensor, &second = read(operands_.second).tensor;
    // Loops over all terms but the innermost stand around sums of their own. What is rows and columns of one product stays in no kernel that
    // makes it.
    if (reduced_dims(edit_.sum()).size() > 1 || is_short() || is_tall() ||
        (first != second && (comes_from_products(edit_.nest(), first) || comes_from_products(edit_.nest(), second))))
      return multiply_parts(edit_, operands_, a, b, pairs());
    const isl::map whole = add_chunks(a, b);
    const ScalarExpr zero = ScalarExpr::constant(0);
    return edit_.guard(
        whole, [&](const ScalarExpr& found) { return ScalarExpr::make(ScalarOp::logical_not, {is_finite(found)}); },
        [&](const ScalarExpr& found) { return ScalarExpr::make(ScalarOp::select, {is_finite(found), found, zero}); });
  }

 private:
  const Access& read(std::size_t operand) const { return edit_.sum().reads[operand]; }
  bool is_half(std::size_t operand) { return nestor::is_half(edit_.nest().tensor(read(operand).tensor).type); }
  const std::vector<OrdinalPair>& pairs() { return is_half(operands_.second) ? kPairsWithHalf : kPairs; }

  /// The sums of products of parts at all of these points. `places`: sets what a sum writes, and returns how it reads both operands.
  void add_products(const Parts& a, const Parts& b, const Statement& points,
                    const std::function<std::pair<isl::map, isl::map>(Statement&)>& places) {
    std::set<int> all;
    for (int d = 0; d < static_cast<int>(points.dims.size()); ++d) all.insert(d);
    for (const auto& [p, q] : pairs()) {
      Statement product = over_dims(edit_.nest(), points, all, fresh_name(edit_.nest(), points.name));
      const auto [in_a, in_b] = places(product);
      const ScalarExpr left = read_part(product, a[p], in_a), right = read_part(product, b[q], in_b);
      product.value = ScalarExpr::make(ScalarOp::mul, {left, right});
      product.reduction = ReductionOp::add;
      edit_.insert(product);
    }
  }

  /// Has every sum the terms of one chunk at most?
  bool is_short() {
    const auto terms = known_value(edit_.nest(), extent_of(edit_.nest(), edit_.sum().domain, reduced_));
    return terms && *terms <= kChunk;
  }

  /// Are there few results of many terms, where sizes have their defaults? Sums in place can be cut into parts.
  bool is_tall() {
    constexpr double kFewResults = 1 << 16, kManyTerms = 1 << 13;
    const std::set<int> elements = edit_.elements();
    return default_points(edit_.nest(), edit_.sum(), {elements.begin(), elements.end()}) <= kFewResults &&
           default_points(edit_.nest(), edit_.sum(), {reduced_}) >= kManyTerms;
  }

  /// The sum over chunks of the products of parts. { Sum -> Tensor }
  isl::map add_chunks(const Parts& a, const Parts& b) {
    const std::set<int> elements = edit_.elements();
    const std::string base = edit_.sum().write.tensor;
    Tensor sums = edit_.nest().tensor(base);
    sums.name = fresh_name(edit_.nest(), base + "_chunks");
    const std::string name = fresh_name(edit_.nest(), sums.name + "_sum");
    const Statement points = in_chunks(edit_.nest(), edit_.sum(), {reduced_, kChunk}, name);
    const int last = static_cast<int>(points.dims.size()) - 1;
    // Elements and chunks: all dims of the points but the terms.
    sums.shape.clear();
    for (const int d : elements) sums.shape.push_back(edit_.extent(d));
    sums.shape.push_back(extent_of(edit_.nest(), points.domain, last - 1));
    edit_.nest().tensors.push_back(sums);
    std::set<int> chunks;
    for (int d = 0; d < last; ++d) chunks.insert(d);
    const auto access_of = [&](const Statement& statement, const std::string& tensor, unsigned dims) {
      isl_map* same = isl_set_identity(statement.domain.copy());
      const auto all = static_cast<unsigned>(statement.dims.size());
      same = isl_map_project_out(same, isl_dim_out, dims, all - dims);
      same = isl_map_gist_domain(same, statement.domain.copy());
      return Access{tensor, isl::manage(isl_map_set_tuple_name(same, isl_dim_out, tensor.c_str()))};
    };
    Statement start = over_dims(edit_.nest(), points, chunks, fresh_name(edit_.nest(), sums.name + "_init"));
    start.write = access_of(start, sums.name, static_cast<unsigned>(last));
    start.value = ScalarExpr::constant(0);
    edit_.insert(start);
    add_products(a, b, points, [&](Statement& product) {
      product.write = access_of(product, sums.name, static_cast<unsigned>(last));
      const auto by_chunks = [&](const Access& access) {
        return seen_in_chunks(edit_.nest(), product, edit_.sum(), {reduced_, kChunk}, access.relation);
      };
      return std::pair(by_chunks(read(operands_.first)), by_chunks(read(operands_.second)));
    });
    const isl::map whole = edit_.add_tensor(elements, "_product");
    edit_.add_start(elements, whole);
    Statement sum = over_dims(edit_.nest(), points, chunks, fresh_name(edit_.nest(), tensor_of(whole) + "_sum"));
    sum.write = access_of(sum, tensor_of(whole), static_cast<unsigned>(last) - 1);
    sum.reads = {access_of(sum, sums.name, static_cast<unsigned>(last))};
    sum.value = ScalarExpr::read(0, ElementType::f32);
    sum.reduction = ReductionOp::add;
    edit_.insert(sum);
    return whole;
  }

  SumEdit edit_;
  const OrdinalPair operands_;
  const int reduced_;
};

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return operands_of(nest, statement, why) ? statement.name + " is sums of products in bf16" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const OrdinalPair operands = required_match(nest, kName, target, operands_of);
  return {SixProducts(nest, nest.statement(target[0]), operands).apply(), {}, false};
}

}  // namespace

const Rule& bf16x6_rule() {
  static const Rule rule{
      kName,
      "a product of matrices in f32 is made of six in bf16, one of f32 and bf16 of four, for tensor cores (argument: statement)",
      "f32 numbers are sums of three in bf16; what is infinite has one infinite term",
      "as f32 rounds a product, 2^-24 of each term, and 2^-21 of its 63 neighbours at most",
      find,
      apply};
  return rule;
}

}  // namespace nestor
