// What each way of failing is called.
#include "autotune/trial/trial.h"

#include "support/system/available_memory.h"

#include <algorithm>
#include <array>
#include <new>

namespace nestor {

TrialOutcome failed_outcome(TrialStatus status, std::string reason, double compile_ms) {
  TrialOutcome outcome;
  outcome.status = status;
  outcome.reason = std::move(reason);
  outcome.compile_ms = compile_ms;
  return outcome;
}

TrialOutcome stopped_outcome() {
  TrialOutcome outcome = failed_outcome(TrialStatus::crash, "stopped");
  outcome.stopped = true;
  return outcome;
}

namespace {
constexpr std::string_view kOutside = "ended from outside: ";
}

TrialOutcome outside_outcome(const std::string& reason) {
  TrialOutcome outcome = failed_outcome(TrialStatus::crash, std::string(kOutside) + reason);
  outcome.outside = true;
  return outcome;
}

bool ended_from_outside(TrialStatus status, std::string_view reason) {
  if (status != TrialStatus::crash) return false;
  // No kernel sends itself these; an older program stored them as crashes.
  constexpr std::array<std::string_view, 5> kKilled{"worker killed by signal 1 ", "worker killed by signal 2 ",
                                                    "worker killed by signal 3 ", "worker killed by signal 9 ",
                                                    "worker killed by signal 15 "};
  return reason.starts_with(kOutside) ||
         std::any_of(kKilled.begin(), kKilled.end(), [&](std::string_view text) { return reason.starts_with(text); });
}

TrialRecord to_record(const TrialOutcome& outcome, std::string steps, std::string toolchain) {
  TrialRecord record;
  record.steps = std::move(steps);
  record.status = outcome.status;
  record.reason = outcome.reason;
  record.samples_ms = outcome.samples_ms;
  record.median_ms = outcome.median_ms;
  record.max_error = outcome.max_error;
  record.toolchain = std::move(toolchain);
  record.report = outcome.report;
  if (outcome.status != TrialStatus::ok) record.checked = 0;
  if (outcome.status == TrialStatus::ok) {
    record.kernel = outcome.kernel;
    record.certificate.text = outcome.certificate;
  }
  return record;
}

std::string internal_reason(const InternalError& error) { return fmt::format("internal error: {}", error.what()); }

TrialOutcome outcome_of_exception() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return failed_outcome(TrialStatus::crash, "out of memory");
  } catch (const LackOfResources& error) {
    return outside_outcome(error.what());
  } catch (const UserError& error) {
    return failed_outcome(TrialStatus::illegal, error.what());
  } catch (const DeviceError& error) {
    return failed_outcome(TrialStatus::crash, error.what());
  } catch (const InternalError& error) {
    return failed_outcome(TrialStatus::wrong, internal_reason(error));
  } catch (const std::exception& error) {
    return failed_outcome(TrialStatus::compile_error, error.what());
  }
}

}  // namespace nestor
