// The commands of an exploring session that ask the device, the database or the search.
#include "api/operators.h"
#include "api/report/kernel_report.h"
#include "autotune/measure_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "cli/arguments/schedule_source.h"
#include "cli/explorer/explorer.h"
#include "cli/terminal/output.h"
#include "poly/schedule/steps/step_table.h"
#include "support/error.h"
#include "support/system/json_text.h"
#include "support/system/new_file.h"
#include "support/words/nearest_word.h"
#include "support/words/whole_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <sstream>

namespace nestor::cli {
namespace {

constexpr std::size_t kMostShown = 20;  ///< suggestions, unless one step was asked for
constexpr int kMostAlike = 2;           ///< of one name, among those that are ideas alone
constexpr std::int64_t kLongestSearch_s = 3600;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// "suggest split 20": both may be left out.
SuggestRequest suggest_request(const std::string& arguments) {
  SuggestRequest request;
  std::istringstream words(arguments);
  for (std::string word; words >> word;) {
    if (const auto seconds = whole_number(word)) {
      if (*seconds < 1 || *seconds > kLongestSearch_s)
        user_error("suggest takes 1 to {} seconds, not {}", kLongestSearch_s, word);
      request.time_s = static_cast<double>(*seconds);
      continue;
    }
    std::vector<std::string> names;
    for (const StepHelp& step : step_help()) names.push_back(step.name);
    if (std::find(names.begin(), names.end(), word) == names.end())
      user_error("'{}' is no step{}; suggest takes a step's name, a number of seconds, or both", word, did_you_mean(word, names));
    request.only = word;
  }
  return request;
}

/// The first ones, and of those that nothing is known of the first few of each name.
std::vector<Suggestion> overview(const std::vector<Suggestion>& legal) {
  std::map<std::string, int> of_name;
  std::vector<Suggestion> shown;
  for (const Suggestion& suggestion : legal) {
    if (shown.size() < kMostShown && (suggestion.source != PlanSource::idea || of_name[suggestion.step.name]++ < kMostAlike))
      shown.push_back(suggestion);
  }
  return shown;
}

std::string tail_text(const SuggestionList& list, std::size_t shown, double seconds) {
  std::string text = fmt::format("{} legal, {} refused", list.legal.size(), list.refused);
  if (list.untried > 0) text += fmt::format(", {} not tried for lack of time", list.untried);
  text += fmt::format(" in {:.1f} s; take NUMBER applies one\n", seconds);
  if (shown < list.legal.size())
    text += fmt::format("{} more are legal: suggest STEP shows all of that name\n", list.legal.size() - shown);
  return text;
}

}  // namespace

void Explorer::suggest(const std::string& arguments) {
  SuggestRequest request = suggest_request(arguments);
  if (!suggester_) suggester_.emplace(nest_, sizes_, options_, database_);
  const Clock::time_point start = Clock::now();
  SuggestionList list;
  {
    ProgressLine line;
    request.stop = stop_;
    if (screen_.marks)
      request.progress = [&](const std::string& what) { line.show(fmt::format("{:.1f} s: {}", seconds_since(start), what)); };
    list = suggester_->suggest(schedule(), request);
  }
  suggested_.clear();
  std::vector<std::vector<std::string>> rows{{"", "step", "guess"}};
  for (const Suggestion& suggestion : request.only.empty() ? overview(list.legal) : list.legal) {
    suggested_.push_back(suggestion.step);
    rows.push_back({std::to_string(suggested_.size()), describe(suggestion.step)});
    if (!suggestion.guess.empty()) rows.back().push_back(suggestion.guess);
  }
  if (list.legal.empty()) {
    say(fmt::format("no step {}is legal here ({} tried)\n", request.only.empty() ? "" : request.only + " ", list.refused));
  } else {
    say(format_table(rows, screen_.width) + tail_text(list, suggested_.size(), seconds_since(start)));
  }
}

void Explorer::take(const std::string& number) {
  const auto wanted = whole_number(number);
  if (suggested_.empty()) user_error("nothing was suggested for this schedule: suggest comes first");
  if (!wanted || *wanted < 1 || static_cast<std::uint64_t>(*wanted) > suggested_.size())
    user_error("'{}' is no suggestion: take 1 to take {}", number, suggested_.size());
  const Step step = suggested_[static_cast<std::size_t>(*wanted) - 1];
  const Schedule next = schedule().apply(step);
  if (screen_.marks) say(describe(step) + "\n");
  push(next);
}

const TrialRecord* Explorer::measured() {
  if (record_) return &*record_;
  const Clock::time_point start = Clock::now();
  ProgressLine line;
  const MeasureWatch watch{
      [&] { line.show(fmt::format("measuring on {}: {:.0f} s", options_.target.str(), seconds_since(start))); }, stop_};
  TrialRecord record = measure_schedule(schedule(), nest_, sizes_, options_, watch);
  if (stop_ != nullptr && stop_->load()) return nullptr;
  if (record.steps.empty()) record.steps = trial_steps_json(nest_, specialized_sizes(nest_, sizes_), schedule().steps()).dump();
  record_ = std::move(record);
  return &*record_;
}

/// "cuda" or "--target cuda"; from here on the session measures there.
void Explorer::measure_on(std::string_view device) {
  constexpr std::string_view kFlag = "--target";
  if (device.starts_with(kFlag)) device.remove_prefix(kFlag.size());
  device.remove_prefix(std::min(device.find_first_not_of(" ="), device.size()));
  if (device.empty()) return;
  options_.target = target_from(device);
  suggester_.reset();
  first_ms_ = 0;
}

void Explorer::measure(const std::string& device) {
  measure_on(device);
  record_.reset();
  const TrialRecord* record = measured();
  if (record == nullptr) return say("stopped: nothing was measured\n");
  if (record->status != TrialStatus::ok && record->status != TrialStatus::slow)
    return say(fmt::format("{}: {}\n", to_string(record->status), record->reason));
  if (first_ms_ <= 0) first_ms_ = record->median_ms;
  say(fmt::format("{}{} (worst error {:.2g}, {:.2f}x of the first measurement){}\n", format_ms(record->median_ms),
                  throughput_text(*record), record->max_error, first_ms_ / record->median_ms, kernel_text(*record)));
}

const TrialRecord* Explorer::stored() {
  if (measured() == nullptr) return nullptr;
  if (record_->id != 0) return &*record_;
  Database database = Database::open(database_);
  record_->id = database.add_trial(device_identity(options_.target, options_.threads), problem_key(nest_, sizes_),
                                   nest_to_text(nest_), *record_);
  return &*record_;
}

void Explorer::save(const std::string& path) {
  if (!path.empty()) {
    NewFile file(path);
    file.out << json_to_text(trial_steps_json(nest_, specialized_sizes(nest_, sizes_), schedule().steps()), 2) << "\n";
    file.close();
    file.rename();
    return say(fmt::format("steps saved to {}\n", path));
  }
  const TrialRecord* record = stored();
  if (record == nullptr) return say("stopped: nothing was measured\n");
  say(fmt::format("saved as trial {} ({}{}) in {}\n", record->id, to_string(record->status),
                  record->median_ms > 0 ? ", " + format_ms(record->median_ms) : "", database_));
}

Schedule Explorer::loaded(const std::string& source) const {
  ScheduleArgs args;
  DatabaseArgs database;
  database.path = database_;
  if (source == "best") {
    args.best = true;
    args.device = options_.target;
    args.threads = options_.threads;
  } else if (source.find_first_not_of("0123456789") == std::string::npos) {
    const auto [end, failure] = std::from_chars(source.data(), source.data() + source.size(), args.trial);
    if (failure != std::errc() || args.trial == 0) user_error("the database has no trial {}", source);
  } else {
    args.file = source;
  }
  return args.load(nest_, sizes_, database);
}

void Explorer::load(const std::string& source) {
  if (source.empty()) user_error("load what? load best, load 42, or load FILE");
  push(loaded(source));
}

void Explorer::report(const std::string& path) {
  const std::string file = path.empty() ? "report.html" : path;
  const TrialRecord* record = stored();
  if (record == nullptr) return say("stopped: nothing was measured\n");
  const Database database = Database::open(database_, {.read_only = true});
  ReportRequest request = request_for_trial(database, record->id);
  request.trial = record->id;
  request.options = " --db " + database_;
  write_report(file, report_page(report_data(database, request)));
  say(fmt::format("trial {} and its problem: written to {}; open it in a browser\n", record->id, file));
}

}  // namespace nestor::cli
