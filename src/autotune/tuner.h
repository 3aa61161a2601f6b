// Tuner: searches schedules of one problem, measures each in a worker process and remembers everything.
#pragma once

#include "autotune/search/searcher_kind.h"
#include "autotune/space/space_limits.h"
#include "autotune/target/measure_options.h"
#include "autotune/trial/measurer.h"
#include "db/database.h"
#include "poly/nest/nest.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace nestor {

/// State of a search, for a progress line.
struct TuneProgress {
  int trials = 0;  ///< measured in this run
  int known = 0;   ///< trials of earlier runs, taken from the database
  int max_trials = 0;
  double best_ms = 0;      ///< 0 while there is none
  double baseline_ms = 0;  ///< the starting point: original order; 0 while unknown
  double elapsed_s = 0;
  double trials_per_s = 0;
  double left_s = 0;                  ///< estimate: until the trial or the time limit, whichever comes first
  const TrialRecord* last = nullptr;  ///< the trial just stored; null while a candidate is compiled or runs
};

struct TuneRequest {
  Nest nest;      ///< as defined, sizes not fixed
  Sizes sizes{};  ///< missing ones take their default
  /// Fix every size in the kernel instead of only the specialised ones: faster at best, but it serves no other size.
  bool fix_all_sizes = false;
  std::set<std::string> fixed_sizes{};  ///< to be fixed beside the specialised ones
  SearcherKind searcher = SearcherKind::evolutionary;
  int max_trials = 200;       ///< new measurements in this run
  double time_budget_s = 60;  ///< wall clock; the trial under way when it runs out is finished
  std::uint64_t seed = 1;     ///< of the search; the same seed gives the same order of candidates
  /// max_trials counts those of earlier runs too: a run that was cut off goes on to the same number.
  bool count_known = false;
  /// Above 0: measures on this device the so many fastest candidates that others of its model found, and nothing else. Runs with several
  /// devices do that at their end, whatever this is.
  int finalists = 0;
  bool retry_failed =
      false;  ///< candidates that crashed, took too long or did not compile in earlier runs are tried again, first
  MeasureOptions measure{};
  std::string database{};  ///< path; "": Database::default_path()
  DatabaseOptions database_options{};
  /// Called after each trial, and four times a second while one is waited for, on the calling thread.
  std::function<void(const TuneProgress&)> progress{};
  const std::atomic<bool>* stop = nullptr;  ///< set from a signal handler: the search ends, the trial under way is killed
  /// Measures instead of the processes of `measure.target` (tests, other devices); null: those.
  std::shared_ptr<Measurer> measurer{};
};

struct TuneResult {
  ProblemKey problem;
  DeviceIdentity device;
  double baseline_ms = 0;             ///< original order, parallel where legal; 0 when it did not run
  std::optional<TrialRecord> best;    ///< with its kernel; of this and all earlier runs
  std::map<TrialStatus, int> counts;  ///< of this run
  int trials = 0;                     ///< measured in this run
  int known = 0;                      ///< already in the database when the run began
  std::string lost_reason;            ///< of the last one that was lost
  int lost = 0;                       ///< ended from outside, again and again: not stored, and tried again by the next run
  double first_correct_s = 0;         ///< wall clock until the first correct kernel was stored; 0: none
  double elapsed_s = 0;
  std::int64_t wrong_trial = 0;  ///< the first one of this run whose result was wrong, beside those that are imprecise; 0: none
  int imprecise = 0;       ///< of those counted as wrong: they round operands to 16 bits, and are off by little more than allowed
  bool stopped = false;    ///< by the stop flag
  bool exhausted = false;  ///< every candidate of the space is measured
  /// Sizes that were fixed so that likely blocks of a GPU fit: what a product is reduced from stays in them.
  std::set<std::string> fixed_sizes;
  std::string space;  ///< the space in words: parameters and number of candidates
};

/// Tunes. Throws UserError for bad sizes, an unusable database, or an oracle that is too expensive; failures of
/// candidates are rows in the database.
TuneResult tune(const TuneRequest& request);

/// What candidates on options.target must fit (space/space_limits.h).
SpaceLimits space_limits(const MeasureOptions& options);
/// The same for a device that trials were measured on; what its identity does not say is as on an H100.
SpaceLimits space_limits(const DeviceIdentity& device);

}  // namespace nestor
