// Rule "expand_squares": a sum of squared differences becomes a sum of products, where that is as good.
//
// Pattern    r_e = sum over k of (a - b)^2 or a^2 - 2 a b + b^2 in f32, a and b elements of one 16-bit type. Each follows k, and a dim of the
//            result that the other does not.
// Rewrite    A = sum a^2, B = sum b^2, P = sum a b, over k. With s = A + B and d = s - 2 P, c_e = d where d > s/16 + 2^-80, else -1.
//            t_e starts from max(c_e, 0), and adds up c_e < 0 ? (a - b)^2 : 0; r_e is t_e. So what is decided is decided once, and t stays in the
//            kernel that has P, whoever else reads r.
// Conditions the sum starts from 0 into a temporary of f32; start and sum are alone in their loops, and nobody reads it before it is complete;
//            every element has terms, those of its row of a and those of its row of b; nothing writes a's and b's tensors from the start of the sum on.
// Proof      (a - b)^2 = a^2 + b^2 - 2 a b. For an s of infinity or NaN the comparison is false: where it holds, all a, b and their products
//            are finite, d is the sum, and no other term is added. Where it fails, the start is 0 and the sum is the direct one.
// Rounding   squares and products of 16-bit numbers are exact in f32, but for underflow. With n terms and u = 2^-24, A, B and P are off by
//            (n - 1) u of sums of |terms|, which are at most s in all for A and B, and s for 2 P: d by (2 n + 2) u s at most, which is
//            32 (n + 1) u d where d > s/16. What underflows is 2^-126 a term at most, where d > 2^-80: n 2^-46 of d.
//            The direct sum is off by (n + 2) u d. So the result is worse by a factor of 32 at most, or 48 where tensor cores cut sums off.
// Source     the expansion is folklore; N. Higham, Accuracy and Stability of Numerical Algorithms, chapter 1, on its cancellation.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "poly/algebra/guarded/sum_edit.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "expand_squares";
/// Of s, what d must exceed.
constexpr double kShare = 0x1p-4;
/// Where no term that underflows matters.
constexpr double kLeast = 0x1p-80;

/// a and b of a value that is (a - b)^2.
std::optional<std::pair<ScalarExpr, ScalarExpr>> squared_sides(const ScalarExpr& value) {
  const bool product = value.op() == ScalarOp::mul && value.args()[0].equals(value.args()[1]);
  const bool power = value.op() == ScalarOp::pow && value.args()[1].is_constant(2);
  if (!product && !power) return std::nullopt;
  const ScalarExpr& difference = value.args()[0];
  if (difference.op() != ScalarOp::sub || difference.type() != ElementType::f32) return std::nullopt;
  return std::pair(difference.args()[0], difference.args()[1]);
}

/// a and b of a value that is a^2 - 2 a b + b^2, in any order.
std::optional<std::pair<ScalarExpr, ScalarExpr>> expanded_sides(const ScalarExpr& value) {
  const Polynomial terms = polynomial_of(value);
  if (terms.size() != 3) return std::nullopt;
  std::vector<ScalarExpr> squares;
  std::optional<Monomial> mixed;
  for (const Monomial& term : terms) {
    const bool square = term.coefficient == 1 && term.factors.size() == 1 && term.factors[0].second == 2;
    if (square) squares.push_back(term.factors[0].first);
    if (term.coefficient == -2) mixed = term;
  }
  if (squares.size() != 2 || !mixed) return std::nullopt;
  const Monomial product{-2, {{squares[0], 1}, {squares[1], 1}}};
  return same_product(*mixed, product) ? std::optional(std::pair(squares[0], squares[1])) : std::nullopt;
}

