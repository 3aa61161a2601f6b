// Which addends and factors go to which side.
#include "poly/algebra/values/exponential_sides.h"

#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/scalar_share.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace nestor {
namespace {

constexpr std::size_t kMostAddends = 8;  ///< whose pairs are looked at

using Dims = std::set<int>;

bool includes(const Dims& all, const Dims& some) { return std::includes(all.begin(), all.end(), some.begin(), some.end()); }

/// Does it add up other values, so that each may be another side's? Factors that are numbers are for each of them.
std::vector<std::size_t> parts_of(const ScalarExpr& exponent) {
  switch (exponent.op()) {
    case ScalarOp::add:
    case ScalarOp::sub:
      return {0, 1};
    case ScalarOp::neg:
      return {0};
    case ScalarOp::mul:
      if (exponent.args()[0].op() == ScalarOp::constant) return {1};
      if (exponent.args()[1].op() == ScalarOp::constant) return {0};
      return {};
    default:
      return {};
  }
}

void add_addends(const ScalarExpr& exponent, std::vector<ScalarExpr>& addends) {
  const std::vector<std::size_t> parts = parts_of(exponent);
  if (parts.empty()) addends.push_back(exponent);
  for (const std::size_t k : parts) add_addends(exponent.args()[k], addends);
}

/// The exponent without those of its addends, in their order, that are not `kept`; nullopt: none is. `next`: the first addend's position.
std::optional<ScalarExpr> only(const ScalarExpr& exponent, const std::vector<bool>& kept, std::size_t& next) {
  const std::vector<std::size_t> parts = parts_of(exponent);
  if (parts.empty()) return kept[next++] ? std::optional(exponent) : std::nullopt;
  std::vector<ScalarExpr> args = exponent.args();
  std::vector<std::size_t> left;
  for (const std::size_t k : parts) {
    const auto part = only(args[k], kept, next);
    if (!part) continue;
    args[k] = *part;
    left.push_back(k);
  }
  if (left.empty()) return std::nullopt;
  if (left.size() == parts.size()) return exponent.with_args(std::move(args));
  const ScalarExpr& rest = args[left.front()];
  return exponent.op() == ScalarOp::sub && left.front() == 1 ? build::unary(ScalarOp::neg, rest) : rest;
}

Dims dims_of(const Statement& statement, const ScalarExpr& value) {
  Dims dims;
  for (int d = 0; d < static_cast<int>(statement.dims.size()); ++d) {
    if (varies_along(statement, value, d)) dims.insert(d);
  }
  return dims;
}

/// The first of two sides whose dims include these.
ExponentialSide* side_of(Exponential& found, Dims dims) {
  dims.erase(found.reduced);
  for (ExponentialSide* side : {&found.left, &found.right}) {
    if (includes(side->dims, dims)) return side;
  }
  return nullptr;
}

/// The sides around two addends, with all others of them and all factors; nullopt: some follow dims of both.
std::optional<Exponential> sides_around(const Statement& sum, const ScalarExpr& power, const std::vector<ScalarExpr>& addends,
                                        const std::vector<ScalarExpr>& factors, std::size_t a, std::size_t b) {
  Exponential found{power.op(), reduced_dims(sum).front(), {}, {}};
  found.left.dims = dims_of(sum, addends[a]);
  found.right.dims = dims_of(sum, addends[b]);
  // In whatever order the definition adds them up: sums that share a side have it on the same one.
  if (found.right.dims < found.left.dims) {
    std::swap(found.left, found.right);
    std::swap(a, b);
  }
  const auto own = [&](const ExponentialSide& side, const ExponentialSide& other) {
    return std::any_of(side.dims.begin(), side.dims.end(),
                       [&](int dim) { return dim != found.reduced && !other.dims.contains(dim); });
  };
  if (!own(found.left, found.right) || !own(found.right, found.left)) return std::nullopt;
  std::vector<bool> in_left(addends.size()), in_right(addends.size());
  const auto take = [&](const ScalarExpr& value) {
    const Dims dims = dims_of(sum, value);
    ExponentialSide* side = side_of(found, dims);
    if (side != nullptr && dims.contains(found.reduced)) side->dims.insert(found.reduced);
    return side;
  };
  for (std::size_t k = 0; k < addends.size(); ++k) {
    const ExponentialSide* side = k == b ? &found.right : take(addends[k]);
    if (side == nullptr) return std::nullopt;
    (side == &found.left ? in_left : in_right)[k] = true;
  }
  for (const ScalarExpr& factor : factors) {
    ExponentialSide* side = take(factor);
    if (side == nullptr || side->factor) return std::nullopt;
    side->factor = factor;
  }
  for (auto& [side, kept] : {std::pair(&found.left, &in_left), std::pair(&found.right, &in_right)}) {
    constexpr std::ptrdiff_t kMostOfASide = 2;
    if (!side->dims.contains(found.reduced) || std::count(kept->begin(), kept->end(), true) > kMostOfASide) return std::nullopt;
    std::size_t next = 0;
    side->exponent = *only(power.args()[0], *kept, next);
  }
  Dims all = found.left.dims;
  all.insert(found.right.dims.begin(), found.right.dims.end());
  return all.size() == sum.dims.size() ? std::optional(found) : std::nullopt;
}

}  // namespace

std::optional<Exponential> exponential_of_sides(const Statement& sum) {
  if (sum.reduction != ReductionOp::add || sum.value.type() != ElementType::f32 || reduced_dims(sum).size() != 1 ||
      !is_short(sum.value))
    return std::nullopt;
  const std::vector<ScalarExpr> factors = factors_of(sum.value);
  for (std::size_t f = 0; f < factors.size(); ++f) {
    const ScalarExpr& power = factors[f];
    if (power.op() != ScalarOp::exp && power.op() != ScalarOp::exp2) continue;
    std::vector<ScalarExpr> addends, others = factors;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(f));
    add_addends(power.args()[0], addends);
    if (addends.size() > kMostAddends) continue;
    for (std::size_t b = 1; b < addends.size(); ++b) {
      for (std::size_t a = 0; a < b; ++a) {
        if (auto found = sides_around(sum, power, addends, others, a, b)) return found;
      }
    }
  }
  return std::nullopt;
}

}  // namespace nestor
