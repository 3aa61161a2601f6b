// What a share says while it goes on, and at its end.
#include "cli/commands/share_tuning.h"

#include "api/tune_share.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

namespace nestor::cli {
namespace {

std::string problem_text(const ProblemKey& problem) {
  return fmt::format("{} ({}) {}", problem.op, problem.variant, format_sizes(problem.sizes));
}

/// What of a request is told; tuning takes the request itself.
struct Told {
  std::vector<PlannedProblem> problems;
  std::string database, export_file;
};

nlohmann::json share_to_json(const ShareArgs& args, const Told& told, const ShareResult& result) {
  const Shard shard = shard_from(args.shard);
  nlohmann::json failures = nlohmann::json::array();
  for (const ShareResult::Failure& failure : result.failures)
    failures.push_back({{"problem", problem_to_json(failure.problem)}, {"reason", failure.reason}});
  return {{"plan", args.plan},
          {"shard", {{"index", shard.index}, {"count", shard.count}}},
          {"problems", told.problems.size()},
          {"finished", result.finished},
          {"known", result.known},
          {"failures", failures},
          {"trials", result.trials},
          {"stopped", result.stopped},
          {"device_failure", result.device_failure},
          {"database", told.database},
          {"export", told.export_file}};
}

void print_share(const Told& told, const ShareResult& result) {
  print(fmt::format("{} of {} tuned, {} finished before, {}", result.finished,
                    count_of(static_cast<std::int64_t>(told.problems.size()), "problem"), result.known,
                    count_of(result.trials, "trial")));
  for (const ShareResult::Failure& failure : result.failures)
    print(fmt::format("FAILED    {}: {}", problem_text(failure.problem), failure.reason));
  if (!result.device_failure.empty()) print(fmt::format("DEVICE    {}", result.device_failure));
  if (result.stopped || !result.device_failure.empty()) print("the same command goes on from here");
  print(fmt::format("stored    {}", told.database));
  if (!told.export_file.empty()) print(fmt::format("exported  {}", told.export_file));
}

std::string progress_of(const Told& told, std::size_t number, const TuneProgress& progress) {
  return fmt::format("problem {}/{}  {}  trial {}  best {}", number + 1, told.problems.size(),
                     problem_text(told.problems[number].key), progress.trials, format_ms(progress.best_ms));
}

}  // namespace

void add_share(CLI::App& command, ShareArgs& args) {
  CLI::Option* plan = command.add_option("--plan", args.plan, "file of nestor plan: tune its problems one after another");
  for (const char* other : {"OP", "--variant", "--sizes", "--set"}) plan->excludes(command.get_option(other));
  command.add_option("--shard", args.shard, "with --plan: the share k of n, counted from 0")->needs(plan)->capture_default_str();
  command
      .add_option("--export", args.export_file,
                  "with --plan: file for all trials of these problems, once a minute and at the end")
      ->needs(plan);
}

int run_share(const ShareArgs& args, TuneRequest& each, const DatabaseArgs& database) {
  const Told told{share_of(load_plan(args.plan), shard_from(args.shard)), database.resolved_path(), args.export_file};
  each.database = told.database;
  auto line = std::make_unique<ProgressLine>();
  const auto show = [&](std::size_t number, const TuneProgress& progress) { line->show(progress_of(told, number, progress)); };
  if (!output_mode().json)
    print(fmt::format("share {} of {}: {}", args.shard, args.plan,
                      count_of(static_cast<std::int64_t>(told.problems.size()), "problem")));
  const ShareResult result = tune_share({told.problems, each, told.export_file, show});
  line.reset();
  output_mode().json ? print_json(share_to_json(args, told, result)) : print_share(told, result);
  if (result.stopped) return kInterrupted;
  if (!result.device_failure.empty()) return kDeviceError;
  return result.failures.empty() ? kOk : kNoKernel;
}

}  // namespace nestor::cli
