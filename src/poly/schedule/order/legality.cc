// The legality check: a pair of dependent instances is broken if, at the first shared loop where the two differ, the sink
// comes first or both run at once; or, where no shared loop tells them apart, the sink's body comes first.
#include "poly/schedule/order/legality.h"

#include "poly/isl/conjunction.h"

#include <fmt/format.h>
#include <isl/map.h>

#include <algorithm>

namespace nestor {
namespace {

isl::map sink_before(const isl::map& pairs, std::size_t depth) {
  const int at = static_cast<int>(depth);
  return isl::manage(isl_map_order_lt(pairs.copy(), isl_dim_out, at, isl_dim_in, at));
}

isl::map sink_after(const isl::map& pairs, std::size_t depth) {
  const int at = static_cast<int>(depth);
  return isl::manage(isl_map_order_gt(pairs.copy(), isl_dim_out, at, isl_dim_in, at));
}

isl::map both_at_once(const isl::map& pairs, std::size_t depth) {
  const int at = static_cast<int>(depth);
  return isl::manage(isl_map_equate(pairs.copy(), isl_dim_in, at, isl_dim_out, at));
}

bool plainly_empty(const isl::map& pairs) { return isl_map_plain_is_empty(pairs.get()) == isl_bool_true; }

bool runs_tasks(LoopKind loop) { return loop == LoopKind::parallel || loop == LoopKind::gpu_block; }

/// The pairs that a loop of this kind breaks, given that all loops outside it agree; nothing if there are none.
std::optional<isl::map> broken_at(const isl::map& pairs, std::size_t depth, LoopKind loop) {
  isl::map backwards = sink_before(pairs, depth);
  if (!backwards.is_empty()) return backwards;
  if (!is_concurrent(loop)) return std::nullopt;
  isl::map at_once = sink_after(pairs, depth);
  if (!at_once.is_empty()) return at_once;
  return std::nullopt;
}

/// Lanes may have partial results of one element, which are combined at their end, but not add to elements that each other have.
std::string collision_note(DependenceClass kind, const TreeNode& loop) {
  if (kind != DependenceClass::accumulation || runs_tasks(loop.loop_kind)) return "";
  return fmt::format(
      "two iterations of {} update one element, and others update others, so that no step can combine what lanes have",
      loop.name);
}

OrderChecker::Window window_of(const OrderScope& scope) { return {scope.first_depth, scope.last_depth, scope.sequence}; }

bool concerns(const OrderScope& scope, const DependenceGroup& group) {
  const auto source = scope.part.find(group.source);
  const auto sink = scope.part.find(group.sink);
  if (source == scope.part.end() || sink == scope.part.end()) return false;
  return !scope.across_only || source->second != sink->second;
}

}  // namespace

OrderChecker::OrderChecker(const ScheduleData& data) : data_(data), index_(data.tree) {}

const LoopSpace& OrderChecker::space(const std::string& statement) {
  const auto found = spaces_.find(statement);
  if (found != spaces_.end()) return found->second;
  LoopSpace made(data_.facts->nest.statement(statement), data_.forms.at(statement), index_.loop_names(statement));
  return spaces_.emplace(statement, std::move(made)).first->second;
}

std::optional<Violation> OrderChecker::check_relation(const isl::map& relation, const std::string& source,
                                                      const std::string& sink, DependenceClass kind, const Window& window) {
  if (is_union(relation) && !broken_part(conjunction_around(relation), source, sink, kind, window)) return std::nullopt;
  return broken_part(relation, source, sink, kind, window);
}

std::optional<Violation> OrderChecker::broken_part(const isl::map& relation, const std::string& source, const std::string& sink,
                                                   DependenceClass kind, const Window& window) {
  const TreeIndex::Meeting meeting = index_.meet(source, sink);
  const bool bodies = window.sequence && meeting.order > 0 && kind != DependenceClass::accumulation;
  if (window.first >= meeting.shared && !bodies) return std::nullopt;
  const std::vector<const TreeNode*>& loops = index_.loops(source);
  isl::map pairs = in_loop_space(relation, space(source), space(sink));
  for (std::size_t depth = 0; depth < meeting.shared; ++depth) {
    if (depth > window.last && !bodies) return std::nullopt;
    if (depth >= window.first && depth <= window.last) {
      const TreeNode& loop = *loops[depth];
      const bool matters = kind != DependenceClass::accumulation || runs_tasks(loop.loop_kind) ||
                           (is_concurrent(loop.loop_kind) && moves_write(source, depth));
      const auto broken = matters ? broken_at(pairs, depth, loop.loop_kind) : std::nullopt;
      if (broken) return Violation{0, loop.name, loop.loop_kind, *broken, collision_note(kind, loop)};
    }
    pairs = both_at_once(pairs, depth);
    if (plainly_empty(pairs)) return std::nullopt;
  }
  if (bodies && !pairs.is_empty()) return Violation{0, "", LoopKind::serial, pairs, ""};
  return std::nullopt;
}

bool OrderChecker::moves_write(const std::string& statement, std::size_t depth) {
  const Statement& definition = data_.facts->nest.statement(statement);
  const isl::map loops = loop_relation_of(definition, space(statement));
  const isl::map written = loops.reverse().apply_range(definition.write.relation);
  isl_map* others = isl_map_universe(isl_space_map_from_set(isl_set_get_space(loops.range().get())));
  for (int k = 0; k < static_cast<int>(space(statement).loops().size()); ++k) {
    if (k != static_cast<int>(depth)) others = isl_map_equate(others, isl_dim_in, k, isl_dim_out, k);
  }
  const isl::map elements = isl::manage(others).apply_domain(written).apply_range(written);
  return !elements.is_subset(isl::manage(isl_map_identity(isl_map_get_space(elements.get()))));
}

bool OrderChecker::same_iteration(const isl::map& relation, const std::string& source, const std::string& sink,
                                  std::size_t depth) {
  if (is_union(relation) && same_iteration(conjunction_around(relation), source, sink, depth)) return true;
  isl::map pairs = in_loop_space(relation, space(source), space(sink));
  for (std::size_t k = 0; k < depth; ++k) {
    if (!sink_before(pairs, k).is_empty() || !sink_after(pairs, k).is_empty()) return false;
    pairs = both_at_once(pairs, k);
  }
  return true;
}

std::string OrderChecker::form_text(const std::string& statement) const {
  const std::vector<std::string> loops = index_.loop_names(statement);
  std::string text = fmt::format("{}:", loops.size());
  const LoopForm& form = data_.forms.at(statement);
  for (const std::vector<LinearForm>* forms : {&form.dims, &form.constraints}) {
    for (const LinearForm& each : *forms) {
      for (std::size_t k = 0; k < loops.size(); ++k) {
        if (const std::int64_t factor = each.coefficient(loops[k]); factor != 0) text += fmt::format("{}l{}+", factor, k);
      }
      text += fmt::format("{},", each.constant);
    }
    text += ";";
  }
  return text;
}

std::string OrderChecker::question(std::size_t group, const Window& window) const {
  const DependenceGroup& asked = data_.facts->groups()[group];
  const TreeIndex::Meeting meeting = index_.meet(asked.source, asked.sink);
  std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}|{}|", data_.facts->numbers_of_group(group), static_cast<int>(asked.kind), meeting.shared,
                  meeting.order > 0, window.first, std::min(window.last, meeting.shared), window.sequence);
  for (std::size_t depth = 0; depth < meeting.shared; ++depth)
    text += fmt::format("{},", static_cast<int>(index_.loops(asked.source)[depth]->loop_kind));
  return text + form_text(asked.source) + "|" + form_text(asked.sink);
}

