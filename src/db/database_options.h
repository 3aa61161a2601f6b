// How a tuning database is opened.
#pragma once

#include "support/codegen_revision.h"

#include <cstdint>
#include <functional>
#include <string>

namespace nestor {

/// In place of a path: a database of this object alone, which ends with it.
inline constexpr const char* kInMemory = ":memory:";

struct DatabaseOptions {
  bool read_only = false;
  std::string system_path = {};  ///< read-only database consulted after this one; "" for none
  int busy_timeout_ms = 10000;   ///< how long to wait for another process that is writing
  int patience_s = 600;  ///< how long add_trial() goes on trying while another process holds the file; it warns when it begins to
  std::int64_t max_bytes = 0;  ///< the file may not grow beyond; 0: no limit but the disk's
  /// Kernels that neither the revision of the code generator for their kind of device nor a later one has checked are not served.
  CodegenRevisions revisions = kCodegenRevisions;
  /// Records that nobody vouches for may be served, too; $NESTOR_ALLOW_UNSIGNED=1 does the same.
  bool allow_unsigned = false;
  std::string key_folder = {};  ///< of the user's signing key and trusted keys; "": key_folder()
  /// Told of records that are skipped because they are damaged; null: a line on stderr.
  std::function<void(const std::string&)> warn = nullptr;
};

}  // namespace nestor
