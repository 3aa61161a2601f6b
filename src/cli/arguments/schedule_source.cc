// Reads schedules from files, standard input and the database.
#include "cli/arguments/schedule_source.h"

#include "autotune/target/target.h"
#include "autotune/trial/trial_steps.h"
#include "support/error.h"
#include "support/system/json_text.h"
#include "support/system/text_file.h"

#include <sstream>

namespace nestor::cli {
namespace {

Schedule schedule_from_lines(Schedule schedule, const std::string& text, const std::string& where) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      schedule = schedule.apply(parse_step(line));
    } catch (const UserError& error) {
      user_error("{}, line {}: {}", where, number, error.what());
    }
  }
  return schedule;
}

Schedule schedule_of_trial(const Nest& nest, const Sizes& sizes, const Database& database, std::int64_t id) {
  const std::optional<TrialRecord> trial = database.trial(id);
  if (!trial) user_error("the database has no trial {}", id);
  return replay_trial_steps(nest, sizes, json_from_text(trial->steps, "the stored schedule"));
}

}  // namespace

Schedule schedule_from_text(const Nest& nest, const Sizes& sizes, const std::string& text, const std::string& where) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '{')
    return schedule_from_lines(Schedule(nest_for_tuning(nest, sizes)), text, where);
  const nlohmann::json json = json_from_text(text, where);
  try {
    return replay_trial_steps(nest, sizes, json);
  } catch (const UserError& error) {
    user_error("{}: {}", where, error.what());
  }
}

void ScheduleArgs::add_to(CLI::App& command) {
  auto* steps = command.add_option("--steps", file, "file with the schedule: JSON, or one step a line; - reads standard input");
  auto* id = command.add_option("--trial", trial, "the schedule of a stored trial")->check(trial_number());
  auto* fastest = command.add_flag("--best", best, "the fastest schedule stored for these sizes on this machine");
  steps->excludes(id, fastest);
  id->excludes(fastest);
}

Schedule ScheduleArgs::load(const Nest& nest, const Sizes& sizes, const DatabaseArgs& database) const {
  if (!file.empty()) return schedule_from_text(nest, sizes, text_of_file(file), file == "-" ? "standard input" : file);
  if (trial != 0) return schedule_of_trial(nest, sizes, database.open(true), trial);
  if (!best) return Schedule(nest_for_tuning(nest, sizes));
  const Database records = database.open(true);
  const std::optional<TrialRecord> found =
      records.best(device_identity(device, threads), problem_key(nest, sizes), Database::Kernels::unchecked_too);
  if (!found) user_error("the database has no correct trial of {} ({}) at these sizes: tune it first", nest.op, nest.variant);
  return replay_trial_steps(nest, sizes, json_from_text(found->steps, "the stored schedule"));
}

}  // namespace nestor::cli
