// Values that use each part several times, through conditions, tens of levels deep: code has each part once.
#include "support/nests/apply_steps.h"
#include "support/nests/nest_runs.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>

#include <functional>

namespace nestor {
namespace {

using namespace samples;

constexpr int kLevels = 24;
constexpr std::int64_t kRows = 5, kColumns = 37;

ScalarExpr make(ScalarOp op, std::vector<ScalarExpr> args) { return ScalarExpr::make(op, std::move(args)); }
ScalarExpr less(const ScalarExpr& a, const ScalarExpr& b) { return make(ScalarOp::lt, {a, b}); }

/// A level from the value before it, for reads 0 to 2, and the same of numbers; sums of whole numbers are exact.
struct Level {
  const char* name;
  std::function<ScalarExpr(const ScalarExpr&)> of_parts;
  std::function<double(double v, double y, double z)> of_numbers;
};

std::vector<Level> levels() {
  return {{"the condition has it",
           [](const ScalarExpr& v) { return make(ScalarOp::select, {less(read(1), v), v - read(1), v + read(2)}); },
           [](double v, double y, double z) { return y < v ? v - y : v + z; }},
          {"both arms have it",
           [](const ScalarExpr& v) { return make(ScalarOp::select, {less(number(1), read(2)), v - read(1), v + read(2)}); },
           [](double v, double y, double z) { return 1 < z ? v - y : v + z; }},
          {"one arm has it in a choice of its own",
           [](const ScalarExpr& v) {
             const ScalarExpr inner = make(ScalarOp::select, {less(v, number(0)), v + number(7), v - number(3)});
             return make(ScalarOp::select, {less(read(1), number(2)), inner, make(ScalarOp::max, {v, read(2) - v})});
           },
           [](double v, double y, double z) { return y < 2 ? (v < 0 ? v + 7 : v - 3) : std::max(v, z - v); }},
          {"both sides of a conjunction have it",
           [](const ScalarExpr& v) {
             return make(ScalarOp::select,
                         {make(ScalarOp::logical_and, {less(read(1), v), less(v, number(9))}), v + read(2), v - number(2)});
           },
           [](double v, double y, double z) { return y < v && v < 9 ? v + z : v - 2; }}};
}

Nest deep_nest(const Level& level) {
  ScalarExpr value = read(0);
  for (int k = 0; k < kLevels; ++k) value = level.of_parts(value);
  return NestBuilder("deep", {{"R", kRows}, {"C", kColumns}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("y", TensorRole::input, {"R", "C"})
      .tensor("z", TensorRole::input, {"C"})
      .tensor("o", TensorRole::output, {"R", "C"})
      .statement("s[i, j] : 0 <= i < R and 0 <= j < C", "o[i, j]", {"x[i, j]", "y[i, j]", "z[j]"}, value)
      .build();
}

TEST(DeepValues, HaveCodeWithEachPartOnce) {
  testing::NestInputs inputs{{{"R", kRows}, {"C", kColumns}}, {}, {}};
  for (std::int64_t k = 0; k < kRows * kColumns; ++k) {
    inputs.tensors["x"].push_back(static_cast<double>(k * 7 % 23 - 11));
    inputs.tensors["y"].push_back(static_cast<double>(k * 5 % 11 - 3));
    if (k < kColumns) inputs.tensors["z"].push_back(static_cast<double>(k * 3 % 7 - 2));
  }
  for (const Level& level : levels()) {
    SCOPED_TRACE(level.name);
    std::vector<double> wanted;
    for (std::int64_t k = 0; k < kRows * kColumns; ++k) {
      const auto at = static_cast<std::size_t>(k);
      double v = inputs.tensors["x"][at];
      for (int n = 0; n < kLevels; ++n) v = level.of_numbers(v, inputs.tensors["y"][at], inputs.tensors["z"][at % kColumns]);
      wanted.push_back(v);
    }
    const Nest nest = deep_nest(level);
    EXPECT_EQ(testing::run_oracle(nest, inputs, false).at("o"), wanted);
    EXPECT_EQ(testing::run_oracle(nest, inputs, true).at("o"), wanted);
    for (const std::vector<std::string>& steps : {std::vector<std::string>{}, {"vectorize(s.j, 8)"}})
      EXPECT_EQ(testing::run_host(build_tile_program(testing::scheduled(nest, steps)), inputs, detect_host()).at("o"), wanted);
    const TileProgram blocks = build_tile_program(testing::scheduled(nest, {"gpu_blocks(s.i)", "gpu_threads(s.i, 64)"}));
    EXPECT_EQ(testing::run_emulated(blocks, inputs).at("o"), wanted);
  }
}

}  // namespace
}  // namespace nestor
