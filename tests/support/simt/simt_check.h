// Runs a tile program on GPU code (emulated or real) with random data and compares with what the program means.
#pragma once

#include "codegen/gpu/backend.h"
#include "support/simt/simt_launch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <random>

namespace nestor::testing {

struct CheckOptions {
  int row_padding = 0;      ///< extra elements between rows of every argument of two or more indices
  int misalignment = 0;     ///< elements by which each address misses a multiple of 16 bytes
  double tolerance = 1e-5;  ///< |result - expected| <= tolerance * (1 + |expected|)
  double spread = 1.0;      ///< inputs are uniform in [-spread, spread]
};

/// One argument: shape, padded strides, values by dense index.
struct ArgumentData {
  std::vector<std::int64_t> shape, strides;
  std::vector<double> values;
  std::int64_t elements = 0;  ///< storage, padding included

  std::int64_t offset_of(std::int64_t dense) const {
    std::int64_t offset = 0;
    for (std::size_t k = shape.size(); k-- > 0;) {
      offset += dense % shape[k] * strides[k];
      dense /= shape[k];
    }
    return offset;
  }
};

struct CheckData {
  std::vector<ArgumentData> arguments;
  std::map<std::string, std::vector<double>> expected;
};

inline CheckData make_data(const TileProgram& program, const LaunchRecipe& recipe, const Sizes& sizes,
                           const CheckOptions& options) {
  CheckData data;
  std::mt19937 random(7);
  std::map<std::string, std::int64_t> values(sizes.begin(), sizes.end());
  for (const auto& [name, value] : recipe.fixed_sizes) values[name] = value;
  for (const ArgumentSpec& spec : recipe.arguments) {
    ArgumentData argument;
    std::int64_t count = 1;
    for (const IntExpr& extent : spec.shape) {
      argument.shape.push_back(evaluate_in(extent, values));
      count *= argument.shape.back();
    }
    argument.strides.assign(argument.shape.size(), 1);
    std::int64_t stride = 1;
    for (std::size_t k = argument.shape.size(); k-- > 0;) {
      argument.strides[k] = stride;
      stride *= argument.shape[k];
      if (k + 1 == argument.shape.size() && k > 0) stride += options.row_padding;
    }
    argument.elements = stride;
    std::uniform_real_distribution<double> uniform(-options.spread, options.spread);
    for (std::int64_t k = 0; k < count; ++k) {
      char element[8] = {};
      write_element(element, spec.type, spec.type == ElementType::i32 ? std::floor(1000 * uniform(random)) : uniform(random));
      argument.values.push_back(spec.output ? std::numeric_limits<double>::quiet_NaN() : read_element(element, spec.type));
    }
    data.expected[spec.name] = argument.values;
    data.arguments.push_back(std::move(argument));
  }
  Sizes all = sizes;
  for (const auto& [name, value] : recipe.fixed_sizes) all[name] = value;
  interpret(program, all, {}, data.expected);
  return data;
}

/// The same; the last ones are kept, as several candidates for one definition run on equal data.
inline const CheckData& data_of(const TileProgram& program, const LaunchRecipe& recipe, const Sizes& sizes,
                                const CheckOptions& options) {
  struct Known {
    TileTree root;  // kept, so that no other program has its address
    nlohmann::json arguments, fixed;
    Sizes sizes;
    int row_padding = 0;
    double spread = 0;
    CheckData data;
  };
  constexpr std::size_t kKept = 4;
  static std::deque<Known> known;
  const nlohmann::json text = recipe_to_json(recipe);
  for (const Known& one : known) {
    if (one.root == program.root && one.arguments == text.at("arguments") && one.fixed == text.at("fixed") &&
        one.sizes == sizes && one.row_padding == options.row_padding && one.spread == options.spread)
      return one.data;
  }
  if (known.size() == kKept) known.pop_front();
  known.push_back({program.root, text.at("arguments"), text.at("fixed"), sizes, options.row_padding, options.spread,
                   make_data(program, recipe, sizes, options)});
  return known.back().data;
}

/// Writes an argument's values to memory laid out by its strides.
inline void encode(const ArgumentData& argument, ElementType type, char* memory) {
  for (std::size_t k = 0; k < argument.values.size(); ++k) {
    write_element(memory + argument.offset_of(static_cast<std::int64_t>(k)) * static_cast<std::int64_t>(size_in_bytes(type)),
                  type, argument.values[k]);
  }
}

/// Empty when all outputs agree; else the first difference.
inline std::string compare(const LaunchRecipe& recipe, const CheckData& data, const CheckOptions& options,
                           const std::function<const char*(std::size_t argument)>& memory) {
  for (std::size_t k = 0; k < recipe.arguments.size(); ++k) {
    const ArgumentSpec& spec = recipe.arguments[k];
    if (!spec.output) continue;
    const std::vector<double>& expected = data.expected.at(spec.name);
    const char* bytes = memory(k);
    for (std::size_t n = 0; n < expected.size(); ++n) {
      const auto offset =
          data.arguments[k].offset_of(static_cast<std::int64_t>(n)) * static_cast<std::int64_t>(size_in_bytes(spec.type));
      const double got = read_element(bytes + offset, spec.type);
      const bool same = got == expected[n] || std::abs(got - expected[n]) <= options.tolerance * (1 + std::abs(expected[n]));
      if (!same) return fmt::format("{}[{}] is {}, expected {}", spec.name, n, got, expected[n]);
    }
  }
  return "";
}

/// Memory that ends where a page ends that must not be touched, as near as 16 bytes allow.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t bytes, std::size_t misalignment) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t rounded = (bytes + 15) / 16 * 16 + 16;
    pages_ = (rounded + page - 1) / page * page;
    base_ = static_cast<char*>(mmap(nullptr, pages_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + pages_, page, PROT_NONE);
    length_ = pages_ + page;
    const std::size_t start = pages_ - (misalignment == 0 ? rounded - 16 : rounded);
    data_ = base_ + start + misalignment;
  }
  ~GuardedMemory() { munmap(base_, length_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  char* data() const { return data_; }

 private:
  char* base_ = nullptr;
  char* data_ = nullptr;
  std::size_t pages_ = 0, length_ = 0;
};

}  // namespace nestor::testing
