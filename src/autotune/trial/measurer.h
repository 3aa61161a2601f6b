// Measurer: how candidates become trials. The search sees only this interface, so that a GPU, another host or a test's
// fake can stand behind it.
#pragma once

#include "autotune/trial/trial.h"
#include "db/database.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

/// Measures candidates of one problem on a device, or on several equal ones. Not thread safe.
class Measurer {
 public:
  virtual ~Measurer() = default;
  /// How many jobs are best under way at once.
  virtual int batch_size() const = 0;
  /// One outcome a job, in order. Never throws because of a candidate; DeviceError when the device itself fails.
  virtual std::vector<TrialOutcome> measure(const std::vector<TrialJob>& jobs) = 0;
  virtual const DeviceIdentity& device() const = 0;
  /// All that measure, by their numbers; device() is the first.
  virtual std::vector<DeviceIdentity> devices() const { return {device()}; }
  /// Versions that matter for a measurement, e.g. "nestor 0.1.0 llvm 19.1.7".
  virtual std::string toolchain() const = 0;

  /// True when new jobs are best handed over as soon as others are settled, not in batches.
  virtual bool streaming() const { return false; }
  /// Hands a job over without waiting. Jobs that were handed over are measured when next() is called, at the latest.
  virtual void submit(std::int64_t ticket, const TrialJob& job) { handed_over_.push_back({ticket, job}); }
  /// Waits for the next outcome of a submitted job, in any order. There must be one.
  virtual SettledTrial next();
  /// Lets what was handed over go on, without waiting for it. Would next() return at once? Asked of streaming ones alone.
  virtual bool has_settled() { return !settled_.empty(); }
  /// Has `told` called every now and then (up to 20 times a second) while next() or measure() wait. What measures at once has no need.
  virtual void while_waiting(std::function<void()> told) { static_cast<void>(told); }
  /// Gives up submitted jobs that are not being measured yet; next() tells of them as stopped.
  virtual void abandon() {}

 private:
  std::vector<std::pair<std::int64_t, TrialJob>> handed_over_;
  std::deque<SettledTrial> settled_;
};

}  // namespace nestor
