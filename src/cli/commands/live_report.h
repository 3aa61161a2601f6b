// LiveReport: the report of a search under way, in one file that a browser reads again and again.
#pragma once

#include "api/report/kernel_report.h"
#include "autotune/tuner.h"
#include "cli/arguments/operator_args.h"

#include <chrono>
#include <string>

namespace nestor::cli {

class LiveReport {
 public:
  /// Writes a page without trials, so that what prevents it is known before the search. Throws UserError.
  LiveReport(std::string path, const TuneRequest& request, const DatabaseArgs& place);
  /// Writes the trials so far, at most each second and in a twentieth of the time. A write that fails is tried again later.
  void refresh();
  /// Writes the whole report; nothing when there is no trial. Throws UserError.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void write();

  std::string path_;
  ReportRequest request_;
  DatabaseArgs place_;
  Clock::time_point next_ = Clock::now();
  bool any_ = false;  ///< a trial was stored
};

}  // namespace nestor::cli
