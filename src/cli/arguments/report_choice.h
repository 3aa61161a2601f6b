// Which problem a report is about: that of a trial, or the one among those in the database that the arguments leave.
#pragma once

#include "api/report/kernel_report.h"
#include "cli/arguments/operator_args.h"

#include <cstdint>
#include <string>

namespace nestor::cli {

struct ReportChoice {
  OperatorArgs problem;    ///< operator, variant and sizes; what is not given is left open
  std::string device;      ///< key, name, architecture or a part of the name; "": this machine's if it has trials, else any
  std::int64_t trial = 0;  ///< 0: the best
  std::int64_t against = 0;

  /// Of the problems that fit, one with a device of this machine comes first, then the one with the most trials. Throws UserError that
  /// says which problems there are, or what to run.
  ReportRequest request(const Database& database, const DatabaseArgs& place) const;
};

/// " --db FILE" for commands on the page; "" for the default database.
std::string database_option(const DatabaseArgs& place);

}  // namespace nestor::cli
