// Rule "nest_products": of a sum of products of three factors or more, two become a product of matrices with a sum of its own.
//
// Pattern    r_e += a b f over dims R and S in f32: a and b are elements of two 16-bit accesses and follow R, f is what does not
//            (sum over i, j of x_ui A_ij y_uj, with R = {i} and f = y_uj).
// Rewrite    t = sum over R of a b, at e and S; v = t f; k starts from v where that is finite, else from 0, and adds up a b f over R where v
//            is not; r_e += k over S. So tensor cores take t, and k stays beside it in their kernel.
// Conditions the sum is alone in its loops and does not read its result. a and b are rows and columns of a product of matrices: each
//            follows a dim that is not of R and that the other one does not, both follow R, and one of them follows each other dim.
// Proof      distributive law: sum over R of (a b f) = f (sum over R of a b), for each point of e and S, with just the points of R that it has.
//            A finite v has a finite f and a finite t, so that all a b are finite, and all terms of the definition. Else k has these very
//            terms, added up as before.
// Rounding   As reassociate, and one product for each point of S. A definition that multiplies f by a first may underflow where a b does not, or the
//            reverse: then v counts as not finite where |f| > 2^32, unless its type says that it is smaller.
// Source     distributive law; S. Aji, R. McEliece, The Generalized Distributive Law, IEEE Transactions on Information Theory 46(2), 2000.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/operands/half_products.h"
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

constexpr const char* kName = "nest_products";
/// What a factor outside may be where the definition multiplies by it before.
constexpr double kMostRegrouped = 0x1p32;

/// The sum of the factors inside alone, into the same element.
Statement inner_sum(const Statement& sum, const SumNesting& nesting) {
  Statement inner = sum;
  inner.value = product_in_order(nesting.inside);
  return inner;
}

/// Are the factors inside rows and columns of a product of matrices, at each point of the other dims?
bool multiplies_matrices(const Statement& sum, const SumNesting& nesting) {
  const Statement inner = inner_sum(sum, nesting);
  const auto halves = nesting.inside.size() == 2 ? half_products(inner) : std::nullopt;
  if (!halves) return false;
  const auto follows = [&](std::size_t read, int dim) { return depends_on_dim(sum.reads[read].relation, dim); };
  const auto own = [&](std::size_t read, std::size_t other) {
    return std::any_of(nesting.outer.begin(), nesting.outer.end(),
                       [&](int dim) { return follows(read, dim) && !follows(other, dim); });
  };
  const auto [a, b] = *halves;
  return own(a, b) && own(b, a) &&
         std::all_of(nesting.inner.begin(), nesting.inner.end(), [&](int dim) { return follows(a, dim) && follows(b, dim); }) &&
         std::all_of(nesting.outer.begin(), nesting.outer.end(), [&](int dim) { return follows(a, dim) || follows(b, dim); });
}

/// Those that apply, the one with the smallest temporary first, of equal ones one that multiplies as the definition does. Sets `why` where there is
/// none.
std::vector<SumNesting> nestings_for_products(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of three factors or more over two dims or more, in f32";
  std::vector<SumNesting> nestings = nestings_of(sum);
  if (nestings.empty() || nest.tensor(sum.write.tensor).type != ElementType::f32) return {};
  why = "it shares its loops with other statements of its definition, or reads its own result";
  if (!alone_in_group(nest, sum.name) || reads_tensor(sum, sum.value, sum.write.tensor)) return {};
  why = "no two of its factors are rows and columns of 16 bits, with reduced dims that the other factors do not follow";
  std::erase_if(nestings, [&](const SumNesting& nesting) {
    return !multiplies_matrices(sum, nesting) || has_negative_values(nest, sum, nesting.outer);
  });
  if (nestings.empty()) return {};
  why = "";
  std::stable_sort(nestings.begin(), nestings.end(), [&](const SumNesting& a, const SumNesting& b) {
    return std::pair(default_points(nest, sum, a.outer), a.regroups) < std::pair(default_points(nest, sum, b.outer), b.regroups);
  });
  return nestings;
}

