// What a share has finished: a file beside the database, so that the same command goes on behind it.
#pragma once

#include "db/records/trial_record.h"

#include <map>
#include <string>

namespace nestor {

/// What was asked of each problem. A problem that got as much or more is finished.
struct ShareBudget {
  int trials = 0;
  double time_s = 0;
  bool fix_all_sizes = false;
};

/// DATABASE.done: JSON lines, one a finished problem, device and revision of the code generator. Several processes may add to it at once; a
/// line that a crash cut off counts for nothing.
class ShareJournal {
 public:
  explicit ShareJournal(const std::string& database);
  const std::string& path() const { return path_; }

  bool finished(const ProblemKey& problem, const DeviceIdentity& device, const ShareBudget& budget) const;
  /// Returns when the line is on the disk. Throws UserError when it cannot be written.
  void add(const ProblemKey& problem, const DeviceIdentity& device, const ShareBudget& budget);

 private:
  static std::string key_of(const ProblemKey& problem, const DeviceIdentity& device, bool fix_all_sizes, int revision);
  void read();

  std::string path_;
  std::multimap<std::string, ShareBudget> entries_;  ///< by problem, device, revision and whether all sizes were fixed
};

}  // namespace nestor
