// The table of all steps, for people, and steps for values of knobs.
#pragma once

#include "poly/schedule/order/step.h"
#include "support/knobs.h"

#include <string>
#include <vector>

namespace nestor {

/// Name, argument list and one-line help of every step, for `explore` and error messages.
struct StepHelp {
  std::string name;
  std::string arguments;
  std::string help;
};
const std::vector<StepHelp>& step_help();

/// Steps that give the loop these values, in the order of the table of knobs.
std::vector<Step> steps_that_set(const std::string& loop, const LoopKnobs& knobs);

}  // namespace nestor
