// The tuning loop: propose, measure, store, learn.
#include "autotune/tuner.h"

#include "autotune/finalists.h"
#include "autotune/fixed_spaces.h"
#include "autotune/measure_schedules.h"
#include "autotune/near_problems.h"
#include "autotune/planned_guesses.h"
#include "autotune/proposals.h"
#include "autotune/search/searcher.h"
#include "autotune/sizes_that_help.h"
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/trial/trial_problem.h"
#include "autotune/trial/trial_spelling.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/target/gpu_target.h"
#include "codegen/tile/places/bounds.h"
#include "poly/isl/context.h"
#include "poly/nest/nest_json.h"
#include "support/codegen_revision.h"
#include "support/error.h"
#include "support/system/json_text.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <string_view>

namespace nestor {
namespace {

constexpr std::size_t kMostNeighbours = 6;
constexpr int kPatience = 16;    ///< trials without a correct one
constexpr int kMostRefused = 4;  ///< without a correct one, before other guesses are tried
constexpr int kFinalists = 3;    ///< of a run with several devices

using Clock = std::chrono::steady_clock;

std::optional<double> learned_ms(TrialStatus status, double median_ms) {
  const bool timed = status == TrialStatus::ok || status == TrialStatus::slow;
  return timed && median_ms > 0 ? std::optional(median_ms) : std::nullopt;
}

/// Was the candidate refused for a size that is not known when compiling?
bool lacks_size(const TrialRecord& trial) {
  return trial.status == TrialStatus::infeasible && trial.reason.find(nvptx::kUnknownSize) != std::string::npos;
}

/// Was it refused since isl has no bounds for its loops, or takes too long, which numbers in place of sizes may mend?
bool lacks_numbers(const TrialRecord& trial) {
  const auto says = [&](const char* part) { return trial.reason.find(part) != std::string::npos; };
  return trial.status == TrialStatus::infeasible && (says(kMoreSizes) || says(kNoBounds));
}

/// The report of a trial, and where its candidate came from.
std::string with_origin(const std::string& report, const char* origin) {
  nlohmann::json json = report.empty() ? nlohmann::json::object() : json_or_discarded(report);
  if (!json.is_object()) return report;
  json["origin"] = origin;
  return json.dump();
}

/// One run of `tune`.
class Tuning {
 public:
  /// may_fix_more: run() may say that nothing fits. `spaces` are the request's, `data` as make_measurer() takes it. Time counts from `start` on.
  Tuning(const TuneRequest& request, Clock::time_point start, FixedSpaces& spaces, std::shared_ptr<GpuData>& data,
         bool may_fix_more)
      : request_(request),
        start_(start),
        spaces_(spaces),
        data_(data),
        may_fix_more_(may_fix_more),
        problem_(spaces.problem(request.fixed_sizes).problem),
        database_(
            Database::open(request.database.empty() ? Database::default_path() : request.database, request.database_options)),
        nest_text_(nest_to_json(request.nest).dump()) {
    result_.problem = problem_key(request.nest, problem_.sizes);
  }

  /// Why run() wants more sizes to be fixed.
  enum class Lack : std::uint8_t {
    room,    ///< no likely candidate fits a GPU
    plans,   ///< one seems to, and cannot be planned
    numbers  ///< one is too hard for isl
  };

  /// nullopt: no likely candidate is of use unless more sizes are fixed; `lack` tells why.
  std::optional<TuneResult> run(Lack& lack) {
    // The measurer first: a GPU's process starts up while the space is derived.
    measurer_ = request_.measurer;
    if (!measurer_) measurer_ = make_measurer(problem_, request_.measure, request_.stop, &data_);
    if (stopped()) return stopped_early();
    measurer_->while_waiting([this] { tick(); });
    FixedSpace& made = spaces_.with_space(request_.fixed_sizes, space_limits(request_.measure));
    space_ = made.space.get();
    searcher_ = make_searcher(request_.searcher, *space_, request_.seed);
    proposals_.emplace(*space_, *searcher_);
    if (may_fix_more() && proposals_->wants_sizes()) return std::nullopt;
    if (const SpaceLimits limits = space_limits(request_.measure); limits.gpu && request_.finalists == 0) {
      for (const Point& point : much_better_guesses(*space_, *problem_.schedules, problem_.sizes, limits, proposals_->guesses()))
        proposals_->try_soon(point, "guess");
    }
    result_.device = measurer_->device();
    devices_ = measurer_->devices();
    result_.space = describe(*space_);
    learn_history();
    searching_ = true;
    if (request_.finalists == 0) search();
    searching_ = false;
    if (needs_sizes_) {
      lack = needs_numbers_ ? Lack::numbers : Lack::plans;
      return std::nullopt;
    }
    race_finalists();
    result_.stopped = stopped();
    result_.elapsed_s = elapsed();
    result_.best = database_.best(result_.device, result_.problem);
    return std::move(result_);
  }

