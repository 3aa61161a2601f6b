// Kernel report: all that one page shows of a problem, from the database and the nest alone.
#pragma once

#include "db/database.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

namespace nestor {

/// What a report is about.
struct ReportRequest {
  DeviceIdentity device;
  ProblemKey problem;
  std::int64_t trial = 0;    ///< whose schedule is shown; 0: the best one's
  std::int64_t against = 0;  ///< a second trial, to compare with; 0: none
  bool live = false;         ///< a search is under way: trials alone, so that it is quick, and the page reads itself again
  std::string options;       ///< " --db FILE" and the like, for the commands on the page
};

/// The problem that `trial` belongs to. Throws UserError when there is no such trial.
ReportRequest request_for_trial(const Database& database, std::int64_t trial);

/// Everything the page needs, as JSON (docs/report.md lists the parts). What cannot be found out, a schedule that no longer replays for
/// instance, is a note in "notes" and not an error. Throws UserError when the problem has no trials, or `against` is of another problem.
nlohmann::json report_data(const Database& database, const ReportRequest& request);

/// What stands on the page before the first trial of a search.
nlohmann::json report_data_before(const ReportRequest& request);

/// One self-contained HTML file. Texts of the data are escaped: none can become markup or script.
std::string report_page(const nlohmann::json& data);

/// Writes the page beside `path` and renames it, so that a reader never sees half of one. Throws UserError when that fails.
void write_report(const std::string& path, const std::string& page);

}  // namespace nestor
