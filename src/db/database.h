// The tuning database: every measurement, and the kernels worth keeping. The only place with SQL.
#pragma once

#include "db/database_options.h"
#include "db/records/trial_record.h"
#include "nestor/match.h"
#include "nestor/types.h"

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

struct Stores;

/// Tries whether a kernel loads; throws UserError when it does not.
using TryKernel = std::function<void(const TrialRecord&)>;

struct Match {
  MatchKind kind = MatchKind::none;
  double distance = 0;  ///< sum over sizes of |log2(asked / measured)|
  ProblemKey problem;   ///< the problem that was measured
  DeviceIdentity device;
  TrialRecord trial;                          ///< with its kernel
  std::vector<std::string> passed_over = {};  ///< why kernels that would have come before are not the answer
};

/// One database file (WAL). Throws UserError for a file that is newer than this program, read-only, corrupted, not a
/// database, on a full disk, or on a network file system. Safe for several processes at once; one object a thread.
class Database {
 public:
  /// Opens or creates; migrates older schema versions.
  static Database open(const std::string& path, const DatabaseOptions& options = {});
  /// $NESTOR_DB, else $XDG_DATA_HOME/nestor/tuning.db, else ~/.local/share/nestor/tuning.db.
  /// Throws UserError where none of them is set.
  static std::string default_path();
  static std::string default_path_if_any();  ///< "" there
  /// $NESTOR_SYSTEM_DB, else /usr/local/share/nestor/tuning.db or /usr/share/nestor/tuning.db if there, else "".
  static std::string default_system_path();
  ~Database();
  Database(Database&&) noexcept;
  Database& operator=(Database&&) noexcept;

  /// Stores one trial in one transaction; returns its id. JSON texts are stored in canonical form.
  std::int64_t add_trial(const DeviceIdentity& device, const ProblemKey& problem, const std::string& nest_json,
                         const TrialRecord& trial);
  /// All trials of one problem on devices of this model (key and name), oldest first, without kernels; those of the system database
  /// included.
  std::vector<TrialRecord> trials(const DeviceIdentity& device, const ProblemKey& problem) const;
  /// Throws UserError for a damaged one; without its kernel also where that alone is damaged.
  std::optional<TrialRecord> trial(std::int64_t id, bool with_kernel = true) const;
  /// Device, problem and nest JSON of a trial.
  struct Origin {
    DeviceIdentity device;
    ProblemKey problem;
    std::string nest_json;
  };
  std::optional<Origin> origin(std::int64_t trial_id) const;
  enum class Kernels : std::uint8_t { served, unchecked_too };
  /// Fastest ok trial with a kernel, of that problem and device; a pinned one first. Where this very device has none, the fastest of its
  /// model: times of two devices are not compared with each other. unchecked_too: when none is served one that
  /// waits for a check, whose steps may be searched from, or measured, but whose code must not be launched unchecked.
  std::optional<TrialRecord> best(const DeviceIdentity& device, const ProblemKey& problem,
                                  Kernels kernels = Kernels::served) const;

  /// The kernel to use: exact sizes, else the nearest measured size among kernels valid for the asked sizes, else none.
  /// `op` and `variant` must match, unless both are empty; `nest_digest` restricts to one definition when not empty. Records of other devices
  /// answer (without promise of speed) only when the kernel's architecture can run on `device`. At equal distance a pinned
  /// trial comes before a faster one, and the user's database before the system's.
  /// Exact is what was measured on this very device, by its whole identity but the driver's version. `loads`: kernels that it refuses are
  /// passed over, and `passed_over` of the match says why.
  Match query(const DeviceIdentity& device, const std::string& op, const std::string& variant, const std::string& nest_digest,
              const Sizes& sizes, const TryKernel& loads = nullptr) const;

  /// Signs every sound record of this file with the own key: the caller vouches for all of them. Returns how many were not trusted before.
  std::int64_t sign_all();
  /// The public key that signs what this process stores; "" when there is none.
  std::string own_key() const;
  /// Whether records that nobody vouches for may be served from now on.
  void allow_unsigned(bool allowed);