 private:
  /// Before anything was measured.
  TuneResult stopped_early() {
    result_.device = measurer_->device();
    result_.stopped = true;
    result_.elapsed_s = elapsed();
    result_.best = database_.best(result_.device, result_.problem);
    return std::move(result_);
  }

  struct Pending {
    Point point;
    TrialJob job;
    std::string key;
    const char* origin = "";
    bool slow = false;  ///< leaves alone tensor cores that would do
  };

  void search() {
    learn_neighbours();
    // The best guess goes first, and alone where jobs wait for each other: a correct kernel exists as early as possible.
    hand_over(measurer_->streaming() ? measurer_->batch_size() : 1);
    settle_next();
    do {
      while (!finished()) {
        if (measurer_->streaming() || under_way_.empty()) hand_over(measurer_->batch_size());
        settle_next();
      }
      while (!under_way_.empty()) {
        // Where nothing was correct yet, what is under way is waited for; tick() limits that.
        if (stopped() || needs_sizes_ || (out_of_time() && best_ms_ > 0)) measurer_->abandon();
        settle_next();
      }
    } while (!finished());  // where all that was under way was refused, others may be tried
  }

  bool may_fix_more() const { return may_fix_more_ && problem_.fixed.size() < problem_.sizes.size(); }

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool stopped() const { return request_.stop && request_.stop->load(); }
  bool out_of_time() const { return stopped() || elapsed() >= request_.time_budget_s; }
  int trials_left() const { return request_.max_trials - result_.trials - (request_.count_known ? result_.known : 0); }
  bool finished() const { return needs_sizes_ || result_.exhausted || trials_left() <= 0 || !may_go_on(); }
  /// Beyond the time: the first correct candidate is waited for longer.
  double grace_s() const { return std::max(best_ms_ > 0 ? 5.0 : 30.0, request_.measure.run_timeout_s); }

  /// May another candidate be tried? Some are, even where making a large problem's data took all the time, until one is correct.
  bool may_go_on() const {
    constexpr std::int64_t kFirst = 16, kOthers = 8;
    if (stopped() || next_ticket_ == 0) return !stopped();
    const std::int64_t most = in_doubt() || result_.trials >= kFirst ? kFirst + kOthers : kFirst;
    return !out_of_time() || (best_ms_ == 0 && next_ticket_ < most && elapsed() < request_.time_budget_s + grace_s());
  }

  /// What makes two candidates the same: the steps and the sizes fixed before them.
  std::string key_of(const std::vector<Step>& steps) const { return trial_key(trial_steps_json(problem_, steps)); }

  /// Trials of the problem on this model; own_device where one of the devices that measure now has measured it.
  std::vector<TrialRecord> history() {
    std::vector<TrialRecord> found = database_.trials(result_.device, result_.problem);
    std::set<std::int64_t> own;
    for (std::size_t k = 1; k < devices_.size(); ++k) {
      for (const TrialRecord& trial : database_.trials(devices_[k], result_.problem)) {
        if (trial.own_device) own.insert(trial.id);
      }
    }
    for (TrialRecord& trial : found) {
      nlohmann::json steps = json_or_discarded(trial.steps);
      if (trial.own_device && steps.is_object()) measured_first_.insert(trial_key(current_trial_steps(std::move(steps))));
      trial.own_device = trial.own_device || own.contains(trial.id);
    }
    return found;
  }

