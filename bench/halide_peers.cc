// What Halide's own autoschedulers make of the definitions in kernels/: the peers that Nestor's host kernels are measured
// against. One JSON line a scheduler: {"op", "variant", "sizes", "scheduler", "threads", "ms", "samples"} or "error" for "ms".
#include <Halide.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "frontend/affine.h"
#include "operator.h"
#include "support/error.h"

namespace {

using nestor::HalideDefinition;
using nestor::Sizes;

/// Larger than the last-level caches of the machines at hand; touching it evicts a kernel's data.
constexpr std::size_t kFlushBytes = std::size_t{256} << 20;
/// Seconds for scheduling, compiling and measuring with one scheduler; Li2018 and Adams2019 may take long.
constexpr unsigned kTimeLimit = 180;

struct Options {
  std::string op;
  std::string variant;
  Sizes sizes;
  std::vector<std::string> schedulers{"Adams2019", "Li2018", "Mullapudi2016"};
  int repeats = 15;
  int threads = 2;
};

std::int64_t integer(const std::string& text, const std::string& what) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < 1) {
    nestor::user_error("{}: '{}' is not a positive integer", what, text);
  }
  return value;
}

Options parse(const std::vector<std::string>& args) {
  if (args.empty())
    nestor::user_error("usage: halide_peers OP.VARIANT [SIZE=VALUE ...] [--scheduler=NAME] [--repeats=N] [--threads=N]");
  Options options;
  options.op = args[0].substr(0, args[0].find('.'));
  options.variant = args[0].size() > options.op.size() ? args[0].substr(options.op.size() + 1) : "f32";
  for (std::size_t k = 1; k < args.size(); ++k) {
    const std::size_t equals = args[k].find('=');
    if (equals == std::string::npos) nestor::user_error("'{}' is not NAME=VALUE", args[k]);
    const std::string name = args[k].substr(0, equals);
    const std::string value = args[k].substr(equals + 1);
    if (name == "--scheduler") {
      options.schedulers = {value};
    } else if (name == "--repeats") {
      options.repeats = static_cast<int>(integer(value, name));
    } else if (name == "--threads") {
      options.threads = static_cast<int>(integer(value, name));
    } else {
      options.sizes[name] = integer(value, "size " + name);
    }
  }
  return options;
}

/// A definition whose sizes have values.
class Problem {
 public:
  explicit Problem(const Options& options) : definition_(nestor::kernels::define(options.op, options.variant)) {
    Sizes unknown = options.sizes;
    for (const nestor::HalideSize& size : definition_.sizes) {
      const auto given = options.sizes.find(size.param.name());
      sizes_[size.param.name()] = given == options.sizes.end() ? size.default_value : given->second;
      unknown.erase(size.param.name());
    }
    if (!unknown.empty()) nestor::user_error("operator '{}' has no size '{}'", options.op, unknown.begin()->first);
    for (nestor::HalideSize& size : definition_.sizes) {
      const int value = static_cast<int>(sizes_.at(size.param.name()));
      size.param.set(value);
      size.param.set_estimate(value);
    }
    for (const nestor::HalideScalar& scalar : definition_.scalars) set_scalar(scalar);
    for (nestor::HalideInput& input : definition_.inputs) fill(input);
    for (nestor::HalideOutput& output : definition_.outputs) {
      Halide::Region region;
      std::vector<int> extents;
      for (const Halide::Expr& extent : output.extents) {
        extents.push_back(value_of(extent));
        region.emplace_back(0, extents.back());
      }
      output.func.set_estimates(region);
      for (const Halide::Type& type : output.func.function().output_types()) results_.emplace_back(type, extents);
    }
  }

  Halide::Pipeline pipeline() const {
    std::vector<Halide::Func> funcs;
    for (const nestor::HalideOutput& output : definition_.outputs) funcs.push_back(output.func);
    return Halide::Pipeline(funcs);
  }
  const std::vector<Halide::Buffer<>>& results() const { return results_; }
  const Sizes& sizes() const { return sizes_; }

 private:
  static void set_scalar(const nestor::HalideScalar& scalar) {
    auto param = scalar.param.as<Halide::Internal::Variable>()->param;
    if (param.type().is_float()) {
      param.set_scalar<float>(static_cast<float>(scalar.default_value));
      param.set_estimate(static_cast<float>(scalar.default_value));
    } else {
      param.set_scalar<int>(static_cast<int>(scalar.default_value));
      param.set_estimate(static_cast<int>(scalar.default_value));
    }
  }

  int value_of(const Halide::Expr& extent) const {
    std::map<std::string, Halide::Expr> values;
    for (const auto& [name, value] : sizes_) values[name] = static_cast<int>(value);
    const Halide::Expr value = Halide::Internal::simplify(Halide::Internal::substitute(values, extent));
    return static_cast<int>(*nestor::constant_of(value));
  }

