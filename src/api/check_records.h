// Checks stored kernels with this program: what lets records of another revision of the code generator serve.
#pragma once

#include "api/verify.h"
#include "db/database.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// What checking one record found.
struct RecordCheck {
  enum class Result : std::uint8_t { passed, failed, not_run, damaged };
  std::int64_t trial = 0;
  Result result = Result::not_run;
  /// Whether the steps give the stored code, byte by byte.
  bool same_code = false;
  TrialStatus status = TrialStatus::ok;  ///< that the record gets; ok unless it failed
  std::string reason;                    ///< why it failed, or could not be run
  std::vector<Finding> findings;         ///< as verify_trial gives them
  /// Where nobody trusted vouches for the stored kernel, which was not run: what its steps gave here instead, as it was measured on `device`.
  std::optional<TrialRecord> measured = {};
  DeviceIdentity device = {};
};

struct CheckRecordsOptions {
  MeasureOptions measure{};  ///< where stored and fresh kernels run
  int jobs = 1;              ///< records that are checked at once, each in a process of its own
  double timeout_s = 300;    ///< of one record
  const std::atomic<bool>* stop = nullptr;
};

/// Verifies each trial (verify_trial): proofs, the code that its steps give now, and the stored bytes, against the definition. Stores what
/// was found in the database at `path`: a kernel that passed is served from now on, one that failed never again; what could not be run
/// keeps waiting. A kernel that nobody trusted vouches for, or whose code is damaged, is replaced by the one that its steps give here. Of a
/// damaged record nothing is stored. `told` is called once a record, in the order in which they are done.
void check_records(const std::string& path, const std::vector<std::int64_t>& trials, const CheckRecordsOptions& options,
                   const std::function<void(const RecordCheck&)>& told);

}  // namespace nestor
