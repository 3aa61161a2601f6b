// Reference samples, evaluated on all cores.
#include "autotune/oracle/oracle.h"

#include "autotune/oracle/limited_bounds.h"
#include "autotune/oracle/needed_part.h"
#include "autotune/oracle/reference.h"
#include "autotune/oracle/shared_elements.h"
#include "autotune/tensors/random_fill.h"
#include "db/devices/host_identity.h"
#include "support/error.h"
#include "support/system/child_processes.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

namespace nestor {
namespace {

/// Elements to compare: corners first, then random ones of which many lie on a border, where remainders are handled.
std::vector<std::int64_t> choose_elements(const std::vector<std::int64_t>& shape, std::int64_t count, CounterRandom random) {
  std::int64_t total = 1;
  for (const std::int64_t extent : shape) total *= extent;
  std::vector<std::int64_t> chosen;
  if (total <= count) {
    for (std::int64_t k = 0; k < total; ++k) chosen.push_back(k);
    return chosen;
  }
  std::set<std::int64_t> seen;
  const auto add = [&](std::int64_t linear) {
    if (seen.insert(linear).second) chosen.push_back(linear);
  };
  const std::size_t rank = shape.size();
  for (std::size_t corner = 0; corner < std::min<std::size_t>(std::size_t{1} << rank, 16); ++corner) {
    std::int64_t linear = 0;
    for (std::size_t d = 0; d < rank; ++d) linear = linear * shape[d] + ((corner >> d) & 1 ? shape[d] - 1 : 0);
    add(linear);
  }
  for (std::int64_t attempt = 0; attempt < 4 * count && static_cast<std::int64_t>(chosen.size()) < count; ++attempt) {
    std::int64_t linear = 0;
    for (const std::int64_t extent : shape) {
      const std::int64_t kind = random.below(8);
      linear = linear * extent + (kind == 0 ? 0 : kind == 1 ? extent - 1 : random.below(extent));
    }
    add(linear);
  }
  return chosen;
}

/// Consecutive elements that are evaluated together, since they share temporaries.
using Runs = std::vector<std::vector<std::int64_t>>;

/// The elements of choose_elements one by one, then runs of neighbours until `most` elements are reached. `ends`: the first and the last run
/// come before all, as much for the time of two elements where neighbours share what takes it.
Runs choose_runs(const std::vector<std::int64_t>& shape, std::int64_t count, std::int64_t most, std::uint64_t seed, bool ends) {
  CounterRandom random(seed);
  Runs runs;
  std::int64_t chosen = 0, total = 1;
  for (const std::int64_t extent : shape) total *= extent;
  constexpr std::int64_t kLongest = 512, kShortest = 32;
  const std::int64_t row = shape.empty() ? 1 : shape.back();
  const std::int64_t length = std::min(total, std::clamp(row, kShortest, kLongest));
  const auto add_run = [&](std::int64_t first) {
    std::vector<std::int64_t>& run = runs.emplace_back(static_cast<std::size_t>(length));
    std::iota(run.begin(), run.end(), first);
  };
  if (ends && total > count) {
    add_run(0);
    add_run(total - length);
  }
  for (const std::int64_t element : choose_elements(shape, count, random)) runs.push_back({element});
  if (total <= count) return runs;
  for (CounterRandom places(~seed); chosen < std::min(most, total); chosen += length) {
    const std::int64_t first = places.below(total - length + 1);
    add_run(length == row ? first / row * row : first);
  }
  return runs;
}

/// Beyond this many elementary evaluations (a few nanoseconds each) sampled outputs are evaluated backwards.
constexpr double kCheap = 4e6;
constexpr double kBackwardLimit = 4e9;    ///< of one sample
constexpr double kMostOfOutput = 3e9;     ///< of a process, for the first element of an output
constexpr double kProductsASecond = 6e7;  ///< of a process that shares a machine with others, at least
constexpr double kSlackOfBoxes = 16;      ///< boxes hold more points than what is in them, and products take less than they count
constexpr std::int64_t kAllElements = 1 << 16;
constexpr std::int64_t kMostInRuns = 1 << 14;
constexpr std::size_t kEnoughSamples = 64, kFewestSamples = 16;  ///< the corners are among the fewest
constexpr double kSampleSeconds = 0.3,
                 kLongSampleSeconds = 0.8;  ///< after which there may be no more than enough, than the fewest
constexpr double kMostSampleSeconds = 6;    ///< after which one of each process will do
constexpr double kMostSecondsOfFirst = 25;  ///< without one sample nothing is known of a result that needs all of large products
constexpr double kMostSecondsOfSome = 0.6;  ///< the same where many cases are made, one in each thread
constexpr double kCheapSample = 2e6;        ///< evaluated although time is up
constexpr double kMostForAll = 1e8;         ///< up to which all elements are evaluated where one needs most of them
constexpr double kMostForAllOfEach = 5e8;   ///< of a process, where that is known without an evaluation
constexpr double kMostlyProducts = 0.5;     ///< of all evaluations
constexpr double kMostForAllOfSome = 1e9;   ///< the same in one thread of many
constexpr std::size_t kSequential = 4;      ///< samples after which it is known what one takes
constexpr double kWorthForking_s = 0.03;
constexpr double kMostForkedSeconds = 30;  ///< of evaluators that stop by themselves after kMostSampleSeconds and one sample more

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// What forked evaluators write into.
struct SharedValue {
  enum State : int { unknown, unwritten, known } state;
  BoundedValue value;
};

/// How some elements are evaluated.
struct Sampling {
  int processes = 1;        ///< that evaluate at once where one would take long
  double most_seconds = 0;  ///< after which one sample of each will do
  bool ends_first = false;  ///< the first and the last run come before all
  bool need_most = false;   ///< an element needs most of the definition
};

/// Evaluates runs of elements of one tensor, on all cores if that takes long.
class RunEvaluator {
 public:
  RunEvaluator(Reference& reference, std::string tensor, Runs runs, const Sampling& sampling, const std::atomic<bool>* stop)
      : reference_(reference), tensor_(std::move(tensor)), runs_(std::move(runs)), sampling_(sampling), stop_(stop) {
    for (const auto& run : runs_) {
      starts_.push_back(elements_);
      elements_ += run.size();
    }
    shared_ = ByteBuffer(std::max<std::size_t>(elements_, 1) * sizeof(SharedValue));
    values_ = reinterpret_cast<SharedValue*>(shared_.data());
  }

