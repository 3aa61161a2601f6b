// Scalar expressions as sums of products, and matching of expressions between statements. Rules look at this form, so that
// the way in which an author wrote a formula does not matter.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "poly/nest/nest.h"

namespace nestor {

/// coefficient * product of factor^power. Factors are expressions that are no sums, products or quotients of numbers.
struct Monomial {
  double coefficient = 1;
  std::vector<std::pair<ScalarExpr, int>> factors;
};
using Polynomial = std::vector<Monomial>;

/// The polynomial of a floating point expression; what cannot be expanded is one factor. Casts to f32 of f32 vanish. Nothing cancels:
/// x - x, 0 x and x / x stay as they are written, as they are NaN for some x.
Polynomial polynomial_of(const ScalarExpr& expr);
/// The expression as one product: factors are not expanded sums. Nothing cancels, as in polynomial_of.
Monomial product_of(const ScalarExpr& expr);
Monomial multiply(const Monomial& a, const Monomial& b);
Monomial power(const Monomial& a, int exponent);
Polynomial scaled(const Polynomial& polynomial, double factor);
Polynomial scaled(const Polynomial& polynomial, const Monomial& factor);
/// The same product up to rounding of the coefficients.
bool same_product(const Monomial& a, const Monomial& b);
/// True for a positive finite number and for a scalar argument whose range is positive; products and quotients of such.
bool is_positive(const std::vector<ScalarParam>& scalars, const ScalarExpr& expr);
ScalarExpr to_expr(const Monomial& monomial);

bool is_half(ElementType type);  ///< a float of 16 bits
bool is_float(ElementType type);
/// Strips casts between floating point types, those that round as well.
ScalarExpr strip_casts(const ScalarExpr& expr);
/// Strips casts that keep every value.
ScalarExpr strip_exact_casts(const ScalarExpr& expr);
/// True when the expression reads `tensor` (accesses of `statement`).
bool reads_tensor(const Statement& statement, const ScalarExpr& expr, const std::string& tensor);
/// The ordinal if `expr` is nothing but a read of `tensor`, casts that keep every value aside.
std::optional<int> plain_read_of(const Statement& statement, const ScalarExpr& expr, const std::string& tensor);

/// Finds out at which pairs of instances two expressions of two statements are the same value.
class InstanceMatch {
 public:
  InstanceMatch(const Statement& a, const Statement& b) : a_(a), b_(b) {}

  /// Structural match; on success remembers which accesses and indices have to agree.
  bool match(const ScalarExpr& a, const ScalarExpr& b);
  bool match(const Polynomial& a, const Polynomial& b);
  bool match(const Monomial& a, const Monomial& b);
  /// Additionally requires that two accesses touch the same element.
  void require(const Access& a, const Access& b) { same_element_.emplace_back(a, b); }

  /// { A[dims] -> B[dims] } of instances in the two domains for which everything agrees.
  isl::map relation(const isl::set& domain_a, const isl::set& domain_b) const;

 private:
  const Statement& a_;
  const Statement& b_;
  std::vector<std::pair<int, int>> reads_;
  std::vector<std::pair<int, int>> indices_;
  std::vector<std::pair<Access, Access>> same_element_;
};

}  // namespace nestor
