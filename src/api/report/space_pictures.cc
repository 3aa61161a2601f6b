// Projects instances onto pairs of loops and writes their cells as runs.
#include "api/report/space_pictures.h"

#include "codegen/tile/build/variants.h"
#include "codegen/tile/places/plan.h"
#include "poly/isl/isl_tools.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/point.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>

namespace nestor {
namespace {

constexpr std::size_t kMostLoops = 4;

/// A loop around a statement that is worth an axis.
struct Axis {
  std::string name;
  unsigned position;  ///< among the statement's loops
  LoopKind kind = LoopKind::serial;
  std::int64_t first = 0, count = 0;
};

/// { [loops] } or { [loops] -> [..] }: only the loops at `kept` (ascending).
isl::set keep(const isl::set& set, const std::vector<unsigned>& kept) {
  isl_set* result = set.copy();
  for (auto k = static_cast<unsigned>(isl_set_dim(result, isl_dim_set)); k-- > 0;) {
    if (std::find(kept.begin(), kept.end(), k) == kept.end()) result = isl_set_project_out(result, isl_dim_set, k, 1);
  }
  return isl::manage(result);
}

/// All loops of a statement as axes, with their ranges at the sizes.
std::vector<Axis> all_axes(const StatementPlan& plan, const isl::set& points) {
  std::vector<Axis> axes;
  const auto add = [&](const PlannedLoop& loop) {
    const auto position = static_cast<unsigned>(axes.size());
    const auto [first, last] = dim_range(points, static_cast<int>(position));
    axes.push_back({loop.name, position, loop.kind, first, last - first + 1});
  };
  for (const PlannedLoop& loop : plan.outer) add(loop);
  for (const PlannedLoop& loop : plan.inner) add(loop);
  return axes;
}

/// The loops to choose from: those of the program with several iterations, innermost first of all; a tile's own where they are too few.
std::vector<Axis> chosen_axes(const StatementPlan& plan, const std::vector<Axis>& axes) {
  std::vector<Axis> chosen;
  for (std::size_t k = plan.outer.size(); k-- > 0 && chosen.size() < kMostLoops;) {
    if (axes[k].count > 1) chosen.push_back(axes[k]);
  }
  for (std::size_t k = plan.outer.size(); k < axes.size() && chosen.size() < 2; ++k) {
    if (axes[k].count > 1) chosen.push_back(axes[k]);
  }
  std::sort(chosen.begin(), chosen.end(), [](const Axis& a, const Axis& b) { return a.position < b.position; });
  return chosen;
}

/// Calls `visit` with both coordinates of every point of a set of two dims.
template <class F>
void each_point(const isl::set& set, F&& visit) {
  const auto step = [](isl_point* point, void* user) {
    const auto at = [&](int k) {
      return isl_val_get_num_si(isl::manage(isl_point_get_coordinate_val(point, isl_dim_set, k)).get());
    };
    (*static_cast<std::remove_reference_t<F>*>(user))(at(0), at(1));
    isl_point_free(point);
    return isl_stat_ok;
  };
  isl_set_foreach_point(set.get(), step, &visit);
}

isl::set within(const isl::set& set, const Axis& a, const Axis& b, std::int64_t rows, std::int64_t columns) {
  isl_set* window = set.copy();
  isl_ctx* ctx = isl_set_get_ctx(window);
  const auto value = [&](std::int64_t v) { return isl_val_int_from_si(ctx, static_cast<long>(v)); };
  window = isl_set_lower_bound_val(window, isl_dim_set, 0, value(a.first));
  window = isl_set_upper_bound_val(window, isl_dim_set, 0, value(a.first + rows - 1));
  window = isl_set_lower_bound_val(window, isl_dim_set, 1, value(b.first));
  return isl::manage(isl_set_upper_bound_val(window, isl_dim_set, 1, value(b.first + columns - 1)));
}

/// "f12p1e3"
std::string runs_of(const std::string& cells) {
  std::string text;
  for (std::size_t k = 0; k < cells.size();) {
    const std::size_t end = std::min(cells.find_first_not_of(cells[k], k), cells.size());
    text += fmt::format("{}{}", cells[k], end - k);
    k = end;
  }
  return text;
}

/// One statement with what its pictures are drawn from.
class StatementSpace {
 public:
  StatementSpace(const StatementPlan& plan, const Sizes& sizes) : plan_(plan), sizes_(sizes) {
    all_points_ = plan.loops.range();
    points_ = at_sizes(all_points_, sizes);
    if (points_.is_empty()) return;
    const std::vector<Axis> axes = all_axes(plan, points_);
    axes_ = chosen_axes(plan, axes);
  }

