// Rule "reroll_sums": sums that are only added together and differ by constants in their indices are one sum over these constants as well.
//
// Pattern    u0_e = sum over k of a_(e,k) b_k,0, u1_e = sum over k of a_(e + 1,k) b_k,1, .., where whoever reads one of them adds up all of
//            them at one place: a convolution with a sum for each of its taps.
//            Or one sum that adds up such products at each point. Or select(c, u0_e, 0) + select(d, u1_e, 0) + ..: sums that are added where
//            conditions hold have terms there alone (narrow_sums.h).
// Rewrite    u0_e = sum over t and k of a_(e + t,k) b_k,t, over the points that the sums have; readers read u0 alone.
// Conditions temporaries of f32 with a start from 0 and a sum each, alone in their loops; all but constants of the sums is equal. The constants are
//            all points of a box, of three dims at most, each once; the points of all sums together are one piece.
// Proof      the same terms are added up; what they read is not written between the first sum and the last.
// Rounding   as reassociate.
// Source     the inverse of unrolling; loop rerolling, as in LLVM.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "poly/algebra/rolled/added_sums.h"
#include "poly/algebra/rolled/narrow_sums.h"
#include "poly/algebra/rolled/rolled_sums.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"

namespace nestor {
namespace {

constexpr const char* kName = "reroll_sums";

/// A sum with its start, if its accesses are affine, it is alone in its loops as its start is, and does not read itself.
std::optional<AffineSum> started_sum(const Nest& nest, const Statement& sum) {
  const std::vector<const Statement*> starts = initialisers_of(nest, sum);
  const auto own = [&](const Access& read) { return read.tensor == sum.write.tensor; };
  if (sum.reduction != ReductionOp::add || starts.size() != 1 || sum.value.type() != ElementType::f32 ||
      !alone_in_group(nest, sum.name) || !alone_in_group(nest, starts.front()->name) ||
      std::any_of(sum.reads.begin(), sum.reads.end(), own))
    return std::nullopt;
  return affine_sum(sum, *starts.front());
}

/// The sum that makes a temporary, if it might be part of another.
std::optional<AffineSum> sum_of_temporary(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  if (nest.tensor(tensor).role != TensorRole::temporary || nest.tensor(tensor).type != ElementType::f32 || writers.size() != 2)
    return std::nullopt;
  auto sum = started_sum(nest, *writers.back());
  return sum && starts_from(nest, sum->sum, 0) ? sum : std::nullopt;
}

/// The first sums among terms that become one.
std::optional<Rolled> rolled_sums(const Nest& nest, const Statement& reader, const std::vector<ScalarExpr>& terms) {
  std::vector<AffineSum> sums;
  std::set<std::string> known;
  for (const ScalarExpr& term : terms) {
    if (terms.size() < kFewestRolled || term.op() != ScalarOp::read) continue;
    const std::string& tensor = reader.reads[static_cast<std::size_t>(term.ordinal())].tensor;
    if (!known.insert(tensor).second) continue;
    if (auto sum = sum_of_temporary(nest, tensor)) sums.push_back(std::move(*sum));
  }
  while (sums.size() >= kFewestRolled) {
    std::vector<std::pair<Shift, AffineSum>> alike;
    std::vector<AffineSum> others;
    for (const AffineSum& sum : sums) {
      const auto shift = shift_of(nest, sums.front(), sum);
      const std::string &tensor = sums.front().sum.write.tensor, &other = sum.sum.write.tensor;
      if (shift && (tensor == other || always_added(nest, tensor, other))) {
        alike.emplace_back(*shift, sum);
      } else {
        others.push_back(sum);
      }
    }
    if (auto rolled = rolled_up(nest, std::move(alike))) return rolled;
    sums.swap(others);
  }
  return std::nullopt;
}

/// The products that a sum adds up at each point, if all become one.
std::optional<Rolled> rolled_terms(const Nest& nest, const Statement& sum) {
  std::vector<ScalarExpr> terms;
  if (sum.reduction) terms = terms_of(sum.value);
  std::vector<std::pair<Shift, AffineSum>> alike;
  for (const ScalarExpr& term : terms) {
    Statement alone = sum;
    alone.value = term;
    compact(alone);
    const auto affine = term.op() == ScalarOp::mul && terms.size() > 1 ? started_sum(nest, alone) : std::nullopt;
    const auto shift = affine ? shift_of(nest, alike.empty() ? *affine : alike.front().second, *affine) : std::nullopt;
    if (!shift) return std::nullopt;
    alike.emplace_back(*shift, *affine);
  }
  return rolled_up(nest, std::move(alike));
}

/// What becomes one sum: the products of the statement, if it is a sum, or the first sums that it adds.
std::optional<Rolled> rolled_for(const Nest& nest, const Statement& statement) {
  std::optional<Rolled> found = rolled_terms(nest, statement);
  visit_additions(statement.value, [&](const std::vector<ScalarExpr>& terms) {
    if (!found) found = rolled_sums(nest, statement, terms);
  });
  return found;
}

/// The nest where it has sums to roll up: as it is, or with sums that count where conditions hold alone.
std::optional<std::pair<Nest, Rolled>> with_rolled(const Nest& nest, const std::string& statement) {
  if (auto rolled = rolled_for(nest, nest.statement(statement))) return std::pair{nest, std::move(*rolled)};
  const auto narrow = with_narrow_sums(nest, statement);
  auto rolled = narrow ? rolled_for(*narrow, narrow->statement(statement)) : std::nullopt;
  return rolled ? std::optional(std::pair{*narrow, std::move(*rolled)}) : std::nullopt;
}

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) {
    const auto found = with_rolled(nest, statement.name);
    return found ? fmt::format("{} sums in {} are one", found->second.sums.size(), statement.name) : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  auto found = with_rolled(nest, name);
  if (!found) refuse_rule(kName, name, "it adds no sums that are always added together and differ by constants of a box alone");
  auto& [result, rolled] = *found;
  const Statement start = rolled.sums.front().start, sum = joint_sum(result, rolled);
  if (sum.name == name) {
    replace_statement(result, sum);
    return {std::move(result), {}, true};
  }
  std::size_t last = 0;
  for (const AffineSum& each : rolled.sums) last = std::max(last, position_of(nest, each.sum.name));
  insert_statement(result, last + 1, start);
  insert_statement(result, last + 2, sum);
  // Their first namesakes are the old ones.
  for (const AffineSum& each : rolled.sums) {
    erase_statement(result, each.start.name);
    erase_statement(result, each.sum.name);
  }
  for (std::size_t k = 1; k < rolled.sums.size(); ++k) leave_out_of_additions(result, rolled.sums[k].sum.write.tensor);
  return {std::move(result), {}, true};
}

}  // namespace

const Rule& reroll_sums_rule() {
  static const Rule rule{kName,
                         "sums that are added together and differ by constants become one over these (argument: reader)",
                         "addition is associative and commutative: the same terms are added up",
                         "as reassociate",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
