// One candidate on the host: compile, compare with the oracle, then time with cold caches.
#include "autotune/host/host_runner.h"

#include "autotune/check/winners.h"
#include "autotune/host/host_launch.h"
#include "autotune/oracle/oracle.h"
#include "autotune/trial/argument_facts.h"
#include "autotune/trial/proof_gate.h"
#include "autotune/trial/statistics.h"
#include "db/devices/host_identity.h"
#include "poly/isl/candidate_time.h"
#include "support/element_codec.h"
#include "support/error.h"
#include "support/hash.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace nestor {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Bytes of scratch memory one task takes, where they are constant.
std::int64_t scratch_bytes(const TileProgram& program) {
  std::int64_t total = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.memory != Memory::scratch) continue;
    std::int64_t bytes = static_cast<std::int64_t>(size_in_bytes(buffer.type));
    for (std::size_t k = 0; k < buffer.extents.size(); ++k) bytes *= buffer.extents[k].as_constant().value_or(1);
    total += bytes;
  }
  return total;
}

constexpr std::int64_t kScratchLimit = 16 << 20;

}  // namespace

std::shared_ptr<HostProblem> make_host_problem(const TrialProblem& tried, const MeasureOptions& options) {
  auto problem = std::make_shared<HostProblem>(
      HostProblem{tried.definition, BaseSchedules(tried.start), tried.sizes, options, {}, {}, {}, {}, {}, {}, {}});
  if (problem->options.threads <= 0) problem->options.threads = host_threads();
  check_scalars(tried.start, options.scalars);
  HostTensors arguments = make_arguments(tried.definition, tried.sizes, options.data_seed);
  problem->samples =
      reference_samples(tried.definition, tried.sizes, options.scalars, arguments, options.oracle_samples, options.data_seed);
  for (const Tensor& tensor : tried.start.tensors) {
    if (tensor.role == TensorRole::temporary) continue;
    HostTensor& data = arguments.at(tensor.name);
    GuardedBuffer buffer(data.bytes.size());
    std::memcpy(buffer.data(), data.bytes.data(), data.bytes.size());
    const bool output = tensor.role == TensorRole::output;
    if (!output) buffer.make_read_only();
    problem->names.push_back(tensor.name);
    problem->buffers.push_back(std::move(buffer));
    problem->strides.push_back(dense_strides(data.shape));
    problem->is_output.push_back(output);
    problem->covered.push_back(output && writes_every_element(tried.definition, tensor, tried.sizes));
    if (output) problem->outputs.emplace(tensor.name, std::move(data));
  }
  return problem;
}

HostRunner::HostRunner(std::shared_ptr<HostProblem> problem)
    : problem_(std::move(problem)),
      check_(problem_->definition, problem_->options.scalars, problem_->options.data_seed),
      peers_(problem_->definition, problem_->sizes, problem_->options.scalars, problem_->options.data_seed, problem_->samples) {}

std::optional<TrialOutcome> HostRunner::prepare(const TrialJob& job) {
  const auto start = Clock::now();
  std::optional<TrialOutcome> outcome;
  try {
    with_candidate_time([&] { outcome = generate(job); });
  } catch (const UserError& error) {
    return failed_outcome(TrialStatus::infeasible, error.what(), milliseconds_since(start));
  }
  return outcome;
}

std::optional<TrialOutcome> HostRunner::generate(const TrialJob& job) {
  kernel_.reset();
  const auto start = Clock::now();
  std::optional<Schedule> schedule;
  try {
    schedule = problem_->schedules.replay(job.steps);
  } catch (const UserError& error) {
    return failed_outcome(TrialStatus::illegal, error.what(), milliseconds_since(start));
  }
  try {
    const TileProgram program = build_tile_program(*schedule);
    const std::int64_t scratch = scratch_bytes(program);
    if (scratch > kScratchLimit) {
      return failed_outcome(TrialStatus::infeasible, fmt::format("one task needs {} KiB of scratch memory", scratch >> 10),
                            milliseconds_since(start));
    }
    std::string why;
    if (!is_valid_for(program.valid, problem_->sizes, &why)) {
      return failed_outcome(TrialStatus::infeasible, fmt::format("the kernel is not valid at these sizes: {}", why),
                            milliseconds_since(start));
    }
    periods_ = size_periods(program);
    compiled_ = compile_host(program, detect_host()).kernel;
    if (auto unproved = outcome_without_proof(program, *schedule, milliseconds_since(start))) return unproved;
    kernel_.emplace(compiled_);
  } catch (const InternalError& error) {
    return failed_outcome(TrialStatus::wrong, internal_reason(error), milliseconds_since(start));
  } catch (const Error& error) {
    return failed_outcome(TrialStatus::compile_error, error.what(), milliseconds_since(start));
  }
  compile_ms_ = milliseconds_since(start);
  return std::nullopt;
}

void HostRunner::poison_outputs() {
  ++generation_;
  for (std::size_t k = 0; k < problem_->buffers.size(); ++k) {
    if (!problem_->is_output[k]) continue;
    const HostTensor& fresh = problem_->outputs.at(problem_->names[k]);
    const std::uint32_t bits = poison_bits(fresh.type, generation_);
    const std::size_t width = size_in_bytes(fresh.type);
    std::byte* data = problem_->buffers[k].data();
    for (std::size_t at = 0; at < problem_->buffers[k].size(); at += width) std::memcpy(data + at, &bits, width);
  }
}

