// One candidate on a GPU: against the oracle first, then against the clock.
#include "autotune/gpu/gpu_runner.h"

#include "autotune/check/winners.h"
#include "autotune/trial/argument_facts.h"
#include "autotune/workers/worker_process.h"
#include "support/debug.h"
#include "support/error.h"
#include "support/system/available_memory.h"
#include "support/system/json_text.h"

#include <algorithm>
#include <map>
#include <optional>

namespace nestor {
namespace {

nlohmann::json parsed_report(const std::string& text) {
  nlohmann::json report = text.empty() ? nlohmann::json::object() : json_or_discarded(text);
  return report.is_object() ? report : nlohmann::json::object();
}

}  // namespace

/// A kernel in the device's memory and the values that it is launched with.
struct GpuRunner::Loaded {
  LaunchRecipe recipe;
  RecipeLauncher launcher;
  std::vector<void*> pointers;
  std::vector<std::int64_t> strides, sizes;
  std::vector<double> scalars;
  void* workspace = nullptr;
  std::string name;  ///< of the first kernel, for errors
  nlohmann::json report;
  int local_bytes = 0;  ///< of a thread: stack and spilled registers

  void launch(cuda::Stream stream) const { launcher.launch({pointers, strides, sizes, scalars, workspace}, stream); }
};

namespace {

void collect_kernels(const std::vector<LaunchNode>& nodes, std::map<std::string, const LaunchNode*>& kernels) {
  for (const LaunchNode& node : nodes) {
    if (node.kind == LaunchNode::Kind::kernel) kernels[node.symbol] = &node;
    collect_kernels(node.children, kernels);
  }
}

/// What the driver says of each kernel.
nlohmann::json driver_report(const RecipeLauncher& launcher, const LaunchRecipe& recipe) {
  std::map<std::string, const LaunchNode*> nodes;
  collect_kernels(recipe.launches, nodes);
  nlohmann::json kernels = nlohmann::json::array();
  for (const CudaFunction& function : launcher.functions()) {
    const FunctionReport report = function.report();
    const LaunchNode& node = *nodes.at(function.name());
    const int threads = node.block[0] * node.block[1] * node.block[2];
    kernels.push_back({{"name", function.name()},
                       {"registers", report.registers},
                       {"local_bytes", report.local_bytes},
                       {"static_shared_bytes", report.shared_bytes},
                       {"shared_bytes", node.shared_bytes},
                       {"threads", threads},
                       {"blocks_per_unit", function.blocks_per_unit(threads, node.shared_bytes)}});
  }
  return kernels;
}

}  // namespace

GpuRunner::GpuRunner(std::shared_ptr<GpuProblem> problem, int ordinal)
    : problem_(std::move(problem)),
      device_(CudaDevice::open(ordinal)),
      context_(*device_),
      stream_(device_),
      timer_(device_, stream_, static_cast<std::size_t>(problem_->options.flush_bytes)),
      check_(problem_->definition, problem_->options.scalars, problem_->options.data_seed) {
  const DebugTimer timer("inputs to the device");
  for (std::size_t set = 0; set < problem_->data->sets(); ++set)
    memories_.push_back(std::make_unique<GpuMemory>(*problem_, set, device_, stream_));
}

bool GpuRunner::usable() {
  if (lost_) return false;
  try {
    device_->synchronise();
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

GpuRunner::Loaded GpuRunner::load(const CompiledTrial& compiled) {
  const auto start = WorkerClock::now();
  LaunchRecipe recipe = recipe_from_json(nlohmann::json::parse(compiled.kernel.recipe));
  RecipeLauncher launcher(CudaModule::load(device_, compiled.binary.empty() ? compiled.kernel.code : compiled.binary), recipe);
  Loaded loaded{std::move(recipe), std::move(launcher), {}, {}, {}, {}, nullptr, "", parsed_report(compiled.report), 0};
  loaded.report["load_ms"] = milliseconds_since(start);
  loaded.report["assembler"] = compiled.binary.empty() ? "driver" : "ptxas";
  loaded.report["kernels"] = driver_report(loaded.launcher, loaded.recipe);
  loaded.report["argument_bytes"] = problem_->data->argument_bytes();
  for (const nlohmann::json& kernel : loaded.report["kernels"])
    loaded.local_bytes = std::max(loaded.local_bytes, kernel.at("local_bytes").get<int>());
  if (!loaded.launcher.functions().empty()) loaded.name = loaded.launcher.functions().front().name();
  for (const std::string& name : loaded.launcher.size_names()) loaded.sizes.push_back(problem_->sizes.at(name));
  loaded.scalars = scalar_values(loaded.recipe, problem_->options.scalars);
  return loaded;
}

void GpuRunner::bind(Loaded& loaded, GpuMemory& memory) {
  const auto pointer = [&](std::size_t argument) { return memory.pointer(argument); };
  problem_->bind(loaded.recipe, pointer, loaded.pointers, loaded.strides);
  loaded.workspace = memory.workspace(loaded.launcher.workspace_bytes(loaded.sizes));
}

TrialOutcome GpuRunner::run(const TrialJob& job, const CompiledTrial& compiled) {
  // The best may have been found since it was compiled.
  if (const std::string hopeless = why_hopeless(job, compiled.least_ms); !hopeless.empty())
    return failed_outcome(TrialStatus::infeasible, hopeless);
  std::optional<Loaded> loaded;
  TrialOutcome outcome;
  try {
    loaded.emplace(load(compiled));
    outcome = check_and_time(job, *loaded);
    note_loser(job, outcome);
    if (outcome.status == TrialStatus::ok) check_in_full(compiled, *loaded, outcome);
  } catch (const CudaError& error) {
    lost_ = error.context_lost();
    const TrialStatus status = error.out_of_memory() ? TrialStatus::infeasible
                               : loaded              ? TrialStatus::crash
                                                     : TrialStatus::compile_error;
    outcome = failed_outcome(status, error.what());
  } catch (const LackOfResources& error) {
    outcome = outside_outcome(error.what());
  } catch (const UserError& error) {
    outcome = failed_outcome(TrialStatus::infeasible, error.what());
  }
  if (!loaded) return outcome;
  if (outcome.status == TrialStatus::ok && loaded->local_bytes > 0)
    outcome.reason = fmt::format("keeps {} bytes a thread in local memory", loaded->local_bytes);
  if (!outcome.report.empty()) loaded->report.update(parsed_report(outcome.report));
  outcome.report = loaded->report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return outcome;
}

std::string GpuRunner::check(Loaded& loaded, GpuMemory& memory, double& ms, TrialOutcome& outcome) {
  const DebugTimer timer("first run and comparison");
  bind(loaded, memory);
  memory.poison_outputs();
  ms = timer_.time([&] { loaded.launch(stream_); }, 1, loaded.name).front();
  const std::string damage = memory.find_damage();
  double error = 0;
  const std::string differs = memory.compare(error);
  outcome.max_error = std::max(outcome.max_error, error);
  return damage.empty() ? differs : damage;
}

void GpuRunner::check_in_full(const CompiledTrial& compiled, Loaded& loaded, TrialOutcome& outcome) {
  const DebugTimer timer("check in full");
  const auto start = WorkerClock::now();
  const CheckedKernel kernel{periods_from_text(compiled.periods), loaded.recipe.fixed_sizes, loaded.recipe.valid};
  const CheckSizes sizes = check_sizes(kernel, problem_->definition, problem_->sizes);
  CheckReport report = check_.run(sizes, [&](const Sizes& at, HostTensors& tensors) { return run_case(loaded, at, tensors); });
  if (report.wrong.empty()) report.wrong = compare_with_peer(loaded);
  take_check(report, problem_->data->samples(0), problem_->definition, milliseconds_since(start) / 1000, outcome);
}

std::string GpuRunner::compare_with_peer(Loaded& loaded) {
  if (!peers_)
    peers_.emplace(problem_->definition, problem_->sizes, problem_->options.scalars, problem_->options.data_seed,
                   problem_->data->samples(0).samples);
  if (peers_->pieces().empty()) return "";
  const DebugTimer timer("running and comparing with the last kernel");
  GpuMemory& memory = *memories_.front();
  bind(loaded, memory);
  memory.poison_outputs();
  loaded.launch(stream_);
  return peers_->compare(memory.fetch(peers_->pieces()));
}

CheckRun GpuRunner::run_case(const Loaded& loaded, const Sizes& sizes, HostTensors& tensors) {
  std::vector<GuardedDeviceBuffer> buffers;
  std::vector<void*> pointers;
  std::vector<std::int64_t> strides, values;
  for (const ArgumentSpec& argument : loaded.recipe.arguments) {
    const HostTensor& tensor = tensors.at(argument.name);
    buffers.emplace_back(device_, tensor.bytes.size(), stream_).upload(tensor.bytes.data(), stream_);
    pointers.push_back(buffers.back().data());
    const std::vector<std::int64_t> dense = dense_strides(tensor.shape);
    strides.insert(strides.end(), dense.begin(), dense.end());
  }
  for (const std::string& name : loaded.launcher.size_names()) values.push_back(sizes.at(name));
  std::optional<GuardedDeviceBuffer> workspace;
  try {
    if (const std::int64_t bytes = loaded.launcher.workspace_bytes(values); bytes > 0) {
      require_workspace(*device_, bytes);
      workspace.emplace(device_, static_cast<std::size_t>(bytes), stream_).fill(0xffffffffu, stream_);
    }
    loaded.launcher.launch({pointers, strides, values, loaded.scalars, workspace ? workspace->data() : nullptr}, stream_);
  } catch (const LackOfResources&) {
    throw;
  } catch (const UserError&) {
    return {.refused = true};
  }
  CheckRun run;
  stream_.synchronise();
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    const ArgumentSpec& argument = loaded.recipe.arguments[k];
    HostTensor& tensor = tensors.at(argument.name);
    ByteBuffer result(tensor.bytes.size());
    if (result.size() > 0) buffers[k].download(result.data(), 0, result.size(), stream_);
    if (!buffers[k].zones_intact(stream_)) run.damage = fmt::format("memory around {} was written", argument.name);
    if (!argument.output && !(result == tensor.bytes)) run.damage = fmt::format("the input {} was written", argument.name);
    tensor.bytes = std::move(result);
  }
  if (workspace && !workspace->zones_intact(stream_)) run.damage = "memory around the workspace was written";
  return run;
}

TrialOutcome GpuRunner::check_and_time(const TrialJob& job, Loaded& loaded) {
  TrialOutcome outcome;
  std::string wrong;
  double first_ms = 0;
  // The first data set last: it is timed, too.
  for (auto memory = memories_.rbegin(); memory != memories_.rend() && wrong.empty(); ++memory)
    wrong = check(loaded, **memory, first_ms, outcome);
  if (wrong.empty()) {
    outcome.status = TrialStatus::ok;
    const Settling settling = time(job, loaded, first_ms, outcome);
    // A race may spare the first run.
    double later = 0;
    if (outcome.status == TrialStatus::ok) wrong = memories_.front()->compare(later);
    if (!wrong.empty()) wrong = "wrong after repeated runs: " + wrong;
    outcome.max_error = std::max(outcome.max_error, later);
    const bool faster = !fastest_.known() || settling.settled_ms < fastest_.settled_ms;
    if (wrong.empty() && settling.known() && faster) fastest_ = settling;
  }
  if (!wrong.empty()) {
    outcome.status = TrialStatus::wrong;
    outcome.reason = std::move(wrong);
  }
  return outcome;
}

Settling GpuRunner::time(const TrialJob& job, Loaded& loaded, double first_ms, TrialOutcome& outcome) {
  if (job.best_ms > 0 && !job.must_finish && first_ms > kHopeless * job.best_ms + 0.1) {
    outcome.status = TrialStatus::slow;
    outcome.samples_ms = {first_ms};
    outcome.median_ms = first_ms;
    outcome.reason = fmt::format("cut after its first run: {:.4g} ms, best is {:.4g} ms", first_ms, job.best_ms);
    return {};
  }
  timer_.warm_up();
  TimingRace race(job.best_ms, job.must_finish, fastest_, first_ms);
  while (const int runs = race.next_runs()) {
    const auto start = WorkerClock::now();
    const std::vector<double> samples = timer_.time([&] { loaded.launch(stream_); }, runs, loaded.name);
    race.add(samples, milliseconds_since(start));
  }
  outcome.samples_ms = race.samples();
  outcome.median_ms = race.median_ms();
  if (race.lost()) {
    outcome.status = TrialStatus::slow;
    outcome.reason = race.reason();
    return {};
  }
  loaded.report["half_width"] = race.interval().relative_half_width();
  if (race.settling().known()) loaded.report["fresh_ms"] = race.settling().fresh_ms;
  return race.settling();
}

}  // namespace nestor
