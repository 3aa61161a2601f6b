// Units along one part axis together, the others before them.
#include "autotune/space/structure/part_clusters.h"

#include "autotune/space/structure/cluster_steps.h"
#include "autotune/space/structure/try_steps.h"

#include <algorithm>

namespace nestor {
namespace {

bool runs_along(const Unit& unit, const PartAxis& part) {
  const int own = unit.position_of(part.axis), whole = unit.position_of(part.whole);
  if (own >= 0) return !unit.reduced[static_cast<std::size_t>(own)];
  return whole >= 0 && !unit.reduced[static_cast<std::size_t>(whole)];
}

}  // namespace

std::optional<std::vector<Cluster>> find_part_clusters(const Schedule& base, const NestStructure& structure, Fusion fusion,
                                                       bool by_row) {
  for (const PartAxis& part : structure.parts) {
    Cluster cluster;
    std::vector<int> others;
    for (int u = 0; u < static_cast<int>(structure.units.size()); ++u)
      (runs_along(structure.units[static_cast<std::size_t>(u)], part) ? cluster.units : others).push_back(u);
    cluster.part = part;
    if (by_row) {
      cluster.axes = common_axes(structure, cluster.units, cluster.units.front());
      std::erase_if(cluster.axes, [&](int axis) { return axis == part.axis || axis == part.whole; });
      if (cluster.axes.empty()) continue;
      cluster.stream_axes = {part.whole};
      cluster.at_front = true;
    }
    cluster.axes.push_back(part.axis);
    cluster.forms.push_back({});
    cluster.heaviest = *std::max_element(cluster.units.begin(), cluster.units.end(), [&](int a, int b) {
      return structure.units[static_cast<std::size_t>(a)].points < structure.units[static_cast<std::size_t>(b)].points;
    });
    std::vector<Cluster> clusters = find_clusters_of(base, structure, others, fusion);
    std::optional<Schedule> schedule = base;
    for (const Cluster& other : clusters) {
      if (schedule) schedule = try_steps(*schedule, cluster_steps(structure, other, probe_plan(other)).steps);
    }
    const ClusterSteps steps = cluster_steps(structure, cluster, probe_plan(cluster));
    if (schedule) schedule = try_steps(*schedule, steps.steps);
    if (!schedule) continue;
    for (const int axis : cluster.axes)
      cluster.parallel.push_back(try_step(*schedule, make_step("parallel", {steps.outer.at(axis)})).has_value());
    clusters.push_back(std::move(cluster));
    return clusters;
  }
  return std::nullopt;
}

}  // namespace nestor
