// Small attention problems: random operands, the definition in double, and how far a plan's result is from it.
#pragma once

#include "support/nests/tensor_nests.h"
#include "support/tensor/tensor_interpreter.h"

#include <cmath>

namespace nestor::testing {

inline constexpr int kTensorHeads = 1, kTensorDepth = 16;
inline constexpr double kTensorScale = 0.5;

struct TensorShape {
  std::int64_t queries, keys, window = 0;
  int depth = kTensorDepth;
  bool biased = false;
  std::int64_t prefix = 0;
  int maps = 1;
  int group = 0;  ///< heads of queries that share one of keys and values; 0: heads are not grouped
  std::int64_t row_heads() const { return kTensorHeads * std::max(group, 1); }
};

inline Sizes sizes_of(const TensorShape& shape) {
  Sizes sizes{{"H", kTensorHeads}, {"Q", shape.queries}, {"K", shape.keys}};
  if (shape.window > 0) sizes["W"] = shape.window;
  sizes["P"] = shape.prefix;
  if (shape.group > 0) sizes["G"] = shape.group;
  return sizes;
}

using TensorMemory = std::map<std::string, std::vector<double>>;

inline TensorMemory random_memory(const TensorShape& shape, ElementType type) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(-1, 1);
  TensorMemory memory;
  const std::int64_t queries = shape.row_heads() * shape.queries, keys = kTensorHeads * shape.keys;
  for (const auto& [name, rows] :
       {std::pair("q", queries), std::pair("k", keys), std::pair("v", keys), std::pair("q2", queries), std::pair("k2", keys)}) {
    for (std::int64_t k = 0; k < rows * shape.depth; ++k) {
      char bytes[8] = {};
      write_element(bytes, type, uniform(random));
      memory[name].push_back(read_element(bytes, type));
    }
  }
  for (std::int64_t k = 0; shape.biased && k < queries * shape.keys; ++k) {
    char bytes[8] = {};
    write_element(bytes, type, 4 * uniform(random));
    memory["bias"].push_back(read_element(bytes, type));
  }
  memory["out"].assign(static_cast<std::size_t>(queries * shape.depth), std::numeric_limits<double>::quiet_NaN());
  return memory;
}

inline bool sees(const TensorShape& shape, Seen seen, std::int64_t g, std::int64_t i, std::int64_t j) {
  const std::int64_t own = i + shape.keys - shape.queries;
  if (seen == Seen::all || (seen == Seen::prefix && j < shape.prefix)) return true;
  if (seen == Seen::picture && 40 <= std::min(i, j) && std::max(i, j) < 150) return true;
  if (seen == Seen::halves) {
    const std::int64_t block = i / 64 * 64;
    return i >= 128 ? 128 <= j && j < block + 64 : (128 <= j && j < block + 128) || (block <= j && j < block + 64);
  }
  if (seen == Seen::blocks) return j / 128 <= i / 128;
  if (seen == Seen::frames) return j / 20 <= i / 20 && (j < 20 || j / 20 > i / 20 - 3);
  return j <= own && (!has_window(seen) || j > own - shape.window - g || (seen == Seen::sinks && j < shape.prefix));
}

/// The definition for `q` and `k`, row by row; `softmax` false: scores are the weights.
inline std::vector<double> definition_of_map(const TensorMemory& memory, const TensorShape& shape, Seen seen, bool softmax,
                                             const char* q, const char* k) {
  std::vector<double> out;
  const auto at = [&](const std::vector<double>& values, std::int64_t rows, std::int64_t h, std::int64_t row, int d) {
    return values[static_cast<std::size_t>((h * rows + row) * shape.depth + d)];
  };
  const std::vector<double>&queries = memory.at(q), &keys = memory.at(k), &rows = memory.at("v");
  for (std::int64_t row_head = 0; row_head < shape.row_heads(); ++row_head) {
    const std::int64_t g = row_head % std::max(shape.group, 1), h = row_head / std::max(shape.group, 1);
    for (std::int64_t i = 0; i < shape.queries; ++i) {
      std::vector<double> sums(shape.depth, 0);
      double total = 0;
      for (std::int64_t j = 0; j < shape.keys; ++j) {
        if (!sees(shape, seen, g, i, j)) continue;
        double score = 0;
        for (int e = 0; e < shape.depth; ++e) score += at(queries, shape.queries, row_head, i, e) * at(keys, shape.keys, h, j, e);
        score *= kTensorScale;
        if (shape.biased) score += memory.at("bias")[static_cast<std::size_t>((row_head * shape.queries + i) * shape.keys + j)];
        const double weight = softmax ? std::exp(score) : score;
        total += weight;
        for (int d = 0; d < shape.depth; ++d) sums[static_cast<std::size_t>(d)] += weight * at(rows, shape.keys, h, j, d);
      }
      for (const double sum : sums) out.push_back(softmax ? sum / total : sum);
    }
  }
  return out;
}

/// The definition of all maps.
inline std::vector<double> definition(const TensorMemory& memory, const TensorShape& shape, Seen seen, bool softmax) {
  std::vector<double> out = definition_of_map(memory, shape, seen, softmax, "q", "k");
  if (shape.maps == 1) return out;
  const std::vector<double> second = definition_of_map(memory, shape, seen, softmax, "q2", "k2");
  for (std::size_t n = 0; n < out.size(); ++n) out[n] -= kSecondMap * second[n];
  return out;
}

/// Largest |difference| / (1 + |expected|); infinite where a value is missing.
inline double worst(const std::vector<double>& expected, const std::vector<double>& got) {
  double most = 0;
  for (std::size_t k = 0; k < expected.size(); ++k) {
    const double error = std::abs(got.at(k) - expected[k]) / (1 + std::abs(expected[k]));
    most = std::max(most, std::isfinite(error) ? error : std::numeric_limits<double>::infinity());
  }
  return most;
}

/// Runs the plan of `program` on random operands; the worst error of its result.
inline double tensor_error(const TileProgram& program, const TensorShape& shape, ElementType type, Seen seen, bool softmax,
                           const TensorRun& options, const NvptxTarget& target = {}) {
  const PlannedTensor planned(program, target);
  TensorMemory memory = random_memory(shape, type);
  const std::vector<double> expected = definition(memory, shape, seen, softmax);
  TensorInterpreter(planned.plan, sizes_of(shape), {{"scale", kTensorScale}}, memory, options).run();
  return worst(expected, memory.at("out"));
}

}  // namespace nestor::testing
