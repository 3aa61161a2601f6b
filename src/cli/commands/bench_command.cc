// nestor bench: schedules measured in turns in one run: those of files, or the best stored one against the original order, serial
// and parallel.
#include "autotune/measure_schedules.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/measurer.h"
#include "autotune/trial/statistics.h"
#include "autotune/trial/trial_steps.h"
#include "autotune/tuner.h"
#include "cli/arguments/operator_args.h"
#include "cli/arguments/schedule_source.h"
#include "cli/commands/commands.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"
#include "cli/terminal/screen.h"
#include "support/error.h"
#include "support/system/json_text.h"
#include "support/system/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace nestor::cli {
namespace {

struct BenchArgs {
  OperatorArgs problem;
  DatabaseArgs database;
  MeasureArgs measure;
  std::vector<std::string> steps;  ///< files with schedules
  int rounds = 3;
};

/// One schedule and all its samples.
struct Contender {
  std::string name;
  Schedule schedule;
  std::vector<double> samples;
  TrialRecord record{};       ///< of the last round
  bool must_succeed = false;  ///< others may fail, or take too long
};

/// In turns.
void measure_rounds(std::vector<Contender>& contenders, int rounds, const Nest& nest, const Sizes& sizes,
                    const MeasureOptions& options) {
  std::vector<Schedule> turns;
  for (int round = 0; round < rounds; ++round) {
    for (const Contender& contender : contenders) turns.push_back(contender.schedule);
  }
  const std::vector<TrialRecord> records = measure_schedules(turns, nest, sizes, options);
  for (std::size_t k = 0; k < records.size(); ++k) {
    Contender& contender = contenders[k % contenders.size()];
    const TrialRecord& record = records[k];
    contender.record = record;
    if (record.status == TrialStatus::ok) {
      contender.samples.insert(contender.samples.end(), record.samples_ms.begin(), record.samples_ms.end());
    } else if (contender.must_succeed) {
      user_error("the best schedule was not measured: {}: {}", to_string(record.status), record.reason);
    }
  }
}

/// What tuning starts from: the original order, parallel where that is legal.
Schedule parallel_original(const Nest& nest, const Sizes& sizes, const MeasureOptions& options) {
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const std::unique_ptr<Space> space = make_nest_space(schedules, sizes, space_limits(options));
  return schedules.replay(space->candidate(space->baseline()).steps);
}

nlohmann::json head_to_json(const Nest& nest, const Sizes& sizes, const MeasureOptions& options) {
  return {{"problem", problem_to_json(problem_key(nest, sizes))},
          {"device", device_to_json(device_identity(options.target, options.threads))}};
}

std::string head_text(const Nest& nest, const Sizes& sizes, const MeasureOptions& options) {
  return fmt::format("{} ({}) at {} on {}", nest.op, nest.variant, format_sizes(sizes), options.target.str());
}

nlohmann::json contender_to_json(const Contender& contender) {
  return {{"name", contender.name}, {"median_ms", median(contender.samples)}, {"samples_ms", contender.samples}};
}

void print_contenders(const std::vector<Contender>& contenders) {
  std::vector<std::vector<std::string>> rows{{"schedule", "median", "fastest", "slowest", "speed-up"}};
  const double start = median(contenders.front().samples);
  for (const Contender& contender : contenders) {
    if (contender.samples.empty()) {
      rows.push_back(
          {contender.name, "-", "-", "-", fmt::format("{}: {}", to_string(contender.record.status), contender.record.reason)});
      continue;
    }
    const auto [low, high] = std::minmax_element(contender.samples.begin(), contender.samples.end());
    const double middle = median(contender.samples);
    TrialRecord whole = contender.record;
    whole.median_ms = middle;
    rows.push_back({contender.name, format_ms(middle) + throughput_text(whole), format_ms(*low), format_ms(*high),
                    start > 0 ? fmt::format("{:.2f}x", start / middle) : "-"});
  }
  print(format_table(rows, terminal_width()));
}

/// The schedules of files, the first of which is what the others are compared with.
int run_files(const BenchArgs& args, const Nest& nest, const Sizes& sizes, const MeasureOptions& options) {
  std::vector<Contender> contenders;
  for (const std::string& file : args.steps)
    contenders.push_back({file, schedule_from_text(nest, sizes, text_of_file(file), file), {}, {}});
  measure_rounds(contenders, args.rounds, nest, sizes, options);
  if (output_mode().json) {
    nlohmann::json json = head_to_json(nest, sizes, options);
    json["schedules"] = nlohmann::json::array();
    for (const Contender& contender : contenders) {
      json["schedules"].push_back(contender_to_json(contender));
      json["schedules"].back().update({{"status", to_string(contender.record.status)}, {"reason", contender.record.reason}});
    }
    print_json(json);
  } else {
    print(head_text(nest, sizes, options));
    print_contenders(contenders);
  }
  const bool measured =
      std::any_of(contenders.begin(), contenders.end(), [](const Contender& contender) { return !contender.samples.empty(); });
  return measured ? kOk : kNoKernel;
}

int run_bench(const BenchArgs& args) {
  const Nest nest = args.problem.load();
  const Sizes sizes = args.problem.sizes(nest);
  const MeasureOptions options = args.measure.resolve(nest);
  if (!args.steps.empty()) return run_files(args, nest, sizes, options);
  const Database database = args.database.open(true);
  const std::optional<TrialRecord> best =
      database.best(device_identity(options.target, options.threads), problem_key(nest, sizes), Database::Kernels::unchecked_too);
  if (!best) {
    print(fmt::format("no correct trial of {} ({}) at {}; find one with: nestor tune {}", nest.op, nest.variant,
                      format_sizes(sizes), args.problem.source));
    return kNoKernel;
  }
  std::vector<Contender> contenders;
  // One thread of a GPU would take longer than anybody waits.
  if (!options.target.is_gpu()) contenders.push_back({"original", Schedule(nest_for_tuning(nest, sizes)), {}, {}});
  contenders.push_back({"parallel", parallel_original(nest, sizes, options), {}, {}});
  contenders.push_back(
      {"best", replay_trial_steps(nest, sizes, json_from_text(best->steps, "the stored schedule")), {}, {}, true});
  measure_rounds(contenders, args.rounds, nest, sizes, options);
  if (output_mode().json) {
    nlohmann::json json = head_to_json(nest, sizes, options);
    json["trial"] = best->id;
    json["speedup"] = median(contenders.front().samples) / median(contenders.back().samples);
    for (const Contender& contender : contenders) json[contender.name] = contender_to_json(contender);
    print_json(json);
  } else {
    print(fmt::format("{}, trial {}", head_text(nest, sizes, options), best->id));
    print_contenders(contenders);
  }
  return kOk;
}

}  // namespace

void add_bench(CLI::App& app, Action& run) {
  auto args = std::make_shared<BenchArgs>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure schedules in turns: the best stored one and the original order, or those of files");
  args->problem.add_to(*command);
  args->database.add_to(*command);
  args->measure.add_to(*command);
  command->add_option("--steps", args->steps,
                      "file with a schedule (JSON, or one step a line) to measure instead; may be given several times");
  command->add_option("--rounds", args->rounds, "times that all are measured, in turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->footer(R"(examples:
  nestor bench layernorm --rows 4096 --width 1024
  nestor bench softmax --rows 8192 --width 4096 --dtype bf16 --target cuda
  nestor --json bench matmul --rounds 10 --target host
  nestor bench attention --variant causal.f16 --target cuda --steps plain.json --steps overlapped.json
)");
  command->callback([args, &run] { run = [args] { return run_bench(*args); }; });
}

}  // namespace nestor::cli
