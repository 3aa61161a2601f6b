// nestor bench: the best stored schedule against the original order, serial and parallel, measured in turns in one run.
#include "autotune/measure/base_schedules.h"
#include "autotune/measure/measurer.h"
#include "autotune/space/nest_space.h"
#include "autotune/tuner.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/operator_args.h"
#include "cli/output.h"
#include "support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace nestor::cli {
namespace {

struct BenchArgs {
  OperatorArgs problem;
  DatabaseArgs database;
  MeasureArgs measure;
  int rounds = 3;
};

/// One schedule and all its samples.
struct Contender {
  std::string name;
  Schedule schedule;
  std::vector<double> samples;
};

void measure_round(std::vector<Contender>& contenders, const Nest& nest, const Sizes& sizes, const MeasureOptions& options) {
  for (Contender& contender : contenders) {
    const TrialRecord record = measure_schedule(contender.schedule, nest, sizes, options);
    if (record.status != TrialStatus::ok) {
      user_error("the {} schedule was not measured: {}: {}", contender.name, to_string(record.status), record.reason);
    }
    contender.samples.insert(contender.samples.end(), record.samples_ms.begin(), record.samples_ms.end());
  }
}

/// What tuning starts from: the original order, parallel where that is legal.
Schedule parallel_original(const Nest& nest, const Sizes& sizes, int threads) {
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const std::unique_ptr<Space> space = make_nest_space(schedules, sizes, host_space_limits(threads));
  return schedules.replay(space->candidate(space->baseline()).steps);
}

nlohmann::json contender_to_json(const Contender& contender) {
  return {{"name", contender.name}, {"median_ms", median(contender.samples)}, {"samples_ms", contender.samples}};
}

void print_contenders(const std::vector<Contender>& contenders) {
  std::vector<std::vector<std::string>> rows{{"schedule", "median", "fastest", "slowest", "of original"}};
  const double start = median(contenders.front().samples);
  for (const Contender& contender : contenders) {
    const auto [low, high] = std::minmax_element(contender.samples.begin(), contender.samples.end());
    const double middle = median(contender.samples);
    rows.push_back(
        {contender.name, format_ms(middle), format_ms(*low), format_ms(*high), fmt::format("{:.2f}x", start / middle)});
  }
  print(format_table(rows));
}

int run_bench(const BenchArgs& args) {
  const Nest nest = args.problem.load();
  const Sizes sizes = args.problem.sizes(nest);
  const MeasureOptions options = args.measure.resolve(nest);
  const Database database = args.database.open(true);
  const std::optional<TrialRecord> best = database.best(device_identity_host(options.threads), problem_key(nest, sizes));
  if (!best) {
    print(fmt::format("no correct trial of {} ({}) at {}; find one with: nestor tune {}", nest.op, nest.variant,
                      format_sizes(sizes), args.problem.source));
    return kNoKernel;
  }
  std::vector<Contender> contenders{{"original", Schedule(nest_for_tuning(nest, sizes)), {}},
                                    {"parallel", parallel_original(nest, sizes, options.threads), {}},
                                    {"best", replay_trial_steps(nest, sizes, nlohmann::json::parse(best->steps)), {}}};
  for (int round = 0; round < args.rounds; ++round) measure_round(contenders, nest, sizes, options);
  if (output_mode().json) {
    print_json({{"problem", problem_to_json(problem_key(nest, sizes))},
                {"trial", best->id},
                {"original", contender_to_json(contenders[0])},
                {"parallel", contender_to_json(contenders[1])},
                {"best", contender_to_json(contenders[2])},
                {"speedup", median(contenders[0].samples) / median(contenders[2].samples)}});
  } else {
    print(fmt::format("{} ({}) at {}, trial {}", nest.op, nest.variant, format_sizes(sizes), best->id));
    print_contenders(contenders);
  }
  return kOk;
}

}  // namespace

void add_bench(CLI::App& app, Action& run) {
  auto args = std::make_shared<BenchArgs>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure the best stored schedule against the original order, serial and parallel");
  args->problem.add_to(*command);
  args->database.add_to(*command);
  args->measure.add_to(*command);
  command->add_option("--rounds", args->rounds, "times that all are measured, in turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->footer(R"(examples:
  nestor bench layernorm --rows 4096 --cols 1024
  nestor --json bench matmul --rounds 10
)");
  command->callback([args, &run] { run = [args] { return run_bench(*args); }; });
}

}  // namespace nestor::cli
