// Trial: a candidate to measure, and what came of it.
#pragma once

#include "db/database.h"
#include "poly/schedule/schedule.h"
#include "support/error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {

/// One candidate to measure.
struct TrialJob {
  std::vector<Step> steps;
  double best_ms = 0;        ///< fastest median known, in milliseconds; slower candidates are cut early. 0: none yet
  bool must_finish = false;  ///< never cut early: all samples are taken (the starting point, a suspicious winner)
  int device = -1;           ///< number of the device that measures it, from 0; -1: whichever is free
};

/// Of the best time: what takes as long in its first run, which is cold in every way, or by a guess from below, has lost.
inline constexpr double kHopeless = 5;

/// What came of it. Every failure is a value.
struct TrialOutcome {
  TrialStatus status = TrialStatus::crash;
  std::string reason;                  ///< for every status but ok; a remark on an ok one (registers were spilled)
  std::vector<double> samples_ms;      ///< raw, in measuring order
  double median_ms = 0;                ///< 0 unless ok or slow
  double max_error = 0;                ///< worst of the results, as a fraction of what is allowed; above 1: wrong
  bool lost_infinity = false;          ///< wrong for nothing but NaN in place of infinities
  double compile_ms = 0;               ///< replay, tile program and code generation together
  std::string report;                  ///< JSON: what the compiler and the driver said of the kernel; "" when nothing
  std::optional<KernelRecord> kernel;  ///< when the kernel ran and was correct
  std::string certificate;             ///< JSON: what was proved of `kernel` when it was compiled; "" without one
  int device = 0;                      ///< number of the device that measured it, from 0
  bool stopped = false;                ///< only the stop flag, or giving up, ended it; such outcomes are not stored
  /// What ended it was not the candidate: a signal from outside, or too little memory here. Says nothing about it, and is not stored by tune.
  bool outside = false;
};

/// Outcome of a job that was handed over under this number.
struct SettledTrial {
  std::int64_t ticket = 0;
  TrialOutcome outcome;
};

/// A trial that ended here.
TrialOutcome failed_outcome(TrialStatus status, std::string reason, double compile_ms = 0);

/// A trial that a stop flag cut short: status crash.
TrialOutcome stopped_outcome();

/// A trial that something other than the candidate ended: status crash, and a reason that ended_from_outside() knows again.
TrialOutcome outside_outcome(const std::string& reason);

/// Whether that is the reason of such a trial, or of one that an older program stored when its worker was killed from outside.
bool ended_from_outside(TrialStatus status, std::string_view reason);

/// As it is stored. Only kernels that may be served are worth their bytes.
TrialRecord to_record(const TrialOutcome& outcome, std::string steps, std::string toolchain);

/// Why a candidate that a check of Nestor's own stopped, a refuted plan for instance, counts as wrong.
std::string internal_reason(const InternalError& error);

/// The outcome of what the exception in flight means for a trial. Call in a catch block.
TrialOutcome outcome_of_exception();

/// Runs `work`; whatever it throws becomes an outcome.
template <class F>
TrialOutcome guarded_outcome(F&& work) {
  try {
    return work();
  } catch (...) {
    return outcome_of_exception();
  }
}

}  // namespace nestor
