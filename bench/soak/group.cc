// Draws problems and candidates, forks a child for each, and keeps its limits.
#include "soak/group.h"

#include "autotune/search/searcher.h"
#include "autotune/search/searcher_kind.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/tensors/random_fill.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "autotune/workers/worker_process.h"
#include "poly/nest/nest_json.h"
#include "soak/draw_sizes.h"
#include "soak/random_schedule.h"
#include "support/error.h"

#include <sys/resource.h>
#include <cmath>
#include <ctime>
#include <new>

namespace nestor::soak {
namespace {

/// From now on this process may use so much processor time; the kernel ends it with SIGXCPU.
void allow_processor_time(double seconds) {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  rlimit limit{};
  getrlimit(RLIMIT_CPU, &limit);
  limit.rlim_cur = static_cast<rlim_t>(used.tv_sec + std::llround(std::ceil(seconds)) + 1);
  setrlimit(RLIMIT_CPU, &limit);
}

/// right, or what an exception that leaves `body` means.
Outcome outcome_of(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const std::bad_alloc&) {
    return {Verdict::memory, "out of memory"};
  } catch (const UserError& error) {
    return {Verdict::refused, error.what()};
  } catch (const std::exception& error) {
    return {Verdict::internal_error, error.what()};
  }
}

/// Runs `body` in a child. Messages of the child: {"case": ...} once, when it is drawn; {"generated": s}; {"outcome": ...} at its end.
class Child {
 public:
  using Send = std::function<void(const nlohmann::json&)>;

  Child(const Limits& limits, const std::function<void(const Send&)>& body) : limits_(limits) {
    process_.start(limits.memory, [&](int socket) {
      allow_processor_time(limits.generate_s);
      const Send send = [socket](const nlohmann::json& message) { send_message(socket, message); };
      const Outcome ended = outcome_of([&] { body(send); });
      send({{"outcome", outcome_to_json(ended)}});
    });
  }

  Outcome wait() {
    // Much longer than processor time: cores are shared, and threads may wait for each other for ever.
    process_.limit(60 + 8 * (limits_.generate_s + limits_.run_s));
    while (true) {
      const Heard heard = process_.wait_and_hear();
      if (heard.kind == Heard::Kind::too_late)
        return {generated_ ? Verdict::stuck : Verdict::slow, "no answer, and hardly any processor time used"};
      if (heard.kind == Heard::Kind::death) return died(heard.death);
      if (heard.message.contains("case")) tried_ = heard.message.at("case");
      if (heard.message.contains("generated")) {
        generated_ = true;
        generate_s_ = heard.message.at("generated");
      }
      if (heard.message.contains("outcome")) {
        process_.end(false);
        return finished(outcome_from_json(heard.message.at("outcome")));
      }
    }
  }
  const nlohmann::json& tried() const { return tried_; }

 private:
  Outcome finished(Outcome outcome) const {
    if (outcome.generate_s > limits_.generate_s && !is_finding(outcome.verdict)) {
      outcome.verdict = Verdict::slow;
      outcome.detail = fmt::format("{:.1f} s from steps to code. {}", outcome.generate_s, outcome.detail);
    }
    return outcome;
  }

  Outcome died(const std::string& death) const {
    Outcome outcome{Verdict::crash, death, generate_s_};
    if (death.find("signal 24") != std::string::npos) {  // SIGXCPU
      outcome.verdict = generated_ ? Verdict::stuck : Verdict::slow;
      outcome.detail = fmt::format("{} takes more than {} s", generated_ ? "running" : "code generation",
                                   generated_ ? limits_.run_s : limits_.generate_s);
      if (!generated_) outcome.generate_s = limits_.generate_s;
    } else if (death.find("bad_alloc") != std::string::npos) {
      outcome.verdict = Verdict::memory;
    }
    return outcome;
  }

  Limits limits_;
  WorkerProcess process_;
  nlohmann::json tried_;
  bool generated_ = false;
  double generate_s_ = 0;
};

/// Emulation takes thousands of times as long: a run that does not end shows nothing.
Outcome judged(Outcome outcome, Engine engine) {
  if (engine == Engine::emulator && outcome.verdict == Verdict::stuck) outcome.verdict = Verdict::infeasible;
  return outcome;
}

/// The problem of a group, and its candidates one after the other.
class Group {
 public:
  Group(const GroupSpec& spec, const Source& source, const Limits& limits, const TryOptions& options)
      : spec_(spec), source_(source), limits_(limits), options_(options), random_(spec.seed), nest_(source.nest(spec.seed)) {
    tuned_ = source.sizes.empty() ? draw_tuned_sizes(nest_, spec.engine, random_) : source.sizes;
    fix_all_ = source.steps.empty() && random_.below(6) == 0;
    schedules_.emplace(nest_for_tuning(nest_, tuned_, fix_all_));
    runs_ = draw_runs(nest_, tuned_, spec.engine, spec.special, random_);
    if (runs_.empty()) user_error("no sizes are small enough to evaluate the definition");
  }

  void run(const std::function<void(const Report&)>& tell) {
    const bool spaced = source_.has_space && source_.steps.empty();
    if (spaced) make_space();
    for (int k = 0; k < spec_.candidates; ++k) {
      const std::uint64_t seed = random_.next();
      Report report{source_.name, {}, nullptr};
      Child child = start(seed, spaced);
      report.outcome = judged(child.wait(), spec_.engine);
      if (is_finding(report.outcome.verdict)) report.found = child.tried().is_null() ? lost_case(seed) : child.tried();
      tell(report);
    }
  }