  const std::vector<Axis>& axes() const { return axes_; }
  const StatementPlan& plan() const { return plan_; }

  std::string cells(const Axis& a, const Axis& b, std::int64_t rows, std::int64_t columns) const {
    std::string cells(static_cast<std::size_t>(rows * columns), 'e');
    const auto mark = [&](const isl::set& set, char as) {
      each_point(within(set, a, b, rows, columns),
                 [&](std::int64_t x, std::int64_t y) { cells[(x - a.first) * columns + y - b.first] = as; });
    };
    mark(keep(points_, {a.position, b.position}), 'f');
    mark(partial(a, b), 'p');
    return cells;
  }

 private:
  /// Cells where some iteration of the program's loops runs less than its tile holds.
  isl::set partial(const Axis& a, const Axis& b) const {
    const auto outside = std::max<std::size_t>(plan_.outer.size(), b.position + 1);
    const auto rank = static_cast<unsigned>(isl_set_dim(all_points_.get(), isl_dim_set));
    isl_map* tiles = isl_map_from_range(all_points_.copy());
    tiles = isl_map_move_dims(tiles, isl_dim_in, 0, isl_dim_out, 0, static_cast<unsigned>(outside));
    if (outside == rank) {
      isl_map_free(tiles);
      return isl::manage(isl_set_empty(isl_set_get_space(keep(points_, {a.position, b.position}).get())));
    }
    // Sizes are fixed last: what fills a tile is its size, even where a dim is shorter.
    return keep(at_sizes(partial_iterations(isl::manage(tiles)), sizes_), {a.position, b.position}).coalesce();
  }

