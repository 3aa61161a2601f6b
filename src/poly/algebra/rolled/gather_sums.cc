// Rule "gather_sums": sums that terms are scattered over become sums for each element, over the terms that belong to it.
//
// Pattern    r_(c a + t) (+)= f(a, t), at affine places that several terms share: overlapping frames (c a + t), a convolution turned round
//            (2 a + t), distances (i + j). Any number of indices, one or two dims in each.
// Rewrite    r_e (+)= f(a, t) with the element e in place of t, or of the longer one of two dims with factors 1. Where |c| > 1, the
//            number s = floor(t / c) of the term takes a's place: a = floor(e / c) - s, t = e - c a.
// Conditions the statement is a reduction, alone in its loops, that reads nothing of its own tensor; each dim is in one index at most; t has
//            values from 0 on, more than c; places are affine, with a constant besides.
// Proof      (a, t) to (e, s) is one to one: the same terms go to the same elements. Associativity and commutativity of the monoid, as elements
//            take their terms in another order.
// Rounding   as reassociate.
// Source     adjoint stencils in gather form: J. Hückelheim et al., Automatic Differentiation for Adjoint Stencil Loops, 2019.
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/isl/whole_function.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "gather_sums";

/// An index that is factor * other + own + a constant, or a dim alone (then there is no `other`).
struct Place {
  int own = -1, other = -1;
  std::int64_t factor = 1;
};

struct Places {
  std::vector<Place> indices;
  isl::multi_aff functions;  ///< { Statement -> tensor } of the write
};

/// Has the dim values from 0 on alone, and some from `factor` on? Then terms of neighbours meet.
bool overlaps(const Nest& nest, const Statement& statement, int dim, std::int64_t factor) {
  const isl::set far = isl::manage(isl_set_lower_bound_si(domain_in(nest, statement).release(), isl_dim_set,
                                                          static_cast<unsigned>(dim), static_cast<int>(factor)));
  return !has_negative_values(nest, statement, {dim}) && !far.is_empty();
}

/// The dims of an index of two; sets `why` where the rule cannot turn them.
std::optional<Place> place_of(const Nest& nest, const Statement& statement, const std::map<int, std::int64_t>& moving,
                              std::string& why) {
  Place place;
  for (const auto& [dim, factor] : moving) {
    if (factor == 1 && (place.own < 0 || default_points(nest, statement, {dim}) > default_points(nest, statement, {place.own})))
      place.own = dim;
  }
  for (const auto& [dim, factor] : moving) {
    if (dim != place.own) std::tie(place.other, place.factor) = std::pair(dim, factor);
  }
  why = "an index of its result follows no dim with the factor 1, or more than two dims";
  if (place.own < 0 || moving.size() > 2) return std::nullopt;
  if (place.other < 0 || place.factor == 1) return place;
  why = "no terms meet";
  if (place.factor < 2 || place.factor > INT32_MAX || !overlaps(nest, statement, place.own, place.factor)) return std::nullopt;
  return place;
}

/// Sets `why` where the rule does not apply.
std::optional<Places> places_of(const Nest& nest, const Statement& statement, std::string& why) {
  why = "it is no reduction, or shares its loops with other statements of its definition";
  if (!statement.reduction || !alone_in_group(nest, statement.name)) return std::nullopt;
  why = "its terms read its own result";
  if (reads_tensor(statement, statement.value, statement.write.tensor)) return std::nullopt;
  why = "places of its result are no affine functions";
  const isl::map write = statement.write.relation.gist_domain(statement.domain);
  const auto functions = whole_function(write);
  if (!functions) return std::nullopt;
  Places places{{}, *functions};
  std::set<int> used;
  bool shared = false;
  for (const std::map<int, std::int64_t>& moving : moving_dims(Access{statement.write.tensor, write})) {
    for (const auto& [dim, factor] : moving) {
      why = "a dim is in several indices of its result";
      if (!used.insert(dim).second) return std::nullopt;
    }
    why = "an index of its result is no sum of dims";
    if (moving.empty()) return std::nullopt;
    const auto place = place_of(nest, statement, moving, why);
    if (!place) return std::nullopt;
    shared = shared || place->other >= 0;
    places.indices.push_back(*place);
  }
  why = "each of its terms has an element of its own";
  return shared ? std::optional(places) : std::nullopt;
}

/// The new statement's dims: one for each index, and those that are left.
struct Dims {
  std::vector<std::string> names;
  std::map<int, int> of;  ///< by dim of the old statement that stays, or whose number of the term stands in its place
};