 private:
  void make_space() {
    const SpaceLimits limits = spec_.sm == 0 ? host_space_limits(options_.threads) : gpu_space_limits(spec_.sm, 227 << 10, 132);
    space_ = make_nest_space(*schedules_, tuned_, limits);
    searchers_.push_back(make_searcher(SearcherKind::evolutionary, *space_, spec_.seed));
    searchers_.push_back(make_searcher(SearcherKind::random, *space_, spec_.seed));
  }

  /// Steps of the next feasible point, in turn near the space's guesses and anywhere in it.
  std::optional<std::vector<Step>> next_candidate() {
    constexpr int kDraws = 200;
    for (int draw = 0; draw < kDraws; ++draw) {
      Searcher& searcher = *searchers_[static_cast<std::size_t>(random_.below(2))];
      const auto point = searcher.propose();
      if (!point) return std::nullopt;
      Candidate candidate = space_->candidate(*point);
      if (candidate.infeasible.empty()) return std::move(candidate.steps);
    }
    return std::nullopt;
  }

  Child start(std::uint64_t seed, bool spaced) {
    std::string how = "random steps";
    std::optional<std::vector<Step>> steps;
    bool more = true;  // random steps on top
    if (!source_.steps.empty()) {
      how = "as stored";
      more = false;
    } else if (spaced && random_.below(4) != 0) {
      steps = next_candidate();
      how = steps ? "its space" : how;
      more = !steps || random_.below(5) == 0;
      if (steps && more) how += " and random steps";
    }
    return Child(limits_, [&](const Child::Send& send) { serve(seed, how, steps.value_or(std::vector<Step>{}), more, send); });
  }

  Schedule start_of(const std::vector<Step>& steps) {
    return source_.steps.empty() ? schedules_->replay(steps) : replay_trial_steps(nest_, tuned_, source_.steps.front());
  }

  /// In the child.
  void serve(std::uint64_t seed, const std::string& how, const std::vector<Step>& steps, bool more, const Child::Send& send) {
    std::optional<Schedule> schedule;
    const auto replay = [&] {
      schedule = start_of(steps);
      if (more) schedule = random_schedule(*schedule, seed, spec_.sm, steps.empty());
      send({{"case", case_of(how, schedule->steps())}});
      return *schedule;
    };
    // What is refused or ends while it is drawn is known by the space's steps.
    send({{"case", case_of(how, steps)}});
    TryOptions options = options_;
    options.seed = static_cast<unsigned>(seed);
    options.generated = [&](double seconds) {
      allow_processor_time(limits_.run_s);
      send({{"generated", seconds}});
    };
    const Outcome outcome = try_case(nest_, spec_.engine, spec_.sm, replay, runs_, options);
    send({{"outcome", outcome_to_json(outcome)}});
  }

  nlohmann::json case_of(const std::string& how, const std::vector<Step>& steps) const {
    const Sizes fixed = fix_all_ ? tuned_ : specialised();
    Case tried{fmt::format("{}, {}", source_.name, how), spec_.engine, spec_.sm, nest_to_json(nest_), nullptr, {}};
    tried.steps = source_.steps.empty() ? trial_steps_json(nest_, fixed, steps) : source_.steps.front();
    for (const PreparedRun& run : runs_) tried.runs.push_back(run.run);
    return case_to_json(tried);
  }
  Sizes specialised() const {
    Sizes fixed;
    for (const SizeParam& size : nest_.sizes) {
      if (size.specialized) fixed[size.name] = tuned_.at(size.name);
    }
    return fixed;
  }
  nlohmann::json lost_case(std::uint64_t seed) const {
    return case_of(fmt::format("lost while it was drawn, seed {}", seed), {});
  }

  const GroupSpec& spec_;
  const Source& source_;
  Limits limits_;
  TryOptions options_;
  CounterRandom random_;
  Nest nest_;
  Sizes tuned_;
  bool fix_all_ = false;
  std::optional<BaseSchedules> schedules_;
  std::unique_ptr<Space> space_;
  std::vector<std::unique_ptr<Searcher>> searchers_;
  std::vector<PreparedRun> runs_;
};

}  // namespace

nlohmann::json report_to_json(const Report& report) {
  return {{"source", report.source}, {"outcome", outcome_to_json(report.outcome)}, {"found", report.found}};
}

Report report_from_json(const nlohmann::json& json) {
  return {json.at("source"), outcome_from_json(json.at("outcome")), json.at("found")};
}

void run_group(const GroupSpec& spec, const Source& source, const Limits& limits, const TryOptions& options,
               const std::function<void(const Report&)>& tell) {
  Group(spec, source, limits, options).run(tell);
}

Outcome apart(const Limits& limits, const std::function<void(const std::function<void()>& generated)>& body) {
  Child child(limits, [&](const Child::Send& send) {
    body([&] {
      allow_processor_time(limits.run_s);
      send({{"generated", 0.0}});
    });
  });
  return child.wait();
}

Outcome try_apart(const Case& tried, const Limits& limits, const TryOptions& options) {
  const Nest nest = nest_from_json(tried.nest);
  Child child(limits, [&](const Child::Send& send) {
    TryOptions inside = options;
    inside.generated = [&](double seconds) {
      allow_processor_time(limits.run_s);
      send({{"generated", seconds}});
    };
    const Sizes sizes = tried.runs.empty() ? complete_sizes(nest, {}) : tried.runs.front().sizes;
    std::vector<PreparedRun> runs;
    for (const Run& run : tried.runs)
      runs.push_back({run, std::make_shared<const ProblemData>(make_problem_data(nest, run, kReferenceLimit))});
    const Outcome outcome =
        try_case(nest, tried.engine, tried.sm, [&] { return replay_trial_steps(nest, sizes, tried.steps); }, runs, inside);
    send({{"outcome", outcome_to_json(outcome)}});
  });
  return judged(child.wait(), tried.engine);
}

}  // namespace nestor::soak
