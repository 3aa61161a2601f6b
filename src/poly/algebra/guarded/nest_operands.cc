// Rule "nest_operands": inner sums that results share become an operand of a product of matrices.
//
// Pattern    r_e = sum over R and S of a f in f32: a is what follows R, f an element of 16 bits that does not, and dims T that a follows, beside R,
//            are not all of e and S (sum over t, i, j of angle_eti message_etj w_fij, with R = {t}, T = {e, i, j} and f = w_fij).
// Rewrite    t = sum over R of a at T; P_e = sum over S of t f; r_e starts from P where that is finite, else from 0, and adds up a f over R
//            and S where P is not. So tensor cores take P, once t is rounded (round_operand), and r stays beside it in their kernel.
//            In it R and S are one dim.
// Conditions t and f are rows and columns of a product of matrices: each follows a dim of the result that the other one does not, and both follow
//            a dim of S. The sum can be guarded (sum_edit.h). All points with the same T have the same points of R. The dims of R and S have all
//            their values, whatever the others are, whose number is known for all but the first.
// Proof      distributive law: sum over R of (a f) = f (sum over R of a). A finite P has finite t and f, as 0 times an infinity is NaN, and so
//            all a are finite, and all terms of the definition. Else r has these very terms, added up as before.
// Rounding   As reassociate, and one product for each point of S. A definition that multiplies by f before it has all of a may underflow where t does
//            not, or the reverse: then f is at most 2^32.
// Source     distributive law; S. Aji, R. McEliece, The Generalized Distributive Law, IEEE Transactions on Information Theory 46(2), 2000.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/guarded/nested_operand.h"
#include "poly/algebra/guarded/shared_nestings.h"
#include "poly/algebra/guarded/sum_edit.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"
#include "support/error.h"

namespace nestor {
namespace {

constexpr const char* kName = "nest_operands";
/// Of the points of the definition to those that are left: a temporary and a kernel more are worth it.
constexpr double kLeastGain = 4;

/// The sum over one dim in place of all that it reduces, in the same order; nothing where they are no box of known extents.
std::optional<Statement> with_one_reduced_dim(const Nest& nest, const Statement& sum) {
  Statement joined = sum;
  for (std::vector<int> reduced = reduced_dims(joined); reduced.size() > 1; reduced = reduced_dims(joined)) {
    const int inner = reduced.back(), outer = reduced[reduced.size() - 2];
    const auto extent = known_value(nest, extent_of(nest, joined.domain, inner));
    if (!extent || *extent < 1 || !have_all_values(nest, joined, outer, inner, *extent)) return std::nullopt;
    joined = with_joined_dims(nest, joined, {outer, inner, *extent});
  }
  return joined;
}

/// Those that apply, the one that leaves fewest points first. Sets `why` where there is none.
std::vector<SharedNesting> nested_operands(const Nest& nest, const Statement& sum, std::string& why) {
  std::vector<SharedNesting> nestings = shared_nestings(nest, sum, why);
  if (nestings.empty() || !can_be_guarded(nest, sum, why)) return {};
  why = "the dims that it reduces are no box of known extents";
  if (!with_one_reduced_dim(nest, sum)) return {};
  why = "no inner sums and elements of 16 bits are rows and columns of a product of matrices";
  std::erase_if(nestings, [&](const SharedNesting& shared) { return !nests_operand(sum, shared); });
  if (nestings.empty()) return {};
  why = "it multiplies by elements before that may be large";
  std::erase_if(nestings, [&](const SharedNesting& shared) {
    return shared.nesting.regroups && range_of(nest, sum, shared.nesting.outside.front()).magnitude() > kMostRegrouped;
  });
  if (!nestings.empty()) why = "";
  return nestings;
}

Nest nested(const Nest& nest, const Statement& sum, const SharedNesting& shared) {
  Nest joined = nest;
  replace_statement(joined, *with_one_reduced_dim(nest, sum));
  SumEdit edit(joined, joined.statement(sum.name));
  return with_nested_operand(edit, sum, shared);
}

const NestingRule& nestings() {
  static const NestingRule rule{kName,
                                kLeastGain,
                                nested_operands,
                                [](const Statement& sum, const SharedNesting&, const std::string& dims) {
                                  return fmt::format("{} is a product of matrices, one of which sums up over {}", sum.name, dims);
                                },
                                "no inner sum over {} is an operand",
                                nested};
  return rule;
}

std::vector<RuleMatch> find(const Nest& nest) { return matches_of(nestings(), nest); }

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) { return apply_nesting(nestings(), nest, target); }

}  // namespace

const Rule& nest_operands_rule() {
  static const Rule rule{
      kName,
      "inner sums that results share become an operand of a product of matrices (arguments: statement, dims of the inner sum)",
      "distributive law: sum_ij a_i b_ij f_j = sum_j f_j (sum_i a_i b_ij), where that is finite; else the direct sum is taken",
      "sums are regrouped; one product for each inner sum",
      find,
      apply};
  return rule;
}

}  // namespace nestor
