// Checks a stored trial again, from its nest to the bytes of its kernel.
#pragma once

#include "api/report.h"
#include "autotune/target/measure_options.h"
#include "db/database.h"

#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// One thing that was checked.
struct Finding {
  std::string check;  ///< "kernel hash", "oracle", ...
  bool passed = false;
  std::string detail;
};

struct Verification {
  std::vector<Finding> findings;
  Certificate certificate;
  /// Of a stored trial, where its device is here: the kernel that its steps give now, as it was measured, and the device.
  std::optional<TrialRecord> measured = {};
  DeviceIdentity device = {};
  bool passed() const;
};

/// A trial of the database: its nest's digest, the replay of its steps (each proved again), its kernel's hash, the kernel
/// compiled anew and, when a device here can run it, the stored bytes themselves, both against the oracle; without such a device
/// (a GPU's trial on a machine without GPU) it is compiled only. Stored bytes that nobody trusted vouches for are never run. A step that
/// cannot be replayed is a finding; a trial that does not exist is a UserError, as are sizes that do not fit this machine's memory.
/// DeviceError when something outside ends the run.
Verification verify_trial(const Database& database, std::int64_t trial_id, const MeasureOptions& options = {});

/// A schedule from a file: replay, certificate, and one measured run against the oracle.
Verification verify_schedule(const Nest& nest, const Sizes& sizes, const Schedule& schedule, const MeasureOptions& options = {});

}  // namespace nestor