  /// Ok trials with kernels that wait for a check by this revision, or that nobody trusted vouches for (all: every ok trial with a kernel), by operator, variant, sizes and
  /// device. Of this file alone.
  std::vector<std::int64_t> to_check(bool all = false) const;
  /// How many kernels of that operator and variant wait for such a check; those of the system database included. "" for any.
  std::int64_t waiting(const std::string& op, const std::string& variant, const std::string& nest_digest = "") const;
  /// How many of their ok trials are damaged: each is read, with its kernel.
  std::int64_t damaged(const std::string& op, const std::string& variant, const std::string& nest_digest = "") const;
  /// Stores what checking an ok trial's kernel with this program found. `found.status` ok: it serves from now on, and is a trial of this
  /// revision when `same_code` (its steps still give the stored code). Any other: it has that status and reason, and never serves.
  /// The record is signed by the own key. Throws UserError when it is damaged, when there is no such trial, it was not ok, or is in the system database.
  struct CheckResult {
    TrialStatus status = TrialStatus::ok;
    std::string reason = {};
    bool same_code = false;
    /// What was compiled and measured here in place of a kernel that nobody trusted vouches for: it takes that kernel's place.
    std::optional<TrialRecord> measured = {};
    DeviceIdentity device = {};  ///< that measured it
  };
  void store_check(std::int64_t trial_id, const CheckResult& found);

  /// Ids of trials with that status, oldest first; those of the system database (negative) after them.
  std::vector<std::int64_t> with_status(TrialStatus status) const;

  /// The only pinned one of its problem and device then. Throws UserError when there is no such trial, or it has no kernel that is served, or
  /// it is in the system database.
  void pin(std::int64_t trial_id, bool pinned);
  /// Of each problem on each device keeps the pinned trials and the fastest `keep` ok ones, those that are served before those that wait
  /// for a check; removes all other trials, and kernels and problems that nothing refers to any more. Returns the number of trials removed.
  std::int64_t prune(int keep);

  struct ProblemSummary {
    ProblemKey problem;
    DeviceIdentity device;
    std::int64_t trials = 0;
    std::int64_t ok = 0;       ///< served
    std::int64_t waiting = 0;  ///< ok with a kernel, but not checked by this revision
    double best_ms = 0;        ///< of those served; 0: none
  };
  /// Of this file alone, by operator, variant, sizes and device.
  std::vector<ProblemSummary> summary() const;

  /// Devices that measured, by key; those of the system database included.
  std::vector<DeviceIdentity> devices() const;

  /// all; winners: the trial that best() returns for each problem and each device by its whole identity; winners_in_registers: among the trials, if there are such,
  /// whose kernels keep nothing in local memory, where spilled registers go.
  enum class Exported : std::uint8_t { all, winners, winners_in_registers };
  /// JSON lines, one trial a line with all it refers to, in an order that depends on contents alone. This file alone, without the system
  /// database.
  void export_records(std::ostream& out, Exported which = Exported::all) const;
  /// The same into a file. CodePlace::pack: each nest is a line of its own, once, and the kernels' code is in the pack beside `path`
  /// (pack_path), which is left alone when no trial has a kernel. Pipes and devices get lines that stand alone. What was there before stays
  /// until all is written. Throws UserError when a file cannot be written.
  void export_file(const std::string& path, Exported which = Exported::all, CodePlace code = CodePlace::pack) const;
  /// All trials of these problems, with a pack.
  void export_problems(const std::string& path, const std::vector<ProblemKey>& problems) const;
  struct Imported {
    std::int64_t added = 0;
    std::int64_t checked = 0;  ///< trials that were there already, and that the lines say a later revision has checked
  };
  /// Validates every line before the first is stored; throws UserError with the line number. Of a trial that is there already only the
  /// later revisions are taken over.
  Imported import_records(std::istream& in);
  /// The same from a file with a pack beside it where its lines need one. Throws UserError that names the file and the line also when the
  /// pack is missing or damaged, has no code for a record, or other code than its hash says.
  Imported import_file(const std::string& path);
  /// Joins the records of an export, or of a database file, into this one. Of records that are there already the one is kept that is vouched
  /// for, then the one that failed a check, then the one that was checked later: the contents do not depend on the order of merges, nor on
  /// how often a file is merged.
  Imported merge_file(const std::string& path);
  /// A copy of the whole file as one transaction sees it, complete or not there at all. Throws UserError when it cannot be written, or is
  /// the database itself.
  void backup(const std::string& path) const;
  /// Integrity check of the file, of every kernel hash, seal and signature; findings, empty when sound.
  std::vector<std::string> check() const;

 private:
  explicit Database(std::unique_ptr<Stores> stores);
  std::unique_ptr<Stores> stores_;
};

}  // namespace nestor