  /// Earlier trials of this problem by this revision of the code generator on this device: not measured again, and what the search starts
  /// from. What another revision measured may have other code today, what nobody trusted vouches for may be untrue, and another device of
  /// the model has its own times: the fastest of those are tried again first.
  void learn_history() {
    baseline_key_ = key_of(space_->candidate(space_->baseline()).steps);
    std::multimap<double, Point> of_others;  // by time
    for (const TrialRecord& trial : history()) {
      nlohmann::json json = json_or_discarded(trial.steps);
      if (json.is_discarded() || !json.is_object()) continue;
      json = current_trial_steps(std::move(json));
      std::map<std::string, std::int64_t> values;
      if (json.contains("parameters")) values = json.at("parameters").get<std::map<std::string, std::int64_t>>();
      const auto ms = learned_ms(trial.status, trial.median_ms);
      const auto point = values.empty() ? std::nullopt : point_from(*space_, values);
      if (trial.own_device && to_be_repeated(trial, trial_key(json))) {
        if (point && request_.retry_failed) proposals_->try_soon(*point);
        continue;
      }
      if (trial.revision != kCodegenRevisions.of(result_.device.kind) || !trial.trusted || !trial.own_device) {
        if (point && ms) of_others.emplace(*ms, *point);
        continue;
      }
      const std::string key = trial_key(json);
      known_[key] = ms;
      if (lacks_size(trial) || lacks_numbers(trial)) lacking_[key] = lacks_numbers(trial);
      ++result_.known;
      if (trial.status == TrialStatus::ok) note_best(trial.median_ms);
      if (key == baseline_key_ && ms) result_.baseline_ms = *ms;
      if (point) searcher_->report(*point, ms);
    }
    // Without it nobody knows what the search has gained.
    if (result_.known > 0 && !known_.contains(baseline_key_)) proposals_->try_soon(space_->baseline());
    for (const auto& [ms, point] : of_others) {
      if (proposals_->soon() == kMostNeighbours) break;
      proposals_->try_soon(point);
    }
  }

  /// What is no verdict, the starting point that crashed, and, where that was asked for, all that failed.
  bool to_be_repeated(const TrialRecord& trial, const std::string& key) const {
    if (ended_from_outside(trial.status, trial.reason)) return true;
    if (key == baseline_key_ && trial.status == TrialStatus::crash) return true;
    const bool failed =
        trial.status == TrialStatus::crash || trial.status == TrialStatus::timeout || trial.status == TrialStatus::compile_error;
    return request_.retry_failed && failed;
  }

  /// What was best on this device for the nearest problems is tried first: those of this operator (other sizes, other variants), where
  /// the space has that point, then those of operators with sizes of the same names, as far as the spaces share their choices.
  void learn_neighbours() {
    const NearProblems near = near_problems(database_, result_.device, result_.problem);
    for (const auto* problems : {&near.same_operator, &near.other_operators}) {
      for (const ProblemKey& problem : *problems) learn_neighbour(problem);
    }
  }

  void learn_neighbour(const ProblemKey& problem) {
    const std::optional<TrialRecord> best = database_.best(result_.device, problem, Database::Kernels::unchecked_too);
    const auto json = best ? json_or_discarded(best->steps) : nlohmann::json();
    if (!json.is_object() || !json.contains("parameters")) return;
    const auto values = current_trial_steps(json).at("parameters").get<NamedValues>();
    const auto point =
        problem.op == result_.problem.op ? point_from(*space_, values) : point_like(*space_, proposals_->first_guess(), values);
    if (point) proposals_->try_soon(*point);
  }

  /// Nothing was correct yet, and few candidates were tried.
  bool patient() const { return best_ms_ == 0 && result_.trials < kPatience && !refusals_.holds(); }
  /// Do candidates that leave tensor cores alone come first?
  bool in_doubt() const { return doubt_.holds() || refusals_.holds(); }

  void note_best(double ms) {
    if (best_ms_ == 0 || ms < best_ms_) best_ms_ = ms;
  }

  /// Has something been measured that is to be learned first? Proposing takes seconds where rules are new.
  bool has_news() { return !under_way_.empty() && measurer_->streaming() && measurer_->has_settled(); }

