// Rule "nest_extrema": an extremum over all that has been reduced before is one of those results.
//
// Pattern    r_i = max over t of f(x_(i, t)), and behind it s_j = max over i, t of f(x_(i, t)), the same terms (a scale for each block, and one for the
//            tensor); or minima.
// Rewrite    s_j = max over i of r_i, which reads less.
// Conditions both have the same value of the same elements; r is a temporary of the value's type that starts from the neutral element, with no other
//            writers, all of them before s; each r_i has all of its terms among those of s_j.
// Proof      an extremum is the same in any grouping; infinities and NaN pass through all of them. The neutral element changes nothing.
// Rounding   none: extrema are their elements.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "nest_extrema";

bool is_extremum(const Statement& statement) {
  return statement.reduction == ReductionOp::max || statement.reduction == ReductionOp::min;
}

/// { Outer -> Inner }: the instance that has the same term, by all that both read.
isl::map same_terms(const Nest& nest, const Statement& outer, const Statement& inner) {
  isl_map* same = nullptr;
  for (std::size_t k = 0; k < outer.reads.size(); ++k) {
    const isl::map there = outer.reads[k].relation.intersect_domain(domain_in(nest, outer)),
                   back = inner.reads[k].relation.intersect_domain(domain_in(nest, inner)).reverse();
    isl_map* both = there.apply_range(back).release();
    same = same == nullptr ? both : isl_map_intersect(same, both);
  }
  return isl::manage(isl_map_coalesce(same));
}

/// The outer extremum over results of the inner one; nullopt: they have other terms.
std::optional<Statement> over_results(const Nest& nest, const Statement& outer, const Statement& inner) {
  const Tensor& results = nest.tensor(inner.write.tensor);
  const bool alike = inner.reduction == outer.reduction && inner.reads.size() == outer.reads.size() && inner.indices.empty() &&
                     inner.value.equals(outer.value) && results.role == TensorRole::temporary &&
                     results.type == inner.value.type();
  const auto same_tensor = [](const Access& a, const Access& b) { return a.tensor == b.tensor; };
  if (!alike || !std::equal(inner.reads.begin(), inner.reads.end(), outer.reads.begin(), same_tensor)) return std::nullopt;
  const std::vector<const Statement*> starts = initialisers_of(nest, inner);
  const bool whole = !starts.empty() && writers_of(nest, results.name).size() == starts.size() + 1 && inner.group < outer.group &&
                     starts_from(nest, inner, neutral_element(*inner.reduction, results.type)) &&
                     may_recompute(nest, inner, outer);
  if (!whole) return std::nullopt;
  const isl::map same = same_terms(nest, outer, inner);
  if (!same.is_single_valued() || !domain_in(nest, outer).is_subset(same.domain())) return std::nullopt;
  // { Outer -> result }, and the dims that do not change which one it is.
  const isl::map result = same.apply_range(inner.write.relation);
  const isl::map index = isl::manage(isl_map_gist_domain(result.copy(), domain_in(nest, outer).release()));
  std::vector<int> terms;
  for (const int dim : reduced_dims(outer)) {
    if (!depends_on_dim(index, dim)) terms.push_back(dim);
  }
  if (terms.empty() || terms.size() == outer.dims.size()) return std::nullopt;
  Statement rows = outer;
  const auto without_terms = [&](isl_map* map) {
    for (std::size_t k = terms.size(); k-- > 0;) map = isl_map_project_out(map, isl_dim_in, static_cast<unsigned>(terms[k]), 1);
    return isl::manage(isl_map_set_tuple_name(map, isl_dim_in, outer.name.c_str()));
  };
  const isl::map met = without_terms(same.copy()), read = without_terms(result.copy());
  const isl::map all = read.apply_range(inner.write.relation.intersect_domain(domain_in(nest, inner)).reverse());
  if (!read.is_single_valued() || !all.is_subset(met)) return std::nullopt;
  for (std::size_t k = terms.size(); k-- > 0;) rows.dims.erase(rows.dims.begin() + terms[k]);
  isl_set* domain = isl_set_coalesce(isl_set_gist_params(read.domain().release(), full_context(nest).release()));
  domain = isl_set_set_tuple_name(domain, outer.name.c_str());
  rows.domain = isl::manage(with_dim_names(domain, rows.dims));
  rows.write = {outer.write.tensor, without_terms(outer.write.relation.copy())};
  rows.reads = {{results.name, isl::manage(isl_map_coalesce(read.copy()))}};
  rows.value = ScalarExpr::read(0, results.type);
  return rows;
}

std::optional<Statement> nested(const Nest& nest, const Statement& outer, std::string& why) {
  why = "it is no extremum over all elements that another one has reduced before";
  if (!is_extremum(outer) || outer.reads.empty() || !outer.indices.empty() || !alone_in_group(nest, outer.name))
    return std::nullopt;
  for (const Statement& inner : nest.statements) {
    if (!is_extremum(inner) || inner.name == outer.name || !alone_in_group(nest, inner.name)) continue;
    if (auto found = over_results(nest, outer, inner)) return found;
  }
  return std::nullopt;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return nested(nest, statement, why) ? statement.name + " takes results that are there already" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  Nest result = nest;
  replace_statement(result, required_match(nest, kName, target, nested));
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& nest_extrema_rule() {
  static const Rule rule{kName,
                         "an extremum over what another one has reduced takes its results (argument: statement)",
                         "an extremum is the same in any grouping",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
