// Tries the next steps of known plans, then ideas, each with the prover; then asks the GPU back end what it makes of them.
#include "api/explore/suggestions.h"

#include "api/explore/step_ideas.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "autotune/tuner.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/tile/tile_program.h"
#include "support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>

namespace nestor {
namespace {

using Clock = std::chrono::steady_clock;
using Source = PlanSource;

constexpr std::chrono::milliseconds kBetweenReports{100};
constexpr std::size_t kLongestReason = 120;  ///< bytes of what the back end says

std::string time_text(double ms) {
  return ms < 1      ? fmt::format("{:.4g} us", ms * 1000)
         : ms < 1000 ? fmt::format("{:.4g} ms", ms)
                     : fmt::format("{:.4g} s", ms / 1000);
}

bool contains(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

/// Are all of `done` in the plan, in this order?
bool follows(const KnownPlan& plan, const std::vector<std::string>& done) {
  auto at = plan.texts.begin();
  for (const std::string& text : done) {
    at = std::find(at, plan.texts.end(), text);
    if (at == plan.texts.end()) return false;
    ++at;
  }
  return true;
}

/// "12 of 80 trials here have it, the best 13 us; without 15 us", from plans of trials of the problem, fastest first.
std::string experience(const std::vector<KnownPlan>& plans, const std::string& step) {
  int with = 0, all = 0;
  double best_with = 0, best_without = 0;
  for (const KnownPlan& plan : plans) {
    if (plan.source != Source::record) continue;
    ++all;
    const bool has = contains(plan.texts, step);
    with += has ? 1 : 0;
    double& best = has ? best_with : best_without;
    if (best == 0) best = plan.ms;
  }
  if (with == 0) return "";
  std::string text = fmt::format("{} of {} trials here have it, the best {}", with, all, time_text(best_with));
  return best_without > 0 ? text + "; without " + time_text(best_without) : text;
}

/// What blocks take of the target in all: on tensor cores of one kernel, else the most of any.
std::string needs_text(const KernelPlans& plans) {
  int threads = 0;
  std::int64_t shared = 0;
  for (const PlannedKernel& kernel : plans.kernels) {
    if (kernel.tensor) {
      const nvptx::TensorNeeds needs = estimate(nvptx::block_of(*kernel.tensor), plans.target);
      return fmt::format("{} registers a thread for tiles, {} KiB of shared memory a block{}", needs.registers,
                         needs.places.bytes >> 10, needs.spills.empty() ? "" : "; " + needs.spills);
    }
    for (const nvptx::BlockPlan& body : kernel.bodies) {
      threads = std::max(threads, body.threads);
      shared = std::max(shared, body.shared_bytes);
    }
  }
  const std::size_t kernels = plans.kernels.size();
  return fmt::format("{} kernel{}, up to {} threads and {} bytes of shared memory a block", kernels, kernels == 1 ? "" : "s",
                     threads, shared);
}

/// The same of a schedule, or why the back end refuses it.
std::string back_end_says(const Schedule& schedule, const NvptxTarget& target) {
  try {
    return needs_text(*plan_kernels(build_tile_program(schedule), target));
  } catch (const UserError& error) {
    std::string reason = error.what();
    if (reason.size() > kLongestReason) reason = reason.substr(0, kLongestReason) + "...";
    return "not yet for the GPU: " + reason;
  }
}

/// Is it the back end that decides whether the step is of use?
bool concerns_back_end(const Step& step) {
  return find_knob_step(step.name) != nullptr || step.name == "gpu_blocks" || step.name == "gpu_lanes" || step.name == "stage";
}

bool has_grid(const TreeNode& node) {
  return (node.kind == TreeNode::Kind::loop && node.loop_kind == LoopKind::gpu_block) ||
         std::any_of(node.children.begin(), node.children.end(), [](const Tree& child) { return has_grid(*child); });
}

}  // namespace

struct Suggester::Impl {
  Nest nest;
  Sizes sizes;
  MeasureOptions options;
  std::string database;
  std::optional<std::vector<KnownPlan>> guesses{};
  std::optional<GpuFacts> facts{};

  /// Records first, then neighbours, then the search.
  std::vector<KnownPlan> plans(const SuggestRequest& request) {
    std::vector<KnownPlan> all;
    std::error_code ignored;
    if (std::filesystem::exists(database, ignored)) {
      const Database records = Database::open(database, {.read_only = true});
      const DeviceIdentity device = device_identity(options.target, options.threads);
      const ProblemKey problem = problem_key(nest, sizes);
      all = recorded_plans(records, device, problem);
      const std::vector<KnownPlan> near = neighbours_plans(records, device, problem);
      all.insert(all.end(), near.begin(), near.end());
    }
    if (!guesses) {
      if (request.progress) request.progress("deriving what the search would try first");
      BaseSchedules schedules(nest_for_tuning(nest, sizes));
      const std::unique_ptr<Space> space = make_nest_space(schedules, sizes, space_limits(options));
      guesses = first_guesses(*space);
    }
    all.insert(all.end(), guesses->begin(), guesses->end());
    return all;
  }

  int sm() {
    if (!options.target.is_gpu()) return 0;
    if (!facts) facts = gpu_facts(options.target);
    return facts->sm;
  }

