// nestor db: what the tuning database holds, and its upkeep.
#include "api/check_records.h"
#include "cli/arguments/operator_args.h"
#include "cli/arguments/shipped_records.h"
#include "cli/commands/commands.h"
#include "cli/commands/db_sources.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/output.h"
#include "cli/terminal/screen.h"
#include "support/error.h"

#include <fmt/format.h>

#include <array>
#include <iostream>
#include <memory>

namespace nestor::cli {
namespace {

struct DbArgs {
  DatabaseArgs database;
  std::string file = "-";
  bool winners = false, in_registers = false, inline_code = false;
  int keep = 10;
  std::int64_t trial = 0;
  bool unpin = false;
  bool shipped = false;
  bool system = false;
  bool run = false;  ///< of check: kernels, too
  bool all = false;
  int jobs = 1;
  std::string op;
  MeasureArgs measure{};
};

int run_summary(const DbArgs& args) {
  const Database database = args.database.open(true);
  nlohmann::json json = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows{{"operator", "variant", "sizes", "device", "trials", "served", "to check", "best"}};
  for (const Database::ProblemSummary& row : database.summary()) {
    json.push_back({{"problem", problem_to_json(row.problem)},
                    {"device", device_to_json(row.device)},
                    {"trials", row.trials},
                    {"ok", row.ok},
                    {"waiting", row.waiting},
                    {"best_ms", row.best_ms}});
    rows.push_back({row.problem.op, row.problem.variant, format_sizes(row.problem.sizes), row.device.key(),
                    std::to_string(row.trials), std::to_string(row.ok), std::to_string(row.waiting), format_ms(row.best_ms)});
  }
  if (output_mode().json) {
    print_json(json);
  } else {
    print(rows.size() == 1 ? "the database is empty" : format_table(rows, terminal_width()));
  }
  return kOk;
}

int run_export(const DbArgs& args) {
  const Database database = args.database.open(true);
  using Exported = Database::Exported;
  const Exported which = !args.winners ? Exported::all : args.in_registers ? Exported::winners_in_registers : Exported::winners;
  if (args.file == "-") {
    database.export_records(std::cout, which);
    std::cout.flush();
    return kOk;
  }
  database.export_file(args.file, which, args.inline_code ? CodePlace::record : CodePlace::pack);
  return kOk;
}

int run_import(const DbArgs& args) {
  if (args.shipped && args.file != "-") user_error("--shipped imports the records that come with Nestor: give no FILE with it");
  DatabaseArgs place = args.database;
  if (args.system) place.path = system_database_to_write();
  Database database = place.open(false);
  Database::Imported imported;
  if (args.shipped) {
    for (const std::string& file : shipped_records()) {
      const Database::Imported part = database.import_file(file);
      imported.added += part.added;
      imported.checked += part.checked;
    }
  } else {
    imported = args.file == "-" ? database.import_records(std::cin) : database.import_file(args.file);
  }
  const std::int64_t waiting = database.waiting("", "");
  if (output_mode().json) {
    print_json(
        {{"added", imported.added}, {"checked", imported.checked}, {"waiting", waiting}, {"database", place.resolved_path()}});
    return kOk;
  }
  print(fmt::format("{} added to {}", count_of(imported.added, "trial"), place.resolved_path()));
  if (imported.checked > 0) print(fmt::format("{} known already, and now checked", count_of(imported.checked, "trial")));
  if (waiting > 0) print(waiting_text(waiting));
  return kOk;
}

/// nullopt: the record is damaged, or there is none.
std::optional<Database::Origin> origin_of(const Database& database, std::int64_t trial) {
  try {
    return database.origin(trial);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

/// One trial that computed something else than its definition.
nlohmann::json wrong_to_json(const Database::Origin& origin, const TrialRecord& trial) {
  nlohmann::json json = trial_to_json(trial);
  json["problem"] = problem_to_json(origin.problem);
  json["device"] = device_to_json(origin.device);
  return json;
}

std::string wrong_text(const Database::Origin& origin, const TrialRecord& trial) {
  const ProblemKey& problem = origin.problem;
  return fmt::format("trial {}  {} ({})  {}  {}  code revision {}, {}\n  {}\n{}", trial.id, problem.op, problem.variant,
                     format_sizes(problem.sizes), origin.device.key(), trial.revision, trial.created, trial.reason,
                     steps_text(trial.steps));
}

int run_wrong(const DbArgs& args) {
  const Database database = args.database.open(true);
  nlohmann::json json = nlohmann::json::array();
  std::int64_t found = 0;
  for (const std::int64_t id : database.with_status(TrialStatus::wrong)) {
    const auto origin = origin_of(database, id);
    const auto trial = origin ? database.trial(id, false) : std::nullopt;
    if (!origin || !trial) continue;  // damaged (db check names it), or pruned meanwhile
    ++found;
    if (output_mode().json) {
      json.push_back(wrong_to_json(*origin, *trial));
    } else {
      print(wrong_text(*origin, *trial));
    }
  }
  if (output_mode().json) {
    print_json(json);
  } else if (found == 0) {
    print("no trial was wrong");
  } else {
    print(fmt::format("{} with a wrong result: each is a bug of Nestor; nestor verify ID replays one and prints the difference",
                      count_of(found, "trial")));
  }
  return kOk;
}

std::string_view to_string(RecordCheck::Result result) {
  constexpr std::array<std::string_view, 4> kNames{"passed", "failed", "not run", "damaged"};
  return kNames.at(static_cast<std::size_t>(result));
}

nlohmann::json record_check_to_json(const RecordCheck& check, const std::optional<Database::Origin>& origin) {
  return {{"trial", check.trial},
          {"problem", origin ? problem_to_json(origin->problem) : nlohmann::json()},
          {"device", origin ? device_to_json(origin->device) : nlohmann::json()},
          {"result", to_string(check.result)},
          {"same_code", check.same_code},
          {"status", to_string(check.status)},
          {"reason", check.reason},
          {"findings", findings_to_json(check.findings)}};
}

std::string record_check_text(const RecordCheck& check, const std::optional<Database::Origin>& origin) {
  if (!origin) return fmt::format("{:8} trial {}: {}", to_string(check.result), check.trial, check.reason);
  const ProblemKey& problem = origin->problem;
  const char* code = check.same_code ? "same code" : "its steps give other code today";
  return fmt::format("{:8} trial {}  {} ({})  {}  {}: {}", to_string(check.result), check.trial, problem.op, problem.variant,
                     format_sizes(problem.sizes), origin->device.key(),
                     check.result == RecordCheck::Result::passed ? code : check.reason);
}

/// Verifies kernels that wait for a check, or all of them, and stores what was found.
int run_check_kernels(const DbArgs& args) {
  Database database = args.database.open(false);
  std::vector<std::int64_t> trials = database.to_check(args.all);
  std::erase_if(trials, [&](std::int64_t id) {
    const auto origin = origin_of(database, id);
    return !args.op.empty() && origin && origin->problem.op != args.op;
  });
  const InterruptGuard interrupt;
  CheckRecordsOptions options;
  options.measure = args.measure.resolve();
  options.jobs = args.jobs;
  options.stop = interrupt.flag();
  nlohmann::json json = nlohmann::json::array();
  std::map<RecordCheck::Result, std::int64_t> counts;
  check_records(args.database.resolved_path(), trials, options, [&](const RecordCheck& check) {
    ++counts[check.result];
    const std::optional<Database::Origin> origin = origin_of(database, check.trial);
    if (output_mode().json) {
      json.push_back(record_check_to_json(check, origin));
    } else {
      print(record_check_text(check, origin));
    }
  });
  if (output_mode().json) {
    print_json(json);
  } else {
    const std::int64_t damaged = counts[RecordCheck::Result::damaged];
    print(fmt::format("{} checked: {} passed, {} failed, {} not run{}",
                      count_of(static_cast<std::int64_t>(trials.size()), "kernel"), counts[RecordCheck::Result::passed],
                      counts[RecordCheck::Result::failed], counts[RecordCheck::Result::not_run],
                      damaged > 0 ? fmt::format(", {} damaged", damaged) : ""));
  }
  return counts[RecordCheck::Result::failed] + counts[RecordCheck::Result::damaged] > 0 ? kCheckFailed : kOk;
}

int run_check(const DbArgs& args) {
  if (args.run) return run_check_kernels(args);
  const Database database = args.database.open(true);
  const std::vector<std::string> findings = database.check();
  const auto waiting = static_cast<std::int64_t>(database.to_check().size());
  if (output_mode().json) {
    print_json({{"sound", findings.empty()}, {"findings", findings}, {"waiting", waiting}});
  } else {
    for (const std::string& finding : findings) print(finding);
    print(findings.empty() ? "sound" : count_of(static_cast<std::int64_t>(findings.size()), "finding"));
    if (waiting > 0) print(waiting_text(waiting));
  }
  return findings.empty() ? kOk : kCheckFailed;
}

int run_prune(const DbArgs& args) {
  const std::int64_t removed = args.database.open(false).prune(args.keep);
  output_mode().json ? print_json({{"removed", removed}}) : print(count_of(removed, "trial") + " removed");
  return kOk;
}

int run_pin(const DbArgs& args) {
  Database database = args.database.open(false);
  if (!database.trial(args.trial)) user_error("the database has no trial {}", args.trial);
  database.pin(args.trial, !args.unpin);
  output_mode().json ? print_json({{"trial", args.trial}, {"pinned", !args.unpin}})
                     : print(fmt::format("trial {} {}", args.trial, args.unpin ? "unpinned" : "pinned"));
  return kOk;
}

}  // namespace

void add_db(CLI::App& app, Action& run) {
  auto args = std::make_shared<DbArgs>();
  CLI::App* db = app.add_subcommand("db", "Look into and maintain the tuning database");
  db->require_subcommand(1);
  db->fallthrough();
  args->database.add_to(*db);
  const auto add = [&](const char* name, const char* help, int (*action)(const DbArgs&)) {
    CLI::App* command = db->add_subcommand(name, help);
    command->callback([args, action, &run] { run = [args, action] { return action(*args); }; });
    return command;
  };
  add("summary", "One line a problem and device", run_summary);
  CLI::App* exporter = add("export", "Write trials as JSON lines, and their code as a pack", run_export);
  exporter->add_option("FILE", args->file,
                       "file to write, with the code of its kernels in a .pack beside it (default: standard output)");
  exporter->add_flag("--inline-code", args->inline_code,
                     "one file without a pack: each line has its nest and its code, as on standard output");
  CLI::Option* winners = exporter->add_flag("--winners", args->winners, "the best trial of each problem alone");
  exporter
      ->add_flag(
          "--in-registers", args->in_registers,
          "with --winners: among trials whose kernels keep nothing in local memory (no spilled registers), if there are such")
      ->needs(winners);
  CLI::App* importer = add("import", "Add trials from JSON lines; nothing is stored unless every line is valid", run_import);
  importer->add_option("FILE", args->file, "file to read, and the pack beside it (default: standard input)");
  importer->add_flag("--shipped", args->shipped, "the records that come with Nestor");
  importer->add_flag("--system", args->system,
                     "into the system database, for all users ($NESTOR_SYSTEM_DB, else /usr/local/share/nestor/tuning.db)");
  CLI::App* check = add("check", "Check the file, every hash, seal and signature; with --run the kernels, too", run_check);
  CLI::Option* run_kernels = check->add_flag(
      "--run", args->run, "prove, compile and run kernels that wait for a check, and store which of them may serve");
  check->add_flag("--all", args->all, "with --run: also those that were checked already")->needs(run_kernels);
  check->add_option("--jobs", args->jobs, "with --run: kernels at once")->check(CLI::Range(1, 1024))->needs(run_kernels);
  check->add_option("--op", args->op, "with --run: of this operator alone")->needs(run_kernels);
  args->measure.add_to(*check);
  add("wrong", "List trials whose result was wrong: each is a bug of Nestor", run_wrong);
  add("prune", "Remove all but the fastest trials of each problem", run_prune)
      ->add_option("--keep", args->keep, "trials of each problem to keep")
      ->check(positive_number())
      ->capture_default_str();
  CLI::App* pin = add("pin", "Make a trial the one that queries return", run_pin);
  pin->add_option("TRIAL", args->trial, "number of the trial")->required()->check(trial_number());
  pin->add_flag("--off", args->unpin, "unpin it");
  add_db_sources(*db, {args, &args->database}, run);
  db->footer(R"(examples:
  nestor db summary
  nestor db export --winners winners.jsonl
  nestor db import winners.jsonl --db other.db
  nestor db import --shipped
  nestor db check --run --jobs 16 --target cuda
  nestor db wrong
  nestor db pin 42
  nestor db trust 3f0c...   # serve what this key signed
)");
}

}  // namespace nestor::cli
