// Filling inputs with each kind of data.
#include "autotune/check/data_sets.h"

#include "autotune/tensors/random_fill.h"
#include "poly/algebra/values/polynomial.h"
#include "support/element_codec.h"
#include "support/error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace nestor {
namespace {

constexpr std::size_t kMostSpecials = 12;

bool is_special(DataKind kind) { return kind >= DataKind::plus_infinity; }

double special_value(DataKind kind, ElementType type) {
  switch (kind) {
    case DataKind::plus_infinity:
      return std::numeric_limits<double>::infinity();
    case DataKind::minus_infinity:
      return -std::numeric_limits<double>::infinity();
    case DataKind::nan:
      return std::numeric_limits<double>::quiet_NaN();
    default:
      return type == ElementType::f16 ? -65504.0 : type == ElementType::bf16 ? -0x1.fep127 : -0x1.fffffep127;
  }
}

std::int64_t row_length(const HostTensor& tensor) {
  return tensor.shape.empty() ? 1 : std::max<std::int64_t>(tensor.shape.back(), 1);
}

/// Rows with one, many (the first or the last columns) and nothing but special values; the others have none. A tensor of one row has one.
void sprinkle(HostTensor& tensor, double value, const CounterRandom& random) {
  const std::int64_t width = row_length(tensor), rows = tensor.elements() / width;
  const std::int64_t most = width - width / 4;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint64_t draw = random.at(static_cast<std::uint64_t>(row));
    const auto kind = rows < 3 || tensor.shape.size() < 2 ? 0 : draw % 8;
    const std::int64_t one = static_cast<std::int64_t>((draw >> 8) % static_cast<std::uint64_t>(width));
    const std::int64_t first = kind == 0 ? one : kind == 2 ? width - most : 0;
    const std::int64_t last = kind == 0 ? one + 1 : kind == 1 ? most : kind <= 3 ? width : 0;
    for (std::int64_t k = first; k < last; ++k) tensor.set(row * width + k, value);
  }
}

void reshape_values(HostTensor& tensor, DataKind kind, const CounterRandom& random) {
  constexpr std::array kConstants{0.5, 1.0, -0.75, 2.0};
  const std::int64_t width = row_length(tensor);
  for (std::int64_t k = 0; k < tensor.elements(); ++k) {
    const std::uint64_t draw = random.at(static_cast<std::uint64_t>(k)), row = random.at(~static_cast<std::uint64_t>(k / width));
    switch (kind) {
      case DataKind::large:
        tensor.set(k, 24 * tensor.get(k) + (row % 4 == 0 ? 96 : 0));
        break;
      case DataKind::constant:
        tensor.set(k, kConstants.at(random.at(0) % kConstants.size()));
        break;
      case DataKind::zeros:
        if (draw % 8 < 5 || row % 5 == 0) tensor.set(k, draw % 8 == 1 ? -0.0 : 0.0);
        break;
      default:
        tensor.set(k, static_cast<double>(draw % 5) - 2);
    }
  }
}

/// Of masks, truth values or 0 and 1: whole rows of each, and rows as they were drawn.
void reshape_flags(HostTensor& tensor, const CounterRandom& random) {
  const std::int64_t width = row_length(tensor);
  for (std::int64_t row = 0; row < tensor.elements() / width; ++row) {
    const std::uint64_t draw = random.at(static_cast<std::uint64_t>(row)) % 3;
    for (std::int64_t k = 0; k < width && draw < 2; ++k) tensor.set(row * width + k, static_cast<double>(draw));
  }
}

/// One element at least is special if any may be.
void keep_special(HostTensor& tensor, DataKind kind, const std::vector<std::int64_t>& finite, const CounterRandom& random) {
  const double value = special_value(kind, tensor.type);
  std::vector<std::int64_t> others;
  for (std::int64_t k = 0; k < tensor.elements(); ++k) {
    if (std::binary_search(finite.begin(), finite.end(), k)) continue;
    const double found = tensor.get(k);
    if (std::isnan(value) ? std::isnan(found) : found == value) return;
    others.push_back(k);
  }
  if (!others.empty()) tensor.set(others[random.at(0) % others.size()], value);
}

}  // namespace

std::string_view to_string(DataKind kind) {
  constexpr std::array<std::string_view, 9> kNames{"ordinary", "large", "constant", "zeros", "ties",
                                                   "+inf",     "-inf",  "lowest",   "NaN"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string DataSet::str() const {
  return special.empty() ? std::string(to_string(kind)) : fmt::format("{} in {}", to_string(kind), special);
}

std::vector<DataSet> data_sets(const Nest& nest, bool few) {
  std::vector<DataSet> sets;
  for (const DataKind kind : {DataKind::ordinary, DataKind::large, DataKind::constant, DataKind::zeros, DataKind::ties}) {
    if (!few || (kind != DataKind::constant && kind != DataKind::ties)) sets.push_back({kind, ""});
  }
  std::vector<std::string> names;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::input && is_float(tensor.type)) names.push_back(tensor.name);
  }
  constexpr std::array kKinds{DataKind::minus_infinity, DataKind::nan, DataKind::plus_infinity, DataKind::lowest};
  const std::size_t all = kKinds.size() * names.size();
  // With many inputs, each kind and each input is there, but not every pair.
  const std::size_t most = few ? std::min(kKinds.size(), names.size()) : std::min(all, std::max(kMostSpecials, names.size()));
  for (std::size_t k = 0; k < most; ++k) {
    const std::size_t input = k % names.size(), round = k / names.size();
    sets.push_back({kKinds.at((input + round) % kKinds.size()), names[input]});
  }
  return sets;
}

void keep_finite(HostTensors& tensors, const HostTensors& ordinary, const ElementLists& finite) {
  for (const auto& [name, elements] : finite) {
    HostTensor& tensor = tensors.at(name);
    const HostTensor& numbers = ordinary.at(name);
    for (const std::int64_t k : elements) {
      if (!std::isfinite(tensor.get(k))) tensor.set(k, numbers.get(k));
    }
  }
}

HostTensors make_data(const Nest& nest, const Sizes& sizes, const DataSet& data, std::uint64_t seed, const ElementLists& finite) {
  HostTensors tensors = make_inputs(nest, sizes, seed);
  if (data.kind == DataKind::ordinary) return tensors;
  for (const Tensor& tensor : nest.tensors) {
    const bool flags = tensor.type == ElementType::boolean || tensor.type == ElementType::i64;
    if (tensor.role != TensorRole::input || (!is_float(tensor.type) && !flags)) continue;
    HostTensor& input = tensors.at(tensor.name);
    const CounterRandom random(seed_for(tensor.name, seed + 17 * static_cast<std::uint64_t>(data.kind) + 1));
    if (flags) {
      if (!is_special(data.kind)) reshape_flags(input, random);
    } else if (!is_special(data.kind)) {
      reshape_values(input, data.kind, random);
    } else if (tensor.name == data.special) {
      sprinkle(input, special_value(data.kind, tensor.type), random);
    }
  }
  if (!is_special(data.kind) || !finite.contains(data.special)) return tensors;
  keep_finite(tensors, make_inputs(nest, sizes, seed), finite);
  keep_special(tensors.at(data.special), data.kind, finite.at(data.special), CounterRandom(seed));
  return tensors;
}

}  // namespace nestor
