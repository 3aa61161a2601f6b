// Rule "neutral_terms": terms that are the neutral element of their reduction leave its domain.
//
// Pattern    a reduction r (+)= t where t is the neutral element on a part of the domain: because of a select with an affine
//            condition, in t itself or in elementwise statements that t reads (select(c, x, -inf) under max; exp(-inf) = 0 under a sum).
// Rewrite    that part leaves the reduction's domain; domains of statements that only computed temporaries for it shrink to what is
//            still read before it is written anew (backward bounds); selects that are decided on the smaller domain are replaced by their branch. Where
//            definitions are left out, what is left is simplified.
// Conditions the part is described by affine conditions that do not wrap around. What stands beside a known constant leaves it as it is:
//            -inf + x needs an x that is neither +inf nor NaN, 0 / x one that is neither 0 nor NaN, by its range. Where x is a row's
//            extremum or sum, and may be infinite or NaN, another term of the row must remain, and be NaN then too; rows that would lose
//            all their terms keep them. 0 x counts as 0 where a condition made the 0 (a masked place, docs/values.md), not where
//            it is written down.
// Proof      In a monoid with neutral element e, (+)_{J} t_j = (+)_{J'} t_j when t_j = e for j in J \ J'. Constants are propagated through
//            elementwise statements by exp(-inf) = 0, 0 * x = 0, -inf - x = -inf. Not reading an element of a temporary does not change
//            the others. For masks this is the tile skipping of T. Dao et al., 2022, arXiv:2205.14135, element by element.
// Rounding   None. Values that only masked places read must be finite for NaN to stay out of the original, and are not read here.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/map.h>
#include <isl/set.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "poly/algebra/analysis/constant_parts.h"
#include "poly/algebra/analysis/known_values.h"
#include "poly/algebra/analysis/needed_points.h"
#include "poly/algebra/analysis/online_plan.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

class NeutralTerms {
 public:
  explicit NeutralTerms(const Nest& nest) : old_(nest), nest_(nest) {}

  /// The rewritten nest; `shrunk` receives the reductions that lost terms. Where some could not, `why` says so.
  Nest run(std::vector<std::string>& shrunk, std::string& why) {
    for (Statement& statement : nest_.statements) {
      const ConstantParts pieces = constant_parts(old_, statement, known_);
      for (const ConstantPart& piece : pieces) {
        if (why.empty()) why = piece.why;
      }
      if (statement.reduction) {
        if (drop_neutral(statement, pieces, why)) shrunk.push_back(statement.name);
      } else if (is_elementwise_temporary(nest_, statement.write.tensor)) {
        remember(statement, pieces);
      }
    }
    // What a sum takes of its own tensor is not followed back to who writes it.
    const auto own = std::find_if(nest_.statements.begin(), nest_.statements.end(), [](const Statement& statement) {
      return statement.reduction && reads_tensor(statement, statement.value, statement.write.tensor);
    });
    if (!shrunk.empty() && own != nest_.statements.end()) {
      shrunk.clear();
      why = own->name + " reads the tensor that it accumulates into";
      return old_;
    }
    if (shrunk.empty()) return nest_;
    shrink_to_need(nest_);
    decide_selects(nest_);
    return nest_;
  }

  bool keeps_rows() const { return keeps_rows_; }
  const std::set<std::string>& factors() const { return factors_; }
  void keep_rows() { keeps_rows_ = true; }

 private:
  bool drop_neutral(Statement& statement, const ConstantParts& pieces, std::string& why) {
    const double neutral = neutral_element(*statement.reduction, nest_.tensor(statement.write.tensor).type);
    isl::set dropped = isl::set::empty(statement.domain.space());
    bool in_company = false;
    for (const ConstantPart& piece : pieces) {
      if (!piece.value || *piece.value != neutral) continue;
      dropped = dropped.unite(piece.domain);
      in_company = in_company || !piece.company.empty();
      for (const Company& company : piece.company) {
        if (company_stays(statement, company)) continue;
        why = fmt::format("{} would miss a NaN of {} where its terms are left out", statement.name, company.tensor);
        return false;
      }
    }
    if (dropped.is_empty()) return false;
    const isl::set rest = domain_in(old_, statement).subtract(dropped);
    const isl::map write = statement.write.relation;
    if (in_company || is_extremum(statement)) {
      // A row keeps its terms if it would lose them all: its extremum too, so that both have seen the same ones.
      const isl::set lost = dropped.apply(write).subtract(rest.apply(write));
      if (in_company && !lost.is_empty()) keeps_rows_ = true;
      if (keeps_rows_) dropped = dropped.subtract(write.intersect_range(lost).domain());
    }
    if (dropped.is_empty()) return false;
    for (const ConstantPart& piece : pieces) {
      if (piece.value && *piece.value == neutral) factors_.insert(piece.factors.begin(), piece.factors.end());
    }
    narrow(nest_, statement, statement.domain.subtract(dropped));
    return true;
  }

