// Checks a stored trial again, from its nest to the bytes of its kernel.
#pragma once

#include "api/report.h"
#include "autotune/target/measure_options.h"
#include "db/database.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {

/// What is checked, in this order.
enum class Check : std::uint8_t {
  kernel_hash,
  as_measured,
  nest_digest,
  steps,
  dependences,
  tile_program,
  stages,
  blocks,
  certificate,
  compiled_now,
  assembled_now,
  stored_kernel
};
/// As it is printed: "kernel hash", "compiled now, against the oracle", ...
std::string_view to_string(Check check);

/// One thing that was checked.
struct Finding {
  enum class Result : std::uint8_t { passed, failed, not_run };
  Check check = Check::steps;
  Result result = Result::passed;
  std::string detail;
  TrialStatus status = TrialStatus::ok;  ///< that a stored trial gets which failed so; ok unless it failed
  bool failed() const { return result == Result::failed; }
};

/// [{"check", "passed", "detail"}]; what was not run did not fail.
nlohmann::json findings_to_json(const std::vector<Finding>& findings);

struct Verification {
  std::vector<Finding> findings;
  Certificate certificate;
  std::optional<CodeCertificate> stored =
      {};  ///< what was proved when the trial was compiled, where that differs from `certificate`
  /// Of a stored trial, where its device is here: the kernel that its steps give now, as it was measured, and the device.
  std::optional<TrialRecord> measured = {};
  DeviceIdentity device = {};
  bool passed() const;
};

/// A trial of the database: its nest's digest, the replay of its steps (each proved again), its kernel's hash, the kernel
/// compiled anew and, when a device here can run it, the stored bytes themselves, both against the oracle; without such a device
/// (a GPU's trial on a machine without GPU) it is compiled only. What is proved is compared with the certificate that was stored. Stored bytes that nobody trusted vouches for are never run. A step that
/// cannot be replayed is a finding; a trial that does not exist is a UserError, as are sizes that do not fit this machine's memory.
/// DeviceError when something outside ends the run.
Verification verify_trial(const Database& database, std::int64_t trial_id, const MeasureOptions& options = {});

/// The same of its steps alone: they are replayed, proved, compiled and measured. For a trial whose stored kernel is damaged.
Verification verify_steps(const Database& database, std::int64_t trial_id, const MeasureOptions& options = {});

/// A schedule from a file: replay, certificate, and one measured run against the oracle.
Verification verify_schedule(const Nest& nest, const Sizes& sizes, const Schedule& schedule, const MeasureOptions& options = {});

}  // namespace nestor
