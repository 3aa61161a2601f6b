// Step ideas: steps of every kind that may be worth a try on a schedule.
#pragma once

#include "nestor/types.h"
#include "poly/schedule/schedule.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

struct IdeaSettings {
  Sizes sizes;       ///< complete
  int sm = 0;        ///< compute capability times ten of the GPU that the schedule is for; 0: it is for a CPU
  std::string only;  ///< steps of this name alone, also those that are for another kind of device; "": all that make sense
};

/// Applications of the steps in the table of steps, with one or two usual values of their factors, likely ones first. Whether they are
/// legal is for Schedule::apply to say.
std::vector<Step> step_ideas(const Schedule& schedule, const IdeaSettings& settings);

/// How many values each loop has at the sizes, by its name; 0 where nothing runs, or counting takes too long.
std::map<std::string, std::int64_t> loop_lengths(const Schedule& schedule, const Sizes& sizes);

}  // namespace nestor
