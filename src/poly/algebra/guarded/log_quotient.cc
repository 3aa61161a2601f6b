// Rule "log_quotient": an exponential of a logarithm's difference is a quotient.
//
// Pattern    exp(x - log(t)), where t is the sum of a row's exponentials relative to the row's extremum and exp(x) is one of those terms:
//            weights of a row by way of the logarithm of their sum. Definitions of temporaries with the logarithm are looked through.
// Rewrite    exp(x) / t in a sum over products of such weights, with exp(x) in a temporary of its own, over the dims that it follows. Other
//            rules know that form: the quotient leaves the sum (defer_factor), and the temporary's elements are the row's terms (online).
// Conditions what the definitions read is not written again before the statement; exp(x) / t is at most 1, as extremum_bounds.h proves it.
// Proof      exp(x - log t) = exp(x) / t for t > 0. t is at least 1 and exp(x) at most 1, so that neither overflows, and what vanishes in
//            exp(x) does in the quotient. NaN and infinities of x, and NaN of t, give the same in both forms.
// Rounding   less: log t and the difference from it are not rounded, which costs 2^-24 (|x| + log t) relative.
#include <isl/set.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "poly/algebra/analysis/extremum_bounds.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/scalar_share.h"

namespace nestor {
namespace {

constexpr const char* kName = "log_quotient";
constexpr int kDeepest = 4;  ///< definitions that are looked through, one in another

bool holds_logarithm(const Nest& nest, const Statement& statement, const ScalarExpr& value, int depth) {
  bool found = false;
  value.visit([&](const ScalarExpr& node) {
    if (found || node.op() == ScalarOp::log) found = true;
    if (found || node.op() != ScalarOp::read || depth == kDeepest) return;
    const std::string& tensor = statement.reads.at(static_cast<std::size_t>(node.ordinal())).tensor;
    if (!is_elementwise_temporary(nest, tensor)) return;
    const Statement& definition = *sole_definition(nest, tensor);
    found = holds_logarithm(nest, definition, definition.value, depth + 1);
  });
  return found;
}

/// A read in an exponent, of a temporary whose definition has a logarithm.
std::optional<int> hidden_logarithm(const Nest& nest, const Statement& statement) {
  std::optional<int> found;
  statement.value.visit([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::exp) return;
    node.args()[0].visit([&](const ScalarExpr& part) {
      if (found || part.op() != ScalarOp::read || !holds_logarithm(nest, statement, part, 0)) return;
      const Statement& definition = *sole_definition(nest, statement.reads.at(static_cast<std::size_t>(part.ordinal())).tensor);
      if (may_recompute(nest, definition, statement)) found = part.ordinal();
    });
  });
  return found;
}

/// Terms that are added first, so that the others can be subtracted.
ScalarExpr sum_of(Polynomial terms) {
  std::stable_partition(terms.begin(), terms.end(), [](const Monomial& term) { return term.coefficient > 0; });
  ScalarExpr sum = to_expr(terms.front());
  for (std::size_t k = 1; k < terms.size(); ++k) {
    const Monomial magnitude = terms[k].coefficient > 0 ? terms[k] : multiply(terms[k], Monomial{-1, {}});
    sum = terms[k].coefficient > 0 ? build::add(sum, to_expr(magnitude)) : build::sub(sum, to_expr(magnitude));
  }
  return sum;
}

struct Quotient {
  ScalarExpr term, divisor;
};

/// exp(x) and t of exp(x - log t).
std::optional<Quotient> quotient_of(const ScalarExpr& exponential) {
  if (exponential.op() != ScalarOp::exp || !is_short(exponential)) return std::nullopt;
  Polynomial terms = polynomial_of(exponential.args()[0]);
  const auto logarithm = std::find_if(terms.begin(), terms.end(), [](const Monomial& term) {
    return term.coefficient == -1 && term.factors.size() == 1 && term.factors[0].second == 1 &&
           term.factors[0].first.op() == ScalarOp::log;
  });
  if (logarithm == terms.end() || terms.size() < 2) return std::nullopt;
  const ScalarExpr divisor = logarithm->factors[0].first.args()[0];
  terms.erase(logarithm);
  return Quotient{build::unary(ScalarOp::exp, sum_of(std::move(terms))), divisor};
}

/// Stores the term, which `sum` computes and which does not follow all of its dims, in a temporary; returns what reads it.
ScalarExpr stored(Nest& nest, Statement& sum, const ScalarExpr& term, const std::vector<int>& dims) {
  const Statement before = sum;
  const DimsView view(before, dims);
  const std::string name = fresh_name(nest, sum.write.tensor + "_term");
  Statement definition = view.over(name);
  definition.write = {name, isl::manage(isl_set_identity(definition.domain.copy()))};
  definition.value = import_value(definition, before, view.to_statement(definition), term);
  nest.tensors.push_back(view.tensor(nest, name));
  insert_statement(nest, begin_with_initialisers(nest, nest.statement(sum.name)), definition);
  sum.group = nest.statement(sum.name).group;
  return ScalarExpr::read(add_read(sum, {name, view.element(name)}), ElementType::f32);
}

/// The nest with a quotient in the sum; nullopt, with `why`, where there is none that is proved.
std::optional<Nest> with_quotient(const Nest& nest, const Statement& statement, std::string& why) {
  why = "it is no sum of terms with an exponential of a difference from a logarithm, which follows less of its dims";
  if (statement.reduction != ReductionOp::add) return std::nullopt;
  Statement sum = statement;
  while (const auto hidden = hidden_logarithm(nest, sum)) inline_read(nest, sum, *hidden);
  std::optional<ScalarExpr> exponential;
  sum.value.visit([&](const ScalarExpr& node) {
    if (!exponential && quotient_of(node)) exponential = node;
  });
  if (!exponential) return std::nullopt;
  std::vector<int> dims;
  for (int dim = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
    if (varies_along(sum, *exponential, dim)) dims.push_back(dim);
  }
  if (dims.size() == sum.dims.size() || has_negative_values(nest, sum, dims)) return std::nullopt;
  why = "the logarithm is not that of a sum over a row's exponentials relative to its extremum, with this one among them";
  Nest result = nest;
  const auto [term, divisor] = *quotient_of(*exponential);
  const ScalarExpr quotient = build::div(stored(result, sum, term, dims), divisor);
  sum.value = sum.value.rewrite([&](const ScalarExpr& node) { return node.equals(*exponential) ? quotient : node; });
  replace_statement(result, sum);
  if (!exponential_quotient(result, sum, quotient)) return std::nullopt;
  compact(
      *std::find_if(result.statements.begin(), result.statements.end(), [&](const Statement& s) { return s.name == sum.name; }));
  drop_unused(result);
  return result;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return with_quotient(nest, statement, why) ? "weights of " + statement.name + " are quotients" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  return {required_match(nest, kName, target, with_quotient), {}, false};
}

}  // namespace

const Rule& log_quotient_rule() {
  static const Rule rule{kName,
                         "exponentials of differences from the logarithm of their row's sum are quotients (argument: statement)",
                         "exp(x - log t) = exp(x) / t, for t of at least 1 and exp(x) of at most 1",
                         "less: the logarithm and the difference from it are not rounded",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
