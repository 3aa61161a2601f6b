// nestor report: one HTML file that shows a problem's trials and its best kernel.
#include "cli/arguments/report_choice.h"
#include "cli/commands/commands.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"

#include <fmt/format.h>

#include <memory>

namespace nestor::cli {
namespace {

struct ReportArgs {
  ReportChoice choice;
  DatabaseArgs database;
  bool best = false;  ///< what is shown without --trial
  std::string file = "report.html";
};

int run_report(const ReportArgs& args) {
  const Database database = args.database.open(true);
  const ReportRequest request = args.choice.request(database, args.database);
  const nlohmann::json data = report_data(database, request);
  const std::string page = report_page(data);
  write_report(args.file, page);
  const auto trials = static_cast<std::int64_t>(data.at("trials").at("id").size());
  if (output_mode().json) {
    print_json({{"file", args.file},
                {"bytes", page.size()},
                {"trials", trials},
                {"problem", problem_to_json(request.problem)},
                {"device", device_to_json(request.device)},
                {"notes", data.at("notes")}});
    return kOk;
  }
  print(fmt::format("{} of {} ({}) at {} on {}", count_of(trials, "trial"), request.problem.op, request.problem.variant,
                    format_sizes(request.problem.sizes), request.device.key()));
  for (const auto& note : data.at("notes")) print("not shown: " + note.get<std::string>());
  print(fmt::format("written to {} ({} KB): open it in a browser", args.file, page.size() / 1000));
  return kOk;
}

}  // namespace

void add_report(CLI::App& app, Action& run) {
  auto args = std::make_shared<ReportArgs>();
  CLI::App* command =
      app.add_subcommand("report", "Write one HTML page that shows how a kernel was found, what it does and how good it is");
  args->choice.problem.add_to(*command, false);
  args->database.add_to(*command);
  auto* trial = command->add_option("--trial", args->choice.trial, "the trial whose schedule is shown")->check(trial_number());
  command->add_flag("--best", args->best, "show the best trial (the default)")->excludes(trial);
  command->add_option("--against", args->choice.against, "a second trial of the same problem, to compare with");
  command->add_option("--device", args->choice.device,
                      "device whose trials are shown: host, cuda, or its key, architecture or a part of its name (default: this "
                      "machine's CPU if it has any)");
  command->add_option("-o,--output", args->file, "file to write")->capture_default_str();
  command->footer(R"(examples:
  nestor report layernorm -o report.html
  nestor report attention --variant causal.bf16 --queries 4096 --device H200
  nestor report --trial 42 --against 17
Sizes and variants that are not given are left open: of the problems that fit, the one with the most trials is shown.
)");
  command->callback([args, &run] { run = [args] { return run_report(*args); }; });
}

}  // namespace nestor::cli
