// Facts that depend on a nest alone: dependences in the groups in which they are checked, and what rules would relax.
#include "poly/schedule/order/facts.h"

#include <isl/map.h>

#include <algorithm>
#include <tuple>

#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/reached_points.h"
#include "poly/nest/composite_parts.h"
#include "support/error.h"

namespace nestor {
namespace {

bool relaxes(const Nest& nest, const Composite& composite, const Dependence& dependence) {
  if (dependence.kind != DependenceKind::flow || dependence.reduction) return false;
  if (dependence.source != composite.lead || dependence.tensor != composite.lead_tensor) return false;
  const std::vector<std::string> readers = leading_value_readers(nest, composite);
  return std::find(readers.begin(), readers.end(), dependence.sink) != readers.end();
}

DependenceClass class_of(const NestFacts& facts, const Dependence& dependence) {
  if (dependence.reduction && facts.reassociation) return DependenceClass::accumulation;
  const bool relaxed = std::any_of(facts.composites.begin(), facts.composites.end(),
                                   [&](const Composite& composite) { return relaxes(facts.nest, composite, dependence); });
  return relaxed ? DependenceClass::relaxed : DependenceClass::ordinary;
}

std::vector<DependenceGroup> group_dependences(const NestFacts& facts) {
  std::vector<DependenceGroup> groups;
  const std::vector<Dependence>& dependences = facts.dependences();
  for (std::size_t k = 0; k < dependences.size(); ++k) {
    const Dependence& dependence = dependences[k];
    const DependenceClass kind = class_of(facts, dependence);
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const DependenceGroup& group) {
      return std::tie(group.source, group.sink, group.kind) == std::tie(dependence.source, dependence.sink, kind);
    });
    if (same == groups.end()) {
      groups.push_back({dependence.source, dependence.sink, kind, {k}, dependence.relation});
    } else {
      same->members.push_back(k);
      same->relation = same->relation.unite(dependence.relation);
    }
  }
  for (DependenceGroup& group : groups) {
    group.relation = isl::manage(isl_map_remove_redundancies(group.relation.coalesce().release()));
  }
  return groups;
}

std::vector<RelaxedDependence> relax(const NestFacts& facts, const Composite& composite) {
  std::vector<RelaxedDependence> result;
  const std::vector<Dependence>& dependences = facts.dependences();
  for (std::size_t k = 0; k < dependences.size(); ++k) {
    const Dependence& dependence = dependences[k];
    if (!relaxes(facts.nest, composite, dependence)) continue;
    const isl::map match = matching_instances(facts.nest, composite, dependence.sink, dependence);
    result.push_back({k, dependence.sink, match, dependence.relation.range().is_subset(match.range()),
                      dependence.relation.domain().is_subset(match.domain())});
  }
  return result;
}

std::string text_of(const RuleMatch& match) {
  std::string text = "apply_rule(" + match.rule;
  for (const std::string& argument : match.target) text += ", " + argument;
  return text + ")";
}

std::vector<RuleOffer> rules_that_relax(const Nest& nest) {
  std::vector<RuleOffer> offers;
  for (const RuleMatch& match : find_matches(nest)) {
    RuleOffer offer{match.rule, match.target, text_of(match), {}, false};
    if (match.rule == kSplitReduction) {
      offers.push_back(offer);
      continue;
    }
    try {
      RuleResult result = rule(match.rule).apply(nest, match.target);
      offer.composites = std::move(result.composites);
      offer.reassociation = result.reassociation;
    } catch (const UserError&) {
      continue;  // a match whose side conditions fail offers nothing
    }
    if (!offer.composites.empty() || offer.reassociation) offers.push_back(offer);
  }
  return offers;
}

}  // namespace

NestFacts::NestFacts(Nest original_nest, Nest current, std::vector<Composite> found, bool reassociate,
                     std::shared_ptr<KnownOrders> orders)
    : original(std::move(original_nest)),
      nest(std::move(current)),
      composites(std::move(found)),
      reassociation(reassociate),
      known_orders_(orders ? std::move(orders) : std::make_shared<KnownOrders>()) {}

const std::vector<Dependence>& NestFacts::dependences() const {
  if (!dependences_) dependences_ = compute_dependences(nest);
  return *dependences_;
}

const std::vector<DependenceGroup>& NestFacts::groups() const {
  if (!groups_) {
    dependences();
    with_isl_budget("the dependences of " + nest.op, [&] { groups_ = group_dependences(*this); });
  }
  return *groups_;
}

const std::string& NestFacts::numbers_of_group(std::size_t index) const {
  if (const auto found = numbers_.find(index); found != numbers_.end()) return found->second;
  const DependenceGroup& group = groups().at(index);
  std::string numbers = std::to_string(known_orders_->number_of(group.relation));
  if (group.kind == DependenceClass::accumulation) {
    const Statement& source = nest.statement(group.source);
    numbers += " " + std::to_string(known_orders_->number_of(source.write.relation.intersect_domain(source.domain)));
  }
  return numbers_.emplace(index, numbers).first->second;
}

const std::vector<RelaxedDependence>& NestFacts::relaxed(std::size_t index) const {
  const auto found = relaxed_.find(index);
  if (found != relaxed_.end()) return found->second;
  return relaxed_.emplace(index, relax(*this, composites.at(index))).first->second;
}

const std::vector<RuleOffer>& NestFacts::offers() const {
  if (!offers_) offers_ = rules_that_relax(nest);
  return *offers_;
}

std::int64_t NestFacts::guarded_sizes() const {
  if (!guarded_sizes_) guarded_sizes_ = nestor::guarded_sizes(nest);
  return *guarded_sizes_;
}

}  // namespace nestor