  /// The next candidate that is neither known nor infeasible; nothing where there is none, or news come first.
  std::optional<Pending> next() {
    while (may_go_on() && !has_news()) {
      const auto proposed = proposals_->next(patient() || in_doubt());
      if (!proposed) {
        result_.exhausted = true;
        return std::nullopt;
      }
      const Point& point = proposed->point;
      Candidate candidate = space_->candidate(point);
      // What cannot be fast waits until there is a time that it must beat.
      const bool slow = candidate.least_ms > 0;
      const bool waits = slow ? patient() : in_doubt();
      if (waits && candidate.infeasible.empty() && proposals_->put_off(*proposed)) continue;
      const bool needless = rounding_.needless(OperandRounding::form_of(named_values(*space_, point)));
      if (needless || !candidate.infeasible.empty() || (best_ms_ > 0 && candidate.least_ms > best_ms_)) {
        searcher_->report(point, std::nullopt);
        continue;
      }
      std::string key = key_of(candidate.steps);
      if (first_guess_key_.empty() && std::string_view(proposed->origin) == "guess") {
        first_guess_key_ = key;
        const auto lacking = lacking_.find(key);
        needs_sizes_ = may_fix_more() && lacking != lacking_.end();
        needs_numbers_ = needs_sizes_ && lacking->second;
      }
      const auto equal = equal_points_.find(key);
      if (equal != equal_points_.end()) {
        equal->second.push_back(point);
        continue;
      }
      const auto known = known_.find(key);
      if (known != known_.end()) {
        searcher_->report(point, known->second);
        continue;
      }
      known_[key] = std::nullopt;
      equal_points_[key];
      if (!slow) proposals_->tried();
      TrialJob job{std::move(candidate.steps), best_ms_, key == baseline_key_};
      return Pending{point, std::move(job), std::move(key), proposed->origin, slow};
    }
    return std::nullopt;
  }

  /// Fills up to `depth` jobs under way.
  void hand_over(int depth) {
    while (static_cast<int>(under_way_.size()) < std::min(depth, trials_left())) {
      auto pending = next();
      if (!pending) return;
      measurer_->submit(next_ticket_, pending->job);
      under_way_.emplace(next_ticket_++, std::move(*pending));
    }
  }

  /// Waits for one of the jobs under way.
  void settle_next() {
    if (under_way_.empty()) return;
    SettledTrial trial = measurer_->next();
    const auto found = under_way_.find(trial.ticket);
    const Pending pending = std::move(found->second);
    under_way_.erase(found);
    const std::vector<Point> equal = std::move(equal_points_.at(pending.key));
    equal_points_.erase(pending.key);
    if (trial.outcome.outside)
      lose(pending, trial.outcome.reason);
    else if (!trial.outcome.stopped)
      settle(pending, std::move(trial.outcome));
    const auto known = known_.find(pending.key);
    for (const Point& point : equal) searcher_->report(point, known == known_.end() ? std::nullopt : known->second);
  }

  /// Nothing is known about a candidate that something outside ended. The starting point is tried once more.
  void lose(const Pending& pending, const std::string& reason) {
    ++result_.lost;
    result_.lost_reason = reason;
    searcher_->report(pending.point, std::nullopt);
    if (pending.key != baseline_key_ || repaired_) return;
    repaired_ = true;
    known_.erase(pending.key);
    proposals_->try_soon(pending.point);
  }

  /// A winner by a wide margin is measured once more, and counts with the slower of its two medians.
  void confirm(const Pending& pending, TrialOutcome& outcome) {
    constexpr double kSuspicious = 0.6;
    if (outcome.status != TrialStatus::ok || best_ms_ == 0 || outcome.median_ms > kSuspicious * best_ms_ || stopped()) return;
    TrialJob again = pending.job;
    again.must_finish = true;
    again.device = outcome.device;
    const TrialOutcome second = measurer_->measure({again}).at(0);
    if (second.stopped || second.outside) return;
    if (second.status != TrialStatus::ok) {
      outcome = second;
      outcome.reason = "measured again: " + second.reason;
      return;
    }
    outcome.samples_ms.insert(outcome.samples_ms.end(), second.samples_ms.begin(), second.samples_ms.end());
    outcome.median_ms = std::max(outcome.median_ms, second.median_ms);
    outcome.max_error = std::max(outcome.max_error, second.max_error);
  }

