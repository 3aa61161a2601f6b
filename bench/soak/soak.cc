// soak: draws random candidates for a time and tells which of them are wrong. docs/debugging.md says how to use it.
#include "autotune/target/target.h"
#include "autotune/tensors/random_fill.h"
#include "autotune/workers/worker_process.h"
#include "soak/device_server.h"
#include "soak/shrink.h"
#include "soak/tally.h"
#include "support/error.h"

#include <CLI/CLI.hpp>

#include <atomic>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

namespace nestor::soak {
namespace {

using nlohmann::json;

struct Args {
  std::uint64_t seed = 1;
  double time_s = 60;
  std::int64_t candidates = 0;  ///< 0: no limit
  int jobs = 0;
  int threads = 2;
  int per_group = 16;
  std::vector<std::string> targets;  ///< host, sm_80, sm_90, cuda, cuda:1
  SourceOptions sources;
  bool ordinary = false;
  std::string findings = "soak-findings";
  std::string json_file;
  std::vector<std::string> replay;
  bool shrink = false;
  Limits limits;
  int servers = 0;
};

/// Where candidates of one target run.
struct Place {
  Engine engine;
  int sm;
};

std::atomic<bool> interrupted{false};

Place place_of(const std::string& target) {
  if (target == "host") return {Engine::host, 0};
  if (target == "sm_80" || target == "sm_90") return {Engine::emulator, target == "sm_80" ? 80 : 90};
  if (target.starts_with("cuda")) return {Engine::device, gpu_facts(target_from(target)).sm};
  user_error("there is no target {}: take host, sm_80 or sm_90 (emulated), cuda or cuda:1 (a GPU that is here)", target);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

void write_file(const std::filesystem::path& path, const json& contents) {
  std::ofstream out(path);
  out << contents.dump(1) << "\n";
  if (!out) user_error("cannot write {}", path.string());
}

/// A running group and what it was asked for.
struct Running {
  WorkerProcess process;
  GroupSpec spec;
  std::string source;
};

constexpr int kLongestSilence_s = 600;

class Soak {
 public:
  explicit Soak(const Args& args) : args_(args), random_(args.seed) {
    for (const std::string& target : args.targets) {
      places_.push_back(place_of(target));
      if (places_.back().engine == Engine::device && !servers_) {
        const int count = args.servers > 0 ? args.servers : 2;
        servers_.emplace(target_from(target).ordinal, count);
      }
    }
    sources_ = make_sources(args.sources);
    for (const Source& source : sources_) total_weight_ += source.weight;
  }

  int run() {
    while (!over()) {
      while (static_cast<int>(running_.size()) < args_.jobs && !over()) start_group();
      hear();
      show();
    }
    for (Running& group : running_) group.process.end(true);
    std::fprintf(stderr, "\n");
    std::cout << tally_.text(elapsed()) << std::flush;
    if (!args_.json_file.empty()) write_file(args_.json_file, result());
    return tally_.findings() > 0 ? 5 : 0;
  }

 private:
  double elapsed() const { return std::chrono::duration<double>(WorkerClock::now() - start_).count(); }
  bool over() const {
    return interrupted || elapsed() > args_.time_s || (args_.candidates > 0 && tally_.candidates() >= args_.candidates);
  }

  std::size_t pick_source() {
    std::int64_t at = random_.below(total_weight_);
    for (std::size_t k = 0; k < sources_.size(); ++k) {
      at -= sources_[k].weight;
      if (at < 0) return k;
    }
    return 0;
  }

  void start_group() {
    GroupSpec spec;
    spec.seed = random_.next() >> 1;
    spec.source = pick_source();
    const Place place = places_[static_cast<std::size_t>(groups_++ % places_.size())];
    spec.engine = place.engine;
    spec.sm = place.sm;
    const Source& source = sources_[spec.source];
    // Stored steps are tried once; many problems of random nests are worth more than many candidates of one.
    spec.candidates = !source.steps.empty()               ? 1
                      : source.name.starts_with("random") ? std::max(1, args_.per_group / 2)
                                                          : args_.per_group;
    spec.special = !args_.ordinary;
    Running group{{}, spec, source.name};
    TryOptions options;
    options.threads = args_.threads;
    options.device = servers_ ? servers_->address() : "";
    group.process.start(0, [&](int socket) {
      try {
        run_group(spec, source, args_.limits, options,
                  [socket](const Report& report) { send_message(socket, report_to_json(report)); });
      } catch (const UserError& error) {
        send_message(socket, {{"lost", outcome_to_json({Verdict::refused, error.what()})}});
      } catch (const std::exception& error) {
        send_message(socket, {{"lost", outcome_to_json({Verdict::internal_error, error.what()})}});
      }
    });
    group.process.limit(kLongestSilence_s);
    running_.push_back(std::move(group));
  }

  /// Waits a moment for news of any group.
  void hear() {
    std::vector<const WorkerProcess*> processes;
    for (const Running& group : running_) processes.push_back(&group.process);
    wait_for_any(processes);
    std::vector<Running> left;
    for (Running& group : running_) {
      if (hear_one(group)) left.push_back(std::move(group));
    }
    running_ = std::move(left);
  }

  /// False when the group is over.
  bool hear_one(Running& group) {
    const Heard heard = group.process.hear();
    if (heard.kind == Heard::Kind::nothing) return true;
    if (heard.kind == Heard::Kind::too_late)
      lost(group, {Verdict::stuck, fmt::format("drawing candidates took more than {} s", kLongestSilence_s)});
    if (heard.kind == Heard::Kind::death && heard.death.find("code 0") == std::string::npos)
      lost(group, {Verdict::crash, "the group " + heard.death});
    if (heard.kind != Heard::Kind::message) return false;
    group.process.limit(kLongestSilence_s);
    if (heard.message.contains("lost")) {
      lost(group, outcome_from_json(heard.message.at("lost")));
      return true;
    }
    const Report report = report_from_json(heard.message);
    tally_.add(report);
    if (!report.found.is_null()) keep(report);
    return true;
  }

  void lost(const Running& group, const Outcome& outcome) {
    const json found{{"group", {{"seed", group.spec.seed}, {"engine", to_string(group.spec.engine)}, {"sm", group.spec.sm}}}};
    tally_.add_lost_group(group.source, outcome, found);
    if (is_finding(outcome.verdict))
      std::cout << fmt::format("{}: {}, in a group of seed {}: {}\n", to_string(outcome.verdict), group.source, group.spec.seed,
                               outcome.detail)
                << std::flush;
  }

  /// A finding becomes a file that --replay takes.
  void keep(const Report& report) {
    std::filesystem::create_directories(args_.findings);
    std::string verdict(to_string(report.outcome.verdict));
    std::replace(verdict.begin(), verdict.end(), ' ', '-');
    const std::string engine = report.found.at("engine");
    const auto path =
        std::filesystem::path(args_.findings) / fmt::format("{}-{}-{}-{}.json", verdict, engine, args_.seed, tally_.findings());
    json contents = report.found;
    contents["verdict"] = verdict;
    contents["detail"] = report.outcome.detail;
    write_file(path, contents);
    std::cout << fmt::format("\n{}: {}\n  {}\n  soak --replay {}\n", verdict, report.found.at("origin").get<std::string>(),
                             report.outcome.detail, path.string())
              << std::flush;
  }

  void show() {
    if (elapsed() - shown_ < 2) return;
    shown_ = elapsed();
    std::fprintf(stderr, "\r\033[K%s", tally_.line(elapsed()).c_str());
  }

  json result() const {
    json result = tally_.json();
    result["date"] = today();
    result["hardware"] = hardware_text();
    result["targets"] = args_.targets;
    result["seed"] = args_.seed;
    result["seconds"] = elapsed();
    result["jobs"] = args_.jobs;
    result["limit_s"] = args_.limits.generate_s;
    if (servers_) result["gpu"] = device_identity(target_from(args_.targets.back())).name;
    return result;
  }

  const Args& args_;
  const WorkerClock::time_point start_ = WorkerClock::now();
  CounterRandom random_;
  std::vector<Place> places_;
  std::optional<DeviceServers> servers_;
  std::vector<Source> sources_;
  std::int64_t total_weight_ = 0;
  std::vector<Running> running_;
  std::size_t groups_ = 0;
  Tally tally_;
  double shown_ = 0;
};

Case case_in(const std::string& file) {
  std::ifstream in(file);
  if (!in) user_error("cannot read {}", file);
  const json contents = json::parse(in, nullptr, false);
  if (contents.is_discarded()) user_error("{} is not JSON", file);
  return case_from_json(contents);
}

std::string verdict_text(const Outcome& outcome) {
  return fmt::format("{}, {:.1f} s from steps to code{}{}", to_string(outcome.verdict), outcome.generate_s,
                     outcome.detail.empty() ? "" : ": ", outcome.detail);
}

int replay(const Args& args) {
  std::optional<DeviceServers> servers;
  int findings = 0;
  for (const std::string& file : args.replay) {
    const Case tried = case_in(file);
    TryOptions options;
    options.threads = args.threads;
    if (tried.engine == Engine::device && !servers) servers.emplace(0, 1);
    if (servers) options.device = servers->address();
    const Outcome outcome = try_apart(tried, args.limits, options);
    std::cout << file << ": " << verdict_text(outcome) << std::endl;
    if (!is_finding(outcome.verdict)) continue;
    ++findings;
    if (!args.shrink) continue;
    const Case small = shrunk(tried, outcome, [&](const Case& smaller) { return try_apart(smaller, args.limits, options); });
    const std::string path = std::filesystem::path(file).replace_extension(".small.json").string();
    write_file(path, case_to_json(small));
    std::cout << path << ": " << verdict_text(try_apart(small, args.limits, options)) << "\n" << steps_text(small) << std::flush;
  }
  return findings > 0 ? 5 : 0;
}

int run(int argc, char** argv) {
  Args args;
  CLI::App app(
      "Random candidates of operators, nest files and random nests: compiled, run at small ragged sizes and compared, every "
      "element");
  app.add_option("--seed", args.seed, "of all that is drawn")->capture_default_str();
  app.add_option("--time", args.time_s, "seconds")->capture_default_str();
  app.add_option("--candidates", args.candidates, "stop after so many");
  app.add_option("--jobs", args.jobs, "groups of candidates at once (default: one a processor)");
  app.add_option("--threads", args.threads, "of host code")->capture_default_str();
  app.add_option("--per-group", args.per_group, "candidates of one problem")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--target", args.targets, "host, sm_80, sm_90 (emulated), cuda; may be repeated (default: host, sm_80, sm_90)");
  app.add_option("--op", args.sources.operators, "operators, NAME or NAME:VARIANT (default: all)");
  app.add_option("--nest", args.sources.files, "nest files");
  app.add_option("--records", args.sources.records, "files of records (JSON lines), whose steps are taken as they are");
  app.add_flag("!--no-operators", args.sources.builtin, "not the operators that are built in");
  app.add_flag("!--no-random", args.sources.random, "no random nests and operators");
  app.add_flag("--ordinary", args.ordinary, "no infinities and NaN among the inputs");
  app.add_option("--findings", args.findings, "folder for reproducers")->capture_default_str();
  app.add_option("--json", args.json_file, "write counts, date, hardware and seed to this file");
  app.add_option("--limit", args.limits.generate_s, "processor seconds from steps to code")->capture_default_str();
  app.add_option("--servers", args.servers, "processes that run kernels on a GPU (default: 2)");
  app.add_option("--replay", args.replay, "files of findings: try these again");
  app.add_flag("--shrink", args.shrink, "with --replay: leave out steps and runs as long as the finding stays")
      ->needs("--replay");
  app.footer(R"(examples:
  soak --time 600 --jobs 16 --nest my.nest.json --json soak.json
  soak --target cuda --op attention --op softmax --op layernorm --no-random --candidates 10000
  soak --replay soak-findings/wrong-host-1-1.json
Exit code 5 when there are findings.
)");
  CLI11_PARSE(app, argc, argv);
  if (args.jobs <= 0) args.jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  if (args.targets.empty()) args.targets = {"host", "sm_80", "sm_90"};
  std::signal(SIGINT, [](int) { interrupted = true; });
  std::signal(SIGTERM, [](int) { interrupted = true; });
  return args.replay.empty() ? Soak(args).run() : replay(args);
}

}  // namespace
}  // namespace nestor::soak

int main(int argc, char** argv) {
  try {
    return nestor::soak::run(argc, argv);
  } catch (const nestor::UserError& error) {
    std::cerr << "soak: " << error.what() << "\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "soak: internal error: " << error.what() << "\n";
    return 2;
  }
}
