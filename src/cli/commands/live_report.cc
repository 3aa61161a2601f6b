// Refreshes a report between trials.
#include "cli/commands/live_report.h"

#include "autotune/trial/trial_steps.h"
#include "cli/arguments/report_choice.h"
#include "support/error.h"

#include <algorithm>
#include <utility>

namespace nestor::cli {

LiveReport::LiveReport(std::string path, const TuneRequest& request, const DatabaseArgs& place)
    : path_(std::move(path)), place_(place) {
  request_.device = device_identity(request.measure.target, request.measure.threads);
  request_.problem = problem_key(request.nest, complete_sizes(request.nest, request.sizes));
  request_.live = true;
  request_.options = database_option(place);
  write_report(path_, report_page(report_data_before(request_)));
}

void LiveReport::write() { write_report(path_, report_page(report_data(place_.open(true), request_))); }

void LiveReport::refresh() {
  any_ = true;
  const Clock::time_point start = Clock::now();
  if (start < next_) return;
  try {
    write();
  } catch (const UserError&) {
    // The search matters more; finish() tells what is wrong.
  }
  next_ = Clock::now() + std::max<Clock::duration>(std::chrono::seconds(1), 20 * (Clock::now() - start));
}

void LiveReport::finish() {
  if (!any_) return;
  request_.live = false;
  write();
}

}  // namespace nestor::cli
