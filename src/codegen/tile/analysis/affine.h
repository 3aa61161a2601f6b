// Linear forms of integer expressions, and what is known of their divisibility: the analysis behind layouts and vectors.
#pragma once

#include "codegen/tile/tile_program.h"
#include "support/int_expr.h"
#include "support/rounding.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace nestor::nvptx {

/// sum(coefficient * variable) + constant. A subterm that is not linear (a minimum, a quotient) counts as one variable named by
/// its text in brackets, so that equal subterms cancel.
struct Affine {
  std::map<std::string, std::int64_t> terms;
  std::int64_t constant = 0;

  bool is_constant() const { return terms.empty(); }
  bool operator==(const Affine& other) const = default;
};

Affine affine_of(const IntExpr& expr);
Affine operator-(const Affine& a, const Affine& b);
Affine scaled(const Affine& form, std::int64_t factor);

/// Quotients by numbers that the expression adds up or takes away.
std::vector<IntExpr> quotients_in(const IntExpr& expr);

/// A number that is >= 0 where the distance is, and nowhere else, and linear in `var`: of c x + s floor((a x + b) / d) + k with c a multiple of
/// s, all of x goes into the quotient, and k comes out rounded. The distance itself where that is not its form.
IntExpr linear_along(const IntExpr& distance, const std::string& var);

/// upper - lower of a dim where it is known when compiling: exactly, or else its bound.
std::optional<std::int64_t> exact_extent(const OpDim& dim);
std::optional<std::int64_t> extent_bound(const OpDim& dim);
/// What all values of a dim stay below, where that is known when compiling: more than its extent where it does not start from 0.
std::optional<std::int64_t> end_bound(const OpDim& dim);

/// Largest known divisor of loop variables by name (0: the variable is always 0). Absent: 1.
using Multiples = std::map<std::string, std::int64_t>;

/// Largest number that is known to divide `expr` (0: it is 0). Each size parameter it meets is taken to be divisible by
/// `assumed` and noted in `sizes`: the kernel checks these when it runs.
std::int64_t known_multiple(const IntExpr& expr, const Multiples& multiples, const std::set<std::string>& size_names,
                            std::int64_t assumed, std::set<std::string>& sizes);

/// Every variable of `expr`, each once.
void collect_variables(const IntExpr& expr, std::set<std::string>& names);

}  // namespace nestor::nvptx
