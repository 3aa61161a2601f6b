// Rule "reroll_terms": terms of a definition that differ by constants in their indices are a sum over these constants.
//
// Pattern    out_t = f(sum of p_t,n) with p_t,n = select(0 <= t + n - 3, x_(t + n - 3) w_n, 0) for n = 0, 1, ..: a filter written tap by tap. Terms
//            are values, choices between a value and 0, or temporaries that have a value at some elements and 0 at the others.
// Rewrite    s_t = sum over n of x_(t + n - 3) w_n, where there is a value; out_t = f(s_t).
// Conditions three terms of f32 at least, one of which leaves points out; all but constants of the values is equal, and the constants are all
//            points of a box (rolled_sums.h). The definition is elementwise, alone in its loops, and has each term once.
// Proof      the same terms are added up; a sum that starts from 0 is the same without terms of 0.
// Rounding   as reassociate.
// Source     the inverse of unrolling; loop rerolling, as in LLVM.
#include <fmt/format.h>
#include <isl/set.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "poly/algebra/operands/zero_parts.h"
#include "poly/algebra/rolled/added_sums.h"
#include "poly/algebra/rolled/rolled_sums.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/condition.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "reroll_terms";
constexpr std::size_t kMostTerms = 64;

/// The statement as a sum of the one term, over the points at which that is not 0; nothing where it has several pieces. Sets `fewer` where
/// points are left out.
std::optional<Statement> sum_of_term(const Nest& nest, const Statement& base, const ScalarExpr& term, bool& fewer) {
  Statement sum = base;
  sum.value = term;
  compact(sum);
  const ScalarExpr value = sum.value;
  if (value.op() == ScalarOp::select && value.args()[2].is_constant(0)) {
    const auto holds = condition_set(nest, sum, value.args()[0]);
    if (!holds) return std::nullopt;
    const isl::set left = domain_in(nest, sum).intersect(*holds).coalesce();
    fewer = fewer || !domain_in(nest, sum).is_subset(left);
    sum.domain = isl::manage(isl_set_gist_params(left.copy(), full_context(nest).release()));
    sum.value = value.args()[1];
    compact(sum);
  }
  if (sum.value.op() != ScalarOp::read || nest.tensor(sum.reads.front().tensor).role != TensorRole::temporary) return sum;
  const Statement* whole = sole_definition(nest, sum.reads.front().tensor);
  if (whole != nullptr && may_recompute(nest, *whole, sum)) {
    inline_read(nest, sum, 0);
    return sum;
  }
  std::string why;
  const auto takes = [](const Statement& writer) { return writer.value.op() != ScalarOp::constant; };
  const auto bare = without_constant_terms(nest, sum, 0, 0, takes, why);
  fewer = fewer || bare.has_value();
  return bare ? bare : std::optional(sum);
}

struct Terms {
  std::vector<ScalarExpr> values;  ///< of the definition, as they stand there
  Rolled rolled;
};

int count_of(const ScalarExpr& value, const ScalarExpr& part) {
  int count = 0;
  value.visit([&](const ScalarExpr& node) { count += node.equals(part) ? 1 : 0; });
  return count;
}

/// A sum into a new tensor with an element for each point of the statement, and its start, without values.
AffineSum empty_sum(const Nest& nest, const Statement& statement) {
  std::vector<int> dims(statement.dims.size());
  std::iota(dims.begin(), dims.end(), 0);
  const DimsView all(statement, dims);
  const std::string tensor = fresh_name(nest, statement.write.tensor + "_taps");
  AffineSum empty{renamed(statement, fresh_name(nest, tensor + "_sum")), all.over(fresh_name(nest, tensor + "_init")), {}, {}};
  empty.start.write = {tensor, isl::manage(isl_set_identity(empty.start.domain.copy())).set_range_tuple(tensor)};
  empty.start.value = build::number(0);
  empty.sum.write = {tensor, all.element(tensor).set_domain_tuple(empty.sum.name)};
  empty.sum.reduction = ReductionOp::add;
  return empty;
}