  /// `limited`: enough samples and a fraction of a second will do.
  std::vector<OracleSample> evaluate(bool limited) {
    std::size_t done = 0;
    if (limited && sampling_.processes > 1) {
      const auto start = Clock::now();
      const double together = evaluate_together(done, start);
      if (enough(done, together)) {
        evaluate_cheap(done);
        return samples();
      }
      const double expected = together / static_cast<double>(done) * static_cast<double>(elements_ - done);
      if (expected > kWorthForking_s && evaluate_forked(done)) done = runs_.size();
    }
    if (done < runs_.size()) {
      done = evaluate_stride(done, 1, limited);
      evaluate_cheap(done);
    }
    return samples();
  }

 private:
  /// The first runs one by one, and others while all processes share each one's temporaries. The seconds that they took.
  double evaluate_together(std::size_t& done, Clock::time_point start) {
    SharedElements first(reference_, sampling_.processes, std::max(sampling_.most_seconds, kMostSecondsOfFirst), stop_),
        others(reference_, sampling_.processes, sampling_.most_seconds, stop_);
    double seconds = 0;
    for (bool split = true; done < runs_.size(); seconds = seconds_since(start)) {
      if (split ? enough(done, seconds) : done >= kSequential || seconds > kSampleSeconds) break;
      if (done == 0 && sampling_.need_most) first.prepare_all();
      split = (done == 0 ? first : others).prepare(tensor_, runs_[done].front());
      evaluate_run(done++, [] { return true; });
    }
    return seconds;
  }

