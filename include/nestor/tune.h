// Public API: tune an operator given as nest JSON, on this machine. No isl, LLVM or SQL type appears here.
#pragma once

#include "nestor/error.h"
#include "nestor/export.h"
#include "nestor/types.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace nestor {

struct TuneOptions {
  Sizes sizes;                              ///< missing ones take the nest's defaults
  bool fix_all_sizes = false;               ///< the kernel serves exactly these sizes (default: other launch-time sizes too)
  std::string searcher = "evolutionary";    ///< "exhaustive", "random" or "evolutionary"
  int max_trials = 200;                     ///< new measurements
  double time_budget_s = 60;                ///< seconds of wall clock
  std::string target = "host";              ///< "host", "cuda", "cuda:1"; "auto": the first GPU, else the host
  int threads = 0;                          ///< host: threads of a kernel; 0: all cores
  std::uint64_t seed = 1;                   ///< same seed, same order of candidates
  std::map<std::string, double> scalars;    ///< scalar arguments during measurement; others take their default
  std::string database;                     ///< path; "": $NESTOR_DB, else the user's default
  const std::atomic<bool>* stop = nullptr;  ///< set it (also from a signal handler) to end the search early
  /// After each trial: trials so far, fastest median in ms (0: none yet), seconds left.
  std::function<void(int trials, double best_ms, double left_s)> progress;
};

struct TuneReport {
  double baseline_ms = 0;             ///< original order, parallel where legal
  double best_ms = 0;                 ///< fastest correct kernel of this and earlier runs; 0: none
  std::int64_t best_trial = 0;        ///< its id in the database
  std::string best_schedule;          ///< its steps as JSON
  std::map<std::string, int> counts;  ///< trials of this run by status: "ok", "slow", "wrong", ...
  int trials = 0;
  double elapsed_s = 0;
};

/// Tunes the operator in `nest_json` (see docs/nest.md for the format; `load` it from a .nest.json file) and stores every trial.
/// Forks processes that compile and measure, and for a GPU those alone use it; no other thread should hold locks meanwhile.
/// Throws UserError for bad input, DeviceError when the GPU itself fails, InternalError for a bug.
NESTOR_API TuneReport tune_nest_json(const std::string& nest_json, const TuneOptions& options = {});

}  // namespace nestor
