// Measurer: how candidates become trials. The search sees only this interface, so that a GPU, another host or a test's
// fake can stand behind it.
#pragma once

#include "db/database.h"
#include "poly/schedule.h"

#include <cstdint>
#include <optional>
#include <string>
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
  std::string reason;                  ///< for every status but ok
  std::vector<double> samples_ms;      ///< raw, in measuring order
  double median_ms = 0;                ///< 0 unless ok or slow
  double max_error = 0;                ///< worst |result - reference| / (1 + |reference|)
  double compile_ms = 0;               ///< replay, tile program and code generation together
  std::optional<KernelRecord> kernel;  ///< when the kernel ran and was correct
};

/// Measures candidates of one problem on one device. Not thread safe.
class Measurer {
 public:
  virtual ~Measurer() = default;
  /// How many jobs are best handed over at once (compiled together, then measured one at a time).
  virtual int batch_size() const = 0;
  /// One outcome a job, in order. Never throws because of a candidate.
  virtual std::vector<TrialOutcome> measure(const std::vector<TrialJob>& jobs) = 0;
  virtual const DeviceIdentity& device() const = 0;
  /// Versions that matter for a measurement, e.g. "nestor 0.1.0 llvm 19.1.7".
  virtual std::string toolchain() const = 0;
};

/// Median; the mean of the middle two of an even number. 0 when empty.
double median(std::vector<double> samples);

}  // namespace nestor
