// GroupSteps: the loop steps that give a fusion group of statements its shared, tiled, parallel loops.
#pragma once

#include "autotune/space/structure/nest_structure.h"
#include "poly/schedule/schedule.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

struct GroupPlan {
  std::vector<int> order;            ///< common axes that become outer loops, outermost first
  std::map<int, std::int64_t> tile;  ///< by axis: tile size; 1: the loop itself is outside
  int reduction_axis = -1;           ///< axis of a reduction whose tiles the loop groups share inside the outer loops
  std::int64_t reduction_tile = 1;
  bool sums_outside = false;  ///< loops of other reduced dims stand around the one over these tiles, not in them
  bool sums_apart = false;    ///< no loop groups share the reduction loop, as their loops around it differ
  std::vector<int>
      reduction_groups;  ///< by loop group of the fusion group: loop groups of one number share the reduction loop; -1: none
  GroupForm form;
  int parallel = 0;  ///< how many of the parallel outer loops run in parallel, outermost first
};

struct GroupSteps {
  std::vector<Step> steps;
  std::map<int, std::string> outer;                       ///< axis -> its shared outer loop after all steps
  std::vector<std::string> reduction_loops;               ///< one a reduction group
  std::map<std::string, std::vector<std::string>> inner;  ///< first statement of a loop group -> its own loops, outermost first
};

/// Splits, reorders, fuses and marks. Legality is for the schedule to judge.
GroupSteps group_steps(const NestStructure& structure, const FusionGroup& group, const GroupPlan& plan);

/// All non-stream steps with every common loop outside as it is: the plan that legality is probed with.
GroupPlan probe_plan(const FusionGroup& group);

Step make_step(std::string name, std::vector<nlohmann::json> args);

}  // namespace nestor
