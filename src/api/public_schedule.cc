// nestor/schedule.h on top of the internal schedule: each method is one step.
#include "nestor/schedule.h"

#include "api/operators.h"
#include "api/public_nest.h"
#include "api/report.h"
#include "autotune/measure_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "poly/schedule/schedule.h"
#include "support/error.h"
#include "support/system/json_text.h"

namespace nestor_api {

using namespace nestor;

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

  static Schedule& step(Schedule& schedule, std::string name, std::vector<nlohmann::json> args) {
    const Impl& before = *schedule.impl_;
    schedule.impl_ = before.with(before.current().apply(Step{std::move(name), std::move(args)}));
    return schedule;
  }

  std::string json() const { return trial_steps_json(nest, specialized_sizes(nest, sizes), current().steps()).dump(2); }

  TrialRecord measure(const MeasureSettings& settings) const {
    if (settings.threads < 0)
      user_error("{} threads cannot run a kernel: write 0 for all cores, or a number above 0", settings.threads);
    if (!(settings.run_timeout_s >= 0))
      user_error("a time limit of {} s is none: write 0 for the usual one", settings.run_timeout_s);
    MeasureOptions options;
    options.target = target_from(settings.target);
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
  const nlohmann::json json = json_from_text(text, "the schedule");
  schedule.impl_ = schedule.impl_->with(replay_trial_steps(nest.impl_->nest, schedule.impl_->sizes, json));
  return schedule;
}

Schedule& Schedule::apply_rule(const std::string& rule, const std::vector<std::string>& target) {
  std::vector<nlohmann::json> args{rule};
  args.insert(args.end(), target.begin(), target.end());
  return Impl::step(*this, "apply_rule", args);
}

Schedule& Schedule::split(const std::string& loop, std::int64_t factor, const std::string& outer, const std::string& inner) {
  return Impl::step(*this, "split", {loop, factor, outer, inner});
}

Schedule& Schedule::tile(const std::string& x, const std::string& y, const std::string& xo, const std::string& yo,
                         const std::string& xi, const std::string& yi, std::int64_t fx, std::int64_t fy) {
  return Impl::step(*this, "tile", {x, y, xo, yo, xi, yi, fx, fy});
}

Schedule& Schedule::reorder(const std::vector<std::string>& outermost_first) {
  return Impl::step(*this, "reorder", as_args(outermost_first));
}

Schedule& Schedule::fuse_with(const std::string& loop, const std::string& consumer_loop) {
  return Impl::step(*this, "fuse_with", {loop, consumer_loop});
}

Schedule& Schedule::compute_at(const std::string& statement, const std::string& loop) {
  return Impl::step(*this, "compute_at", {statement, loop});
}

Schedule& Schedule::fission(const std::string& loop, const std::string& statement) {
  return Impl::step(*this, "fission", {loop, statement});
}

Schedule& Schedule::skew(const std::string& x, const std::string& y, std::int64_t factor) {
  return Impl::step(*this, "skew", {x, y, factor});
}

Schedule& Schedule::shift(const std::string& statement, const std::string& loop, std::int64_t distance) {
  return Impl::step(*this, "shift", {statement, loop, distance});
}

Schedule& Schedule::reverse(const std::string& loop) { return Impl::step(*this, "reverse", {loop}); }

Schedule& Schedule::parallel(const std::string& loop) { return Impl::step(*this, "parallel", {loop}); }

Schedule& Schedule::vectorize(const std::string& loop, std::int64_t width) {
  return Impl::step(*this, "vectorize", with_optional(loop, width));
}

Schedule& Schedule::unroll(const std::string& loop, std::int64_t factor) {
  return Impl::step(*this, "unroll", with_optional(loop, factor));
}

Schedule& Schedule::serial(const std::string& loop) { return Impl::step(*this, "serial", {loop}); }

Schedule& Schedule::gpu_blocks(const std::vector<std::string>& loops) { return Impl::step(*this, "gpu_blocks", as_args(loops)); }

Schedule& Schedule::gpu_threads(const std::string& loop, std::int64_t count) {
  return Impl::step(*this, "gpu_threads", {loop, count});
}

Schedule& Schedule::cluster(const std::string& loop, std::int64_t blocks) { return Impl::step(*this, "cluster", {loop, blocks}); }

Schedule& Schedule::persistent(const std::string& loop, std::int64_t blocks) {
  return Impl::step(*this, "persistent", {loop, blocks});
}

Schedule& Schedule::tensor_cores(const std::string& loop, std::int64_t warpgroups, std::int64_t stages) {
  return Impl::step(*this, "tensor_cores", {loop, warpgroups, stages});
}

Schedule& Schedule::intra_warpgroup_overlap(const std::string& loop, std::int64_t in_flight) {
  return Impl::step(*this, "intra_warpgroup_overlap", with_optional(loop, in_flight));
}

Schedule& Schedule::ping_pong(const std::string& loop) { return Impl::step(*this, "ping_pong", {loop}); }

Schedule& Schedule::ping_pong_tiles(const std::string& loop) { return Impl::step(*this, "ping_pong_tiles", {loop}); }

Schedule& Schedule::a_from_registers(const std::string& loop) { return Impl::step(*this, "a_from_registers", {loop}); }

Schedule& Schedule::early_release(const std::string& loop) { return Impl::step(*this, "early_release", {loop}); }

Schedule& Schedule::exp2_polynomial(const std::string& loop, std::int64_t sixteenths) {
  return Impl::step(*this, "exp2_polynomial", {loop, sixteenths});
}

Schedule& Schedule::operand_halves(const std::string& loop) { return Impl::step(*this, "operand_halves", {loop}); }

Schedule& Schedule::swap_ab(const std::string& loop) { return Impl::step(*this, "swap_ab", {loop}); }

Schedule& Schedule::min_blocks(const std::string& loop, std::int64_t blocks) {
  return Impl::step(*this, "min_blocks", {loop, blocks});
}

Schedule& Schedule::raster_group(const std::string& loop, std::int64_t iterations) {
  return Impl::step(*this, "raster_group", {loop, iterations});
}
Schedule& Schedule::dynamic_scheduler(const std::string& loop) { return Impl::step(*this, "dynamic_scheduler", {loop}); }

Schedule& Schedule::gpu_lanes(const std::string& loop) { return Impl::step(*this, "gpu_lanes", {loop}); }

Schedule& Schedule::stage(const std::string& tensor, const std::string& loop, std::int64_t stages) {
  return Impl::step(*this, "stage", {tensor, loop, stages});
}

Schedule& Schedule::specialize(const std::string& loop) { return Impl::step(*this, "specialize", {loop}); }

Schedule& Schedule::streaming(const std::string& tensor) { return Impl::step(*this, "streaming", {tensor}); }

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
  return file.add_trial(device_identity(target_from(settings.target), settings.threads), problem_key(impl_->nest, impl_->sizes),
                        nest_to_text(impl_->nest), record);
}

}  // namespace nestor_api
