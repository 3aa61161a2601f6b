// Bounds of sums of exponentials relative to their own extremum.
//
// A term is exp(c (a - m)) with c > 0 and a <= m, so that it is at most 1; the point that made m has the term exp(0) = 1. Products that are
// rounded before they are subtracted, and 16-bit terms, stay within a factor of 2 of that.
#include "poly/algebra/analysis/exponential_sum.h"

#include <isl/map.h>

#include <algorithm>
#include <cmath>

#include "poly/algebra/analysis/online_plan.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

constexpr double kRounding = 2, kMostPoints = 0x1p31;

/// The tensor of the extremum if the value is an exponential that reads one, or an element of a temporary that holds such.
std::optional<std::string> lead_of(const Nest& nest, const Statement& statement, const ScalarExpr& value) {
  const ScalarExpr bare = strip_casts(value);
  if (bare.op() == ScalarOp::read) {
    const std::string& tensor = statement.reads.at(static_cast<std::size_t>(bare.ordinal())).tensor;
    const Statement* definition = is_elementwise_temporary(nest, tensor) ? sole_definition(nest, tensor) : nullptr;
    if (definition == nullptr || strip_casts(definition->value).op() == ScalarOp::read) return std::nullopt;
    return lead_of(nest, *definition, definition->value);
  }
  if (bare.op() != ScalarOp::exp && bare.op() != ScalarOp::exp2) return std::nullopt;
  for (const Access& read : statement.reads) {
    if (!reads_tensor(statement, bare, read.tensor)) continue;
    for (const Statement* writer : writers_of(nest, read.tensor)) {
      if (writer->reduction == ReductionOp::max || writer->reduction == ReductionOp::min) return read.tensor;
    }
  }
  return std::nullopt;
}

}  // namespace

bool covers_lead(const Nest& nest, const Statement& follower, const Statement& lead, const isl::map& lead_instances,
                 const isl::map& lead_elements) {
  const isl::map points =
      follower.write.relation.intersect_domain(domain_in(nest, follower)).reverse().apply_range(lead_instances);
  const isl::map all = lead_elements.apply_range(lead.write.relation.intersect_domain(domain_in(nest, lead)).reverse())
                           .intersect_domain(points.domain());
  return all.is_subset(points);
}

std::optional<ValueRange> exponential_sum(const Nest& nest, const Statement& update) {
  if (update.reduction != ReductionOp::add || !starts_from(nest, update, 0)) return std::nullopt;
  const auto extremum = lead_of(nest, update, update.value);
  if (!extremum) return std::nullopt;
  for (const Statement* lead : writers_of(nest, *extremum)) {
    if (!lead->reduction) continue;
    const auto plan = analyse_online(nest, lead->name);
    if (!plan || std::find(plan->followers.begin(), plan->followers.end(), update.name) == plan->followers.end()) continue;
    const double infinity = neutral_element(*lead->reduction, ElementType::f32);
    const bool complete =
        starts_from(nest, *lead, infinity) &&
        covers_lead(nest, update, *lead, plan->lead_instances.at(update.name), plan->lead_elements.at(update.name));
    const double points = std::pow(kMostPoints, static_cast<double>(reduced_dims(update).size()));
    return ValueRange{complete ? 1 / kRounding : 0,    kRounding * kMostHeld * points, false, false, true,
                      !always_has_points(nest, update)};
  }
  return std::nullopt;
}

}  // namespace nestor
