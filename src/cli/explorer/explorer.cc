// The commands of an exploring session that need nothing but the schedule.
#include "cli/explorer/explorer.h"

#include "api/explore/conflict_picture.h"
#include "api/operators.h"
#include "api/report.h"
#include "autotune/trial/trial_steps.h"
#include "cli/explorer/word_completion.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text_diff.h"
#include "poly/schedule/order/illegal_step.h"
#include "poly/schedule/steps/step_table.h"
#include "support/error.h"
#include "support/words/nearest_word.h"
#include "support/words/printable.h"
#include "support/words/whole_number.h"

#include <fmt/format.h>

#include <algorithm>

namespace nestor::cli {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::vector<std::string> step_names() {
  std::vector<std::string> names;
  for (const StepHelp& step : step_help()) names.push_back(step.name);
  return names;
}

/// 1 for "", else the number, which is at least 1 and at most `most`.
std::size_t times(const std::string& text, std::size_t most, const char* what) {
  const auto number = text.empty() ? std::optional<std::int64_t>(1) : whole_number(text);
  if (!number || *number < 1) user_error("'{0}' is no number of steps: {1}, or {1} 3", text, what);
  if (most == 0) user_error("there is nothing to {}", what);
  if (static_cast<std::uint64_t>(*number) > most)
    user_error("there {} to {}", most == 1 ? "is only 1 step" : fmt::format("are only {} steps", most), what);
  return static_cast<std::size_t>(*number);
}

}  // namespace

Explorer::Explorer(Nest nest, Sizes sizes, MeasureOptions options, std::string database, std::ostream& out)
    : nest_(std::move(nest)), sizes_(std::move(sizes)), options_(std::move(options)), database_(std::move(database)), out_(out) {
  history_.emplace_back(nest_for_tuning(nest_, sizes_));
}

const std::vector<Explorer::Command>& Explorer::commands() {
  static const std::vector<Command> list{
      {"why", "STEP", "say whether a step is legal, and why not; changes nothing", &Explorer::why},
      {"suggest", "[STEP] [SECONDS]", "steps that are legal now, with a guess of their worth; changes nothing",
       &Explorer::suggest},
      {"take", "NUMBER", "apply a step that was suggested", &Explorer::take},
      {"measure", "[DEVICE]",
       "compile, check against the definition and time the schedule; DEVICE, as of --target, counts from then on",
       &Explorer::measure},
      {"undo", "[STEPS]", "take the last step back", &Explorer::undo},
      {"redo", "[STEPS]", "take back what undo did", &Explorer::redo},
      {"reset", "", "back to the original order (can be undone)", &Explorer::reset},
      {"diff", "[start|best|TRIAL|FILE]", "what the last step changed, or how the loops differ from another schedule's",
       &Explorer::diff},
      {"save", "[FILE]", "store the measured schedule in the database, or its steps in a file", &Explorer::save},
      {"load", "best|TRIAL|FILE", "take the fastest stored schedule, that of a trial, or that of a file", &Explorer::load},
      {"report", "[FILE]", "store the measured schedule, and write an HTML page about it", &Explorer::report},
      {"show", "VIEW", "print the schedule as one of the views below", &Explorer::show_view},
      {"steps", "", "steps so far", &Explorer::show_steps},
      {"rules", "", "rules of algebra that apply now", &Explorer::show_rules},
      {"certificate", "", "rules, dependences and bounds that make the schedule right", &Explorer::certificate},
      {"help", "[STEP|COMMAND]", "this list and all steps, or one of them", &Explorer::help},
      {"quit", "", "leave", &Explorer::quit}};
  return list;
}

void Explorer::say(const std::string& text) { out_ << printable(text, true); }

void Explorer::greet() {
  say(fmt::format("{} ({}) at {}; 'help' lists what can be typed\n", nest_.op, nest_.variant, format_sizes(sizes_)));
  say(schedule().str());
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
  const std::vector<std::string> steps = step_names();
  words.insert(words.end(), steps.begin(), steps.end());
  // Old names of steps are steps as well.
  const auto nearest = nearest_word(name, words);
  const bool step = std::find(steps.begin(), steps.end(), parse_step(text).name) != steps.end();
  if (!step && nearest && name == word) user_error("'{}' is no command and no step; did you mean '{}'?", word, *nearest);
}

Completion Explorer::complete(const std::string& line) const {
  const std::size_t first = line.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  const std::size_t end = line.find_first_of("( \t,", first);
  const std::string word = line.substr(first, end == std::string::npos ? end : end - first);
  if (end != std::string::npos) return complete_rest(line, word, first, end);
  const std::vector<std::string> steps = step_names();
  std::vector<std::string> words = view_words();
  for (const Command& command : commands()) words.emplace_back(command.name);
  words.insert(words.end(), steps.begin(), steps.end());
  Completion found{first, words_that_begin(words, word), " "};
  const bool step = found.words.size() == 1 && std::find(steps.begin(), steps.end(), found.words.front()) != steps.end();
  if (step) found.behind = "(";
  return found;
}