  void settle(const Pending& pending, TrialOutcome outcome) {
    confirm(pending, outcome);
    const NamedValues values = named_values(*space_, pending.point);
    const auto steps = trial_steps_json(problem_, pending.job.steps, values);
    outcome.report = with_origin(outcome.report, pending.origin);
    TrialRecord record = to_record(outcome, steps.dump(), measurer_->toolchain());
    record.id = database_.add_trial(devices_.at(outcome.device), result_.problem, nest_text_, record);
    if (outcome.device == 0) measured_first_.insert(pending.key);
    const auto ms = learned_ms(record.status, record.median_ms);
    known_[pending.key] = ms;
    searcher_->report(pending.point, ms);
    const bool doubted = doubt_.holds();
    if (!pending.slow && pending.key != baseline_key_) doubt_.note(record.status == TrialStatus::wrong, ms.has_value());
    rounding_.note(OperandRounding::form_of(values), record.status == TrialStatus::wrong, ms.has_value());
    if (doubt_.holds() && !doubted) proposals_->try_guesses_backwards();
    note_refusal(record.status, ms.has_value());
    ++result_.trials;
    ++result_.counts[record.status];
    if (record.status == TrialStatus::wrong) {
      if (OperandRounding::explains(values, record.max_error, outcome.lost_infinity))
        ++result_.imprecise;
      else if (result_.wrong_trial == 0)
        result_.wrong_trial = record.id;
    }
    const bool first = may_fix_more() && pending.key == first_guess_key_;
    needs_numbers_ = needs_numbers_ || (first && lacks_numbers(record));
    needs_sizes_ = needs_sizes_ || needs_numbers_ || (first && lacks_size(record));
    if (record.status == TrialStatus::ok) {
      note_best(record.median_ms);
      if (result_.first_correct_s == 0) result_.first_correct_s = elapsed();
    }
    if (pending.key == baseline_key_ && ms) result_.baseline_ms = *ms;
    if (request_.progress) show(&record);
  }

  /// Of guesses alike one is refused for what the others are, or takes as long: those of another kind are tried, so that something is found.
  void note_refusal(TrialStatus status, bool right) {
    const bool refused =
        status == TrialStatus::infeasible || status == TrialStatus::compile_error || status == TrialStatus::unproved;
    const bool doubted = refusals_.holds();
    for (int k = 0; k < (status == TrialStatus::timeout ? kMostRefused : 1); ++k)
      refusals_.note(refused || status == TrialStatus::timeout, right);
    if (refusals_.holds() && !doubted) proposals_->try_other_guesses();
  }

  /// Times of two devices are not compared: what others found fastest is measured on the first.
  void race_finalists() {
    const int most = request_.finalists > 0 ? request_.finalists : devices_.size() > 1 ? kFinalists : 0;
    for (const Finalist& finalist : finalists(database_, result_.device, result_.problem, measured_first_, most)) {
      const auto point = point_from(*space_, finalist.values);
      if (stopped() || !point) continue;
      Candidate candidate = space_->candidate(*point);
      std::string key = key_of(candidate.steps);
      if (!candidate.infeasible.empty() || measured_first_.contains(key)) continue;
      const Pending pending{*point, TrialJob{std::move(candidate.steps), 0, true, 0}, std::move(key), "finalist"};
      TrialOutcome outcome = measurer_->measure({pending.job}).at(0);
      if (outcome.outside)
        ++result_.lost;
      else if (!outcome.stopped)
        settle(pending, std::move(outcome));
    }
  }

  /// While a candidate is waited for.
  void tick() {
    constexpr double kTick_s = 0.25;
    if (request_.progress && elapsed() - shown_s_ >= kTick_s) show(nullptr);
    // Processes that somebody stopped, or that are stuck, do not keep the search beyond its time.
    if (searching_ && elapsed() >= request_.time_budget_s + grace_s()) measurer_->abandon();
  }

  void show(const TrialRecord* record) {
    shown_s_ = elapsed();
    TuneProgress progress;
    progress.trials = result_.trials;
    progress.known = result_.known;
    progress.max_trials = request_.max_trials;
    progress.best_ms = best_ms_;
    progress.baseline_ms = result_.baseline_ms;
    progress.elapsed_s = elapsed();
    progress.trials_per_s = result_.trials / std::max(progress.elapsed_s, 1e-9);
    const double by_time = request_.time_budget_s - progress.elapsed_s;
    const double by_trials = result_.trials > 0 ? (request_.max_trials - result_.trials) / progress.trials_per_s : by_time;
    progress.left_s = std::max(0.0, std::min(by_trials, by_time));
    progress.last = record;
    request_.progress(progress);
  }

