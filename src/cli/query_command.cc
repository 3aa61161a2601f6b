// nestor query: the best kernel known for a problem, and how well it fits.
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/operator_args.h"
#include "cli/output.h"
#include "poly/nest_json.h"

#include <fmt/format.h>

#include <memory>

namespace nestor::cli {
namespace {

struct QueryArgs {
  OperatorArgs problem;
  DatabaseArgs database;
  int threads = 0;
};

nlohmann::json match_to_json(const Match& match) {
  nlohmann::json json{{"match", to_string(match.kind)}};
  if (match.kind == MatchKind::none) return json;
  json["distance"] = match.distance;
  json["problem"] = problem_to_json(match.problem);
  json["device"] = device_to_json(match.device);
  json["trial"] = trial_to_json(match.trial);
  return json;
}

/// What the kind of match promises.
std::string match_text(const Match& match) {
  switch (match.kind) {
    case MatchKind::exact:
      return "exact: measured at these sizes on this device";
    case MatchKind::nearest:
      return fmt::format("nearest: valid here, measured at {} (distance {:.2f} in log2)", format_sizes(match.problem.sizes),
                         match.distance);
    case MatchKind::other_device:
      return fmt::format("other device: valid here, measured on {}", match.device.name);
    case MatchKind::none:
      return "none";
  }
  return "";
}

/// "x86-64:znver3" of "x86-64:znver3:+avx2,...": every feature by name is for machines.
std::string short_architecture(const std::string& architecture) {
  const std::size_t cpu = architecture.find(':');
  return cpu == std::string::npos ? architecture : architecture.substr(0, architecture.find(':', cpu + 1));
}

void print_match(const Match& match) {
  print(fmt::format("match     {}", match_text(match)));
  print(fmt::format("time      {}  (worst error {:.2g})", format_ms(match.trial.median_ms), match.trial.max_error));
  print(fmt::format("trial     {}, {}, {}", match.trial.id, match.trial.created, match.trial.toolchain));
  print("schedule");
  print(steps_text(match.trial.steps));
  if (match.trial.kernel) {
    print(fmt::format("kernel    {} bytes for {}", match.trial.kernel->code.size(),
                      short_architecture(match.trial.kernel->architecture)));
  }
}

int run_query(const QueryArgs& args) {
  const Nest nest = args.problem.load();
  const Sizes sizes = args.problem.sizes(nest);
  const Database database = args.database.open(true);
  const Match match = database.query(device_identity_host(args.threads), nest.op, nest.variant, digest(nest), sizes);
  if (output_mode().json) {
    print_json(match_to_json(match));
  } else if (match.kind != MatchKind::none) {
    print_match(match);
  } else {
    print(fmt::format("no kernel of {} ({}) is valid for {}; find one with: nestor tune {}", nest.op, nest.variant,
                      format_sizes(sizes), args.problem.source));
  }
  return match.kind == MatchKind::none ? kNoKernel : kOk;
}

}  // namespace

void add_query(CLI::App& app, Action& run) {
  auto args = std::make_shared<QueryArgs>();
  CLI::App* command = app.add_subcommand("query", "Print the best kernel known for a problem");
  args->problem.add_to(*command);
  args->database.add_to(*command);
  command->add_option("--threads", args->threads, "threads the kernel will have (default: all cores)")
      ->check(CLI::Range(0, 4096));
  command->footer(R"(examples:
  nestor query layernorm --rows 4096 --cols 1024
  nestor --json query matmul --m 500 --n 512 --k 512
Exit code 3 when no kernel is valid for these sizes.
)");
  command->callback([args, &run] { run = [args] { return run_query(*args); }; });
}

}  // namespace nestor::cli