class Nesting {
 public:
  Nesting(const Nest& nest, const Statement& sum, SumNesting nesting)
      : result_(nest), sum_(sum), nesting_(std::move(nesting)), results_(sum_, nesting_.outer) {}

  Nest apply() {
    const std::string product = add_results(result_, sum_, results_, "_inner"),
                      value = add_results(result_, sum_, results_, "_valued");
    Statement start = over_results(result_, results_, product + "_init", product);
    start.value = build::number(0);
    insert(start);
    add_inner(product);

    Statement valued = over_results(result_, results_, value, value);
    valued.value = value_of(valued, product);
    insert(valued);
    const std::string kept = add_direct_sums(result_, sum_, results_, value);

    Statement outer = results_.over(sum_.name);
    outer.write = {sum_.write.tensor, results_.seen_by(outer, sum_.write.relation)};
    outer.value = read_at(outer, kept, isl::manage(isl_set_identity(outer.domain.copy())));
    outer.reduction = ReductionOp::add;
    outer.group = result_.statement(sum_.name).group;
    replace_statement(result_, outer);
    return std::move(result_);
  }

 private:
  /// t f; infinite where f is not what another order of products may meet.
  ScalarExpr value_of(Statement& valued, const std::string& product) {
    std::vector<ScalarExpr> factors{read_at(valued, product, valued.write.relation)};
    std::vector<ScalarExpr> tests;
    for (const ScalarExpr& factor : nesting_.outside) {
      factors.push_back(import_value(valued, sum_, results_.to_statement(valued), factor));
      const bool small = range_of(result_, sum_, factor).magnitude() <= kMostRegrouped;
      if (nesting_.regroups && !small) tests.push_back(at_most(factors.back(), kMostRegrouped));
    }
    ScalarExpr value = product_in_order(factors);
    for (const ScalarExpr& test : tests)
      value = build::select(test, value, build::number(std::numeric_limits<double>::infinity()));
    return value;
  }

  /// The sum of the factors inside, into the tensor.
  void add_inner(const std::string& tensor) {
    Statement sum = renamed(inner_sum(sum_, nesting_), fresh_name(result_, tensor + "_sum"));
    sum.write = {tensor, results_.element(tensor).set_domain_tuple(sum.name)};
    compact(sum);
    insert(sum);
  }

  void insert(const Statement& statement) { insert_statement(result_, group_begin(result_, sum_.name), statement); }

  Nest result_;
  const Statement sum_;
  const SumNesting nesting_;
  const DimsView results_;  ///< points of the other dims, of which each has an inner sum
};

std::vector<RuleMatch> find(const Nest& nest) {
  std::vector<RuleMatch> matches;
  for (const Statement& statement : nest.statements) {
    std::string why;
    for (const SumNesting& nesting : nestings_for_products(nest, statement, why)) {
      const std::vector<std::string> target = target_of_dims(statement, nesting.inner);
      matches.push_back({kName, target,
                         fmt::format("{} adds up a product of matrices over {} by itself", statement.name,
                                     fmt::join(target.begin() + 1, target.end(), ", "))});
    }
  }
  return matches;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  if (target.size() < 2) user_error("rule {} takes a statement and dims of its inner sum", kName);
  const std::string name = statement_argument(nest, kName, {target.front()}, 1);
  const Statement& sum = nest.statement(name);
  std::string why;
  for (const SumNesting& nesting : nestings_for_products(nest, sum, why)) {
    if (are_dims(sum, nesting.inner, target)) return {Nesting(nest, sum, nesting).apply(), {}, false};
  }
  if (why.empty()) why = fmt::format("no two of its factors alone follow {}", fmt::join(target.begin() + 1, target.end(), ", "));
  refuse_rule(kName, name, why);
}

}  // namespace

const Rule& nest_products_rule() {
  static const Rule rule{
      kName,
      "two factors of a sum over several dims become a product of matrices (arguments: statement, dims of the inner sum)",
      "distributive law: sum_ij a_i b_ij f_j = sum_j f_j (sum_i a_i b_ij), where that is finite; else the direct sum is taken",
      "sums are regrouped; one product for each inner sum",
      find,
      apply};
  return rule;
}

}  // namespace nestor