  const TuneRequest& request_;
  const Clock::time_point start_;
  FixedSpaces& spaces_;
  std::shared_ptr<GpuData>& data_;
  const bool may_fix_more_;
  const TrialProblem& problem_;
  Database database_;
  const std::string nest_text_;
  const Space* space_ = nullptr;
  std::shared_ptr<Measurer> measurer_;
  std::unique_ptr<Searcher> searcher_;
  std::optional<Proposals> proposals_;
  std::map<std::string, std::optional<double>> known_;  ///< by key
  std::vector<DeviceIdentity> devices_;                 ///< that measure, by their numbers
  std::set<std::string> measured_first_;                ///< keys of what the first of them has measured
  std::map<std::int64_t, Pending> under_way_;           ///< by ticket
  /// Points with the same steps as a job under way, by its key: they learn what comes of it.
  std::map<std::string, std::vector<Point>> equal_points_;
  Doubt doubt_;                   ///< about tensor cores
  Doubt refusals_{kMostRefused};  ///< about guesses alike: one that runs too long is as good as so many refused ones
  OperandRounding rounding_;
  std::int64_t next_ticket_ = 0;
  std::string baseline_key_;
  double best_ms_ = 0;
  bool searching_ = false;
  double shown_s_ = 0;     ///< when progress was told last
  bool repaired_ = false;  ///< the starting point was tried again
  std::string first_guess_key_;
  std::map<std::string, bool>
      lacking_;                 ///< by key, what was refused for a size that is not known, or (true) was too hard for isl
  bool needs_sizes_ = false;    ///< the first guess has kernels that cannot be planned without more sizes
  bool needs_numbers_ = false;  ///< it is too hard for isl while sizes are free
  TuneResult result_;
};

}  // namespace

TuneResult tune(const TuneRequest& request) {
  if (request.max_trials < 0) user_error("the number of trials is {}; it must be at least 0", request.max_trials);
  if (request.finalists < 0) user_error("the number of finalists is {}; it must be at least 0", request.finalists);
  if (request.measure.threads < 0)
    user_error("{} threads cannot run a kernel: write 0 for all cores, or a number above 0", request.measure.threads);
  if (!(request.time_budget_s >= 0)) user_error("the time budget is {} s; it must be at least 0", request.time_budget_s);
  const auto start = Clock::now();
  TuneRequest fixed = request;
  fixed.measure.oracle_seconds = request.time_budget_s / 2;
  const bool chooses = request.measure.target.is_gpu() && !request.fix_all_sizes && request.fixed_sizes.empty();
  if (chooses) {
    const Sizes sizes = complete_sizes(request.nest, request.sizes);
    fixed.fixed_sizes = sizes_known_to_products(request.nest, sizes);
    fixed.fixed_sizes.merge(sizes_of_short_rows(request.nest, sizes));
  }
  Tuning::Lack lack = Tuning::Lack::room;
  FixedSpaces spaces(fixed.nest, fixed.sizes, fixed.fix_all_sizes);
  std::shared_ptr<GpuData> data;
  std::optional<TuneResult> result = Tuning(fixed, start, spaces, data, chooses).run(lack);
  if (!result) {
    if (lack == Tuning::Lack::numbers) {
      for (const SizeParam& size : fixed.nest.sizes) fixed.fixed_sizes.insert(size.name);
    } else {
      fixed.fixed_sizes = sizes_that_help(spaces, fixed.fixed_sizes, space_limits(fixed.measure), lack == Tuning::Lack::plans);
    }
    spaces.keep_only(fixed.fixed_sizes);
    result = Tuning(fixed, start, spaces, data, false).run(lack);
  }
  if (chooses) result->fixed_sizes = fixed.fixed_sizes;
  return std::move(*result);
}

SpaceLimits space_limits(const DeviceIdentity& device) {
  if (device.kind != "cuda") return host_space_limits(device.units);
  const NvptxTarget target = nvptx_target(device);
  return gpu_space_limits(target.sm, target.shared_limit, device.units);
}

SpaceLimits space_limits(const MeasureOptions& options) {
  if (!options.target.is_gpu()) return host_space_limits(options.threads);
  const GpuFacts facts = gpu_facts(options.target);
  return gpu_space_limits(facts.sm, facts.shared_limit, facts.units);
}

}  // namespace nestor