/// The two reads whose difference is squared; nullopt: the value is something else.
std::optional<std::pair<std::size_t, std::size_t>> squared_difference(const Statement& sum) {
  if (sum.reduction != ReductionOp::add || sum.value.type() != ElementType::f32) return std::nullopt;
  auto sides = squared_sides(sum.value);
  if (!sides) sides = expanded_sides(sum.value);
  if (!sides || sides->first.type() != ElementType::f32) return std::nullopt;
  // The difference as a product has the same operands.
  Statement multiplied = sum;
  multiplied.value = ScalarExpr::make(ScalarOp::mul, {sides->first, sides->second});
  const auto operands = half_products(multiplied);
  const auto type = [&](const ScalarExpr& side) { return strip_exact_casts(side).type(); };
  return operands && type(sides->first) == type(sides->second) ? operands : std::nullopt;
}

/// The set as if it said nothing of dims outside of `dims`.
isl::set over(const isl::set& set, const std::set<int>& dims) {
  std::vector<int> others;
  for (int d = 0; d < static_cast<int>(isl_set_dim(set.get(), isl_dim_set)); ++d) {
    if (!dims.contains(d)) others.push_back(d);
  }
  return without_dims(set, others);
}

/// Has each element of the result the terms that its row of the operand has elsewhere, so that one sum of squares serves all of the row?
bool shares_terms(const Nest& nest, const Statement& sum, std::size_t operand, int reduced) {
  std::set<int> elements, rows{reduced};
  for (int d = 0; d < static_cast<int>(sum.dims.size()); ++d) {
    if (d != reduced) elements.insert(d);
    if (depends_on_dim(sum.reads[operand].relation, d)) rows.insert(d);
  }
  const isl::set domain = domain_in(nest, sum);
  return over(domain, elements).intersect(over(domain, rows)).is_subset(domain);
}

/// Sets `why` where the rule does not apply.
std::optional<std::pair<std::size_t, std::size_t>> operands_of(const Nest& nest, const Statement& sum, std::string& why) {
  const auto operands = squared_difference(sum);
  why = "it is no sum of squares of differences of two elements of one 16-bit type, in f32";
  if (!operands) return std::nullopt;
  if (!can_be_guarded(nest, sum, why)) return std::nullopt;
  why = "it has no rows and columns, with one dim of terms that both operands follow";
  const auto [a, b] = *operands;
  const std::vector<int> reduced = reduced_dims(sum);
  const bool both = reduced.size() == 1 && depends_on_dim(sum.reads[a].relation, reduced.front()) &&
                    depends_on_dim(sum.reads[b].relation, reduced.front());
  if (!both || !follows_own_dim(sum, a, b) || !follows_own_dim(sum, b, a)) return std::nullopt;
  why = "elements of one row have other terms each";
  if (!shares_terms(nest, sum, a, reduced.front()) || !shares_terms(nest, sum, b, reduced.front())) return std::nullopt;
  why = "its operands are written when the sum has begun";
  for (const std::size_t operand : {a, b}) {
    if (!is_written_before(nest, sum.reads[operand].tensor, sum)) return std::nullopt;
  }
  return operands;
}

class Expansion {
 public:
  Expansion(const Nest& nest, const Statement& sum, std::pair<std::size_t, std::size_t> operands)
      : edit_(nest, sum), operands_(operands), reduced_(reduced_dims(sum).front()) {}

  Nest expand() {
    const isl::map left = squares(operands_.first, "_left"), right = squares(operands_.second, "_right"), dot = product();
    const ScalarExpr zero = ScalarExpr::constant(0);
    return edit_.guard(
        choose({left, right, dot}), [&](const ScalarExpr& chosen) { return ScalarExpr::make(ScalarOp::lt, {chosen, zero}); },
        [&](const ScalarExpr& chosen) { return ScalarExpr::make(ScalarOp::max, {chosen, zero}); });
  }

 private:
  const Access& read(std::size_t operand) const { return edit_.sum().reads[operand]; }