  static bool is_extremum(const Statement& statement) {
    return statement.reduction == ReductionOp::max || statement.reduction == ReductionOp::min;
  }

  /// Where the element of the company is NaN, or an infinite extremum, are all terms of the accumulator NaN?
  bool company_stays(const Statement& statement, const Company& company) const {
    if (!determined_by_write(old_, statement, company.element)) return false;
    const auto is_nan_with = [&](double value) {
      return KnownValues(old_, {{company.tensor, value}}).is_nan(statement, statement.value);
    };
    if (!is_nan_with(std::numeric_limits<double>::quiet_NaN())) return false;
    if (!company.infinity || is_nan_with(*company.infinity)) return true;
    for (const Statement* writer : writers_of(old_, company.tensor)) {
      if (!writer->reduction || neutral_element(*writer->reduction, ElementType::f32) != *company.infinity) continue;
      const auto plan = is_extremum(*writer) ? analyse_online(old_, writer->name) : std::nullopt;
      if (plan && KnownValues(old_, {}, &*plan).is_nan(statement, statement.value)) return true;
    }
    return false;
  }

  void remember(const Statement& statement, const ConstantParts& pieces) {
    const isl::map write = statement.write.relation.intersect_domain(domain_in(old_, statement));
    const ElementType stored = nest_.tensor(statement.write.tensor).type;
    std::map<double, KnownElements> regions;
    for (const ConstantPart& piece : pieces) {
      if (!piece.value || std::isnan(*piece.value) || !piece.masked) continue;
      const double value = is_float(stored) ? *piece.value : std::numeric_limits<double>::quiet_NaN();
      if (value != 0 && !std::isinf(value)) continue;  // one constant a temporary is enough for masks
      const isl::set elements = piece.domain.apply(write).coalesce();
      auto [found, fresh] = regions.try_emplace(value, KnownElements{elements, value, {}, {}});
      if (!fresh) found->second.elements = found->second.elements.unite(elements);
      found->second.factors.insert(piece.factors.begin(), piece.factors.end());
      for (const Company& company : piece.company)
        found->second.company.push_back({company.tensor, write.reverse().apply_range(company.element), company.infinity});
    }
    for (const auto& [value, elements] : regions) known_.insert_or_assign(statement.write.tensor, elements);
  }

  const Nest old_;
  Nest nest_;
  std::map<std::string, KnownElements> known_;
  std::set<std::string> factors_;
  bool keeps_rows_ = false;
};

/// Twice where rows keep their terms: extrema come before the sums that show it.
Nest without_neutral_terms(const Nest& nest, std::vector<std::string>& shrunk, std::string& why,
                           std::set<std::string>* factors = nullptr) {
  NeutralTerms first(nest), second(nest);
  Nest result = first.run(shrunk, why);
  if (first.keeps_rows()) {
    shrunk.clear();
    second.keep_rows();
    result = second.run(shrunk, why);
  }
  if (factors) *factors = (first.keeps_rows() ? second : first).factors();
  return result;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::vector<std::string> shrunk;
  std::string why;
  without_neutral_terms(nest, shrunk, why);
  if (shrunk.empty()) return {};
  return {{"neutral_terms", {}, fmt::format("terms of {} that change nothing are left out", fmt::join(shrunk, ", "))}};
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  expect_arguments("neutral_terms", target, 0);
  std::vector<std::string> shrunk;
  std::string why;
  Nest result = without_neutral_terms(nest, shrunk, why);
  if (shrunk.empty()) {
    refuse_rule("neutral_terms", "",
                "no reduction has terms that are its neutral element on a part of its domain with affine bounds" +
                    (why.empty() ? "" : ": " + why));
  }
  // A temporary with one definition left may be computed where it is read.
  const bool fewer = result.statements.size() < nest.statements.size();
  if (fewer && !simplify_rule().find(result).empty()) result = simplify_rule().apply(result, {}).nest;
  return {std::move(result), {}, false};
}

std::vector<std::string> factors_left_out(const Nest& nest) {
  std::vector<std::string> shrunk;
  std::string why;
  std::set<std::string> factors;
  without_neutral_terms(nest, shrunk, why, &factors);
  return {factors.begin(), factors.end()};
}

}  // namespace

const Rule& neutral_terms_rule() {
  static const Rule rule{"neutral_terms",
                         "terms that are the neutral element of their reduction leave its domain",
                         "a neutral element may be left out of a fold; constants propagate by exp(-inf) = 0 and 0 x = 0",
                         "none, with finite values in masked places: what a mask multiplies by 0 is not read",
                         find,
                         apply,
                         factors_left_out};
  return rule;
}

}  // namespace nestor
