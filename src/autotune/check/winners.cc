// Losers become slow, wrong winners wrong.
#include "autotune/check/winners.h"

#include "support/error.h"
#include "support/system/json_text.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace nestor {
namespace {

constexpr double kNoise = 1.02;

/// Takes what a check in full found into the outcome: `wrong` with the reason, or its worst error. `note`: what it cannot tell.
void note_check(const CheckReport& check, const std::string& note, double seconds, TrialOutcome& outcome) {
  outcome.max_error = std::max(outcome.max_error, check.worst_error);
  nlohmann::json report = outcome.report.empty() ? nlohmann::json::object() : json_or_discarded(outcome.report);
  if (!report.is_object()) report = nlohmann::json::object();
  report["check"] = check.str() + (note.empty() ? "" : "; " + note);
  report["check_s"] = seconds;
  outcome.report = report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (check.wrong.empty()) return;
  outcome.status = TrialStatus::wrong;
  outcome.reason = check.wrong;
  outcome.lost_infinity = check.lost_infinity;
}

/// What the comparison with `samples` at the tuned sizes cannot tell; "": nothing.
std::string note_on_comparison(const AffordableSamples& samples, const CheckReport& check, const Nest& definition) {
  if (samples.left_out.empty()) return comparison_note(samples.samples, check.compared, definition);
  return fmt::format("nothing of {} was compared at the tuned sizes, where one element takes too long to evaluate",
                     fmt::join(samples.left_out, ", "));
}

}  // namespace

void note_loser(const TrialJob& job, TrialOutcome& outcome) {
  const bool loses =
      outcome.status == TrialStatus::ok && !job.must_finish && job.best_ms > 0 && outcome.median_ms > kNoise * job.best_ms;
  if (!loses) return;
  outcome.status = TrialStatus::slow;
  outcome.reason = fmt::format("{:.4g} ms, best is {:.4g} ms; not compared in full", outcome.median_ms, job.best_ms);
}

void refuse_unchecked(const CheckReport& check, const AffordableSamples& samples, const Nest& definition, TrialOutcome& outcome) {
  if (outcome.status != TrialStatus::ok) return;
  Comparison all = compared_outputs(samples.samples, definition);
  add(all, check.compared);
  const auto is_left_out = [&](const std::string& output) { return !all.contains(output); };
  std::string why;
  if (std::any_of(samples.left_out.begin(), samples.left_out.end(), is_left_out))
    why = "the definition takes too long to evaluate at the tuned sizes, and at smaller ones that this kernel takes";
  for (const auto& [output, of] : all) {
    if (of.promised > 0) continue;
    why = fmt::format(
        "of {} compared elements of {} nothing is promised: with the inputs that were tried, f32 may overflow in each",
        of.elements, output);
  }
  if (why.empty()) return;
  outcome.status = TrialStatus::infeasible;
  outcome.reason = "its results cannot be checked: " + why;
}

void take_check(const CheckReport& check, const AffordableSamples& samples, const Nest& definition, double seconds,
                TrialOutcome& outcome) {
  note_check(check, note_on_comparison(samples, check, definition), seconds, outcome);
  refuse_unchecked(check, samples, definition, outcome);
}

}  // namespace nestor
