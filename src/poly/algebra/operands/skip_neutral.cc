// Rule "skip_neutral": a reduction leaves out the terms that a temporary has its neutral element for, and computes the others where it reads them.
//
// Pattern    r_e (+)= t_p with sums and zeros, maxima and -inf, minima and inf; or r_e += t_p b_q with zeros. t is a temporary that nobody else
//            reads: the constant, and on a part of its elements x (a window with nothing around the image: select(inside, x[y + s - 1], 0)).
// Rewrite    r_e (+)= x_p, or x_p b_q, over the points whose element of t is one of x.
// Conditions the reduction is alone in its loops, and a sum starts from 0; x is written last and once, and is read once, or an element of another tensor;
//            what is left of the domain is one piece. Products of matrices are for skip_zeros.
// Proof      r (+) e = r for the neutral element e, and r + 0 b = r for a finite b, as a sum that starts from +0 is never -0. What x reads is
//            complete before, and nobody writes it later.
// Special    b must be finite in masked places (docs/values.md): 0 times an infinity or NaN is NaN.
// Rounding   none.
#include <isl/map.h>
#include <isl/set.h>

#include <optional>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/zero_parts.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

constexpr const char* kName = "skip_neutral";

/// Ordinal of a read, through casts that change nothing.
std::optional<std::size_t> read_of(const ScalarExpr& value) {
  const ScalarExpr bare = strip_exact_casts(value);
  return bare.op() == ScalarOp::read ? std::optional(static_cast<std::size_t>(bare.ordinal())) : std::nullopt;
}

bool multiplies_matrices_of_halves(const Statement& sum) {
  const auto halves = half_products(sum);
  return halves && follows_own_dim(sum, halves->first, halves->second) && follows_own_dim(sum, halves->second, halves->first);
}

/// With the read `ordinal` of the temporary. Sets `why` where there is none.
std::optional<Skipping> without_read(const Nest& nest, const Statement& reduction, std::size_t ordinal, std::string& why) {
  const std::string& tensor = reduction.reads[ordinal].tensor;
  why = "its temporary has other readers";
  if (readers_of(nest, tensor).size() != 1) return std::nullopt;
  why = "its temporary is not the neutral element but for one definition";
  const bool once = reduction.reads[ordinal].relation.intersect_domain(domain_in(nest, reduction)).is_injective();
  const auto takes = [&](const Statement& writer) { return once || read_of(writer.value).has_value(); };
  const double neutral = neutral_element(*reduction.reduction, nest.tensor(tensor).type);
  auto found = without_constant_terms(nest, reduction, ordinal, neutral, takes, why);
  if (!found) return std::nullopt;
  why = "it is a product of matrices";
  if (multiplies_matrices_of_halves(*found)) return std::nullopt;
  Skipping result{std::move(*found), {}};
  for (std::size_t k = 0; k < reduction.reads.size(); ++k) {
    if (k != ordinal) result.others.push_back(reduction.reads[k].tensor);
  }
  why = "";
  return result;
}

std::optional<Skipping> skipping_of(const Nest& nest, const Statement& reduction, std::string& why) {
  why = "it is no sum, maximum or minimum of a temporary, or of its products";
  const auto op = reduction.reduction;
  const bool extremum = op == ReductionOp::max || op == ReductionOp::min, adds = op == ReductionOp::add;
  if ((!extremum && !adds) || reduction.value.type() != ElementType::f32 || !reduction.indices.empty()) return std::nullopt;
  why = "it does not start from 0, or shares its loops with other statements of its definition";
  if ((adds && !starts_from(nest, reduction, 0)) || !alone_in_group(nest, reduction.name)) return std::nullopt;
  why = "it is no sum, maximum or minimum of a temporary, or of its products";
  std::vector<ScalarExpr> factors{reduction.value};
  if (adds && reduction.value.op() == ScalarOp::mul) factors = reduction.value.args();
  for (std::size_t k = 0; k < factors.size(); ++k) {
    const auto ordinal = read_of(factors[k]);
    if (!ordinal || nest.tensor(reduction.reads[*ordinal].tensor).role != TensorRole::temporary) continue;
    const bool elsewhere = factors.size() > 1 && factors[1 - k].reads(static_cast<int>(*ordinal));
    if (elsewhere) continue;
    if (auto found = without_read(nest, reduction, *ordinal, why)) return found;
  }
  return std::nullopt;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return skipping_of(nest, statement, why) ? "terms of " + statement.name + " that change nothing are left out" : "";
  });
}

std::vector<std::string> finite(const Nest& nest) { return finite_beside_zeros(nest, skipping_of); }

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  return skip_terms(nest, kName, target, skipping_of);
}

}  // namespace

const Rule& skip_neutral_rule() {
  static const Rule rule{
      kName,
      "a reduction leaves out terms that change nothing, and computes the others where it reads them (argument: statement)",
      "a reduction is the same without its neutral element, and a sum without products of 0 and finite values",
      "none, with finite values in masked places: what met zeros is left out",
      find,
      apply,
      finite};
  return rule;
}

}  // namespace nestor
