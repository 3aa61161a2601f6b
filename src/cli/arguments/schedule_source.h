// Where a schedule comes from on the command line: a file of steps, a stored trial, or the original order.
#pragma once

#include "cli/arguments/operator_args.h"
#include "poly/schedule/schedule.h"

#include <CLI/CLI.hpp>

#include <string>

namespace nestor::cli {

struct ScheduleArgs {
  std::string file;        ///< --steps: JSON as `explore` and `tune` write it, or one step a line; "-": standard input
  std::int64_t trial = 0;  ///< --trial
  bool best = false;       ///< --best: the fastest trial of the problem on the device below
  Target device{};         ///< of that trial
  int threads = 0;         ///< of that trial, on the host; 0: all cores

  void add_to(CLI::App& command);
  /// Replays onto `nest`, whose specialised sizes `sizes` gives. Throws UserError, also when the steps are for another nest.
  Schedule load(const Nest& nest, const Sizes& sizes, const DatabaseArgs& database) const;
};

/// Replays the steps in `text`: JSON, or one step a line ('#' starts a comment).
Schedule schedule_from_text(const Nest& nest, const Sizes& sizes, const std::string& text, const std::string& where);

}  // namespace nestor::cli
