// What each way of failing is called.
#include "autotune/trial/trial.h"

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
  if (outcome.status == TrialStatus::ok) record.kernel = outcome.kernel;
  return record;
}

std::string internal_reason(const InternalError& error) { return fmt::format("internal error: {}", error.what()); }

TrialOutcome outcome_of_exception() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return failed_outcome(TrialStatus::crash, "out of memory");
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
