// The public options and report of tuning over the internal ones.
#include "autotune/tune_api.h"

#include "autotune/space/gpu/known_sizes.h"
#include "autotune/tuner.h"
#include "poly/nest/nest_json.h"
#include "support/error.h"
#include "support/system/json_text.h"
#include "support/words/nearest_word.h"

namespace nestor {

namespace {

TuneRequest request_of(const Nest& nest, const TuneOptions& options) {
  const auto searcher = searcher_kind_from(options.searcher);
  if (!searcher)
    user_error("unknown searcher '{}'; choose exhaustive, random or evolutionary{}", options.searcher,
               did_you_mean(options.searcher, {"exhaustive", "random", "evolutionary"}));
  TuneRequest request;
  request.nest = nest;
  request.sizes = options.sizes;
  request.fix_all_sizes = options.fix_all_sizes;
  request.retry_failed = options.retry_failed;
  request.searcher = *searcher;
  request.max_trials = options.max_trials;
  request.time_budget_s = options.time_budget_s;
  request.seed = options.seed;
  request.measure.target = target_from(options.target);
  request.measure.threads = options.threads;
  request.measure.scalars = options.scalars;
  request.database = options.database;
  request.stop = options.stop;
  if (options.progress) {
    request.progress = [&](const TuneProgress& progress) {
      if (progress.last != nullptr) options.progress(progress.trials, progress.best_ms, progress.left_s);
    };
  }
  return request;
}

}  // namespace

TuneReport tune_nest(const Nest& nest, const TuneOptions& options) {
  const TuneResult result = tune(request_of(nest, options));
  TuneReport report;
  report.baseline_ms = result.baseline_ms;
  if (result.best) {
    report.best_ms = result.best->median_ms;
    report.best_trial = result.best->id;
    report.best_schedule = result.best->steps;
  }
  for (const auto& [status, count] : result.counts) report.counts[std::string(to_string(status))] = count;
  report.trials = result.trials;
  report.lost = result.lost;
  report.elapsed_s = result.elapsed_s;
  return report;
}

TuneReport tune_nest_json(const std::string& nest_json, const TuneOptions& options) {
  const nlohmann::json json = json_from_text(nest_json, "the nest");
  Nest nest = nest_from_json(json);
  specialize_product_sizes(nest);  // as wherever a nest is loaded
  return tune_nest(nest, options);
}

}  // namespace nestor