  /// Those of the fewest samples from `first` on that take little since others needed the same.
  void evaluate_cheap(std::size_t first) {
    for (std::size_t r = first; r < std::min(kFewestSamples, runs_.size()); ++r) {
      if (reference_.compute_within(reference_.final_element(tensor_, runs_[r].front()), kCheapSample))
        evaluate_run(r, [] { return true; });
    }
  }

  /// After so many runs, and so many seconds of a process.
  bool enough(std::size_t runs, double seconds) const {
    if (runs == 0) return false;
    return (seconds > kSampleSeconds && runs >= kEnoughSamples) || (seconds > kLongSampleSeconds && runs >= kFewestSamples) ||
           (seconds > sampling_.most_seconds / 2 && runs >= kSequential) || seconds > sampling_.most_seconds;
  }

  std::vector<OracleSample> samples() const {
    std::vector<OracleSample> result;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      for (std::size_t k = 0; k < runs_[r].size(); ++k) {
        const SharedValue& found = values_[starts_[r] + k];
        if (found.state == SharedValue::known) result.push_back({tensor_, runs_[r][k], found.value.value, found.value.bound});
      }
    }
    return result;
  }

  /// `more`: whether there is time for another element; a run may end early.
  void evaluate_run(std::size_t r, const std::function<bool()>& more) {
    for (std::size_t k = 0; k < runs_[r].size() && (k == 0 || more()); ++k) {
      const auto value = reference_.bounded_value(tensor_, runs_[r][k], reference_.spent() + kBackwardLimit);
      values_[starts_[r] + k] = {value ? SharedValue::known : SharedValue::unwritten, value.value_or(BoundedValue{})};
    }
  }

  /// Every `stride`-th run from `first` on, until enough are done and the time is up: the first one that is not.
  std::size_t evaluate_stride(std::size_t first, std::size_t stride, bool limited) {
    const auto start = Clock::now();
    std::size_t r = first;
    for (; r < runs_.size(); r += stride) {
      const double seconds = limited ? seconds_since(start) : 0;
      if (seconds > kSampleSeconds && r >= kEnoughSamples) break;
      if (seconds > kLongSampleSeconds && r >= kFewestSamples) break;
      if (seconds > sampling_.most_seconds && r > first) break;
      const double most = r < kEnoughSamples ? sampling_.most_seconds : kSampleSeconds;
      evaluate_run(r, [&] { return !limited || seconds_since(start) <= most; });
    }
    return r;
  }

  /// Runs from `first` on in forked processes, one a core. False when one of them failed: the caller then evaluates by itself and meets
  /// the error.
  bool evaluate_forked(std::size_t first) {
    const std::size_t processes = std::min<std::size_t>(static_cast<std::size_t>(sampling_.processes), runs_.size() - first);
    std::vector<pid_t> children;
    const pid_t parent = getpid();
    for (std::size_t p = 0; p < processes; ++p) {
      const pid_t child = fork();
      if (child == 0) {
        end_with_parent(parent);
        try {
          evaluate_stride(first + p, processes, true);
          _exit(0);
        } catch (...) {
          _exit(1);
        }
      }
      if (child > 0) children.push_back(child);
    }
    return wait_for_children(children, kMostForkedSeconds, stop_) && children.size() == processes;
  }

  Reference& reference_;
  std::string tensor_;
  Runs runs_;
  Sampling sampling_;
  const std::atomic<bool>* stop_;
  std::vector<std::size_t> starts_;
  std::size_t elements_ = 0;
  ByteBuffer shared_;
  SharedValue* values_ = nullptr;
};

/// Some elements of each output.
std::vector<OracleSample> chosen_samples(Reference& reference, const Nest& nest, std::int64_t samples, std::uint64_t seed,
                                         const Sampling& sampling, const std::atomic<bool>* stop) {
  std::vector<OracleSample> result;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::output) continue;
    Runs runs =
        choose_runs(reference.shape(tensor.name), samples, kMostInRuns, seed_for(tensor.name, ~seed), sampling.ends_first);
    for (OracleSample& sample : RunEvaluator(reference, tensor.name, std::move(runs), sampling, stop).evaluate(true))
      result.push_back(std::move(sample));
  }
  return result;
}

