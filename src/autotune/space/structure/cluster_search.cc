// Clusters, their parallel loops and their skewed forms, each proved by applying the steps.
#include "autotune/space/structure/cluster_search.h"

#include "autotune/space/structure/cluster_steps.h"
#include "autotune/space/structure/try_steps.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace nestor {
namespace {

class ClusterFinder {
 public:
  ClusterFinder(const Schedule& base, const NestStructure& structure, const std::vector<int>& units, Fusion fusion)
      : base_(base), structure_(structure), units_(units), fusion_(fusion) {}

  std::vector<Cluster> find() {
    std::vector<Cluster> clusters;
    const int count = static_cast<int>(units_.size());
    for (int first = 0; first < count;) {
      int last = first + 1;
      while (last < count && extends(first, last)) ++last;
      Cluster cluster = cluster_of(first, last);
      // The longest run is tried first, since it mostly is legal; what is not legal as a whole is grown unit by unit.
      if (last - first > 1 && !legal(cluster)) {
        int grown = first + 1;
        while (grown < last && legal(cluster_of(first, grown + 1))) ++grown;
        cluster = cluster_of(first, grown);
      }
      complete(cluster);
      first += static_cast<int>(cluster.units.size());
      clusters.push_back(std::move(cluster));
    }
    return clusters;
  }

 private:
  bool extends(int first, int next) const {
    if (fusion_ == Fusion::none) return false;
    const auto before = cluster_of(first, next).axes;
    const auto after = cluster_of(first, next + 1).axes;
    return !after.empty() && (fusion_ == Fusion::maximal || after.size() == before.size());
  }

  /// Of the units at the places first .. last - 1.
  Cluster cluster_of(int first, int last) const {
    Cluster cluster;
    cluster.heaviest = units_[first];
    for (int place = first; place < last; ++place) {
      const int u = units_[place];
      cluster.units.push_back(u);
      if (structure_.units[u].points > structure_.units[cluster.heaviest].points) cluster.heaviest = u;
    }
    cluster.axes = common_axes(structure_, cluster.units, cluster.heaviest);
    return cluster;
  }

  bool legal(const Cluster& cluster) const {
    return try_steps(base_, cluster_steps(structure_, cluster, probe_plan(cluster)).steps).has_value();
  }

  /// Parallel loops, tilability, stream axes and forms.
  void complete(Cluster& cluster) const {
    const ClusterSteps probe = cluster_steps(structure_, cluster, probe_plan(cluster));
    const auto fused = try_steps(base_, probe.steps);
    for (const int axis : cluster.axes) {
      cluster.parallel.push_back(fused && try_step(*fused, make_step("parallel", {probe.outer.at(axis)})).has_value());
    }
    const bool all_parallel = std::all_of(cluster.parallel.begin(), cluster.parallel.end(), [](bool p) { return p; });
    cluster.tilable = all_parallel || cluster.axes.size() < 2 || tiles_legally(cluster, ClusterForm{});
    cluster.forms.push_back({});
    if (!all_parallel && cluster.axes.size() >= 2) find_forms(cluster);
    find_stream_axes(cluster);
  }

  bool tiles_legally(const Cluster& cluster, const ClusterForm& form) const {
    ClusterPlan plan = probe_plan(cluster);
    for (auto& [axis, tile] : plan.tile) tile = 8;
    plan.form = form;
    plan.parallel = form.kind == ClusterForm::Kind::natural ? 0 : 1;
    return try_steps(base_, cluster_steps(structure_, cluster, plan).steps).has_value();
  }

  void find_forms(Cluster& cluster) const {
    const int outermost = cluster.axes.front();
    // A loop that is parallel as it is needs no wavefront.
    const bool some_parallel = std::find(cluster.parallel.begin(), cluster.parallel.end(), true) != cluster.parallel.end();
    for (std::size_t a = 0; a < cluster.axes.size() && !some_parallel; ++a) {
      for (std::size_t b = a + 1; b < cluster.axes.size(); ++b) {
        for (const std::int64_t factor : {1, 2}) {
          const ClusterForm form{ClusterForm::Kind::wavefront, {{cluster.axes[a], cluster.axes[b], factor}}};
          if (!wavefront_legal(cluster, form)) continue;
          cluster.forms.push_back(form);
          break;
        }
      }
    }
    for (const std::int64_t factor : {1, 2, 3}) {
      ClusterForm form{ClusterForm::Kind::time_tile, {}};
      for (std::size_t k = 1; k < cluster.axes.size(); ++k) form.skews.push_back({outermost, cluster.axes[k], factor});
      if (!tiles_legally(cluster, form)) continue;
      cluster.forms.push_back(form);
      break;
    }
  }

  bool wavefront_legal(const Cluster& cluster, const ClusterForm& form) const {
    ClusterPlan plan = probe_plan(cluster);
    plan.form = form;
    plan.order = wavefront_order(cluster, form);
    plan.parallel = 1;
    return try_steps(base_, cluster_steps(structure_, cluster, plan).steps).has_value();
  }

  /// Reduced somewhere, and run along by several units: worth sharing tile by tile.
  void find_stream_axes(Cluster& cluster) const {
    for (std::size_t axis = 0; axis < structure_.axes.size(); ++axis) {
      int users = 0;
      bool reduced = false;
      for (const int u : cluster.units) {
        const int position = structure_.units[u].position_of(static_cast<int>(axis));
        users += position >= 0 ? 1 : 0;
        reduced = reduced || (position >= 0 && structure_.units[u].reduced[position]);
      }
      if (users >= 2 && reduced) cluster.stream_axes.push_back(static_cast<int>(axis));
    }
  }

  const Schedule& base_;
  const NestStructure& structure_;
  const std::vector<int>& units_;
  const Fusion fusion_;
};

}  // namespace

std::vector<int> find_stream_groups(const Schedule& base, const NestStructure& structure, const Cluster& cluster, int stream) {
  ClusterPlan plan = probe_plan(cluster);
  plan.stream = stream;
  // Tiles, so that loops inside the stream loop are where candidates will have them.
  plan.stream_tile = 4;
  plan.stream_groups.assign(cluster.units.size(), -1);
  int next = 0;
  for (std::size_t k = 0; k < cluster.units.size(); ++k) {
    if (structure.units[cluster.units[k]].position_of(stream) >= 0) plan.stream_groups[k] = next++;
  }
  auto schedule = try_steps(base, cluster_steps(structure, cluster, plan).steps);
  std::vector<int> groups(cluster.units.size(), -1);
  if (!schedule) return groups;
  int group = -1;
  std::string last;
  for (std::size_t k = cluster.units.size(); k-- > 0;) {
    const Unit& unit = structure.units[cluster.units[k]];
    const int position = unit.position_of(stream);
    if (position < 0) continue;
    const std::string loop = unit.loops[position] + "_o";
    auto fused = last.empty() ? std::nullopt : try_step(*schedule, make_step("fuse_with", {loop, last}));
    if (fused) {
      schedule = std::move(fused);
    } else {
      ++group;
      last = loop;
    }
    groups[k] = group;
  }
  return groups;
}

std::vector<Cluster> find_clusters(const Schedule& base, const NestStructure& structure, Fusion fusion) {
  std::vector<int> all(structure.units.size());
  std::iota(all.begin(), all.end(), 0);
  return find_clusters_of(base, structure, all, fusion);
}

std::vector<Cluster> find_clusters_of(const Schedule& base, const NestStructure& structure, const std::vector<int>& units,
                                      Fusion fusion) {
  return ClusterFinder(base, structure, units, fusion).find();
}

}  // namespace nestor
