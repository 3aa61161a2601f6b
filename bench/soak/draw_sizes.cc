// Draws sizes by what their evaluation costs.
#include "soak/draw_sizes.h"

#include "autotune/oracle/reference.h"
#include "support/error.h"

#include <algorithm>
#include <optional>

namespace nestor::soak {
namespace {

/// Elementary operations of the definition at the sizes that candidates are made for, and at small ones.
struct Costs {
  double tuned, small;
};

Costs costs_of(Engine engine) {
  switch (engine) {
    case Engine::emulator:
      return {4e4, 2e4};
    case Engine::host:
      return {2e6, 3e5};
    case Engine::device:
      break;
  }
  return {2e7, 1e6};
}

template <class T>
const T& pick(const std::vector<T>& from, CounterRandom& random) {
  return from[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(from.size())))];
}

/// Nothing where the nest does not take these sizes.
std::optional<Sizes> completed(const Nest& nest, const Sizes& sizes) {
  try {
    return complete_sizes(nest, sizes);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

double cost_at(const Nest& nest, const Sizes& sizes) {
  std::map<std::string, double> scalars;
  for (const ScalarParam& scalar : nest.scalars) scalars[scalar.name] = scalar.default_value;
  double cost = 0;
  for (const Tensor& tensor : nest.tensors) {
    double elements = 1;
    for (const std::int64_t extent : shape_at(tensor, sizes)) elements *= static_cast<double>(extent);
    cost += elements;
  }
  // Inputs are not read: their shapes are all that counts.
  const HostTensors inputs = cost < kReferenceLimit ? make_inputs(nest, sizes, 1) : HostTensors{};
  return inputs.empty() ? cost : std::max(cost, Reference(nest, sizes, scalars, inputs).full_cost());
}

std::int64_t in_range(const SizeParam& size, std::int64_t value) {
  value = std::max(value, size.min);
  return size.max ? std::min(value, *size.max) : value;
}

std::int64_t ragged(CounterRandom& random, std::int64_t most) {
  static const std::vector<std::int64_t> kRagged{1,  2,  3,  4,  5,  7,  8,   9,   13,  15,  16,  17,  31,  32,  33,
                                                 48, 63, 64, 65, 70, 96, 100, 127, 128, 129, 200, 255, 257, 300, 513};
  const auto end = std::upper_bound(kRagged.begin(), kRagged.end(), most);
  return kRagged[static_cast<std::size_t>(random.below(std::max<std::int64_t>(end - kRagged.begin(), 1)))];
}

/// Halves the largest size that may shrink until the definition is cheap enough. Nothing when it never is.
std::optional<Sizes> shrunk(const Nest& nest, Sizes sizes, const Sizes& kept, double most) {
  constexpr int kHalvings = 60;
  for (int halving = 0; halving < kHalvings; ++halving) {
    const auto complete = completed(nest, sizes);
    if (complete && cost_at(nest, *complete) <= most) return complete;
    const SizeParam* largest = nullptr;
    for (const SizeParam& size : nest.sizes) {
      if (kept.contains(size.name) || sizes.at(size.name) <= size.min) continue;
      if (!largest || sizes.at(size.name) > sizes.at(largest->name)) largest = &size;
    }
    if (!largest) return std::nullopt;
    std::int64_t& value = sizes.at(largest->name);
    value = std::max(largest->min, value / 2);
  }
  return std::nullopt;
}

}  // namespace

Sizes draw_tuned_sizes(const Nest& nest, Engine engine, CounterRandom& random) {
  constexpr int kTries = 40;
  const double most = costs_of(engine).tuned;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    Sizes sizes;
    for (const SizeParam& size : nest.sizes) {
      const std::int64_t kind = random.below(4), usual = size.default_value;
      const std::int64_t value = kind == 0   ? usual
                                 : kind == 1 ? std::max<std::int64_t>(1, usual + random.below(7) - 3)
                                 : kind == 2 ? std::int64_t{1} << random.below(10)
                                             : ragged(random, 2 * usual);
      sizes[size.name] = in_range(size, value);
    }
    if (auto fitting = shrunk(nest, std::move(sizes), {}, most)) return *fitting;
  }
  user_error("{} ({}) has no sizes at which its definition is cheap enough to evaluate", nest.op, nest.variant);
}

std::vector<PreparedRun> draw_runs(const Nest& nest, const Sizes& tuned, Engine engine, bool special, CounterRandom& random) {
  constexpr int kSmallRuns = 3, kTries = 30;
  const Costs costs = costs_of(engine);
  Sizes fixed;
  for (const SizeParam& size : nest.sizes) {
    if (size.specialized) fixed[size.name] = tuned.at(size.name);
  }
  std::vector<Sizes> drawn;
  if (const auto complete = completed(nest, tuned); complete && cost_at(nest, *complete) <= 2 * costs.tuned)
    drawn.push_back(*complete);
  for (int tries = 0; tries < kTries && drawn.size() < kSmallRuns + 1; ++tries) {
    Sizes sizes = fixed;
    for (const SizeParam& size : nest.sizes) {
      if (!size.specialized) sizes[size.name] = in_range(size, ragged(random, 4 * std::max<std::int64_t>(size.default_value, 8)));
    }
    const auto fitting = shrunk(nest, sizes, fixed, costs.small);
    if (fitting && std::find(drawn.begin(), drawn.end(), *fitting) == drawn.end()) drawn.push_back(*fitting);
  }
  std::vector<PreparedRun> runs;
  for (std::size_t k = 0; k < drawn.size(); ++k) {
    // The first two with ordinary numbers; then others, too.
    std::string data = "ordinary";
    if (k >= 2) {
      const DataKind& kind = pick(data_kinds(), random);
      if (special || !kind.special) data = kind.name;
    }
    const Run run{drawn[k], data, random.next() >> 1};
    runs.push_back({run, std::make_shared<const ProblemData>(make_problem_data(nest, run, kReferenceLimit))});
  }
  return runs;
}

}  // namespace nestor::soak
