// nestor/schedule.h on top of the internal schedule: each method is one step.
#include "nestor/schedule.h"

#include "api/operators.h"
#include "api/public_nest.h"
#include "api/report.h"
#include "autotune/tuner.h"
#include "poly/schedule.h"
#include "support/error.h"

namespace nestor::api {

struct Schedule::Impl {
  nestor::Nest nest;  ///< as defined
  Sizes sizes;        ///< complete
  std::vector<nestor::Schedule> history;

  const nestor::Schedule& current() const { return history.back(); }

  static std::shared_ptr<const Impl> make(const nestor::Nest& nest, const Sizes& given) {
    Impl impl{nest, complete_sizes(nest, given), {}};
    impl.history.emplace_back(nest_for_tuning(impl.nest, impl.sizes));
    return std::make_shared<const Impl>(std::move(impl));
  }

  std::shared_ptr<const Impl> with(nestor::Schedule next) const {
    Impl impl = *this;
    impl.history.push_back(std::move(next));
    return std::make_shared<const Impl>(std::move(impl));
  }

  std::shared_ptr<const Impl> apply(std::string name, std::vector<nlohmann::json> args) const {
    return with(current().apply(Step{std::move(name), std::move(args)}));
  }

  std::string json() const { return trial_steps_json(nest, specialized_sizes(nest, sizes), current().steps()).dump(2); }

  TrialRecord measure(const MeasureSettings& settings) const {
    MeasureOptions options;
    options.threads = settings.threads;
    options.run_timeout_s = settings.run_timeout_s;
    options.scalars = settings.scalars;
    return measure_schedule(current(), nest, sizes, options);
  }
};

namespace {

std::vector<nlohmann::json> as_args(const std::vector<std::string>& names) { return {names.begin(), names.end()}; }

std::vector<nlohmann::json> with_optional(const std::string& loop, std::int64_t value) {
  std::vector<nlohmann::json> args{loop};
  if (value != 0) args.emplace_back(value);
  return args;
}

}  // namespace

Schedule::Schedule(const Nest& nest, const Sizes& sizes) : impl_(Impl::make(nest.impl_->nest, sizes)) {}

Schedule Schedule::from_json(const Nest& nest, const std::string& text, const Sizes& sizes) {
  Schedule schedule(nest, sizes);
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) user_error("the schedule is not valid JSON");
  schedule.impl_ = schedule.impl_->with(replay_trial_steps(nest.impl_->nest, schedule.impl_->sizes, json));
  return schedule;
}

Schedule& Schedule::apply_rule(const std::string& rule, const std::vector<std::string>& target) {
  std::vector<nlohmann::json> args{rule};
  args.insert(args.end(), target.begin(), target.end());
  impl_ = impl_->apply("apply_rule", args);
  return *this;
}

Schedule& Schedule::split(const std::string& loop, std::int64_t factor, const std::string& outer, const std::string& inner) {
  impl_ = impl_->apply("split", {loop, factor, outer, inner});
  return *this;
}

Schedule& Schedule::tile(const std::string& x, const std::string& y, const std::string& xo, const std::string& yo,
                         const std::string& xi, const std::string& yi, std::int64_t fx, std::int64_t fy) {
  impl_ = impl_->apply("tile", {x, y, xo, yo, xi, yi, fx, fy});
  return *this;
}

Schedule& Schedule::reorder(const std::vector<std::string>& outermost_first) {
  impl_ = impl_->apply("reorder", as_args(outermost_first));
  return *this;
}

Schedule& Schedule::fuse_with(const std::string& loop, const std::string& consumer_loop) {
  impl_ = impl_->apply("fuse_with", {loop, consumer_loop});
  return *this;
}

Schedule& Schedule::compute_at(const std::string& statement, const std::string& loop) {
  impl_ = impl_->apply("compute_at", {statement, loop});
  return *this;
}

Schedule& Schedule::fission(const std::string& loop, const std::string& statement) {
  impl_ = impl_->apply("fission", {loop, statement});
  return *this;
}

Schedule& Schedule::skew(const std::string& x, const std::string& y, std::int64_t factor) {
  impl_ = impl_->apply("skew", {x, y, factor});
  return *this;
}

Schedule& Schedule::shift(const std::string& statement, const std::string& loop, std::int64_t distance) {
  impl_ = impl_->apply("shift", {statement, loop, distance});
  return *this;
}

Schedule& Schedule::reverse(const std::string& loop) {
  impl_ = impl_->apply("reverse", {loop});
  return *this;
}

Schedule& Schedule::parallel(const std::string& loop) {
  impl_ = impl_->apply("parallel", {loop});
  return *this;
}

Schedule& Schedule::vectorize(const std::string& loop, std::int64_t width) {
  impl_ = impl_->apply("vectorize", with_optional(loop, width));
  return *this;
}

Schedule& Schedule::unroll(const std::string& loop, std::int64_t factor) {
  impl_ = impl_->apply("unroll", with_optional(loop, factor));
  return *this;
}

Schedule& Schedule::serial(const std::string& loop) {
  impl_ = impl_->apply("serial", {loop});
  return *this;
}