constexpr double kMostPartsOfProducts = 1e8;  ///< of a process: beyond it, samples one by one take less
constexpr double kFewElements = 8, kTwoElements = 2;
constexpr double kWorthParts =
    1e8;  ///< elementary evaluations of one element: its part as a whole takes less than point by point

/// Does one element take so much of the whole definition (a sum over all rows, say) that some of them take longer than all together?
/// `probe` is of no use behind that.
bool depends_on_all(Reference& probe, const Nest& nest) {
  const double all = probe.full_cost();
  try {
    for (const Tensor& tensor : nest.tensors) {
      if (tensor.role == TensorRole::output && probe.elements(tensor.name) > 0)
        probe.bounded_value(tensor.name, 0, probe.spent() + all / kFewElements);
    }
  } catch (const UserError&) {
    return true;
  }
  return false;
}

/// As cost_of_first_elements(); nothing where it takes too long to find out, too.
std::optional<double> known_first_cost(const Nest& nest, const Sizes& sizes) {
  try {
    return cost_of_first_elements(nest, sizes);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

/// The same as depends_on_all(), where it is known without an evaluation; `elements`: some that together take all.
bool need_most(std::optional<double> first_cost, double full_cost, double elements) {
  return first_cost && *first_cost * elements >= full_cost;
}

}  // namespace

std::vector<OracleSample> all_samples(Reference& reference, const Nest& nest, std::int64_t most) {
  std::vector<OracleSample> result;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::output) continue;
    const auto elements = choose_elements(reference.shape(tensor.name), most, CounterRandom(seed_for(tensor.name, 1)));
    for (const std::int64_t element : elements) {
      if (const auto value = reference.bounded_value(tensor.name, element, kBackwardLimit))
        result.push_back({tensor.name, element, value->value, value->bound});
    }
  }
  return result;
}

namespace {

/// Samples of all elements, evaluated one after the other; nothing where there is no memory for all temporaries.
std::optional<std::vector<OracleSample>> whole_samples(const Nest& nest, const Sizes& sizes,
                                                       const std::map<std::string, double>& scalars, const HostTensors& inputs,
                                                       int processes, const std::atomic<bool>* stop) {
  Reference all(nest, sizes, scalars, inputs);
  all.stop_by(stop);
  try {
    all.evaluate_all(kFullLimit, processes);
  } catch (const UserError&) {
    return std::nullopt;
  }
  return all_samples(all, nest, kAllElements);
}

}  // namespace

std::vector<OracleSample> some_samples(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                                       const HostTensors& inputs, std::int64_t samples, std::uint64_t seed) {
  Reference reference(nest, sizes, scalars, inputs);
  if (reference.full_cost() <= kMostForAllOfSome &&
      need_most(known_first_cost(nest, sizes), reference.full_cost(), kFewElements)) {
    if (auto whole = whole_samples(nest, sizes, scalars, inputs, 1, nullptr)) return std::move(*whole);
  }
  reference.prepare_elements();
  return chosen_samples(reference, nest, samples, seed, {1, kMostSecondsOfSome, true}, nullptr);
}