double HostRunner::run_once() {
  const LaunchRecipe& recipe = compiled_.recipe;
  std::vector<void*> pointers;
  std::vector<std::int64_t> strides;
  for (const ArgumentSpec& argument : recipe.arguments) {
    const auto found = std::find(problem_->names.begin(), problem_->names.end(), argument.name);
    if (found == problem_->names.end())
      internal_error("the kernel takes an argument '{}' that the nest does not have", argument.name);
    const auto k = static_cast<std::size_t>(found - problem_->names.begin());
    pointers.push_back(problem_->buffers[k].data());
    strides.insert(strides.end(), problem_->strides[k].begin(), problem_->strides[k].end());
  }
  const std::vector<double> scalars = scalar_values(recipe, problem_->options.scalars);
  const auto start = Clock::now();
  kernel_->run(pointers, strides, problem_->sizes, scalars, problem_->options.threads);
  return milliseconds_since(start);
}

std::string HostRunner::fetch_outputs() {
  for (std::size_t k = 0; k < problem_->buffers.size(); ++k) {
    if (!problem_->is_output[k]) continue;
    const GuardedBuffer& buffer = problem_->buffers[k];
    HostTensor& output = problem_->outputs.at(problem_->names[k]);
    if (!buffer.padding_intact()) return fmt::format("{} was written beyond its end", output.name);
    std::memcpy(output.bytes.data(), buffer.data(), buffer.size());
    const std::int64_t elements = problem_->covered[k] ? output.elements() : 0;
    for (std::int64_t e = 0; e < elements; ++e) {
      if (is_poison(output.type, output.bytes.data(), e, generation_))
        return fmt::format("element {} of {} was not written", e, output.name);
    }
  }
  return "";
}

std::string HostRunner::check(TrialOutcome& outcome) {
  if (std::string damage = fetch_outputs(); !damage.empty()) return damage;
  std::string where;
  outcome.max_error = worst_error(problem_->samples, problem_->outputs, &where, generation_);
  return outcome.max_error <= 1 ? "" : where;
}

TrialOutcome HostRunner::run(const TrialJob& job) {
  TrialOutcome outcome;
  outcome.compile_ms = compile_ms_;
  poison_outputs();
  const double first = run_once();
  std::string wrong = check(outcome);
  if (!wrong.empty()) {
    outcome.status = TrialStatus::wrong;
    outcome.reason = std::move(wrong);
    return outcome;
  }
  outcome.status = TrialStatus::ok;
  time(job, first, outcome);
  if (outcome.status == TrialStatus::ok) check_in_full(outcome);
  if (outcome.status == TrialStatus::ok)
    outcome.kernel = KernelRecord{compiled_.architecture, compiled_.code, recipe_to_json(compiled_.recipe).dump(), ""};
  return outcome;
}

void HostRunner::check_in_full(TrialOutcome& outcome) {
  const auto start = Clock::now();
  const LaunchRecipe& recipe = compiled_.recipe;
  const CheckSizes sizes = check_sizes({periods_, recipe.fixed_sizes, recipe.valid}, problem_->definition, problem_->sizes);
  CheckReport report = check_host_kernel(check_, *kernel_, recipe, sizes, problem_->options.scalars, problem_->options.threads);
  if (report.wrong.empty() && !peers_.pieces().empty()) {
    poison_outputs();
    run_once();
    report.wrong = fetch_outputs();
    if (report.wrong.empty()) report.wrong = peers_.compare(problem_->outputs);
  }
  note_check(report, milliseconds_since(start) / 1000, outcome);
}

void HostRunner::time(const TrialJob& job, double first_ms, TrialOutcome& outcome) {
  const bool race = job.best_ms > 0 && !job.must_finish;
  const auto slower = [&](double factor) {
    return race && *std::min_element(outcome.samples_ms.begin(), outcome.samples_ms.end()) > factor * job.best_ms;
  };
  const auto cut = [&] {
    outcome.status = TrialStatus::slow;
    outcome.median_ms = median(outcome.samples_ms);
    outcome.reason =
        fmt::format("cut after {} runs: {:.4g} ms, best is {:.4g} ms", outcome.samples_ms.size(), outcome.median_ms, job.best_ms);
  };
  // The checking run is untimed but for hopeless cases: it pays for page faults and a cold branch predictor.
  if (race && first_ms > 5 * job.best_ms + 1) {
    outcome.samples_ms.push_back(first_ms);
    return cut();
  }
  if (!cold_) cold_ = std::make_unique<ColdCache>(problem_->options.threads);
  const auto start = Clock::now();
  constexpr double kEnough_ms = 1500;
  for (int repetition = 0; repetition < std::max(problem_->options.repetitions, 1); ++repetition) {
    if (repetition >= 3 && milliseconds_since(start) > kEnough_ms) break;
    cold_->flush();
    outcome.samples_ms.push_back(run_once());
    if (repetition == 0 && slower(2)) return cut();
    if (repetition == 2 && slower(1.25)) return cut();
  }
  outcome.median_ms = median(outcome.samples_ms);
  note_loser(job, outcome);
}

}  // namespace nestor