Completion Explorer::complete_rest(const std::string& line, const std::string& word, std::size_t first, std::size_t end) const {
  const std::size_t start = std::min(line.find_first_not_of(" \t", end), line.size());
  const std::string typed = line.substr(start);
  const auto choose = [&](const std::vector<std::string>& words, const char* behind) {
    return Completion{start, words_that_begin(words, typed), behind};
  };
  if (word == "show") return choose(view_words(), " ");
  if (word == "help" || word == "suggest") return choose(step_names(), " ");
  if (word == "save" || word == "report") return {start, files_that_begin(typed), ""};
  if (word == "load" || word == "diff") {
    std::vector<std::string> words = files_that_begin(typed);
    if (std::string_view("best").starts_with(typed)) words.emplace_back("best");
    if (word == "diff" && std::string_view("start").starts_with(typed)) words.emplace_back("start");
    return {start, words, ""};
  }
  if (word == "why" && typed.find_first_of("( \t,") == std::string::npos) return choose(step_names(), "(");
  const std::size_t step = word == "why" ? start : first;
  Completion found = complete_argument(schedule(), line.substr(step));
  found.start += step;
  return found;
}

void Explorer::push(const Schedule& schedule) {
  history_.push_back(schedule);
  undone_.clear();
  moved_from(history_[history_.size() - 2]);
}

void Explorer::moved_from(const Schedule& before) {
  record_.reset();
  suggested_.clear();
  if (screen_.marks) {
    out_ << marked_text(before.str(), schedule().str(), screen_.colour);
  } else {
    say(schedule().str());
  }
}

void Explorer::apply(const std::string& step) { push(schedule().apply(parse_step(step))); }

void Explorer::why(const std::string& step) {
  if (step.empty()) user_error("why needs a step: why reorder(j, i)");
  const Step parsed = parse_step(step);
  try {
    const Schedule tried = schedule().apply(parsed);
    say(fmt::format("legal: all {} dependences keep their order\n", tried.dependences().size()));
  } catch (const IllegalStep& illegal) {
    say(fmt::format("{}\n", illegal.what()));
    if (screen_.marks) say("\n" + conflict_picture(illegal.conflict(), sizes_, screen_.width));
  } catch (const UserError& error) {
    say(fmt::format("{}\n", error.what()));
  }
}

void Explorer::undo(const std::string& arguments) {
  const Schedule before = schedule();
  for (std::size_t count = times(arguments, history_.size() - 1, "undo"); count > 0; --count) {
    undone_.push_back(std::move(history_.back()));
    history_.pop_back();
  }
  moved_from(before);
}

void Explorer::redo(const std::string& arguments) {
  const Schedule before = schedule();
  for (std::size_t count = times(arguments, undone_.size(), "redo"); count > 0; --count) {
    history_.push_back(std::move(undone_.back()));
    undone_.pop_back();
  }
  moved_from(before);
}

void Explorer::reset(const std::string&) { push(Schedule(nest_for_tuning(nest_, sizes_))); }

void Explorer::diff(const std::string& source) {
  if (source.empty() && history_.size() == 1)
    user_error("nothing has changed yet: diff best, diff 42 and diff FILE compare with a stored schedule");
  const Schedule other = source.empty() ? history_[history_.size() - 2] : source == "start" ? history_.front() : loaded(source);
  const std::string text = diff_text(other.str(), schedule().str(), screen_.colour);
  out_ << (text.empty() ? "the loops are the same\n" : text);
}

void Explorer::show_steps(const std::string&) { say(show(schedule(), View::schedule)); }

void Explorer::show_rules(const std::string&) { say(describe_rules(schedule().nest())); }

void Explorer::show_view(const std::string& name) {
  const std::optional<View> view = view_from(name);
  if (!view) user_error("'{}' is no view{}; there are {}", name, did_you_mean(name, view_words()), view_names());
  const int sm = options_.target.is_gpu() ? gpu_facts(options_.target).sm : ViewOptions{}.sm;
  say(show(schedule(), *view, {.sm = sm, .sizes = sizes_}) + "\n");
}

void Explorer::certificate(const std::string&) { say(describe(certify(schedule(), build_tile_program(schedule())))); }

void Explorer::help(const std::string& topic) {
  std::vector<std::vector<std::string>> steps, lines;
  for (const StepHelp& step : step_help()) {
    if (topic.empty() || step.name == topic) steps.push_back({fmt::format("  {}({})", step.name, step.arguments), step.help});
  }
  for (const Command& command : commands()) {
    if (topic.empty() || command.name == topic)
      lines.push_back({fmt::format("  {} {}", command.name, command.arguments), command.help});
  }
  if (topic.empty())
    return say(fmt::format("steps:\n{}commands:\n{}views, by name alone too: {}\n", format_table(steps, screen_.width),
                           format_table(lines, screen_.width), view_names()));
  if (steps.empty() && lines.empty()) {
    std::vector<std::string> words = step_names();
    for (const Command& command : commands()) words.emplace_back(command.name);
    user_error("'{}' is no step and no command{}; 'help' lists them", topic, did_you_mean(topic, words));
  }
  say(format_table(steps.empty() ? lines : steps, screen_.width));
}

void Explorer::quit(const std::string&) { done_ = true; }

}  // namespace nestor::cli
