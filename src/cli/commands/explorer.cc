// The commands of an exploring session.
#include "cli/commands/explorer.h"

#include "api/operators.h"
#include "api/report.h"
#include "autotune/measure_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "cli/arguments/schedule_source.h"
#include "cli/terminal/output.h"
#include "poly/schedule/steps/step_table.h"
#include "support/error.h"
#include "support/system/json_text.h"
#include "support/words/nearest_word.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

namespace nestor::cli {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

Explorer::Explorer(Nest nest, Sizes sizes, MeasureOptions options, std::string database, std::ostream& out)
    : nest_(std::move(nest)), sizes_(std::move(sizes)), options_(std::move(options)), database_(std::move(database)), out_(out) {
  history_.emplace_back(nest_for_tuning(nest_, sizes_));
}

const std::vector<Explorer::Command>& Explorer::commands() {
  static const std::vector<Command> list{
      {"why", "STEP", "say whether a step is legal, and why not; changes nothing", &Explorer::why},
      {"measure", "", "compile, check against the definition and time the schedule", &Explorer::measure},
      {"undo", "", "take the last step back", &Explorer::undo},
      {"reset", "", "back to the original order (can be undone)", &Explorer::reset},
      {"save", "[FILE]", "store the measured schedule in the database, or its steps in a file", &Explorer::save},
      {"load", "best|TRIAL|FILE", "take the fastest stored schedule, that of a trial, or that of a file", &Explorer::load},
      {"show", "VIEW", "print the schedule as one of the views below", &Explorer::show_view},
      {"steps", "", "steps so far", &Explorer::show_steps},
      {"rules", "", "rules of algebra that apply now", &Explorer::show_rules},
      {"certificate", "", "rules, dependences and bounds that make the schedule right", &Explorer::certificate},
      {"help", "[STEP]", "this list and all steps, or one of them", &Explorer::help},
      {"quit", "", "leave", &Explorer::quit}};
  return list;
}

bool Explorer::execute(const std::string& line) {
  const std::string text = trimmed(line.substr(0, line.find('#')));
  if (text.empty()) return true;
  const std::size_t space = text.find_first_of(" \t");
  const std::string word = text.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : trimmed(text.substr(space));
  for (const Command& command : commands()) {
    if (word == command.name || (word == "exit" && command.run == &Explorer::quit)) {
      (this->*command.run)(rest);
      return !done_;
    }
  }
  if (rest.empty() && view_from(word)) {
    show_view(word);
  } else {
    require_known(text, word);
    apply(text);
  }
  return true;
}

void Explorer::require_known(const std::string& text, const std::string& word) {
  const std::string name = text.substr(0, text.find_first_of("( \t,"));
  std::vector<std::string> words = view_words();
  for (const Command& command : commands()) words.emplace_back(command.name);
  for (const StepHelp& step : step_help()) words.emplace_back(step.name);
  // Old names of steps are steps as well.
  const auto nearest = nearest_word(name, words);
  const bool step = std::any_of(step_help().begin(), step_help().end(),
                                [&](const StepHelp& known) { return known.name == parse_step(text).name; });
  if (!step && nearest && name == word) user_error("'{}' is no command and no step; did you mean '{}'?", word, *nearest);
}

void Explorer::push(const Schedule& schedule) {
  history_.push_back(schedule);
  record_.reset();
  out_ << schedule.str();
}

void Explorer::apply(const std::string& step) { push(schedule().apply(parse_step(step))); }

void Explorer::why(const std::string& step) {
  if (step.empty()) user_error("why needs a step: why reorder(j, i)");
  const Step parsed = parse_step(step);
  try {
    const Schedule tried = schedule().apply(parsed);
    fmt::print(out_, "legal: all {} dependences keep their order\n", tried.dependences().size());
  } catch (const UserError& error) {
    fmt::print(out_, "{}\n", error.what());
  }
}

const TrialRecord& Explorer::measured() {
  if (!record_) {
    TrialRecord record = measure_schedule(schedule(), nest_, sizes_, options_);
    if (record.steps.empty()) record.steps = trial_steps_json(nest_, specialized_sizes(nest_, sizes_), schedule().steps()).dump();
    record_ = std::move(record);
  }
  return *record_;
}

void Explorer::measure(const std::string&) {
  record_.reset();
  const TrialRecord& record = measured();
  if (record.status != TrialStatus::ok && record.status != TrialStatus::slow) {
    fmt::print(out_, "{}: {}\n", to_string(record.status), record.reason);
    return;
  }
  if (first_ms_ <= 0) first_ms_ = record.median_ms;
  fmt::print(out_, "{}{} (worst error {:.2g}, {:.2f}x of the first measurement){}\n", format_ms(record.median_ms),
             throughput_text(record), record.max_error, first_ms_ / record.median_ms, kernel_text(record));
}

void Explorer::undo(const std::string&) {
  if (history_.size() == 1) user_error("there is nothing to undo");
  history_.pop_back();
  record_.reset();
  out_ << schedule().str();
}

void Explorer::reset(const std::string&) { push(Schedule(nest_for_tuning(nest_, sizes_))); }

void Explorer::save(const std::string& path) {
  if (!path.empty()) {
    errno = 0;
    std::ofstream file(path);
    file << json_to_text(trial_steps_json(nest_, specialized_sizes(nest_, sizes_), schedule().steps()), 2) << "\n";
    file.close();
    if (!file) user_error("cannot write {}: {}", path, std::strerror(errno));
    fmt::print(out_, "steps saved to {}\n", path);
    return;
  }
  const TrialRecord& record = measured();
  Database database = Database::open(database_);
  const std::int64_t id = database.add_trial(device_identity(options_.target, options_.threads), problem_key(nest_, sizes_),
                                             nest_to_text(nest_), record);
  fmt::print(out_, "saved as trial {} ({}{}) in {}\n", id, to_string(record.status),
             record.median_ms > 0 ? ", " + format_ms(record.median_ms) : "", database_);
}

void Explorer::load(const std::string& source) {
  if (source.empty()) user_error("load what? load best, load 42, or load FILE");
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
  push(args.load(nest_, sizes_, database));
}

void Explorer::show_steps(const std::string&) { out_ << show(schedule(), View::schedule); }

void Explorer::show_rules(const std::string&) { out_ << describe_rules(schedule().nest()); }

void Explorer::show_view(const std::string& name) {
  const std::optional<View> view = view_from(name);
  if (!view) user_error("'{}' is no view{}; there are {}", name, did_you_mean(name, view_words()), view_names());
  out_ << show(schedule(), *view, {.sm = 90, .sizes = sizes_}) << "\n";
}

void Explorer::certificate(const std::string&) { out_ << describe(certify(schedule(), build_tile_program(schedule()))); }

void Explorer::help(const std::string& topic) {
  std::vector<std::vector<std::string>> rows;
  for (const StepHelp& step : step_help()) {
    if (topic.empty() || step.name == topic) rows.push_back({fmt::format("  {}({})", step.name, step.arguments), step.help});
  }
  if (!topic.empty()) {
    if (rows.empty()) {
      std::vector<std::string> names;
      for (const StepHelp& step : step_help()) names.emplace_back(step.name);
      user_error("'{}' is no step{}; 'help' lists them", topic, did_you_mean(topic, names));
    }
    out_ << format_table(rows);
    return;
  }
  std::vector<std::vector<std::string>> lines;
  for (const Command& command : commands())
    lines.push_back({fmt::format("  {} {}", command.name, command.arguments), command.help});
  fmt::print(out_, "steps:\n{}commands:\n{}views, by name alone too: {}\n", format_table(rows), format_table(lines),
             view_names());
}

void Explorer::quit(const std::string&) { done_ = true; }

}  // namespace nestor::cli
