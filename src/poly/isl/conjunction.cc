// isl's simple hull without shifted constraints; constraints left out one after the other.
#include "poly/isl/conjunction.h"

#include <isl/constraint.h>
#include <isl/map.h>
#include <isl/set.h>

#include <memory>
#include <utility>
#include <vector>

namespace nestor {
namespace {

struct FreeConstraint {
  void operator()(isl_constraint* constraint) const { isl_constraint_free(constraint); }
};
using Constraint = std::unique_ptr<isl_constraint, FreeConstraint>;

isl_stat add_inequalities(isl_constraint* constraint, void* user) {
  auto& found = *static_cast<std::vector<Constraint>*>(user);
  Constraint owned(constraint);
  if (isl_constraint_is_equality(constraint) != isl_bool_true) {
    found.push_back(std::move(owned));
    return isl_stat_ok;
  }
  isl_aff* distance = isl_constraint_get_aff(constraint);
  found.emplace_back(isl_inequality_from_aff(isl_aff_copy(distance)));
  found.emplace_back(isl_inequality_from_aff(isl_aff_neg(distance)));
  return isl_stat_ok;
}

/// The set where all constraints hold but the one at `left_out` and those that are gone.
isl::basic_set all_but(const isl::basic_set& part, const std::vector<Constraint>& constraints, std::size_t left_out) {
  isl_basic_set* result = isl_basic_set_universe(isl_basic_set_get_space(part.get()));
  for (std::size_t k = 0; k < constraints.size(); ++k) {
    if (k != left_out && constraints[k]) result = isl_basic_set_add_constraint(result, isl_constraint_copy(constraints[k].get()));
  }
  return isl::manage(result);
}

/// Where a constraint, an inequality, does not hold: -f - 1 >= 0 of f >= 0.
__isl_give isl_constraint* negated(const Constraint& constraint) {
  isl_aff* distance = isl_aff_neg(isl_constraint_get_aff(constraint.get()));
  return isl_inequality_from_aff(isl_aff_add_constant_si(distance, -1));
}

/// Divisions of the part are known: what is left of its constraints defines them.
isl::set widened(isl::basic_set part, const isl::set& whole, const isl::set& known) {
  std::vector<Constraint> constraints;
  isl_basic_set_foreach_constraint(part.get(), add_inequalities, &constraints);
  for (std::size_t k = 0; k < constraints.size(); ++k) {
    const isl::basic_set wider = all_but(part, constraints, k);
    // The part itself is in the whole: what joins it is all that can be outside.
    const isl::basic_set joins = isl::manage(isl_basic_set_add_constraint(wider.copy(), negated(constraints[k])));
    if (!known.intersect(isl::set(joins)).is_subset(whole)) continue;
    part = wider;
    constraints[k].reset();
  }
  return isl::set(part);
}

isl::set union_of(const std::vector<isl::set>& parts, const isl::set& like) {
  isl::set result = isl::manage(isl_set_empty(isl_set_get_space(like.get())));
  for (const isl::set& part : parts) result = result.unite(part);
  return result;
}

/// Without parts that the others have within `known`.
std::vector<isl::set> needed_parts(std::vector<isl::set> parts, const isl::set& known) {
  for (std::size_t k = 0; k < parts.size();) {
    std::vector<isl::set> others = parts;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(k));
    if (known.intersect(parts[k]).is_subset(union_of(others, parts[k])))
      parts = std::move(others);
    else
      ++k;
  }
  return parts;
}

}  // namespace

int constraints_in(const isl::set& set) {
  int count = 0;
  set.foreach_basic_set([&](const isl::basic_set& part) {
    std::vector<Constraint> constraints;
    isl_basic_set_foreach_constraint(part.get(), add_inequalities, &constraints);
    count += static_cast<int>(constraints.size());
  });
  return count;
}

bool is_union(const isl::map& map) { return isl_map_n_basic_map(map.get()) > 1; }
bool is_union(const isl::set& set) { return isl_set_n_basic_set(set.get()) > 1; }

bool has_divisions(const isl::set& set) {
  bool found = false;
  set.foreach_basic_set([&](const isl::basic_set& part) { found = found || isl_basic_set_dim(part.get(), isl_dim_div) > 0; });
  return found;
}

isl::map conjunction_around(const isl::map& map) {
  if (!is_union(map)) return map;
  return isl::manage(isl_map_from_basic_map(isl_map_unshifted_simple_hull(map.copy())));
}

isl::set conjunction_around(const isl::set& set) {
  if (!is_union(set)) return set;
  return isl::manage(isl_set_from_basic_set(isl_set_unshifted_simple_hull(set.copy())));
}

isl::set with_few_constraints(const isl::set& set, const isl::set& known) {
  constexpr int kFewParts = 6;  // of which each is compared with all
  if (!is_union(set)) return set;
  const isl::set parts = isl::manage(isl_set_compute_divs(set.copy()));
  const bool divided = has_divisions(parts), few = isl_set_n_basic_set(parts.get()) <= kFewParts;
  std::vector<isl::set> wide;
  if (!divided || !few) {
    set.foreach_basic_set([&](const isl::basic_set& part) {
      wide.push_back(isl_basic_set_dim(part.get(), isl_dim_div) > 0 ? isl::set(part) : widened(part, set, known));
    });
    return union_of(wide, set);
  }
  const isl::set around = conjunction_around(parts);
  const bool one = known.intersect(around).is_subset(set);
  (one ? around : parts).foreach_basic_set([&](const isl::basic_set& part) { wide.push_back(widened(part, set, known)); });
  return union_of(needed_parts(std::move(wide), known), set);
}

}  // namespace nestor
