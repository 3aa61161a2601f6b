// nestor query: the best kernel known for a problem, and how well it fits.
#include "cli/arguments/device_choice.h"
#include "cli/arguments/operator_args.h"
#include "cli/commands/commands.h"
#include "cli/commands/kernel_remarks.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"
#include "db/no_match.h"
#include "poly/nest/nest_json.h"
#include "support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>

namespace nestor::cli {
namespace {

struct QueryArgs {
  OperatorArgs problem;
  DatabaseArgs database;
  int threads = 0;
  std::string device;
};

/// A match, and whether the device that was asked for is in this machine.
struct Found {
  Match match;
  bool here = true;
  bool any() const { return match.kind != MatchKind::none; }
};

/// Exact before nearest, then the nearer one.
bool better(const Match& a, const Match& b) { return std::pair(a.kind, a.distance) < std::pair(b.kind, b.distance); }

/// Asks the database for one problem, on one device or another.
class Asker {
 public:
  Asker(const QueryArgs& args)
      : args_(args), nest_(args.problem.load()), sizes_(args.problem.sizes(nest_)), database_(args.database.open(true)) {}

  const Nest& nest() const { return nest_; }
  const Sizes& sizes() const { return sizes_; }
  /// Kernels of the operator that are not served yet.
  std::int64_t waiting() const { return database_.waiting(nest_.op, nest_.variant); }

  /// Which of what was asked for fits no record.
  std::string why_none() const {
    std::vector<Database::ProblemSummary> records = database_.summary();
    if (const std::string system = args_.database.resolved_system_path(); !system.empty()) {
      const auto more = Database::open(system, {.read_only = true}).summary();
      records.insert(records.end(), more.begin(), more.end());
    }
    Asked asked{nest_.op, nest_.variant, digest(nest_), sizes_, {}};
    if (is_of_this_machine(args_.device)) asked.devices = {device_identity(target_from(args_.device), args_.threads)};
    asked.damaged = [&] { return database_.damaged(nest_.op, nest_.variant); };
    return why_no_match(records, asked);
  }

  /// On the device that was named, else on this machine's, else on any.
  Found ask() const {
    if (args_.device.empty()) return ask_here_first();
    if (is_of_this_machine(args_.device)) return {on(device_identity(target_from(args_.device), args_.threads))};
    return ask_named();
  }

 private:
  Match on(const DeviceIdentity& device) const { return database_.query(device, nest_.op, nest_.variant, digest(nest_), sizes_); }

  Found ask_here_first() const {
    const Target first = target_from("auto");
    Found found{on(device_identity(first, args_.threads))};
    if (!found.any() && first.is_gpu()) found.match = on(device_identity({}, args_.threads));
    return found.any() ? found : best_of(database_.devices());
  }

  /// By name, architecture or key, or a part of one.
  Found ask_named() const {
    const std::vector<DeviceIdentity> known = database_.devices();
    std::vector<DeviceIdentity> meant;
    std::copy_if(known.begin(), known.end(), std::back_inserter(meant),
                 [&](const DeviceIdentity& device) { return is_meant(device, args_.device); });
    if (meant.empty()) refuse_device(args_.device, known, {"host", "cuda", "cuda:0", "cuda:1"});
    return best_of(meant);
  }

  Found best_of(const std::vector<DeviceIdentity>& devices) const {
    Found found{{}, false};
    for (const DeviceIdentity& device : devices) {
      Match match = on(device);
      if (match.kind != MatchKind::none && (!found.any() || better(match, found.match))) found.match = std::move(match);
    }
    found.here = found.any() && is_here(found.match.device);
    return found;
  }

  bool is_here(const DeviceIdentity& device) const {
    if (device_identity({}, args_.threads).key() == device.key()) return true;
    const Target gpu = target_from("auto");
    return gpu.is_gpu() && device_identity(gpu).key() == device.key();
  }