std::optional<std::size_t> OrderChecker::broken_group(const OrderScope& scope) {
  const std::vector<DependenceGroup>& groups = data_.facts->groups();
  KnownOrders& known = *data_.facts->known_orders();
  for (std::size_t k = 0; k < groups.size(); ++k) {
    const DependenceGroup& group = groups[k];
    if (group.kind == DependenceClass::relaxed || !concerns(scope, group)) continue;
    const std::string asked = question(k, window_of(scope));
    std::optional<bool> breaks = known.answer(asked);
    if (!breaks) {
      breaks = check_relation(group.relation, group.source, group.sink, group.kind, window_of(scope)).has_value();
      known.note(asked, *breaks);
    }
    if (*breaks) return k;
  }
  return std::nullopt;
}

Violation OrderChecker::violation_of(std::size_t index, const OrderScope& scope) {
  const DependenceGroup& group = data_.facts->groups().at(index);
  const auto violation_by = [&](const isl::map& relation, std::size_t dependence) {
    auto broken = check_relation(relation, group.source, group.sink, group.kind, window_of(scope));
    if (broken) broken->dependence = dependence;
    return broken;
  };
  for (const std::size_t member : group.members) {
    if (auto own = violation_by(data_.facts->dependences()[member].relation, member)) return *own;
  }
  return violation_by(group.relation, group.members.front()).value();
}

}  // namespace nestor
