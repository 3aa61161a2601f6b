// Each set of sizes at which an index leaves the range lies behind a half-space, which launches stay out of.
#include "codegen/tile/build/index_bounds.h"

#include "codegen/tile/build/program_passes.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"

#include <isl/constraint.h>
#include <isl/set.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace nestor {
namespace {

/// Sizes at which the function leaves the range somewhere on the points.
isl::set sizes_beyond(const isl::set& points, const isl::pw_aff& function) {
  constexpr long kLeast = std::numeric_limits<std::int32_t>::min(), kMost = std::numeric_limits<std::int32_t>::max();
  const isl::pw_aff zero = function.sub(function);
  const isl::set beyond = function.gt_set(zero.add_constant(kMost)).unite(function.lt_set(zero.add_constant(kLeast)));
  return isl::manage(isl_set_remove_divs(isl_set_params(points.intersect(beyond).release())));
}

/// The negation of the fact with the largest constant: the one that tells large sizes from usual ones. Equalities count as their upper half.
SizeConstraint outside_of(const std::vector<SizeConstraint>& facts) {
  SizeConstraint fact = *std::max_element(facts.begin(), facts.end(), [](const SizeConstraint& a, const SizeConstraint& b) {
    return std::abs(a.constant) < std::abs(b.constant);
  });
  for (auto& [name, factor] : fact.terms) factor = -factor;
  fact.constant = -fact.constant - 1;
  fact.equality = false;
  return fact;
}

}  // namespace

std::vector<SizeConstraint> bounds_of_index_values(const Nest& nest) {
  std::vector<SizeConstraint> bounds;
  const isl::set context = full_context(nest);
  for (const Statement& statement : nest.statements) {
    for (const isl::pw_aff& function : statement.indices) {
      const isl::set beyond = sizes_beyond(domain_in(nest, statement), function).intersect(context).gist(context);
      beyond.foreach_basic_set([&](const isl::basic_set& part) {
        const std::vector<SizeConstraint> facts = size_constraints(part.to_set());
        if (facts.empty()) {
          user_error("{}: the index {} leaves the range of i32, whatever the sizes are; cast its parts to f32", statement.name,
                     function_text(function));
        }
        SizeConstraint bound = outside_of(facts);
        const auto same = [&](const SizeConstraint& other) {
          return other.terms == bound.terms && other.constant == bound.constant && !other.equality && other.modulus == 0;
        };
        if (std::none_of(bounds.begin(), bounds.end(), same)) bounds.push_back(std::move(bound));
      });
    }
  }
  return bounds;
}

}  // namespace nestor