  NvptxTarget gpu_target() {
    NvptxTarget target{.keep_ir = false};
    if (sm() > 0) {
      target.sm = facts->sm;
      target.shared_limit = facts->shared_limit;
    }
    return target;
  }
};

namespace {

/// One call of suggest().
class Trying {
 public:
  Trying(const Schedule& schedule, const SuggestRequest& request) : schedule_(schedule), request_(request) {
    for (const Step& step : schedule.steps()) done_.push_back(describe(step));
  }

  bool out_of_time() const {
    const double passed = std::chrono::duration<double>(Clock::now() - start_).count();
    return passed > request_.time_s || (request_.stop != nullptr && request_.stop->load());
  }

  /// The first step of the plan that is not taken yet, and legal.
  void try_plan(const KnownPlan& plan) {
    bool next = follows(plan, done_);  // is the step at hand what the plan does after those so far?
    for (std::size_t k = 0; k < plan.steps.size() && !out_of_time(); ++k) {
      const Step& step = plan.steps[k];
      if (contains(done_, plan.texts[k])) continue;
      const char* how = next ? " goes on so" : " has it";
      next = false;
      if (!request_.only.empty() && step.name != request_.only) continue;
      const std::string when = plan.source == Source::search ? "" : ": " + time_text(plan.ms);
      const std::string guess = plan.name + how + when;
      if (try_step(step, {step, plan.source, plan.source == Source::search ? 0 : plan.ms, guess})) return;
    }
  }

  void try_ideas(const std::vector<Step>& ideas, const std::vector<KnownPlan>& plans,
                 const std::map<std::string, std::int64_t>& lengths, int threads) {
    for (const Step& step : ideas) {
      if (out_of_time()) {
        if (!seen_.contains(describe(step))) ++list_.untried;
        continue;
      }
      Suggestion suggestion{step, Source::idea, 0, experience(plans, describe(step))};
      if (suggestion.guess.empty() && (step.name == "parallel" || step.name == "gpu_blocks"))
        suggestion.guess = concurrency(step, lengths, threads);
      try_step(step, suggestion);
    }
  }

  void ask_back_end(const NvptxTarget& target) {
    for (std::size_t k = 0; k < list_.legal.size() && !out_of_time(); ++k) {
      const Step& step = list_.legal[k].step;
      if (!list_.legal[k].guess.empty() || !concerns_back_end(step) || !has_grid(*after_[k].tree())) continue;
      tell("asking the back end about " + describe(step));
      list_.legal[k].guess = back_end_says(after_[k], target);
    }
  }

  SuggestionList finished() {
    std::stable_sort(list_.legal.begin(), list_.legal.end(), [](const Suggestion& a, const Suggestion& b) {
      return a.source != b.source ? a.source < b.source : a.ms < b.ms;
    });
    return std::move(list_);
  }

 private:
  static std::string concurrency(const Step& step, const std::map<std::string, std::int64_t>& lengths, int threads) {
    std::int64_t iterations = 1;
    for (const nlohmann::json& loop : step.args) {
      const auto found = lengths.find(loop.get<std::string>());
      if (found == lengths.end()) return "";
      iterations *= found->second;
    }
    if (step.name == "gpu_blocks") return fmt::format("{} blocks", iterations);
    return fmt::format("{} tasks for {} threads", iterations, threads);
  }

  void tell(const std::string& what) {
    if (!request_.progress || Clock::now() - told_ < kBetweenReports) return;
    told_ = Clock::now();
    request_.progress(what);
  }

  /// Is it legal? A step that was tried before is left alone.
  bool try_step(const Step& step, const Suggestion& suggestion) {
    const auto [known, added] = seen_.emplace(describe(step), false);
    if (!added) return known->second;
    tell("trying " + known->first);
    std::optional<Schedule> after = schedule_.try_apply(step);
    known->second = after.has_value();
    if (!after) {
      ++list_.refused;
      return false;
    }
    list_.legal.push_back(suggestion);
    after_.push_back(std::move(*after));
    return true;
  }

  const Schedule& schedule_;
  const SuggestRequest& request_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point told_ = start_;
  std::vector<std::string> done_;
  std::map<std::string, bool> seen_;
  std::vector<Schedule> after_;  ///< list_.legal[k] leads to after_[k]
  SuggestionList list_;
};

}  // namespace

Suggester::Suggester(Nest nest, Sizes sizes, MeasureOptions options, std::string database)
    : impl_(std::make_unique<Impl>(Impl{std::move(nest), std::move(sizes), std::move(options), std::move(database)})) {}
Suggester::~Suggester() = default;
Suggester::Suggester(Suggester&&) noexcept = default;

SuggestionList Suggester::suggest(const Schedule& schedule, const SuggestRequest& request) {
  const std::vector<KnownPlan> plans = impl_->plans(request);
  Trying trying(schedule, request);
  for (const KnownPlan& plan : plans) {
    if (!trying.out_of_time()) trying.try_plan(plan);
  }
  const IdeaSettings settings{impl_->sizes, impl_->sm(), request.only};
  trying.try_ideas(step_ideas(schedule, settings), plans, loop_lengths(schedule, impl_->sizes),
                   device_identity_host(impl_->options.threads).units);
  trying.ask_back_end(impl_->gpu_target());
  return trying.finished();
}

}  // namespace nestor
