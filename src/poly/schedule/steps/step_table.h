// The table of all steps, for people.
#pragma once

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

}  // namespace nestor