Dims dims_of(const Nest& nest, const Statement& statement, const Places& places) {
  Dims dims;
  std::set<int> gone;
  for (const Place& place : places.indices) {
    const std::string& name = statement.dims[static_cast<std::size_t>(place.own)];
    dims.names.push_back(place.other < 0 ? name : fresh_dim(nest, dims.names, name));
    gone.insert(place.own);
  }
  for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) {
    if (gone.contains(dim)) continue;
    dims.of[dim] = static_cast<int>(dims.names.size());
    dims.names.push_back(fresh_dim(nest, dims.names, statement.dims[static_cast<std::size_t>(dim)]));
  }
  return dims;
}

/// { new statement -> old one }.
isl::multi_aff to_old(const Statement& statement, const Places& places, const Dims& dims) {
  isl_space* set = isl_set_get_space(statement.domain.get());
  isl_space* from =
      isl_space_add_dims(isl_space_params(isl_space_copy(set)), isl_dim_set, static_cast<unsigned>(dims.names.size()));
  from = isl_space_set_tuple_name(from, isl_dim_set, statement.name.c_str());
  const isl::space domain = isl::manage(isl_space_copy(from));
  const auto variable = [&](int dim) {
    return isl::manage(isl_aff_var_on_domain(isl_local_space_from_space(domain.copy()), isl_dim_set, static_cast<unsigned>(dim)));
  };
  std::map<int, isl::aff> values;
  for (const auto& [dim, at] : dims.of) values[dim] = variable(at);
  for (std::size_t k = 0; k < places.indices.size(); ++k) {
    const Place& place = places.indices[k];
    // The index without its dims is a constant, of the sizes perhaps: at the place where all dims are 0.
    isl::aff rest = isl::manage(isl_multi_aff_get_aff(places.functions.get(), static_cast<int>(k)));
    isl_aff* constant = isl_aff_copy(rest.get());
    for (unsigned d = 0; d < statement.dims.size(); ++d)
      constant = isl_aff_set_coefficient_si(constant, isl_dim_in, static_cast<int>(d), 0);
    isl_pw_aff* of_sizes = isl_pw_aff_project_domain_on_params(isl_pw_aff_from_aff(constant));
    const isl::pw_aff everywhere = isl::manage(isl_pw_aff_insert_domain(of_sizes, domain.copy()));
    isl::aff element = variable(static_cast<int>(k)).sub(isl::manage(isl_pw_aff_as_aff(everywhere.copy())));
    if (place.other >= 0 && place.factor != 1) {
      isl_aff* parts = isl_aff_floor(isl_aff_scale_down_ui(element.copy(), static_cast<unsigned>(place.factor)));
      values[place.other] = isl::manage(parts).sub(values.at(place.other));
    }
    if (place.other >= 0) {
      isl_val* factor = isl_val_int_from_si(isl_context().get(), static_cast<long>(place.factor));
      element = element.sub(isl::manage(isl_aff_scale_val(values.at(place.other).copy(), factor)));
    }
    values[place.own] = element;
  }
  isl_aff_list* list = isl_aff_list_alloc(isl_context().get(), static_cast<int>(statement.dims.size()));
  for (int dim = 0; dim < static_cast<int>(statement.dims.size()); ++dim) list = isl_aff_list_add(list, values.at(dim).copy());
  isl_space* both = isl_space_map_from_domain_and_range(from, set);
  return isl::manage(isl_multi_aff_from_aff_list(both, list));
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return places_of(nest, statement, why) ? "each element of " + statement.write.tensor + " takes its own terms" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Places places = required_match(nest, kName, target, places_of);
  const Statement& before = nest.statement(target[0]);
  const Dims dims = dims_of(nest, before, places);
  const isl::multi_aff old = to_old(before, places, dims);
  Statement after = before;
  after.dims = dims.names;
  isl_set* domain =
      isl_set_coalesce(isl_set_gist_params(domain_in(nest, before).preimage(old).release(), full_context(nest).release()));
  after.domain = isl::manage(with_dim_names(domain, dims.names));
  const auto moved = [&](const isl::map& relation) { return relation.preimage_domain(old).gist_domain(after.domain).coalesce(); };
  for (Access& read : after.reads) read.relation = moved(read.relation);
  std::vector<isl::pw_aff> elements;
  for (std::size_t k = 0; k < places.indices.size(); ++k) elements.push_back(dim_function(after.domain, static_cast<int>(k)));
  after.write.relation = relation_of(after.domain, before.write.tensor, elements);
  for (isl::pw_aff& index : after.indices) index = isl::manage(isl_pw_aff_pullback_multi_aff(index.copy(), old.copy()));
  Nest result = nest;
  replace_statement(result, after);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& gather_sums_rule() {
  static const Rule rule{
      kName,
      "terms that are scattered over sums at affine places are added up element by element (argument: statement)",
      "elements and terms correspond one to one; associativity and commutativity of the monoid",
      "as reassociate",
      find,
      apply};
  return rule;
}

}  // namespace nestor
