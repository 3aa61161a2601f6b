// Tiles by set differences, as loops are specialised, and counted by isl.
#include "codegen/tile/build/tile_classes.h"

#include "codegen/tile/build/variants.h"
#include "poly/isl/context.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <optional>
#include <tuple>

namespace nestor {
namespace {

/// More tiles than anybody looks at; isl visits each of them to count it.
constexpr std::int64_t kMostTiles = 1 << 22;

/// Positions of a statement's loops over tiles and of the loops inside them.
struct TiledLoops {
  std::vector<unsigned> outer, inner;
  std::vector<TileLoop> loops;  ///< one an outer loop
};

bool uses(const LinearForm& form, const std::string& loop) {
  return std::any_of(form.terms.begin(), form.terms.end(), [&](const auto& term) { return term.first == loop; });
}

/// A dim is tiled when outer and inner loops make it up together.
TiledLoops tiled_loops(const Schedule& schedule, const StatementPlan& plan) {
  TiledLoops tiled;
  std::vector<bool> inside(plan.inner.size(), false);
  const LoopForm& form = schedule.form(plan.statement->name);
  std::vector<std::optional<std::string>> dims(plan.outer.size());
  for (std::size_t d = 0; d < form.dims.size(); ++d) {
    const auto used = [&](const PlannedLoop& loop) { return uses(form.dims[d], loop.name); };
    if (std::none_of(plan.outer.begin(), plan.outer.end(), used) || std::none_of(plan.inner.begin(), plan.inner.end(), used))
      continue;
    for (std::size_t k = 0; k < plan.outer.size(); ++k) {
      if (used(plan.outer[k]) && !dims[k]) dims[k] = plan.statement->dims[d];
    }
    for (std::size_t k = 0; k < plan.inner.size(); ++k) inside[k] = inside[k] || used(plan.inner[k]);
  }
  for (unsigned k = 0; k < plan.outer.size(); ++k) {
    if (!dims[k]) continue;
    tiled.outer.push_back(k);
    tiled.loops.push_back({plan.outer[k].name, *dims[k]});
  }
  for (unsigned k = 0; k < plan.inner.size(); ++k) {
    if (inside[k]) tiled.inner.push_back(k);
  }
  return tiled;
}

/// `set` without the dims that are not in `kept` (ascending).
isl::set keep_dims(const isl::set& set, const std::vector<unsigned>& kept) {
  isl_set* result = set.copy();
  for (auto k = static_cast<unsigned>(isl_set_dim(result, isl_dim_set)); k-- > 0;) {
    if (std::find(kept.begin(), kept.end(), k) == kept.end()) result = isl_set_project_out(result, isl_dim_set, k, 1);
  }
  return isl::manage(result);
}

isl::map keep_inner(const isl::map& points, const std::vector<unsigned>& kept) {
  isl_map* result = points.copy();
  for (auto k = static_cast<unsigned>(isl_map_dim(result, isl_dim_out)); k-- > 0;) {
    if (std::find(kept.begin(), kept.end(), k) == kept.end()) result = isl_map_project_out(result, isl_dim_out, k, 1);
  }
  return isl::manage(result);
}

std::int64_t count(const isl::set& set) { return isl_val_get_num_si(isl::manage(isl_set_count_val(set.get())).get()); }

/// One statement's classes with the sets that they count.
struct Counted {
  TileClasses classes;
  isl::set visited, partial;
};

std::optional<Counted> classes_of(const Schedule& schedule, const StatementPlan& plan, const Sizes& sizes) {
  const TiledLoops tiled = tiled_loops(schedule, plan);
  if (tiled.outer.empty()) return std::nullopt;
  const isl::map points = keep_inner(plan.points, tiled.inner);
  // Sizes are fixed last: what fills a tile is its size, even where a dim is shorter than one tile.
  const isl::set visited = at_sizes(keep_dims(points.domain(), tiled.outer), sizes).coalesce();
  const isl::set partial = at_sizes(keep_dims(partial_iterations(points), tiled.outer), sizes).coalesce();
  Counted counted{{{plan.statement->name}, tiled.loops, 1, 0, 0}, visited, partial};
  if (visited.is_empty()) counted.classes.all = 0;
  for (int k = 0; k < static_cast<int>(tiled.outer.size()) && counted.classes.all > 0; ++k) {
    TileLoop& loop = counted.classes.loops[k];
    std::tie(loop.first, loop.last) = dim_range(visited, k);
    counted.classes.all *= loop.last - loop.first + 1;
    if (counted.classes.all > kMostTiles)
      user_error("{} has more than {} tiles at these sizes: too many to count", plan.statement->name, kMostTiles);
  }
  counted.classes.visited = count(visited);
  counted.classes.partial = count(partial);
  return counted;
}

bool same_tiles(const Counted& a, const Counted& b) {
  const auto same_loop = [](const TileLoop& x, const TileLoop& y) { return x.name == y.name; };
  return std::equal(a.classes.loops.begin(), a.classes.loops.end(), b.classes.loops.begin(), b.classes.loops.end(), same_loop) &&
         a.visited.is_equal(b.visited) && a.partial.is_equal(b.partial);
}

/// 12,345
std::string grouped(std::int64_t number) {
  std::string text = fmt::format("{}", number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

}  // namespace

std::vector<TileClasses> classify_tiles(const Schedule& schedule, const Sizes& sizes) {
  return isl_guarded("counting tiles", [&] {
    const ProgramPlan plan = make_plan(schedule);
    std::vector<Counted> all;
    for (const StatementPlan& statement : plan.statements) {
      auto counted = classes_of(schedule, statement, sizes);
      if (!counted) continue;
      const auto known = std::find_if(all.begin(), all.end(), [&](const Counted& other) { return same_tiles(*counted, other); });
      if (known == all.end()) {
        all.push_back(std::move(*counted));
      } else {
        known->classes.statements.push_back(statement.statement->name);
      }
    }
    std::vector<TileClasses> classes;
    classes.reserve(all.size());
    for (Counted& counted : all) classes.push_back(std::move(counted.classes));
    return classes;
  });
}

std::string describe(const std::vector<TileClasses>& classes) {
  if (classes.empty()) return "no tiled loops\n";
  std::string text;
  for (const TileClasses& tiles : classes) {
    std::vector<std::string> loops;
    loops.reserve(tiles.loops.size());
    for (const TileLoop& loop : tiles.loops) {
      loops.push_back(fmt::format("{} (of {}) in [{}, {}]", loop.name, loop.dim, loop.first, loop.last));
    }
    text += fmt::format("{}\n  tiles of {}\n  {} in all: {} visited ({} full, {} partial), {} empty\n",
                        fmt::join(tiles.statements, ", "), fmt::join(loops, ", "), grouped(tiles.all), grouped(tiles.visited),
                        grouped(tiles.full()), grouped(tiles.partial), grouped(tiles.empty()));
  }
  return text;
}

}  // namespace nestor
