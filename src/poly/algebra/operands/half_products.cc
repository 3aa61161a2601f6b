// Factors of a sum, without their casts.
#include "poly/algebra/operands/half_products.h"

#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

std::optional<std::size_t> half_read(const ScalarExpr& factor) {
  const ScalarExpr bare = strip_exact_casts(factor);
  if (bare.op() != ScalarOp::read || size_in_bytes(bare.type()) != 2) return std::nullopt;
  return static_cast<std::size_t>(bare.ordinal());
}

}  // namespace

std::optional<std::pair<std::size_t, std::size_t>> half_products(const Statement& statement) {
  if (statement.reduction != ReductionOp::add || statement.value.op() != ScalarOp::mul ||
      statement.value.type() != ElementType::f32)
    return std::nullopt;
  const auto a = half_read(statement.value.args()[0]), b = half_read(statement.value.args()[1]);
  return a && b && *a != *b ? std::optional(std::pair(*a, *b)) : std::nullopt;
}

}  // namespace nestor
