// ClusterSteps: the loop steps that give a cluster of statements its shared, tiled, parallel loops.
#pragma once

#include "autotune/space/structure/nest_structure.h"
#include "poly/schedule/schedule.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

struct ClusterPlan {
  std::vector<int> order;            ///< common axes that become outer loops, outermost first
  std::map<int, std::int64_t> tile;  ///< by axis: tile size; 1: the loop itself is outside
  int stream = -1;                   ///< axis of a reduction whose tiles the units share inside the outer loops
  std::int64_t stream_tile = 1;
  std::vector<int> stream_groups;  ///< by unit of the cluster: units of one number share the stream loop; -1: none
  ClusterForm form;
  int parallel = 0;  ///< how many of the parallel outer loops run in parallel, outermost first
};

struct ClusterSteps {
  std::vector<Step> steps;
  std::map<int, std::string> outer;                       ///< axis -> its shared outer loop after all steps
  std::vector<std::string> stream_loops;                  ///< one a stream group
  std::map<std::string, std::vector<std::string>> inner;  ///< first statement of a unit -> its own loops, outermost first
};

/// Splits, reorders, fuses and marks. Legality is for the schedule to judge.
ClusterSteps cluster_steps(const NestStructure& structure, const Cluster& cluster, const ClusterPlan& plan);

/// All non-stream steps with every common loop outside as it is: the plan that legality is probed with.
ClusterPlan probe_plan(const Cluster& cluster);

Step make_step(std::string name, std::vector<nlohmann::json> args);

}  // namespace nestor
