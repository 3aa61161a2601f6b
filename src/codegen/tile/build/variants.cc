// Full, leading and trailing iterations of specialised loops, by isl set differences.
#include "codegen/tile/build/variants.h"

#include "support/error.h"

#include <isl/fixed_box.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>

namespace nestor {
namespace {

std::optional<std::size_t> position_of(const StatementPlan& plan, const std::string& loop) {
  for (std::size_t k = 0; k < plan.outer.size(); ++k) {
    if (plan.outer[k].name == loop) return k;
  }
  return std::nullopt;
}

/// { [.., l] -> [.., l'] : equal prefix, l' > l }
isl::map later_in_loop(const isl::set& loops) {
  const int dims = isl_set_dim(loops.get(), isl_dim_set);
  isl_map* map = isl_map_universe(isl_space_map_from_set(isl_set_get_space(loops.get())));
  for (int k = 0; k + 1 < dims; ++k) map = isl_map_equate(map, isl_dim_in, k, isl_dim_out, k);
  return isl::manage(isl_map_order_lt(map, isl_dim_in, dims - 1, isl_dim_out, dims - 1));
}

/// { [loops up to and including `loop`] }: before, in and after the full iterations; nothing when these are all, none, or not
/// contiguous.
std::optional<std::vector<isl::set>> cut_loop(const ProgramPlan& plan, const std::string& loop) {
  std::optional<isl::set> all, partial;
  for (const StatementPlan& statement : plan.statements) {
    const auto position = position_of(statement, loop);
    if (!position) continue;
    const isl::set domain = first_loops(statement.points.domain(), *position + 1);
    const isl::set not_full = first_loops(partial_iterations(statement.points), *position + 1);
    all = all ? all->unite(domain) : domain;
    partial = partial ? partial->unite(not_full) : not_full;
  }
  if (!all || partial->is_empty()) return std::nullopt;
  const isl::set full = all->subtract(*partial).coalesce();
  if (full.is_empty()) return std::nullopt;
  const isl::set rest = all->subtract(full);
  const isl::map later = later_in_loop(*all);
  const isl::set before = rest.intersect(full.apply(later.reverse()));
  if (!before.intersect(full.apply(later)).is_empty()) return std::nullopt;
  return std::vector<isl::set>{before.coalesce(), full, rest.subtract(before).coalesce()};
}

std::vector<std::string> specialized_loops(const ProgramPlan& plan) {
  std::vector<std::string> loops;
  for (const StatementPlan& statement : plan.statements) {
    for (const PlannedLoop& loop : statement.outer) {
      if (loop.specialized && std::find(loops.begin(), loops.end(), loop.name) == loops.end()) loops.push_back(loop.name);
    }
  }
  return loops;
}

}  // namespace

isl::set partial_iterations(const isl::map& points) {
  const isl::set nothing = isl::manage(isl_set_empty(isl_set_get_space(points.domain().get())));
  const unsigned inner = static_cast<unsigned>(isl_map_dim(points.get(), isl_dim_out));
  if (inner == 0) return nothing;
  isl_fixed_box* box = isl_map_get_range_simple_fixed_box_hull(points.get());
  if (isl_fixed_box_is_valid(box) != isl_bool_true) {
    isl_fixed_box_free(box);
    return nothing;
  }
  isl_multi_aff* offset = isl_fixed_box_get_offset(box);
  isl_multi_val* size = isl_fixed_box_get_size(box);
  isl_fixed_box_free(box);
  isl_map* filled = isl_map_from_domain(isl_map_domain(points.copy()));
  for (unsigned k = 0; k < inner; ++k) {
    isl_aff* low = isl_multi_aff_get_aff(offset, static_cast<int>(k));
    isl_val* extent = isl_multi_val_get_val(size, static_cast<int>(k));
    isl_aff* high = isl_aff_add_constant_val(isl_aff_copy(low), isl_val_sub_ui(extent, 1));
    isl_map* from = isl_map_from_aff(low);
    isl_map* to = isl_map_from_aff(high);
    isl_map* range =
        isl_map_intersect(isl_map_apply_range(from, isl_map_lex_le(isl_space_set_alloc(isl_map_get_ctx(filled), 0, 1))),
                          isl_map_apply_range(to, isl_map_lex_ge(isl_space_set_alloc(isl_map_get_ctx(filled), 0, 1))));
    filled = isl_map_flat_range_product(filled, range);
  }
  isl_multi_aff_free(offset);
  isl_multi_val_free(size);
  return isl::manage(isl_map_domain(isl_map_subtract(filled, points.copy())));
}

Variants::Variants(const ProgramPlan& plan, const Storage& storage) : plan_(plan), storage_(storage) {
  for (const std::string& loop : specialized_loops(plan)) {
    if (auto parts = cut_loop(plan, loop)) parts_[loop] = std::move(*parts);
  }
}

isl::set Variants::domain(const StatementPlan& statement, const PartChoice& choice) const {
  isl::set domain = statement.points.domain();
  for (const auto& [loop, number] : choice) {
    const auto position = position_of(statement, loop);
    if (!position) continue;
    const isl::set& part = parts_.at(loop).at(number);
    domain = domain.intersect(
        isl::manage(isl_set_add_dims(part.copy(), isl_dim_set, static_cast<unsigned>(statement.outer.size() - *position - 1))));
  }
  return visited_iterations(plan_, statement, domain.coalesce());
}

Variants::Key Variants::key_of(const std::string& name, const StatementPlan& statement, const PartChoice& choice) const {
  Key key{name, {}};
  for (const PlannedLoop& loop : statement.outer) {
    if (const auto chosen = choice.find(loop.name); chosen != choice.end()) key.second.insert(*chosen);
  }
  return key;
}

const OpBox* Variants::box(const StatementPlan& statement, const PartChoice& choice) {
  const auto [place, fresh] = boxes_.try_emplace(key_of(statement.statement->name, statement, choice));
  if (fresh) {
    if (const isl::set iterations = domain(statement, choice); !iterations.is_empty())
      place->second = make_box(plan_, statement, iterations);
  }
  return place->second.points.is_null() ? nullptr : &place->second;
}

GuardPlan Variants::guard(const StatementPlan& statement, const PartChoice& choice) {
  std::string loops;
  for (const std::string& name : statement.outer_names()) loops += name + ";";
  const auto [place, fresh] = guards_.try_emplace(key_of(loops, statement, choice));
  if (fresh) {
    std::map<std::string, OpBox> boxes;
    for (const StatementPlan& other : plan_.statements) {
      const bool together = other.outer_names() == statement.outer_names();
      if (const OpBox* own = together ? box(other, choice) : nullptr) boxes[other.statement->name] = *own;
    }
    place->second = plan_guards(plan_, storage_, boxes);
  }
  return place->second.at(statement.statement->name);
}

isl::set first_loops(const isl::set& outer, std::size_t count) {
  const unsigned all = static_cast<unsigned>(isl_set_dim(outer.get(), isl_dim_set));
  return isl::manage(
      isl_set_project_out(outer.copy(), isl_dim_set, static_cast<unsigned>(count), all - static_cast<unsigned>(count)));
}

}  // namespace nestor