Schedule& Schedule::gpu_blocks(const std::vector<std::string>& loops) {
  impl_ = impl_->apply("gpu_blocks", as_args(loops));
  return *this;
}

Schedule& Schedule::gpu_threads(const std::string& loop, std::int64_t count) {
  impl_ = impl_->apply("gpu_threads", {loop, count});
  return *this;
}

Schedule& Schedule::cluster(const std::string& loop, std::int64_t blocks) {
  impl_ = impl_->apply("cluster", {loop, blocks});
  return *this;
}

Schedule& Schedule::persistent(const std::string& loop, std::int64_t blocks) {
  impl_ = impl_->apply("persistent", {loop, blocks});
  return *this;
}

Schedule& Schedule::gpu_warps(const std::string& loop) {
  impl_ = impl_->apply("gpu_warps", {loop});
  return *this;
}

Schedule& Schedule::tensor_cores(const std::string& loop, std::int64_t groups, std::int64_t slots) {
  impl_ = impl_->apply("tensor_cores", {loop, groups, slots});
  return *this;
}

Schedule& Schedule::overlap(const std::string& loop, std::int64_t chains) {
  impl_ = chains == 0 ? impl_->apply("overlap", {loop}) : impl_->apply("overlap", {loop, chains});
  return *this;
}

Schedule& Schedule::turns(const std::string& loop) {
  impl_ = impl_->apply("turns", {loop});
  return *this;
}

Schedule& Schedule::residents(const std::string& loop, std::int64_t blocks) {
  impl_ = impl_->apply("residents", {loop, blocks});
  return *this;
}

Schedule& Schedule::claims(const std::string& loop) {
  impl_ = impl_->apply("claims", {loop});
  return *this;
}

Schedule& Schedule::stagger(const std::string& loop) {
  impl_ = impl_->apply("stagger", {loop});
  return *this;
}

Schedule& Schedule::polynomial(const std::string& loop, std::int64_t sixteenths) {
  impl_ = impl_->apply("polynomial", {loop, sixteenths});
  return *this;
}

Schedule& Schedule::hold(const std::string& loop) {
  impl_ = impl_->apply("hold", {loop});
  return *this;
}

Schedule& Schedule::gpu_lanes(const std::string& loop) {
  impl_ = impl_->apply("gpu_lanes", {loop});
  return *this;
}

Schedule& Schedule::stage(const std::string& tensor, const std::string& loop, const std::string& memory, std::int64_t slots) {
  impl_ = impl_->apply("stage", {tensor, loop, memory, slots});
  return *this;
}

Schedule& Schedule::specialize(const std::string& loop) {
  impl_ = impl_->apply("specialize", {loop});
  return *this;
}

Schedule& Schedule::streaming(const std::string& tensor) {
  impl_ = impl_->apply("streaming", {tensor});
  return *this;
}

Schedule& Schedule::step(const std::string& text) {
  impl_ = impl_->with(impl_->current().apply(parse_step(text)));
  return *this;
}

Schedule& Schedule::undo() {
  if (impl_->history.size() == 1) user_error("there is no step to undo");
  Impl impl = *impl_;
  impl.history.pop_back();
  impl_ = std::make_shared<const Impl>(std::move(impl));
  return *this;
}

std::optional<std::string> Schedule::why_illegal(const std::string& step) const {
  const Step parsed = parse_step(step);
  try {
    impl_->current().apply(parsed);
    return std::nullopt;
  } catch (const UserError& error) {
    return error.what();
  }
}

std::vector<std::string> Schedule::steps() const {
  std::vector<std::string> texts;
  for (const Step& step : impl_->current().steps()) texts.push_back(describe(step));
  return texts;
}

std::string Schedule::str() const { return impl_->current().str(); }

std::string Schedule::show(const std::string& view, int sm) const {
  const std::optional<View> known = view_from(view);
  if (!known) user_error("'{}' is no view: there are {}", view, view_names());
  return nestor::show(impl_->current(), *known, {sm, impl_->sizes});
}

std::string Schedule::certificate() const { return describe(certify(impl_->current(), build_tile_program(impl_->current()))); }

std::string Schedule::json() const { return impl_->json(); }

Measurement Schedule::measure(const MeasureSettings& settings) const {
  const TrialRecord record = impl_->measure(settings);
  Measurement measurement;
  measurement.correct = record.status == TrialStatus::ok || record.status == TrialStatus::slow;
  if (!measurement.correct) measurement.failure = fmt::format("{}: {}", to_string(record.status), record.reason);
  measurement.median_ms = record.median_ms;
  measurement.samples_ms = record.samples_ms;
  measurement.max_error = record.max_error;
  return measurement;
}

std::int64_t Schedule::save(const std::string& database, const MeasureSettings& settings) const {
  TrialRecord record = impl_->measure(settings);
  if (record.steps.empty()) record.steps = impl_->json();
  Database file = Database::open(database.empty() ? Database::default_path() : database);
  return file.add_trial(device_identity_host(settings.threads), problem_key(impl_->nest, impl_->sizes), nest_to_text(impl_->nest),
                        record);
}

}  // namespace nestor::api
