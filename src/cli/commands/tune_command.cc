// nestor tune: searches schedules of one problem and remembers every measurement.
#include "autotune/tuner.h"
#include "cli/arguments/operator_args.h"
#include "cli/arguments/report_choice.h"
#include "cli/commands/commands.h"
#include "cli/commands/kernel_remarks.h"
#include "cli/commands/live_report.h"
#include "cli/commands/share_tuning.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/output.h"
#include "support/debug.h"
#include "support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

namespace nestor::cli {
namespace {

struct TuneArgs {
  OperatorArgs problem;
  DatabaseArgs database;
  MeasureArgs measure;
  int trials = 200;
  double time = 60;
  std::string searcher = "evolutionary";
  std::uint64_t seed = 1;
  bool fix_all = false;
  bool retry_failed = false;
  std::string report;  ///< file of the report; "": none
  int finalists = 0;
  ShareArgs share;
};

std::string progress_text(const TuneProgress& progress) {
  const double speedup = progress.best_ms > 0 && progress.baseline_ms > 0 ? progress.baseline_ms / progress.best_ms : 0;
  const std::string factor = speedup > 0 ? fmt::format(" ({:.2f}x)", speedup) : "";
  return fmt::format("trial {}/{}  best {}{}  {:.1f} trials/s  {:.0f} s, {:.0f} s left", progress.trials, progress.max_trials,
                     format_ms(progress.best_ms), factor, progress.trials_per_s, progress.elapsed_s, progress.left_s);
}

/// All but the problem.
void set_for_any(TuneRequest& request, const TuneArgs& args) {
  request.fix_all_sizes = args.fix_all;
  request.retry_failed = args.retry_failed;
  request.searcher = *searcher_kind_from(args.searcher);
  request.max_trials = args.trials;
  request.time_budget_s = args.time;
  request.seed = args.seed;
  request.finalists = args.finalists;
  request.database_options.system_path = args.database.resolved_system_path();
}

TuneRequest make_request(const TuneArgs& args) {
  if (args.measure.target.starts_with("sm_")) {
    user_error(
        "tuning measures on a device that is here: --target host, cuda or cuda:1; 'nestor show {} --as ptx --target {}' "
        "prints the kernel for that GPU",
        args.problem.source, args.measure.target);
  }
  TuneRequest request;
  set_for_any(request, args);
  request.nest = args.problem.load();
  request.sizes = args.problem.sizes(request.nest);
  request.measure = args.measure.resolve(request.nest);
  request.database = args.database.usable_path();
  return request;
}

void log_trial(const TrialRecord& trial) {
  if (!debug_enabled(DebugSwitch::trials)) return;
  debug_log(DebugSwitch::trials, fmt::format("trial {}: {} {} {}\n{}", trial.id, to_string(trial.status),
                                             format_ms(trial.median_ms), trial.reason, steps_text(trial.steps)));
}

/// Why candidates on tensor cores were refused, counted.
class Refusals {
 public:
  void add(const TrialRecord& trial) {
    const bool failed = trial.status == TrialStatus::infeasible || trial.status == TrialStatus::illegal ||
                        trial.status == TrialStatus::compile_error || trial.status == TrialStatus::unproved;
    if (failed && has_tensor_cores(trial.steps)) ++counts_[trial.reason];
  }
  std::string most_common() const {
    const auto most =
        std::max_element(counts_.begin(), counts_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == counts_.end() ? "" : most->first;
  }

 private:
  std::map<std::string, int> counts_;
};

std::string query_command(const TuneArgs& args, const Sizes& sizes) {
  std::string text = "nestor query " + args.problem.source;
  if (!args.problem.variant.empty()) text += " --variant " + args.problem.variant;
  for (const auto& [name, value] : sizes) text += fmt::format(" --{} {}", name, value);
  if (!args.measure.target.empty()) text += " --device " + args.measure.target;
  return text + database_option(args.database);
}

/// "cuda:0, NVIDIA H200 (sm_90)"
std::string device_text(const MeasureOptions& options) {
  const DeviceIdentity device = device_identity(options.target, options.threads);
  const std::string also = options.target.count > 1 ? fmt::format(" and {} more", options.target.count - 1) : "";
  return fmt::format("{}{}, {} ({})", options.target.str(), also, device.name, device.arch);
}

nlohmann::json counts_to_json(const TuneResult& result) {
  nlohmann::json counts = nlohmann::json::object();
  for (const auto& [status, count] : result.counts) counts[std::string(to_string(status))] = count;
  return counts;
}

nlohmann::json result_to_json(const TuneResult& result, const TuneRequest& request, const KernelRemarks& remarks) {
  nlohmann::json json{{"problem", problem_to_json(result.problem)},
                      {"device", device_to_json(result.device)},
                      {"baseline_ms", result.baseline_ms},
                      {"trials", result.trials},
                      {"known", result.known},
                      {"lost", result.lost},
                      {"counts", counts_to_json(result)},
                      {"first_correct_s", result.first_correct_s},
                      {"elapsed_s", result.elapsed_s},
                      {"stopped", result.stopped},
                      {"exhausted", result.exhausted},
                      {"space", result.space},
                      {"database", request.database}};
  if (result.wrong_trial != 0)
    json["wrong"] = {{"count", result.counts.at(TrialStatus::wrong) - result.imprecise}, {"trial", result.wrong_trial}};
  if (result.imprecise > 0) json["imprecise"] = result.imprecise;
  add_to(json, remarks);
  if (!result.fixed_sizes.empty()) json["fixed_sizes"] = result.fixed_sizes;
  json["best"] = result.best ? trial_to_json(*result.best) : nlohmann::json();
  return json;
}

/// Candidates are proved before they run: one that computes something else shows a bug, which must not pass as a mere bad candidate.
std::string wrong_text(const TuneResult& result, const TuneArgs& args) {
  const int wrong = result.counts.at(TrialStatus::wrong) - result.imprecise;
  return fmt::format(
      "WRONG     {} of {} computed something else than the definition, or a check of Nestor's own stopped them: a bug of Nestor\n"
      "          see one: nestor verify {}{}    list them: nestor db wrong{}",
      wrong, count_of(result.trials, "candidate"), result.wrong_trial, database_option(args.database),
      database_option(args.database));
}

/// Their proofs hold but for the rounding of operands, whose error only values tell.
std::string imprecise_text(const TuneResult& result) {
  return fmt::format("imprecise {} of {} {} operands to 16 bits, which is too coarse for this definition; others keep more",
                     result.imprecise, count_of(result.trials, "candidate"), result.imprecise == 1 ? "rounds" : "round");
}

void print_result(const TuneResult& result, const TuneRequest& request, const TuneArgs& args, const KernelRemarks& remarks) {
  std::string counts;
  for (const auto& [status, count] : result.counts)
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, to_string(status));
  print(
      fmt::format("{} in {:.1f} s{}{}", count_of(result.trials, "trial"), result.elapsed_s, counts.empty() ? "" : ": ", counts));
  if (result.known > 0) print(fmt::format("{} known from earlier runs", count_of(result.known, "trial")));
  if (result.lost > 0) {
    print(fmt::format("{} ended from outside (killed, or memory lacked): not stored, the same command tries again",
                      count_of(result.lost, "candidate")));
    if (!result.lost_reason.empty()) print(fmt::format("the last of them: {}", result.lost_reason));
  }
  if (result.exhausted) print("every candidate of the space is measured");
  if (result.imprecise > 0) print(imprecise_text(result));
  if (result.wrong_trial != 0) print(wrong_text(result, args));
  if (!result.best) {
    print("no correct kernel yet; the same command goes on from here");
    return;
  }
  const TrialRecord& best = *result.best;
  print(fmt::format("start     {}", format_ms(result.baseline_ms)));
  const std::string speedup =
      result.baseline_ms > 0 ? fmt::format("  ({:.2f}x faster)", result.baseline_ms / best.median_ms) : "";
  print(fmt::format("best      {}{}{}", format_ms(best.median_ms), speedup, throughput_text(best)));
  print(remarks);
  if (!result.fixed_sizes.empty())
    print(fmt::format("fixed: {}, as blocks fit, or use their threads, only where they know these sizes",
                      fmt::join(result.fixed_sizes, ", ")));
  print("schedule");
  print(steps_text(best.steps));
  print(fmt::format("stored    trial {} in {}", best.id, request.database));
  print(fmt::format("ask       {}", query_command(args, result.problem.sizes)));
  if (!args.report.empty()) print(fmt::format("report    {}", args.report));
  print(fmt::format("check     nestor verify {}{}", best.id, database_option(args.database)));
}

int run_share_of(const TuneArgs& args) {
  TuneRequest each;
  set_for_any(each, args);
  each.measure = args.measure.resolve();
  const InterruptGuard interrupt;
  each.stop = interrupt.flag();
  return run_share(args.share, each, args.database);
}

int run_tune(const TuneArgs& args) {
  if (!args.share.plan.empty()) return run_share_of(args);
  if (args.problem.source.empty()) user_error("tune needs an operator or the path of a nest file, or --plan FILE");
  TuneRequest request = make_request(args);
  const InterruptGuard interrupt;
  request.stop = interrupt.flag();
  auto line = std::make_unique<ProgressLine>();
  std::optional<LiveReport> report;
  if (!args.report.empty()) report.emplace(args.report, request, args.database);
  Refusals refusals;
  request.progress = [&](const TuneProgress& progress) {
    if (progress.last != nullptr) {
      log_trial(*progress.last);
      refusals.add(*progress.last);
    }
    if (report) report->refresh();
    line->show(progress_text(progress));
  };
  if (!output_mode().json) {
    print(fmt::format("tuning {} ({}) at {} on {}", request.nest.op, request.nest.variant, format_sizes(request.sizes),
                      device_text(request.measure)));
  }
  const TuneResult result = tune(request);
  line.reset();
  if (report) report->finish();
  KernelRemarks remarks;
  if (result.best) {
    remarks = remarks_on(request.nest, result.problem.sizes,
                         {result.best->steps, result.device, result.best->median_ms, refusals.most_common()});
  }
  if (output_mode().json) {
    print_json(result_to_json(result, request, remarks));
  } else {
    print_result(result, request, args, remarks);
  }
  if (result.stopped) return kInterrupted;
  return result.best ? kOk : kNoKernel;
}

}  // namespace

void add_tune(CLI::App& app, Action& run) {
  auto args = std::make_shared<TuneArgs>();
  CLI::App* command = app.add_subcommand("tune", "Search for the fastest legal schedule and remember every trial");
  args->problem.add_to(*command, false);
  args->database.add_to(*command);
  args->measure.add_to(*command);
  add_share(*command, args->share);
  command->add_option("--trials", args->trials, "new trials at most; with --plan trials of each problem")
      ->check(positive_number())
      ->capture_default_str();
  command->add_option("--time", args->time, "seconds at most, inf: no limit; one candidate is tried in any case")
      ->check(positive_number())
      ->capture_default_str();
  command->add_option("--searcher", args->searcher, "how candidates are chosen")
      ->check(one_of({"evolutionary", "random", "exhaustive"}))
      ->capture_default_str();
  command->add_option("--seed", args->seed, "of the search: the same seed gives the same order of candidates")
      ->check(whole_number_between(0, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
  command->add_flag("--fix-all", args->fix_all, "compile for exactly these sizes (faster at best, serves no other size)");
  command->add_flag("--retry-failed", args->retry_failed,
                    "try again, and first, what crashed, took too long or did not compile in earlier runs");
  command
      ->add_option("--finalists", args->finalists,
                   "measure on this device the so many fastest candidates that others of its model found, and nothing else")
      ->check(positive_number());
  command->add_option("--report", args->report,
                      "file for an HTML report, written again at most each second while the search goes on");
  command->footer(R"(examples:
  nestor tune layernorm --rows 4096 --width 1024 --time 60
  nestor tune matmul --time 60 --report report.html
  nestor tune layernorm --rows 8192 --width 4096 --dtype bf16 --target cuda --time 20
  nestor tune attention --dtype f16 --sizes batch=2,heads=8,queries=1024,keys=1024
  nestor tune path/to/other.nest.json --trials 50 --searcher random --seed 7
  nestor tune --plan plan.jsonl --shard 2/8 --db share2.db --export out/share2.jsonl
Ctrl-C keeps everything measured so far; the same command goes on from there.
)");
  command->callback([args, &run] { run = [args] { return run_tune(*args); }; });
}

}  // namespace nestor::cli
