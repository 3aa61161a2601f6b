// Store: rows of one database file. Stores combines the user's store with the system's.
#pragma once

#include "db/connection.h"
#include "db/database_options.h"
#include "db/records/record.h"

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
  /// Kernels that were checked by this revision of the code generator, or a later one, are served.
  std::int64_t revision() const { return revision_; }
  Connection& connection() { return connection_; }

  /// Runs `change` in one transaction that excludes other writers.
  template <class Change>
  auto in_transaction(Change&& change) {
    SQLite::Transaction transaction(connection_.raw(), SQLite::TransactionBehavior::IMMEDIATE);
    auto result = change();
    transaction.commit();
    return result;
  }

  /// Stores a normalised record (within a transaction); returns the trial's id. A kernel without its code must be there already.
  std::int64_t insert(const Record& record);
  /// The trial equal to this one, if there is one. Its revisions may differ; where it has a kernel also what a check made of its status.
  std::optional<std::int64_t> find(const Record& record);
  /// Raises the stored trial's revisions to the record's where those are later; true when that changed something.
  bool raise_revisions(std::int64_t trial_id, const TrialRecord& trial);

  /// nullopt when there is no such trial. Throws UserError when its kernel is damaged (and `with_kernel`).
  std::optional<Record> read(std::int64_t trial_id, bool with_kernel);
  /// All trials of one problem on devices with that key, oldest first, without kernels.
  std::vector<TrialRecord> trials(const std::string& device_key, const ProblemKey& problem);
  /// Ids of ok trials with a kernel, of that problem and devices with that key: pinned first, then by time. Those that wait for a check are
  /// left out, or come last.
  std::vector<std::int64_t> winners(const std::string& device_key, const ProblemKey& problem, bool unchecked_too);
  /// The kernel, decompressed, its hash checked. Throws UserError when it is damaged.
  KernelRecord kernel(std::int64_t kernel_id);
  /// The code of kernels with that hash. Throws UserError when there is none, or it is damaged.
  std::string code_of(const std::string& hash);
  /// The row of that kernel (within a transaction); stored when it is not there.
  std::int64_t kernel_id(const KernelRecord& kernel);

 private:
  std::int64_t device_id(const DeviceIdentity& device);
  std::int64_t nest_id(const std::string& digest, const std::string& json);
  std::int64_t problem_id(const ProblemKey& problem, const std::string& nest_json);

  std::string path_;
  bool writable_;
  std::int64_t revision_;
  Connection connection_;
};

}  // namespace nestor
