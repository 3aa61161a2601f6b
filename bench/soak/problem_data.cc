// Fills arguments, evaluates the definition and compares whole outputs.
#include "soak/problem_data.h"

#include "autotune/check/data_sets.h"
#include "autotune/oracle/reference.h"
#include "autotune/tensors/random_fill.h"
#include "support/element_codec.h"
#include "support/error.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nestor::soak {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_float(ElementType type) { return type == ElementType::f32 || type == ElementType::f16 || type == ElementType::bf16; }

/// Length of the last index, whose runs are called rows here.
std::int64_t row_length(const HostTensor& tensor) {
  return tensor.shape.empty() ? 1 : std::max<std::int64_t>(tensor.shape.back(), 1);
}

using Fill = void (*)(HostTensor& tensor, CounterRandom& random);

void each(HostTensor& tensor, const std::function<double(std::int64_t element, double value)>& change) {
  for (std::int64_t k = 0; k < tensor.elements(); ++k) tensor.set(k, change(k, tensor.get(k)));
}

void fill_constant(HostTensor& tensor, CounterRandom& random) {
  const double value = tensor.get(0) + static_cast<double>(random.below(3));
  each(tensor, [&](std::int64_t, double) { return value; });
}

void fill_zeros(HostTensor& tensor, CounterRandom& random) {
  each(tensor, [&](std::int64_t, double value) { return random.below(2) == 0 ? 0 : value; });
}

void fill_large(HostTensor& tensor, CounterRandom& random) {
  const double factor = random.below(2) == 0 ? 8 : 24;
  each(tensor, [&](std::int64_t, double value) { return factor * value; });
}

void fill_ties(HostTensor& tensor, CounterRandom& random) {
  each(tensor, [&](std::int64_t, double) { return static_cast<double>(random.below(3) - 1); });
}

/// The head or tail of rows is minus infinity, as masked scores are; some rows throughout.
void fill_masked(HostTensor& tensor, CounterRandom& random) {
  const std::int64_t row = row_length(tensor), seen = random.below(row + 1), whole = random.below(4);
  const bool head = random.below(2) == 0;
  each(tensor, [&](std::int64_t k, double value) {
    const std::int64_t column = k % row;
    const bool masked = (head ? column < seen : column >= seen) || k / row % 4 == whole;
    return masked ? -kInfinity : value;
  });
}

void fill_seldom(HostTensor& tensor, CounterRandom& random, double special) {
  const std::int64_t one_in = 1 + random.below(40);
  each(tensor, [&](std::int64_t, double value) { return random.below(one_in) == 0 ? special : value; });
}

void fill_minus_infinity(HostTensor& tensor, CounterRandom& random) { fill_seldom(tensor, random, -kInfinity); }
void fill_infinity(HostTensor& tensor, CounterRandom& random) { fill_seldom(tensor, random, kInfinity); }
void fill_nan(HostTensor& tensor, CounterRandom& random) { fill_seldom(tensor, random, std::nan("")); }

struct NamedFill {
  DataKind kind;
  Fill fill;
};

const std::vector<NamedFill>& fills() {
  static const std::vector<NamedFill> kFills{{{"ordinary", false}, nullptr},
                                             {{"constant", false}, fill_constant},
                                             {{"zeros", false}, fill_zeros},
                                             {{"large", false}, fill_large},
                                             {{"ties", false}, fill_ties},
                                             {{"masked", true}, fill_masked},
                                             {{"minus infinity", true}, fill_minus_infinity},
                                             {{"infinity", true}, fill_infinity},
                                             {{"nan", true}, fill_nan}};
  return kFills;
}

const NamedFill& fill_named(const std::string& name) {
  for (const NamedFill& known : fills()) {
    if (known.kind.name == name) return known;
  }
  user_error("there is no data \"{}\"", name);
}

void fill_inputs(const Nest& nest, const Run& run, HostTensors& tensors) {
  const Fill fill = fill_named(run.data).fill;
  if (fill == nullptr) return;
  // Special values in one or two inputs: in all of them at once every result would be NaN.
  std::vector<std::string> inputs;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::input && is_float(tensor.type)) inputs.push_back(tensor.name);
  }
  if (inputs.empty()) return;
  CounterRandom random(seed_for(run.data, run.seed));
  for (std::int64_t count = 1 + random.below(2); count > 0; --count) {
    HostTensor& tensor = tensors.at(inputs[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(inputs.size())))]);
    if (tensor.elements() > 0) fill(tensor, random);
  }
}

std::vector<OracleSample> all_elements(const Nest& nest, const Run& run, const ProblemData& data, double cost_limit) {
  Reference reference(nest, run.sizes, data.scalars, data.tensors);
  reference.evaluate_all(cost_limit);
  return all_samples(reference, nest, std::numeric_limits<std::int64_t>::max());
}

}  // namespace

const std::vector<DataKind>& data_kinds() {
  static const std::vector<DataKind> kKinds = [] {
    std::vector<DataKind> kinds;
    for (const NamedFill& known : fills()) kinds.push_back(known.kind);
    return kinds;
  }();
  return kKinds;
}

bool is_special(const std::string& kind) { return fill_named(kind).kind.special; }

ProblemData make_problem_data(const Nest& nest, const Run& run, double cost_limit, const ElementLists& finite) {
  ProblemData data;
  for (const ScalarParam& scalar : nest.scalars) data.scalars[scalar.name] = scalar.default_value;
  data.tensors = make_arguments(nest, run.sizes, run.seed);
  fill_inputs(nest, run, data.tensors);
  if (has_special(data, finite)) keep_finite(data.tensors, make_inputs(nest, run.sizes, run.seed), finite);
  data.expected = all_elements(nest, run, data, cost_limit);
  return data;
}

bool has_special(const ProblemData& data, const ElementLists& elements) {
  return std::any_of(elements.begin(), elements.end(), [&](const auto& list) {
    const HostTensor& tensor = data.tensors.at(list.first);
    return std::any_of(list.second.begin(), list.second.end(), [&](std::int64_t k) { return !std::isfinite(tensor.get(k)); });
  });
}

std::string difference(const Nest& nest, const ProblemData& data, const HostTensors& results) {
  std::string where;
  const double error = worst_error(data.expected, results, &where);
  if (!(error <= 1)) return fmt::format("{} ({:.3g} of what is allowed)", where, error);
  std::map<std::string, std::vector<bool>> written;
  for (const OracleSample& sample : data.expected) {
    std::vector<bool>& elements = written[sample.tensor];
    if (elements.empty()) elements.resize(static_cast<std::size_t>(results.at(sample.tensor).elements()));
    elements[static_cast<std::size_t>(sample.linear)] = true;
  }
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::output) continue;
    const HostTensor& result = results.at(tensor.name);
    const std::vector<bool>& elements = written[tensor.name];
    for (std::int64_t k = 0; k < result.elements(); ++k) {
      const bool defined = !elements.empty() && elements[static_cast<std::size_t>(k)];
      if (!defined && !is_poison(result.type, result.bytes.data(), k))
        return fmt::format("element {} of {} is written, which the definition leaves alone", k, tensor.name);
    }
  }
  return "";
}

}  // namespace nestor::soak