/// The terms of one addition that become a sum.
std::optional<Terms> rolled_terms(const Nest& nest, const Statement& definition, const std::vector<ScalarExpr>& terms) {
  if (terms.size() < kFewestRolled || terms.size() > kMostTerms) return std::nullopt;
  const AffineSum empty = empty_sum(nest, definition);
  std::vector<std::pair<Shift, AffineSum>> alike;
  std::vector<ScalarExpr> values;
  bool fewer = false;
  for (const ScalarExpr& term : terms) {
    if (term.op() == ScalarOp::constant || term.type() != ElementType::f32 || count_of(definition.value, term) != 1) continue;
    const auto sum = sum_of_term(nest, empty.sum, term, fewer);
    const auto affine = sum ? affine_sum(*sum, empty.start) : std::nullopt;
    const auto shift = affine ? shift_of(nest, alike.empty() ? *affine : alike.front().second, *affine) : std::nullopt;
    if (!shift) continue;
    alike.emplace_back(*shift, *affine);
    values.push_back(term);
  }
  auto rolled = fewer ? rolled_up(nest, std::move(alike)) : std::nullopt;
  return rolled ? std::optional(Terms{std::move(values), std::move(*rolled)}) : std::nullopt;
}

std::optional<Terms> terms_of_definition(const Nest& nest, const Statement& definition) {
  std::optional<Terms> found;
  const isl::map written = definition.write.relation.intersect_domain(domain_in(nest, definition));
  std::vector<int> dims(definition.dims.size());
  std::iota(dims.begin(), dims.end(), 0);
  if (definition.reduction || !alone_in_group(nest, definition.name) || !written.is_injective() ||
      has_negative_values(nest, definition, dims))
    return found;
  const auto own = [&](const Access& read) { return read.tensor == definition.write.tensor; };
  if (std::any_of(definition.reads.begin(), definition.reads.end(), own)) return found;
  visit_additions(definition.value, [&](const std::vector<ScalarExpr>& terms) {
    if (!found) found = rolled_terms(nest, definition, terms);
  });
  return found;
}

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) {
    const auto terms = terms_of_definition(nest, statement);
    return terms ? fmt::format("{} terms of {} are a sum", terms->values.size(), statement.name) : "";
  });
}

/// The value with one read in place of the first term, and without the others.
ScalarExpr with_sum(const ScalarExpr& value, const std::vector<ScalarExpr>& terms, const ScalarExpr& sum) {
  const auto is_other = [&](const ScalarExpr& node) {
    return std::any_of(terms.begin() + 1, terms.end(), [&](const ScalarExpr& term) { return term.equals(node); });
  };
  const ScalarExpr fewer = value.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::add) return node;
    return is_other(node.args()[0]) ? node.args()[1] : is_other(node.args()[1]) ? node.args()[0] : node;
  });
  return fewer.rewrite([&](const ScalarExpr& node) { return node.equals(terms.front()) ? sum : node; });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  const auto terms = terms_of_definition(nest, nest.statement(name));
  if (!terms)
    refuse_rule(kName, name, "it adds no three terms that differ by constants of a box alone, and are 0 at some points");
  Nest result = nest;
  Statement definition = nest.statement(name);
  const AffineSum& first = terms->rolled.sums.front();
  const std::string tensor = first.sum.write.tensor;
  std::vector<int> dims(definition.dims.size());
  std::iota(dims.begin(), dims.end(), 0);
  const DimsView all(definition, dims);
  result.tensors.push_back(all.tensor(nest, tensor));
  insert_statement(result, position_of(result, name), first.start);
  insert_statement(result, position_of(result, name), joint_sum(result, terms->rolled));
  const int read = add_read(definition, {tensor, all.element(tensor)});
  definition.value = with_sum(definition.value, terms->values, ScalarExpr::read(read, ElementType::f32));
  compact(definition);
  definition.group = result.statement(name).group;
  replace_statement(result, definition);
  drop_unused(result);
  return {std::move(result), {}, true};
}

}  // namespace

const Rule& reroll_terms_rule() {
  static const Rule rule{kName,
                         "terms of a definition that differ by constants become a sum over these (argument: statement)",
                         "addition is associative and commutative: the same terms are added up, but for those of 0",
                         "as reassociate",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
