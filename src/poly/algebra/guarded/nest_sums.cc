// Rule "nest_sums": of a sum of products, some factors are added up for all results that share them, so that far fewer terms are left.
//
// Pattern    r_e += a f over dims R and S in f32: a is what follows R, f what does not, and dims T that a follows, beside R, are not all of e
//            and S (sum over i, j of x_ui A_ij B_jk, with R = {i}, a = x_ui A_ij, T = {u, j} and f = B_jk).
// Rewrite    t = sum over R of a, l = min over R of a, h = max over R of a, all at T; m = 1 where l > 0 or h < 0, else 0.
//            r_e += t g over S, where g has each factor of f that is finite, and others times m.
// Conditions the sum is alone in its loops and does not read its result. All points with the same T have the same points of R.
// Proof      distributive law: sum over R of (a f) = f (sum over R of a). For an infinite f terms a f are infinities of the sign of a and f, or NaN
//            where a is 0 or NaN: their sum is one of them if all a have one sign, which t has too, and m is 1; else it is NaN, as f m = inf 0
//            is. A NaN of f or a passes.
// Rounding   As reassociate, and one product for each point of S. Inner sums count as sums of products of inputs (docs/algebra.md, Range): they
//            do not overflow where f is tiny.
// Source     distributive law; S. Aji, R. McEliece, The Generalized Distributive Law, IEEE Transactions on Information Theory 46(2), 2000.
#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/guarded/shared_nestings.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/direct_sums.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "support/error.h"

namespace nestor {
namespace {

constexpr const char* kName = "nest_sums";
/// Of the points of the definition to those that are left: less is no gain beside a temporary and a look at signs.
constexpr double kLeastGain = 8;

class Sharing {
 public:
  Sharing(const Nest& nest, const Statement& sum, SharedNesting shared)
      : result_(nest), sum_(sum), shared_(std::move(shared)), kept_(sum_, shared_.kept) {}

  Nest apply() {
    const std::string total = accumulate_inside(result_, sum_, shared_, "_inner", ReductionOp::add, sum_.name);
    const bool looks = std::any_of(shared_.nesting.outside.begin(), shared_.nesting.outside.end(),
                                   [&](const ScalarExpr& factor) { return may_be_infinite(factor); });
    const std::string sign = looks ? one_sign() : "";

    const DimsView results(sum_, shared_.nesting.outer);
    Statement outer = results.over(sum_.name);
    outer.write = {sum_.write.tensor, results.seen_by(outer, sum_.write.relation)};
    const auto read = [&](const std::string& tensor) {
      return ScalarExpr::read(add_read(outer, {tensor, results.seen_by(outer, kept_.element(tensor))}), ElementType::f32);
    };
    std::vector<ScalarExpr> factors{read(total)};
    for (const ScalarExpr& factor : shared_.nesting.outside) {
      const ScalarExpr seen = import_value(outer, sum_, results.to_statement(outer), factor);
      const ScalarExpr finite = is_finite(seen);
      factors.push_back(may_be_infinite(factor) ? build::select(finite, seen, build::mul(seen, read(sign))) : seen);
    }
    outer.value = product_in_order(factors);
    outer.reduction = ReductionOp::add;
    outer.group = result_.statement(sum_.name).group;
    replace_statement(result_, outer);
    return std::move(result_);
  }

 private:
  bool may_be_infinite(const ScalarExpr& factor) const { return range_of(result_, sum_, factor).infinite(); }

  /// A temporary, and the statement that writes each of its elements, without a value.
  Statement writer(const std::string& suffix) {
    const std::string name = fresh_name(result_, sum_.write.tensor + suffix);
    result_.tensors.push_back(kept_.tensor(result_, name));
    Statement statement = kept_.over(name);
    statement.write = {name, isl::manage(isl_set_identity(statement.domain.copy()))};
    return statement;
  }

  /// The tensor that is 1 where the factors inside have one sign for all inner points, and 0 elsewhere.
  std::string one_sign() {
    const std::string least = accumulate_inside(result_, sum_, shared_, "_least", ReductionOp::min, sum_.name),
                      most = accumulate_inside(result_, sum_, shared_, "_most", ReductionOp::max, sum_.name);
    Statement sign = writer("_sign");
    const auto read = [&](const std::string& tensor) {
      return ScalarExpr::read(add_read(sign, {tensor, sign.write.relation.set_range_tuple(tensor)}), ElementType::f32);
    };
    const ScalarExpr zero = build::number(0);
    const ScalarExpr positive = ScalarExpr::make(ScalarOp::lt, {zero, read(least)}),
                     negative = ScalarExpr::make(ScalarOp::lt, {read(most), zero});
    sign.value = build::select(ScalarExpr::make(ScalarOp::logical_or, {positive, negative}), build::number(1), zero);
    insert(sign);
    return sign.name;
  }

  void insert(const Statement& statement) { insert_statement(result_, group_begin(result_, sum_.name), statement); }

  Nest result_;
  const Statement sum_;
  const SharedNesting shared_;
  const DimsView kept_;
};

const NestingRule& nestings() {
  static const NestingRule rule{
      kName,
      kLeastGain,
      shared_nestings,
      [](const Statement& sum, const SharedNesting& shared, const std::string& dims) {
        return fmt::format("{} adds up over {} once for several results: {:.0f} times fewer terms", sum.name, dims, shared.gain);
      },
      "no inner sum over {} serves several results",
      [](const Nest& nest, const Statement& sum, const SharedNesting& shared) { return Sharing(nest, sum, shared).apply(); }};
  return rule;
}

std::vector<RuleMatch> find(const Nest& nest) { return matches_of(nestings(), nest); }

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) { return apply_nesting(nestings(), nest, target); }

}  // namespace

const Rule& nest_sums_rule() {
  static const Rule rule{
      kName,
      "factors of a sum over several dims are added up once for all results (arguments: statement, dims of the inner sum)",
      "distributive law: sum_ij a_i b_ij f_j = sum_j f_j (sum_i a_i b_ij); an infinite f_j meets terms of one sign, or gives NaN",
      "sums are regrouped; one product for each inner sum",
      find,
      apply};
  return rule;
}

}  // namespace nestor
