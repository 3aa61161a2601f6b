// Measurer: how candidates become trials. The search sees only this interface, so that a GPU, another host or a test's
// fake can stand behind it.
#pragma once

#include "autotune/trial/statistics.h"
#include "db/database.h"
#include "poly/schedule/schedule.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

/// One candidate to measure.
struct TrialJob {
  std::vector<Step> steps;
  double best_ms = 0;        ///< fastest median known, in milliseconds; slower candidates are cut early. 0: none yet
  bool must_finish = false;  ///< never cut early: all samples are taken (the starting point, a suspicious winner)
};

/// What came of it. Every failure is a value.
struct TrialOutcome {
  TrialStatus status = TrialStatus::crash;
  std::string reason;                  ///< for every status but ok; a remark on an ok one (registers were spilled)
  std::vector<double> samples_ms;      ///< raw, in measuring order
  double median_ms = 0;                ///< 0 unless ok or slow
  double max_error = 0;                ///< worst of the results, as a fraction of what is allowed; above 1: wrong
  double compile_ms = 0;               ///< replay, tile program and code generation together
  std::string report;                  ///< JSON: what the compiler and the driver said of the kernel; "" when nothing
  std::optional<KernelRecord> kernel;  ///< when the kernel ran and was correct
};

/// Outcome of a job that was handed over under this number.
struct SettledTrial {
  std::int64_t ticket = 0;
  TrialOutcome outcome;
};

/// Measures candidates of one problem on one device. Not thread safe.
class Measurer {
 public:
  virtual ~Measurer() = default;
  /// How many jobs are best under way at once.
  virtual int batch_size() const = 0;
  /// One outcome a job, in order. Never throws because of a candidate; DeviceError when the device itself fails.
  virtual std::vector<TrialOutcome> measure(const std::vector<TrialJob>& jobs) = 0;
  virtual const DeviceIdentity& device() const = 0;
  /// Versions that matter for a measurement, e.g. "nestor 0.1.0 llvm 19.1.7".
  virtual std::string toolchain() const = 0;

  /// True when new jobs are best handed over as soon as others are settled, not in batches.
  virtual bool streaming() const { return false; }
  /// Hands a job over without waiting. Jobs that were handed over are measured when next() is called, at the latest.
  virtual void submit(std::int64_t ticket, const TrialJob& job) { handed_over_.push_back({ticket, job}); }
  /// Waits for the next outcome of a submitted job, in any order. There must be one.
  virtual SettledTrial next();
  /// Gives up submitted jobs that are not being measured yet; next() tells of them with the reason "stopped".
  virtual void abandon() {}

 private:
  std::vector<std::pair<std::int64_t, TrialJob>> handed_over_;
  std::deque<SettledTrial> settled_;
};

}  // namespace nestor
