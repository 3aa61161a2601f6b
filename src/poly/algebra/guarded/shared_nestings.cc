// Nestings whose inner sums serve several results, and what accumulates them.
#include "poly/algebra/guarded/shared_nestings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/nest_sets.h"
#include "support/error.h"

namespace nestor {
namespace {

bool follows(const Statement& sum, const std::vector<ScalarExpr>& factors, int dim) {
  return std::any_of(factors.begin(), factors.end(), [&](const ScalarExpr& factor) { return varies_along(sum, factor, dim); });
}

/// Are the inner points the same for all others with the same kept dims?
bool shares_points(const Nest& nest, const Statement& sum, const SharedNesting& shared) {
  std::vector<int> rest;
  for (const int dim : shared.nesting.outer) {
    if (std::find(shared.kept.begin(), shared.kept.end(), dim) == shared.kept.end()) rest.push_back(dim);
  }
  const isl::set domain = domain_in(nest, sum);
  return without_dims(domain, shared.nesting.inner).intersect(without_dims(domain, rest)).is_subset(domain);
}

}  // namespace

std::vector<SharedNesting> shared_nestings(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products over two dims or more, in f32";
  const std::vector<SumNesting> nestings = nestings_of(sum);
  if (nestings.empty() || nest.tensor(sum.write.tensor).type != ElementType::f32) return {};
  why = "it shares its loops with other statements of its definition, or reads its own result";
  if (!alone_in_group(nest, sum.name) || reads_tensor(sum, sum.value, sum.write.tensor)) return {};
  why = "no factors of its terms have the same inner sum for several results";
  std::vector<SharedNesting> found;
  for (const SumNesting& nesting : nestings) {
    SharedNesting shared{nesting, {}, {}, 0};
    for (int dim = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
      const bool inner = std::find(nesting.inner.begin(), nesting.inner.end(), dim) != nesting.inner.end();
      const bool kept = !inner && follows(sum, nesting.inside, dim);
      if (kept) shared.kept.push_back(dim);
      if (inner || kept) shared.points.push_back(dim);
    }
    if (shared.kept.size() == nesting.outer.size() || has_negative_values(nest, sum, shared.kept)) continue;
    if (!shares_points(nest, sum, shared)) continue;
    std::vector<int> all(sum.dims.size());
    for (std::size_t k = 0; k < all.size(); ++k) all[k] = static_cast<int>(k);
    const auto points = [&](const std::vector<int>& dims) { return default_points(nest, sum, dims); };
    shared.gain = points(all) / (points(shared.points) + points(nesting.outer));
    found.push_back(std::move(shared));
  }
  if (!found.empty()) why = "";
  std::stable_sort(found.begin(), found.end(), [](const SharedNesting& a, const SharedNesting& b) { return a.gain > b.gain; });
  return found;
}

std::string accumulate_inside(Nest& nest, const Statement& sum, const SharedNesting& shared, const std::string& suffix,
                              ReductionOp reduction, const std::string& before) {
  const DimsView kept(sum, shared.kept), points(sum, shared.points);
  const std::string tensor = fresh_name(nest, sum.write.tensor + suffix);
  nest.tensors.push_back(kept.tensor(nest, tensor));
  const auto insert = [&](const Statement& statement) { insert_statement(nest, group_begin(nest, before), statement); };
  Statement start = kept.over(fresh_name(nest, tensor + "_init"));
  start.write = {tensor, isl::manage(isl_set_identity(start.domain.copy())).set_range_tuple(tensor)};
  start.value = build::number(neutral_element(reduction, ElementType::f32));
  insert(start);
  Statement terms = points.over(fresh_name(nest, tensor + "_update"));
  terms.value = import_value(terms, sum, points.to_statement(terms), product_in_order(shared.nesting.inside));
  terms.write = {tensor, points.seen_by(terms, kept.element(tensor))};
  terms.reduction = reduction;
  insert(terms);
  return tensor;
}

namespace {

/// The names behind the statement's.
std::string dims_of(const std::vector<std::string>& target) {
  return fmt::format("{}", fmt::join(target.begin() + 1, target.end(), ", "));
}

}  // namespace

std::vector<RuleMatch> matches_of(const NestingRule& rule, const Nest& nest) {
  std::vector<RuleMatch> matches;
  for (const Statement& statement : nest.statements) {
    std::string why;
    for (const SharedNesting& shared : rule.nestings(nest, statement, why)) {
      if (shared.gain < rule.least_gain) continue;
      const std::vector<std::string> target = target_of_dims(statement, shared.nesting.inner);
      matches.push_back({rule.name, target, rule.describe(statement, shared, dims_of(target))});
    }
  }
  return matches;
}

RuleResult apply_nesting(const NestingRule& rule, const Nest& nest, const std::vector<std::string>& target) {
  if (target.size() < 2) user_error("rule {} takes a statement and dims of its inner sum", rule.name);
  const std::string name = statement_argument(nest, rule.name, {target.front()}, 1);
  const Statement& sum = nest.statement(name);
  std::string why;
  for (const SharedNesting& shared : rule.nestings(nest, sum, why)) {
    if (are_dims(sum, shared.nesting.inner, target)) return {rule.rewrite(nest, sum, shared), {}, false};
  }
  if (why.empty()) why = fmt::format(fmt::runtime(rule.missing), dims_of(target));
  refuse_rule(rule.name, name, why);
}

}  // namespace nestor
