// The loop over the problems of a share.
#include "api/tune_share.h"

#include "api/share_journal.h"
#include "support/error.h"

#include <chrono>
#include <utility>

namespace nestor {
namespace {

constexpr std::chrono::seconds kExportEvery{60};

class Share {
 public:
  explicit Share(const ShareRequest& request)
      : request_(request),
        budget_{request_.each.max_trials, request_.each.time_budget_s, request_.each.fix_all_sizes},
        database_(request_.each.database.empty() ? Database::default_path() : request_.each.database),
        device_(device_identity(request_.each.measure.target, request_.each.measure.threads)),
        journal_(database_) {
    request_.each.database = database_;
    request_.each.count_known = true;
  }

  ShareResult run() {
    for (std::size_t k = 0; k < request_.problems.size() && !result_.stopped && result_.device_failure.empty(); ++k) {
      if (stopped()) result_.stopped = true;
      if (!result_.stopped) settle(k);
    }
    write_export();
    return std::move(result_);
  }

 private:
  bool stopped() const { return request_.each.stop != nullptr && request_.each.stop->load(); }

  void settle(std::size_t number) {
    const PlannedProblem& problem = request_.problems[number];
    if (is_known(problem)) {
      ++result_.known;
    } else {
      tune_problem(number, problem);
      if (Clock::now() - exported_ >= kExportEvery) write_export();
    }
  }

  /// The journal may be older than the file beside it, which somebody may have removed.
  bool is_known(const PlannedProblem& problem) const {
    if (!journal_.finished(problem.key, device_, budget_)) return false;
    return !open().trials(device_, problem.key).empty();
  }
  Database open() const { return Database::open(database_, request_.each.database_options); }

  void tune_problem(std::size_t number, const PlannedProblem& problem) {
    TuneRequest& request = request_.each;
    request.nest = *problem.nest;
    request.sizes = problem.key.sizes;
    if (request_.progress)
      request.progress = [this, number](const TuneProgress& progress) { request_.progress(number, progress); };
    try {
      const TuneResult found = tune(request);
      result_.trials += found.trials;
      if (found.stopped) {
        result_.stopped = true;
        return;
      }
      if (!found.best) result_.failures.push_back({problem.key, "no schedule was correct"});
      ++result_.finished;
      journal_.add(problem.key, device_, budget_);
    } catch (const UserError& error) {
      // An unusable database is no matter of this problem.
      static_cast<void>(open());
      result_.failures.push_back({problem.key, error.what()});
    } catch (const DeviceError& error) {
      result_.device_failure = error.what();
    }
  }

  void write_export() {
    if (request_.export_file.empty()) return;
    std::vector<ProblemKey> keys;
    for (const PlannedProblem& problem : request_.problems) keys.push_back(problem.key);
    open().export_problems(request_.export_file, keys);
    exported_ = Clock::now();
  }

  using Clock = std::chrono::steady_clock;
  const ShareRequest& request_;
  const ShareBudget budget_;
  const std::string database_;
  const DeviceIdentity device_;
  ShareJournal journal_;
  Clock::time_point exported_ = Clock::now();
  ShareResult result_;
};

}  // namespace

ShareResult tune_share(const ShareRequest& request) { return Share(request).run(); }

}  // namespace nestor