namespace {

/// Throws as the evaluation of an element would, before it has spent all that its processes may.
void refuse_costly_elements(double full_cost, std::optional<double> first_cost) {
  const double most = kBackwardLimit * host_threads();
  if (full_cost > most && first_cost && *first_cost > most * kSlackOfBoxes) Reference::refuse_cost(*first_cost, most);
}

/// Samples of some elements' parts, as samples_of_parts(); nothing where that cannot be.
std::optional<std::vector<OracleSample>> known_parts(const Nest& nest, const Sizes& sizes,
                                                     const std::map<std::string, double>& scalars, const HostTensors& inputs,
                                                     std::uint64_t seed, const std::atomic<bool>* stop) {
  try {
    return samples_of_parts(nest, sizes, scalars, inputs, seed, kFullLimit, host_threads(), stop);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<OracleSample> reference_samples(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                                            const HostTensors& inputs, std::int64_t samples, std::uint64_t seed,
                                            const std::atomic<bool>* stop) {
  Reference reference(nest, sizes, scalars, inputs);
  reference.stop_by(stop);
  std::vector<OracleSample> result;
  try {
    if (!reference.backward_possible() && !reference.can_evaluate_all(kFullLimit))
      return samples_of_parts(nest, sizes, scalars, inputs, seed, kFullLimit, host_threads(), stop);
    if (!reference.backward_possible() || reference.full_cost() <= kCheap) {
      reference.evaluate_all(kFullLimit, host_threads());
      result = all_samples(reference, nest, kAllElements);
    } else {
      const double cost = reference.full_cost();
      const std::optional<double> first_cost = cost > kMostForAll ? known_first_cost(nest, sizes) : std::nullopt;
      refuse_costly_elements(cost, first_cost);
      // Those side by side take a tenth of what they do point by point.
      const bool of_products = reference.cost_of_products() >= kMostlyProducts * cost;
      std::optional<std::vector<OracleSample>> whole;
      if (cost <= kMostForAll) {
        Reference probe(nest, sizes, scalars, inputs);
        probe.stop_by(stop);
        if (depends_on_all(probe, nest)) whole = whole_samples(nest, sizes, scalars, inputs, host_threads(), stop);
      } else if (!of_products && cost <= kMostForAllOfEach * host_threads() && need_most(first_cost, cost, kFewElements)) {
        whole = whole_samples(nest, sizes, scalars, inputs, host_threads(), stop);
      }
      if (whole) {
        result = std::move(*whole);
      } else {
        const bool most = need_most(first_cost, cost, kTwoElements);
        const double most_of_parts =
            of_products ? kMostPartsOfProducts * host_threads() : std::numeric_limits<double>::infinity();
        if (!most && first_cost && *first_cost > kWorthParts && *first_cost <= most_of_parts) {
          if (auto parts = known_parts(nest, sizes, scalars, inputs, seed, stop)) return std::move(*parts);
        }
        result = chosen_samples(reference, nest, samples, seed, {host_threads(), kMostSampleSeconds, false, most}, stop);
      }
    }
    limit_bounds_of(reference, inputs, result, nest, may_round_operands(nest), host_threads());
  } catch (const EvaluationStopped&) {
    return {};
  }
  return result;
}

AffordableSamples affordable_samples(const Nest& nest, const Sizes& sizes, const std::map<std::string, double>& scalars,
                                     const HostTensors& inputs, std::int64_t samples, std::uint64_t seed, double seconds,
                                     const std::atomic<bool>* stop) {
  const auto whole = DefinitionCost(nest, DefinitionCost::Products::side_by_side).at(sizes);
  const auto affordable = [&](const Tensor& output, double most) {
    try {
      const auto cost = cost_of_first_element(nest, sizes, output.name);
      return !cost || *cost <= most;
    } catch (const UserError&) {  // nobody knows
      return true;
    }
  };
  const auto compared_within = [&](double most, std::vector<std::string>& left_out) -> std::optional<Nest> {
    if (!whole || *whole <= most) return nest;
    Nest compared = nest;
    bool any = false;
    for (Tensor& tensor : compared.tensors) {
      if (tensor.role != TensorRole::output) continue;
      const bool taken = affordable(tensor, most);
      any = any || taken;
      if (taken) continue;
      tensor.role = TensorRole::temporary;
      left_out.push_back(tensor.name);
    }
    return any ? std::optional(std::move(compared)) : std::nullopt;
  };
  const double most = kMostOfOutput * host_threads(), in_time = kProductsASecond * host_threads() * seconds;
  AffordableSamples result;
  std::optional<Nest> compared;
  if (seconds > 0 && in_time < most) compared = compared_within(in_time, result.left_out);
  if (!compared) {
    result.left_out.clear();
    compared = compared_within(most, result.left_out);
  }
  if (compared) result.samples = reference_samples(*compared, sizes, scalars, inputs, samples, seed, stop);
  return result;
}

}  // namespace nestor
