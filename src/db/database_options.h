// How a tuning database is opened.
#pragma once

#include "support/codegen_revision.h"

#include <cstdint>
#include <functional>
#include <string>

namespace nestor {

struct DatabaseOptions {
  bool read_only = false;
  std::string system_path = {};  ///< read-only database consulted after this one; "" for none
  int busy_timeout_ms = 10000;   ///< how long to wait for another process that is writing
  std::int64_t max_bytes = 0;    ///< the file may not grow beyond; 0: no limit but the disk's
  /// Kernels that neither this revision of the code generator nor a later one has checked are not served.
  int revision = kCodegenRevision;
  /// Told of records that are skipped because they are damaged; null: a line on stderr.
  std::function<void(const std::string&)> warn = nullptr;
};

}  // namespace nestor