  /// Start and sum of what is read, at the dims of `to`.
  void add_sum(const std::set<int>& dims, const isl::map& to, const std::vector<std::size_t>& reads, const ScalarExpr& value) {
    edit_.add_start(dims, to);
    std::set<int> all = dims;
    all.insert(reduced_);
    Statement sum = over_dims(edit_.nest(), edit_.sum(), all, fresh_name(edit_.nest(), tensor_of(to) + "_sum"));
    sum.write = {tensor_of(to), edit_.seen_from(sum, all, to)};
    for (const std::size_t each : reads) sum.reads.push_back({read(each).tensor, edit_.seen_from(sum, all, read(each).relation)});
    sum.value = value;
    sum.reduction = ReductionOp::add;
    edit_.insert(sum);
  }

  ScalarExpr wide(int ordinal, std::size_t operand) {
    return ScalarExpr::cast(ElementType::f32, ScalarExpr::read(ordinal, edit_.nest().tensor(read(operand).tensor).type));
  }

  isl::map squares(std::size_t operand, const std::string& suffix) {
    std::set<int> dims = edit_.elements();
    std::erase_if(dims, [&](int d) { return !depends_on_dim(read(operand).relation, d); });
    const isl::map to = edit_.add_tensor(dims, suffix);
    add_sum(dims, to, {operand}, ScalarExpr::make(ScalarOp::mul, {wide(0, operand), wide(0, operand)}));
    return to;
  }

  isl::map product() {
    const isl::map to = edit_.add_tensor(edit_.elements(), "_product");
    add_sum(edit_.elements(), to, {operands_.first, operands_.second},
            ScalarExpr::make(ScalarOp::mul, {wide(0, operands_.first), wide(1, operands_.second)}));
    return to;
  }

  /// The expansion's value where it is as good, else -1.
  isl::map choose(const std::vector<isl::map>& sums) {
    const std::set<int> dims = edit_.elements();
    const isl::map to = edit_.add_tensor(dims, "_choice");
    Statement choice = over_dims(edit_.nest(), edit_.sum(), dims, fresh_name(edit_.nest(), tensor_of(to) + "_made"));
    choice.write = {tensor_of(to), edit_.seen_from(choice, dims, to)};
    std::vector<ScalarExpr> reads;
    for (const isl::map& sum : sums)
      reads.push_back(ScalarExpr::read(add_read(choice, {tensor_of(sum), edit_.seen_from(choice, dims, sum)}), ElementType::f32));
    const auto make = [](ScalarOp op, const ScalarExpr& x, const ScalarExpr& y) { return ScalarExpr::make(op, {x, y}); };
    const auto number = [](double value) { return ScalarExpr::constant(value); };
    const ScalarExpr squares = make(ScalarOp::add, reads[0], reads[1]);
    const ScalarExpr value = make(ScalarOp::sub, squares, make(ScalarOp::mul, number(2), reads[2]));
    const ScalarExpr least = make(ScalarOp::add, make(ScalarOp::mul, number(kShare), squares), number(kLeast));
    choice.value = ScalarExpr::make(ScalarOp::select, {make(ScalarOp::lt, least, value), value, number(-1)});
    edit_.insert(choice);
    return to;
  }

  SumEdit edit_;
  const std::pair<std::size_t, std::size_t> operands_;
  const int reduced_;
};

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return operands_of(nest, statement, why) ? statement.name + " is a sum of products, where that is as good" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const auto operands = required_match(nest, kName, target, operands_of);
  return {Expansion(nest, nest.statement(target[0]), operands).expand(), {}, false};
}

}  // namespace

const Rule& expand_squares_rule() {
  static const Rule rule{
      kName,
      "a sum of squared differences becomes a sum of products, where that cancels little (argument: statement)",
      "(a - b)^2 = a^2 + b^2 - 2 a b, where the sum of squares is finite; else the direct sum is taken",
      "48 times that of the direct sum at most",
      find,
      apply};
  return rule;
}

}  // namespace nestor