  void fill(nestor::HalideInput& input) {
    std::vector<int> extents;
    for (std::size_t d = 0; d < input.extents.size(); ++d) {
      extents.push_back(value_of(input.extents[d]));
      input.param.dim(static_cast<int>(d)).set_estimate(0, extents.back());
    }
    Halide::Buffer<> buffer(input.param.type(), extents);
    std::mt19937 random(1);
    const std::size_t count = buffer.number_of_elements();
    for (std::size_t k = 0; k < count; ++k) {
      const float value = static_cast<float>(random() >> 8) / static_cast<float>(1 << 23) - 1.0f;
      if (input.param.type().is_bfloat()) {
        reinterpret_cast<Halide::bfloat16_t*>(buffer.data())[k] = Halide::bfloat16_t(value);
      } else if (input.param.type().bits() == 16) {
        reinterpret_cast<Halide::float16_t*>(buffer.data())[k] = Halide::float16_t(value);
      } else {
        reinterpret_cast<float*>(buffer.data())[k] = value;
      }
    }
    input.param.set(buffer);
  }

  HalideDefinition definition_;
  Sizes sizes_;
  std::vector<Halide::Buffer<>> results_;
};

void schedule(Halide::Pipeline& pipeline, const std::string& scheduler, const Halide::Target& target, int threads) {
  std::string plugin = scheduler;
  std::transform(plugin.begin(), plugin.end(), plugin.begin(), [](unsigned char c) { return std::tolower(c); });
  Halide::load_plugin(std::string(NESTOR_HALIDE_PLUGINS) + "/libautoschedule_" + plugin + ".so");
  const long cache = std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 1L << 20);
#ifdef HALIDE_VERSION_MAJOR
  (void)cache;
  pipeline.apply_autoscheduler(target, {scheduler, {{"parallelism", std::to_string(threads)}}});
#else
  pipeline.auto_schedule(scheduler, target, Halide::MachineParams(threads, static_cast<std::uint64_t>(cache), 40));
#endif
}

/// Milliseconds of single runs, each with cold caches.
std::vector<double> measure(Halide::Pipeline& pipeline, std::vector<Halide::Buffer<>> buffers, int repeats) {
  std::vector<char> flush(kFlushBytes);
#ifdef HALIDE_VERSION_MAJOR  // since Halide 15, a Realization takes the vector over
  Halide::Realization results(std::move(buffers));
#else
  Halide::Realization results(buffers);
#endif
  pipeline.realize(results);
  std::vector<double> samples;
  const auto begin = std::chrono::steady_clock::now();
  // At least three runs; a slow one need not be repeated as often.
  for (int k = 0; k < repeats; ++k) {
    std::memset(flush.data(), k, flush.size());
    const auto start = std::chrono::steady_clock::now();
    pipeline.realize(results);
    const auto end = std::chrono::steady_clock::now();
    samples.push_back(std::chrono::duration<double, std::milli>(end - start).count());
    if (samples.size() >= 3 && end - begin > std::chrono::seconds(30)) break;
  }
  return samples;
}

nlohmann::json describe(const Options& options, const Sizes& sizes, const std::string& scheduler) {
  return {
      {"op", options.op}, {"variant", options.variant}, {"sizes", sizes}, {"scheduler", scheduler}, {"threads", options.threads}};
}

/// The whole work with one scheduler, in a process of its own: schedulers and what they generate may crash.
void run_child(const Options& options, const std::string& scheduler) {
  alarm(kTimeLimit);
  nlohmann::json line = describe(options, options.sizes, scheduler);
  try {
    const Problem problem(options);
    line["sizes"] = problem.sizes();
    Halide::Pipeline pipeline = problem.pipeline();
    const Halide::Target target = Halide::get_jit_target_from_environment();
    schedule(pipeline, scheduler, target, options.threads);
    pipeline.compile_jit(target);
    std::vector<double> samples = measure(pipeline, problem.results(), options.repeats);
    line["samples"] = samples;
    std::sort(samples.begin(), samples.end());
    line["ms"] = samples[samples.size() / 2];
  } catch (const std::exception& failure) {
    line["error"] = failure.what();
  }
  std::cout << line.dump() << std::endl;
}

void run(const Options& options, const std::string& scheduler) {
  std::cout.flush();
  const pid_t child = fork();
  if (child < 0) nestor::user_error("cannot start a process: {}", std::strerror(errno));
  if (child == 0) {
    run_child(options, scheduler);
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSIGNALED(status) && WEXITSTATUS(status) == 0) return;
  nlohmann::json line = describe(options, options.sizes, scheduler);
  const bool late = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
  line["error"] = late ? fmt::format("no result within {} s", kTimeLimit)
                       : fmt::format("the scheduler or its program ended with status {}", status);
  std::cout << line.dump() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse({argv + 1, argv + argc});
    setenv("HL_NUM_THREADS", std::to_string(options.threads).c_str(), 1);
    const Problem check(options);  // refuses unknown names before anything is started
    for (const std::string& scheduler : options.schedulers) run(options, scheduler);
  } catch (const nestor::Error& error) {
    std::cerr << "halide_peers: " << error.what() << '\n';
    return 2;
  }
  return 0;
}