  const QueryArgs& args_;
  Nest nest_;
  Sizes sizes_;
  Database database_;
};

nlohmann::json match_to_json(const Found& found) {
  const Match& match = found.match;
  nlohmann::json json{{"match", to_string(match.kind)}};
  if (match.kind == MatchKind::none) return json;
  json["here"] = found.here;
  json["distance"] = match.distance;
  json["problem"] = problem_to_json(match.problem);
  json["device"] = device_to_json(match.device);
  json["trial"] = trial_to_json(match.trial);
  return json;
}

/// What the kind of match promises.
std::string match_text(const Found& found) {
  const Match& match = found.match;
  const std::string device =
      found.here ? "this device"
                 : fmt::format("another device: {} ({}), which is not in this machine", match.device.name, match.device.arch);
  switch (match.kind) {
    case MatchKind::exact:
      return fmt::format("exact: measured at these sizes on {}", device);
    case MatchKind::nearest:
      return fmt::format("nearest: valid here, measured at {} (distance {:.2f} in log2){}", format_sizes(match.problem.sizes),
                         match.distance, found.here ? "" : " on " + device);
    case MatchKind::other_device:
      return fmt::format("other device: valid here, measured on {} at {} (distance {:.2f} in log2)", match.device.name,
                         format_sizes(match.problem.sizes), match.distance);
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

void print_match(const Found& found, const KernelRemarks& remarks) {
  const Match& match = found.match;
  print(fmt::format("match     {}", match_text(found)));
  print(fmt::format("time      {}{}  (worst error {:.2g})", format_ms(match.trial.median_ms), throughput_text(match.trial),
                    match.trial.max_error));
  print(fmt::format("trial     {}, {}, {}", match.trial.id, match.trial.created, match.trial.toolchain));
  print(remarks);
  print("schedule");
  print(steps_text(match.trial.steps));
  if (match.trial.kernel) {
    print(fmt::format("kernel    {} bytes for {}", match.trial.kernel->code.size(),
                      short_architecture(match.trial.kernel->architecture)));
  }
}

int run_query(const QueryArgs& args) {
  const Asker asker(args);
  const Found found = asker.ask();
  const Match& match = found.match;
  const KernelRemarks remarks =
      found.any() ? remarks_on(asker.nest(), match.problem.sizes, {match.trial.steps, match.device, match.trial.median_ms})
                  : KernelRemarks{};
  if (output_mode().json) {
    nlohmann::json json = match_to_json(found);
    add_to(json, remarks);
    json["waiting"] = asker.waiting();
    if (!found.any()) json["reason"] = asker.why_none();
    print_json(json);
  } else if (found.any()) {
    print_match(found, remarks);
  } else {
    print(
        fmt::format("no kernel of {} ({}) is valid for {}: {}\nfind one with: nestor tune {}, or load the records that come with "
                    "Nestor: nestor db import --shipped",
                    asker.nest().op, asker.nest().variant, format_sizes(asker.sizes()), asker.why_none(), args.problem.source));
    if (const std::int64_t waiting = asker.waiting(); waiting > 0) print(waiting_text(waiting));
  }
  return found.any() ? kOk : kNoKernel;
}

}  // namespace

void add_query(CLI::App& app, Action& run) {
  auto args = std::make_shared<QueryArgs>();
  CLI::App* command = app.add_subcommand("query", "Print the best kernel known for a problem");
  args->problem.add_to(*command);
  args->database.add_to(*command);
  command->add_option("--threads", args->threads, "threads the kernel will have (default: all cores)")
      ->check(CLI::Range(0, 4096));
  command->add_option(
      "--device", args->device,
      "host, cuda or cuda:1 of this machine, or the name of a device in the records, e.g. \"NVIDIA H200\" (default: "
      "this machine's GPU, then its CPU, then any)");
  command->footer(R"(examples:
  nestor query layernorm --rows 4096 --width 1024
  nestor query layernorm --rows 8192 --width 4096 --dtype bf16 --device H200
  nestor --json query matmul --m 500 --n 512 --k 512
Exit code 3 when no kernel is valid for these sizes.
)");
  command->callback([args, &run] { run = [args] { return run_query(*args); }; });
}

}  // namespace nestor::cli
