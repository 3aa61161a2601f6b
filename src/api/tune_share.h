// Tunes the problems of a share one after another, and goes on where it stopped.
#pragma once

#include "api/tuning_plan.h"
#include "autotune/tuner.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

struct ShareRequest {
  std::vector<PlannedProblem> problems;
  /// What each problem gets; its nest, sizes, database and progress are set on the way. `max_trials` counts what is known already.
  TuneRequest& each;
  std::string export_file{};  ///< all trials of these problems as text records, at the end and once a minute; "": none
  /// Called as TuneRequest::progress, with the problem's number from 0.
  std::function<void(std::size_t problem, const TuneProgress& progress)> progress{};
};

struct ShareResult {
  struct Failure {
    ProblemKey problem;
    std::string reason;
  };
  std::size_t finished = 0;         ///< in this run
  std::size_t known = 0;            ///< finished by earlier runs
  std::vector<Failure> failures{};  ///< refused here, or without a correct kernel
  std::int64_t trials = 0;          ///< measured in this run
  bool stopped = false;             ///< by the stop flag
  std::string device_failure{};     ///< why the device ended the run; the problems left were not begun
};

/// A problem that is refused does not end the share; a device that fails does. What was measured is exported in any case. Throws UserError
/// when the database or the export cannot be written.
ShareResult tune_share(const ShareRequest& request);

}  // namespace nestor
