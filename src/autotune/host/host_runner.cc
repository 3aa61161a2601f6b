// One candidate on the host: compare with the oracle, then time with cold caches.
#include "autotune/host/host_runner.h"

#include "autotune/check/winners.h"
#include "autotune/host/host_launch.h"
#include "autotune/trial/argument_facts.h"
#include "autotune/trial/statistics.h"
#include "autotune/workers/worker_process.h"
#include "support/element_codec.h"
#include "support/error.h"
#include "support/system/available_memory.h"

#include <algorithm>
#include <cstring>

namespace nestor {
namespace {

CompiledKernel kernel_of(const KernelRecord& record) {
  return {record.architecture, record.code, recipe_from_json(nlohmann::json::parse(record.recipe))};
}

}  // namespace

HostRunner::HostRunner(std::shared_ptr<HostProblem> problem)
    : problem_(std::move(problem)),
      check_(problem_->definition, problem_->options.scalars, problem_->options.data_seed),
      peers_(problem_->definition, problem_->sizes, problem_->options.scalars, problem_->options.data_seed,
             problem_->samples.samples) {}

void HostRunner::poison_outputs() {
  ++generation_;
  for (std::size_t k = 0; k < problem_->buffers.size(); ++k) {
    const MeasuredProblem::Argument& argument = problem_->arguments[k];
    if (!argument.output) continue;
    const ElementType type = problem_->outputs.at(argument.name).type;
    const std::uint32_t bits = poison_bits(type, generation_);
    const std::size_t width = size_in_bytes(type);
    std::byte* data = problem_->buffers[k].data();
    for (std::size_t at = 0; at < problem_->buffers[k].size(); at += width) std::memcpy(data + at, &bits, width);
  }
}

double HostRunner::run_once() {
  std::vector<void*> pointers;
  std::vector<std::int64_t> strides;
  problem_->bind(recipe_, [&](std::size_t argument) { return problem_->buffers[argument].data(); }, pointers, strides);
  const std::vector<double> scalars = scalar_values(recipe_, problem_->options.scalars);
  const auto start = WorkerClock::now();
  kernel_->run(pointers, strides, problem_->sizes, scalars, problem_->options.threads);
  return milliseconds_since(start);
}

std::string HostRunner::fetch_outputs() {
  for (std::size_t k = 0; k < problem_->buffers.size(); ++k) {
    const MeasuredProblem::Argument& argument = problem_->arguments[k];
    if (!argument.output) continue;
    const GuardedBuffer& buffer = problem_->buffers[k];
    HostTensor& output = problem_->outputs.at(argument.name);
    if (!buffer.padding_intact()) return fmt::format("{} was written beyond its end", output.name);
    std::memcpy(output.bytes.data(), buffer.data(), buffer.size());
    const std::int64_t elements = argument.covered ? output.elements() : 0;
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
  outcome.max_error = worst_error(problem_->samples.samples, problem_->outputs, &where, generation_);
  return outcome.max_error <= 1 ? "" : where;
}

TrialOutcome HostRunner::run(const TrialJob& job, const CompiledTrial& compiled) {
  TrialOutcome outcome;
  try {
    const CompiledKernel kernel = kernel_of(compiled.kernel);
    recipe_ = kernel.recipe;
    kernel_.reset();
    kernel_.emplace(kernel);
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    return failed_outcome(TrialStatus::compile_error, error.what());
  }
  const std::int64_t workspace =
      recipe_.workspace_bytes.evaluate([&](const std::string& name) { return problem_->sizes.at(name); });
  const std::int64_t most = host_worker_memory(problem_->options);
  if (workspace > most) {
    const std::string reason = fmt::format("its workspace takes {}, more than {}", bytes_text(workspace), bytes_text(most));
    return failed_outcome(TrialStatus::infeasible, reason);
  }
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
  if (outcome.status == TrialStatus::ok) check_in_full(compiled, outcome);
  return outcome;
}

void HostRunner::check_in_full(const CompiledTrial& compiled, TrialOutcome& outcome) {
  const auto start = WorkerClock::now();
  const CheckedKernel kernel{periods_from_text(compiled.periods), recipe_.fixed_sizes, recipe_.valid};
  const CheckSizes sizes = check_sizes(kernel, problem_->definition, problem_->sizes);
  CheckReport report = check_host_kernel(check_, *kernel_, recipe_, sizes, problem_->options.scalars, problem_->options.threads);
  if (report.wrong.empty() && !peers_.pieces().empty()) {
    poison_outputs();
    run_once();
    report.wrong = fetch_outputs();
    if (report.wrong.empty()) report.wrong = peers_.compare(problem_->outputs);
  }
  take_check(report, problem_->samples, problem_->definition, milliseconds_since(start) / 1000, outcome);
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
  const auto start = WorkerClock::now();
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
