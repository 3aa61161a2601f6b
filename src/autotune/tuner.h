// Tuner: searches schedules of one problem, measures each in a worker process and remembers everything.
#pragma once

#include "autotune/target.h"
#include "autotune/trial/measurer.h"
#include "db/database.h"
#include "poly/nest/nest.h"
#include "poly/schedule/schedule.h"

#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {

enum class SearcherKind : std::uint8_t { exhaustive, random, evolutionary };
std::string_view to_string(SearcherKind kind);
std::optional<SearcherKind> searcher_kind_from(std::string_view name);

/// How one candidate is compiled and measured; shared by `tune` and `measure_schedule`.
struct MeasureOptions {
  Target target{};                ///< where candidates run
  int threads = 0;                ///< host: threads of a kernel; 0: all cores
  double compile_timeout_s = 30;  ///< limit of replay and compilation of one candidate
  double run_timeout_s = 0;       ///< limit of checking and timing one; 0: 30 on the host, 4 on a GPU
  /// Bytes that a host's workers together, or each compiling process for a GPU, may allocate beyond the arguments.
  std::int64_t memory_limit = std::int64_t{3} << 29;
  int repetitions = 9;                                 ///< host: timed runs of a candidate that is not cut early
  std::int64_t flush_bytes = std::int64_t{256} << 20;  ///< GPU: written before each run, to empty the caches
  std::int64_t oracle_samples = 256;                   ///< output elements compared when comparing all is too expensive
  std::uint64_t data_seed = 1;                         ///< of the random inputs
  std::map<std::string, double> scalars;               ///< values of scalar arguments; others take their default
};

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
  const TrialRecord* last = nullptr;  ///< the trial just stored
};

struct TuneRequest {
  Nest nest;      ///< as defined, sizes not fixed
  Sizes sizes{};  ///< missing ones take their default
  /// Fix every size in the kernel instead of only the specialised ones: faster at best, but it serves no other size.
  bool fix_all_sizes = false;
  SearcherKind searcher = SearcherKind::evolutionary;
  int max_trials = 200;       ///< new measurements in this run
  double time_budget_s = 60;  ///< wall clock; the trial under way when it runs out is finished
  std::uint64_t seed = 1;     ///< of the search; the same seed gives the same order of candidates
  MeasureOptions measure{};
  std::string database{};  ///< path; "": Database::default_path()
  DatabaseOptions database_options{};
  std::function<void(const TuneProgress&)> progress{};  ///< called after each trial, on the calling thread
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
  double first_correct_s = 0;         ///< wall clock until the first correct kernel was stored; 0: none
  double elapsed_s = 0;
  std::int64_t wrong_trial = 0;  ///< the first one of this run whose result was wrong; 0: none
  bool stopped = false;          ///< by the stop flag
  bool exhausted = false;        ///< every candidate of the space is measured
  std::string space;             ///< the space in words: parameters and number of candidates
};

/// Tunes. Throws UserError for bad sizes, an unusable database, or an oracle that is too expensive; failures of
/// candidates are rows in the database.
TuneResult tune(const TuneRequest& request);

/// Compiles, checks and times one schedule in a worker process. `schedule.original_nest()` must be
/// `nest_for_tuning(nest, sizes, ...)`. Stores nothing.
TrialRecord measure_schedule(const Schedule& schedule, const Nest& nest, const Sizes& sizes, const MeasureOptions& options = {});
/// The same for several, one after another, with inputs and processes made once.
std::vector<TrialRecord> measure_schedules(const std::vector<Schedule>& schedules, const Nest& nest, const Sizes& sizes,
                                           const MeasureOptions& options = {});

/// What candidates on options.target must fit (space/nest_space.h).
struct SpaceLimits;
SpaceLimits space_limits(const MeasureOptions& options);

/// This machine with that many threads (0: all cores).
DeviceIdentity device_identity_host(int threads = 0);

/// Problem under which trials of `nest` at `sizes` are stored.
ProblemKey problem_key(const Nest& nest, const Sizes& sizes);

/// The nest whose schedules are searched and compiled: specialised sizes fixed, or all of them.
Nest nest_for_tuning(const Nest& nest, const Sizes& sizes, bool fix_all_sizes = false);

/// TrialRecord::steps: {"nest": digest of the nest as defined, "fixed": sizes fixed before the first step,
/// "steps": [...], "parameters": {...}} ("parameters": the candidate's coordinates in its space, absent for schedules made by hand).
nlohmann::json trial_steps_json(const Nest& nest, const Sizes& fixed, const std::vector<Step>& steps,
                                const std::map<std::string, std::int64_t>& parameters = {});

/// Replays TrialRecord::steps (or a file of schedule_to_json, its nest fixed or not) onto the nest as defined. `sizes`
/// gives the specialised sizes when the JSON does not say which were fixed. Throws UserError when the file is for another
/// nest, or a step fails.
Schedule replay_trial_steps(const Nest& nest, const Sizes& sizes, const nlohmann::json& json);

}  // namespace nestor
