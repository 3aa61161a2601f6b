// Losers become slow, wrong winners wrong.
#include "autotune/check/winners.h"

#include "support/error.h"
#include "support/system/json_text.h"

#include <algorithm>

namespace nestor {
namespace {

constexpr double kNoise = 1.02;

}  // namespace

void note_loser(const TrialJob& job, TrialOutcome& outcome) {
  const bool loses =
      outcome.status == TrialStatus::ok && !job.must_finish && job.best_ms > 0 && outcome.median_ms > kNoise * job.best_ms;
  if (!loses) return;
  outcome.status = TrialStatus::slow;
  outcome.reason = fmt::format("{:.4g} ms, best is {:.4g} ms; not compared in full", outcome.median_ms, job.best_ms);
}

void note_check(const CheckReport& check, double seconds, TrialOutcome& outcome) {
  outcome.max_error = std::max(outcome.max_error, check.worst_error);
  nlohmann::json report = outcome.report.empty() ? nlohmann::json::object() : json_or_discarded(outcome.report);
  if (!report.is_object()) report = nlohmann::json::object();
  report["check"] = check.str() + (check.note.empty() ? "" : "; " + check.note);
  report["check_s"] = seconds;
  outcome.report = report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (check.wrong.empty()) return;
  outcome.status = TrialStatus::wrong;
  outcome.reason = check.wrong;
  outcome.lost_infinity = check.lost_infinity;
}

}  // namespace nestor