  const StatementPlan& plan_;
  const Sizes& sizes_;
  isl::set all_points_, points_;
  std::vector<Axis> axes_;
};

/// Position of a loop among those of a statement; -1: it is not around it.
int position_of(const StatementPlan& plan, const std::string& loop) {
  const std::vector<std::string> names = plan.loop_names();
  const auto found = std::find(names.begin(), names.end(), loop);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

/// { [a, b] of the source -> [a, b] of the sink } at the sizes; nothing when one of the two is not inside both loops.
std::optional<isl::map> between_cells(const ProgramPlan& program, const Dependence& dependence, const Axis& a, const Axis& b,
                                      const Sizes& sizes) {
  const auto loops_of = [&](const std::string& statement) -> std::optional<isl::map> {
    const StatementPlan& plan = program.plan(statement);
    const int first = position_of(plan, a.name), second = position_of(plan, b.name);
    if (first < 0 || second < 0) return std::nullopt;
    isl_map* map = at_sizes(plan.loops, sizes).release();
    for (auto k = static_cast<int>(isl_map_dim(map, isl_dim_out)); k-- > 0;) {
      if (k != first && k != second) map = isl_map_project_out(map, isl_dim_out, static_cast<unsigned>(k), 1);
    }
    return isl::manage(map);
  };
  const auto source = loops_of(dependence.source), sink = loops_of(dependence.sink);
  if (!source || !sink) return std::nullopt;
  isl_map* pairs = isl_map_apply_domain(at_sizes(dependence.relation, sizes).release(), source->copy());
  return isl::manage(isl_map_apply_range(pairs, sink->copy()));
}

/// Which neighbours a dependence reaches, and whether it goes further.
nlohmann::json arrow_of(const ProgramPlan& program, const Dependence& dependence, const Axis& a, const Axis& b,
                        const Sizes& sizes) {
  const auto pairs = between_cells(program, dependence, a, b, sizes);
  if (!pairs || pairs->is_empty()) return nullptr;
  const isl::set deltas = isl::manage(isl_map_deltas(pairs->copy()));
  nlohmann::json near = nlohmann::json::array();
  const Axis one{"", 0, LoopKind::serial, -1, 3};
  each_point(within(deltas, one, one, 3, 3), [&](std::int64_t x, std::int64_t y) {
    if (x != 0 || y != 0) near.push_back({x, y});
  });
  const bool far = !deltas.is_subset(within(deltas, one, one, 3, 3));
  if (near.empty() && !far) return nullptr;
  return {{"text", describe(dependence)}, {"tensor", dependence.tensor}, {"deltas", near}, {"far", far}};
}

/// The dim that a loop makes up, and how: its value is scale * loop, other loops apart.
nlohmann::json axis_json(const Schedule& schedule, const StatementPlan& plan, const Axis& axis) {
  nlohmann::json json{{"name", axis.name},   {"kind", to_string(axis.kind)},
                      {"first", axis.first}, {"count", axis.count},
                      {"dim", ""},           {"scale", 1},
                      {"offset", 0}};
  const LoopForm& form = schedule.form(plan.statement->name);
  for (std::size_t d = 0; d < form.dims.size(); ++d) {
    const std::int64_t scale = form.dims[d].coefficient(axis.name);
    if (scale == 0) continue;
    json["dim"] = plan.statement->dims[d];
    json["scale"] = scale;
    json["offset"] = form.dims[d].constant;
    break;
  }
  return json;
}

nlohmann::json space_json(const ProgramPlan& program, const StatementSpace& space) {
  const Schedule& schedule = *program.schedule;
  nlohmann::json json{
      {"statements", {space.plan().statement->name}}, {"loops", nlohmann::json::array()}, {"pairs", nlohmann::json::array()}};
  const std::vector<Axis>& axes = space.axes();
  for (const Axis& axis : axes) json["loops"].push_back(axis_json(schedule, space.plan(), axis));
  for (std::size_t a = 0; a < axes.size(); ++a) {
    for (std::size_t b = a + 1; b < axes.size(); ++b) {
      const std::int64_t rows = std::min(axes[a].count, kPictureCells), columns = std::min(axes[b].count, kPictureCells);
      json["pairs"].push_back({{"a", a},
                               {"b", b},
                               {"rows", rows},
                               {"columns", columns},
                               {"cells", runs_of(space.cells(axes[a], axes[b], rows, columns))},
                               {"arrows", nlohmann::json::array()}});
    }
  }
  return json;
}

/// Arrows of all statements in a picture, once all of these are known.
void add_arrows(const ProgramPlan& program, const std::vector<Axis>& axes, const Sizes& sizes, nlohmann::json& space) {
  for (nlohmann::json& pair : space["pairs"]) {
    for (const Dependence& dependence : program.schedule->dependences()) {
      const auto inside = [&](const std::string& name) {
        return std::find(space["statements"].begin(), space["statements"].end(), name) != space["statements"].end();
      };
      if (!inside(dependence.source) && !inside(dependence.sink)) continue;
      nlohmann::json arrow =
          arrow_of(program, dependence, axes[pair["a"].get<std::size_t>()], axes[pair["b"].get<std::size_t>()], sizes);
      if (!arrow.is_null()) pair["arrows"].push_back(std::move(arrow));
    }
  }
}

bool same_cells(const nlohmann::json& a, const nlohmann::json& b) { return a["loops"] == b["loops"] && a["pairs"] == b["pairs"]; }

}  // namespace

nlohmann::json spaces_of(const Schedule& schedule, const Sizes& sizes) {
  return isl_guarded("drawing iteration spaces", [&] {
    const ProgramPlan program = make_plan(schedule);
    nlohmann::json spaces = nlohmann::json::array();
    std::vector<std::vector<Axis>> axes;
    for (const StatementPlan& plan : program.statements) {
      const StatementSpace space(plan, sizes);
      if (space.axes().size() < 2) continue;
      nlohmann::json json = space_json(program, space);
      const auto known = std::find_if(spaces.begin(), spaces.end(), [&](const auto& other) { return same_cells(json, other); });
      if (known != spaces.end()) {
        (*known)["statements"].push_back(plan.statement->name);
        continue;
      }
      spaces.push_back(std::move(json));
      axes.push_back(space.axes());
    }
    for (std::size_t k = 0; k < spaces.size(); ++k) add_arrows(program, axes[k], sizes, spaces[k]);
    return spaces;
  });
}

}  // namespace nestor
