// Store: rows of one database file. Stores combines the user's store with the system's.
#pragma once

#include "db/database_options.h"
#include "db/file/connection.h"
#include "db/records/record.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

class Store {
 public:
  /// `trust` says which records are served; both stores of a Database share one.
  Store(const std::string& path, const DatabaseOptions& options, std::shared_ptr<Trust> trust);

  const std::string& path() const { return path_; }
  bool writable() const { return writable_; }
  /// Kernels that were checked by the revision of the code generator for their kind of device, or a later one, are served where their record
  /// is trusted. In SQL: served(checked, kind, signer, seal), which believes the record's claim; read() verifies it.
  std::int64_t revision(std::string_view kind) const { return served_->revisions.of(kind); }
  Trust& trust() { return *served_->trust; }
  /// Trials of the file that come with Nestor, as it is now. Few, and found by an index: look-ups then need not ask of every trial.
  struct Shipped {
    std::string pairs = "[]";                                             ///< JSON list of "problem/device", by number
    std::map<std::pair<std::int64_t, std::int64_t>, std::string> trials;  ///< of problem and device: JSON list of numbers
  };
  const Shipped& shipped();
  Connection& connection() { return connection_; }

  /// Runs `change` in one transaction that excludes other writers.
  template <class Change>
  auto in_transaction(Change&& change) {
    SQLite::Transaction transaction(connection_.raw(), SQLite::TransactionBehavior::IMMEDIATE);
    auto result = change();
    require_in_place();
    transaction.commit();
    return result;
  }

  /// Stores a normalised record with its signature (within a transaction); returns the trial's id. A kernel without its code must be there
  /// already. `instead_of`: the row of that trial becomes this record.
  std::int64_t insert(const Record& record, std::optional<std::int64_t> instead_of = std::nullopt);
  /// The trial equal to this one, if there is one. Its revisions may differ; where it has a kernel also what a check made of its status.
  std::optional<std::int64_t> find(const Record& record);
  /// Of the stored trial and this record of it keeps one: that which is vouched for, which failed a check, which was checked later. True when
  /// that released a kernel. A damaged trial becomes the record.
  bool take_over(std::int64_t trial_id, const Record& record);
  /// Devices, nests, problems and kernels that the record refers to: stored where they are not there, and anew where they are damaged
  /// (within a transaction). The code of a kernel in a pack is not here.
  void mend_shared_rows(const Record& record);
  /// One nest has many texts. Keeps one whatever the order of imports: of those that vouched records came with the smallest, else of all.
  void take_over_nest(const Record& record);
  /// After a change of a trial: seals it anew (within a transaction), signed as `given`, else by the own key.
  void seal_anew(std::int64_t trial_id, const std::optional<Signature>& given = std::nullopt);
  /// Signs a trial with the own key unless somebody trusted vouches for it; true when that was needed.
  bool sign(std::int64_t trial_id);
  void pin(std::int64_t trial_id);
  /// Puts a kernel and what was measured of it in the place of a trial's (within a transaction).
  void replace_measurement(std::int64_t trial_id, const DeviceIdentity& device, const TrialRecord& measured);

  /// nullopt when there is no such trial. Throws UserError when what it says is not what was sealed, or its kernel is damaged (and
  /// `with_kernel`).
  std::optional<Record> read(std::int64_t trial_id, bool with_kernel);
  /// The same of a trial that a query has named. Throws UserError when it is not there, too.
  Record read_listed(std::int64_t trial_id, bool with_kernel);
  /// Ids of all trials of one problem on devices with that key and name, oldest first.
  std::vector<std::int64_t> trials(const DeviceIdentity& device, const ProblemKey& problem);
  /// Ids of ok trials with a kernel, of that problem and devices with that key and name: pinned first, then by time. Those that wait for a
  /// check are left out, or come last.
  std::vector<std::int64_t> winners(const DeviceIdentity& device, const ProblemKey& problem, bool unchecked_too);
  /// The kernel, decompressed, its hash checked. Throws UserError when it is damaged.
  KernelRecord kernel(std::int64_t kernel_id);
  /// The code of kernels with that hash. Throws UserError when there is none, or it is damaged.
  std::string code_of(const std::string& hash);
  /// The row of that kernel (within a transaction); stored when it is not there.
  std::int64_t kernel_id(const KernelRecord& kernel);
  /// The text of a certificate by its digest, "" when it is not here. Throws UserError when it is damaged.
  std::string certificate_text(const std::string& digest);
  /// Removes kernels and certificates that no trial has (within a transaction).
  void remove_unused_code();
  /// Damage that read() does not see: rows that no trial needs, and values of another type than their column's.
  std::vector<std::string> other_damage();

 private:
  /// A trial as its row has it.
  struct Row {
    Record record;  ///< its kernel without code and recipe
    std::optional<std::int64_t> kernel;
    std::string seal;
    std::string damage;  ///< what contradicts itself; "" for nothing
  };
  /// What the SQL function needs; its address stays.
  struct Served {
    CodegenRevisions revisions;
    std::shared_ptr<Trust> trust;
  };
  std::optional<Row> row_of(std::int64_t trial_id);
  /// nullopt for one that is damaged in anything but its kernel's code.
  std::optional<Row> sound_row(std::int64_t trial_id);
  /// Stores its text, where it has one.
  void keep_certificate(const CertificateRecord& certificate);
  void make_served_function();
  /// Throws UserError where the file was removed or replaced since it was opened: nobody would find what is stored now.
  void require_in_place();
  /// Hashes and seals of a file that had none, after its migration.
  void seal_all();
  std::int64_t device_id(const DeviceIdentity& device);
  std::int64_t nest_id(const std::string& digest, const std::string& json);
  bool nest_is_sound(const std::string& digest);
  void store_nest(const std::string& digest, const std::string& json);
  bool kernel_is_sound(std::int64_t kernel_id);
  Sizes sizes_of(std::int64_t problem_id);
  std::int64_t problem_id(const ProblemKey& problem, const std::string& nest_json);

  std::string path_;
  bool writable_;
  std::unique_ptr<Served> served_;
  Connection connection_;
  Shipped shipped_;
  std::pair<std::int64_t, std::int64_t> shipped_of_{-1, -1};  ///< changes by others and by this connection when it was found
};

}  // namespace nestor
