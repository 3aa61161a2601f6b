// Public API: tune an operator on this machine. No isl, LLVM or SQL type appears here.
//
//   const nestor::TuneReport report = nestor::tune(nestor::Nest::load("my_operator.nest.json"), {{"rows", 4096}});
#pragma once

#include "nestor/error.h"
#include "nestor/export.h"
#include "nestor/nest.h"
#include "nestor/types.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace nestor {

struct TuneOptions {
  Sizes sizes = {};                            ///< in elements; missing ones take the nest's defaults
  bool fix_all_sizes = false;                  ///< the kernel serves exactly these sizes (default: other launch-time sizes too)
  std::string searcher = "evolutionary";       ///< "exhaustive", "random" or "evolutionary"
  int max_trials = 200;                        ///< new measurements
  double time_budget_s = 60;                   ///< seconds of wall clock
  std::string target = "host";                 ///< "host", "cuda", "cuda:1", "cuda/sm_80"; "auto": the first GPU, else the host
  int threads = 0;                             ///< host: threads of a kernel; 0: all cores
  std::uint64_t seed = 1;                      ///< same seed, same order of candidates
  std::map<std::string, double> scalars = {};  ///< scalar arguments during measurement; others take their default
  std::string database = {};                   ///< path; "": $NESTOR_DB, else the user's default
  const std::atomic<bool>* stop = nullptr;     ///< set it (also from a signal handler) to end the search early
  /// After each trial: trials so far, fastest median in ms (0: none yet), seconds left.
  std::function<void(int trials, double best_ms, double left_s)> progress = {};
  bool retry_failed = false;  ///< what crashed, took too long or did not compile in earlier runs is tried again, first
};

struct TuneReport {
  double baseline_ms = 0;             ///< milliseconds: original order, parallel where legal; 0: it did not run
  double best_ms = 0;                 ///< milliseconds: fastest correct kernel of this and earlier runs; 0: none
  std::int64_t best_trial = 0;        ///< its id in the database
  std::string best_schedule;          ///< its steps as JSON, for Schedule::from_json
  std::map<std::string, int> counts;  ///< trials of this run by status: "ok", "slow", "wrong", ...
  int trials = 0;
  double elapsed_s = 0;  ///< seconds of wall clock
  int lost = 0;  ///< candidates that something outside ended (a signal, lack of memory): not stored, the next run tries them
};

/// As tune() below, of the operator in the text of a nest file (docs/nest.md).
NESTOR_API TuneReport tune_nest_json(const std::string& nest_json, const TuneOptions& options = {});

}  // namespace nestor

namespace nestor_api {

/// Tunes the operator and stores every trial; it goes on where earlier runs with the same database ended. Forks processes
/// that compile and measure, and for a GPU those alone use it; no other thread should hold locks meanwhile. Throws UserError
/// for unknown sizes or scalars or values out of range, for a target that is no device of this machine, and for a database
/// that cannot be opened; DeviceError when the GPU itself fails or all processes are killed again and
/// again, InternalError for a bug. Sizes that do not fit the memory of this machine or the GPU are a UserError before anything is allocated. `sizes`: in elements; those that
/// it lacks are `options.sizes`, then the nest's defaults. Throws UserError where the two give one size two values.
NESTOR_API nestor::TuneReport tune(const Nest& nest, const nestor::Sizes& sizes = {}, const nestor::TuneOptions& options = {});

}  // namespace nestor_api
