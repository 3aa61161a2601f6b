// Store: rows of one database file. Database combines the user's store with the system's.
#pragma once

#include "db/connection.h"
#include "db/database.h"
#include "db/record.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

class Store {
 public:
  Store(const std::string& path, const DatabaseOptions& options);

  const std::string& path() const { return path_; }
  bool writable() const { return writable_; }
  Connection& connection() { return connection_; }

  /// Runs `change` in one transaction that excludes other writers.
  template <class Change>
  auto in_transaction(Change&& change) {
    SQLite::Transaction transaction(connection_.raw(), SQLite::TransactionBehavior::IMMEDIATE);
    auto result = change();
    transaction.commit();
    return result;
  }

  /// Stores a normalised record (within a transaction); returns the trial's id.
  std::int64_t insert(const Record& record);
  /// True when an equal trial is stored.
  bool contains(const Record& record);

  /// nullopt when there is no such trial. Throws UserError when its kernel is damaged (and `with_kernel`).
  std::optional<Record> read(std::int64_t trial_id, bool with_kernel);
  /// All trials of one problem on devices with that key, oldest first, without kernels.
  std::vector<TrialRecord> trials(const std::string& device_key, const ProblemKey& problem);
  /// Ids of ok trials with a kernel, of that problem and devices with that key: pinned first, then by time.
  std::vector<std::int64_t> winners(const std::string& device_key, const ProblemKey& problem);
  /// The kernel, decompressed, its hash checked. Throws UserError when it is damaged.
  KernelRecord kernel(std::int64_t kernel_id);

 private:
  std::int64_t device_id(const DeviceIdentity& device);
  std::int64_t nest_id(const std::string& digest, const std::string& json);
  std::int64_t problem_id(const ProblemKey& problem, const std::string& nest_json);
  std::int64_t kernel_id(const KernelRecord& kernel);

  std::string path_;
  bool writable_;
  Connection connection_;
};

}  // namespace nestor
