// Sums of three factors in the space: first guesses have a product on tensor cores and sum its rows up in the same kernel, and infinities and
// NaN are where the definition has them.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/chained_products.h"
#include "support/nests/nest_runs.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace nestor {
namespace {

using namespace samples;

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

struct Guesses : testing::SpaceGuesses {
  using SpaceGuesses::SpaceGuesses;
  bool nests(std::size_t k) const { return has_rule(k, "nest_products"); }
};

/// The kernels with products on tensor cores, and whether they take sums of few elements and sum up rows.
struct Kernels {
  int products = 0;
  bool seldom = false;
};

Kernels kernels_of(const CompiledNvptx& compiled) {
  Kernels found;
  for (const auto& kernel : compiled.plans->kernels) {
    if (!kernel.tensor) continue;
    ++found.products;
    found.seldom =
        found.seldom || std::any_of(kernel.tensor->ops.begin(), kernel.tensor->ops.end(),
                                    [](const nvptx::TensorOp& op) { return op.kind == nvptx::TensorOp::Kind::seldom; });
  }
  return found;
}

/// Are all temporaries of rows and columns, of which the nest has some, tiles of a kernel?
bool keeps_products(const TileProgram& program) {
  return std::none_of(program.buffers.begin(), program.buffers.end(), [](const Buffer& buffer) {
    const bool inner = buffer.name.find("_inner") != std::string::npos || buffer.name.find("_kept") != std::string::npos;
    return inner && buffer.memory != nestor::Memory::scratch;
  });
}

void expect_right(const Nest& nest, const Sizes& large, const Sizes& ragged, std::size_t guesses, bool one_kernel = true) {
  Guesses all(nest, large);
  const TileProgram meaning = all.meaning();
  for (std::size_t k = 0; k < guesses; ++k) {
    ASSERT_TRUE(all.nests(k)) << nest.op << " " << k;
    const TileProgram program = all.program(k);
    const CompiledNvptx compiled = compile_nvptx(program, {});
    const Kernels kernels = kernels_of(compiled);
    EXPECT_EQ(kernels.products, 1) << nest.op;
    EXPECT_TRUE(kernels.seldom) << nest.op;
    EXPECT_EQ(keeps_products(program), one_kernel) << nest.op;
    EXPECT_EQ(testing::run_emulated(compiled, meaning, ragged, {.tolerance = 4e-3}, {1}), "") << nest.op << " " << k;
  }
}

TEST(NestedProductsSpace, FirstGuessesHaveAProductWithSumsOfItsRows) {
  expect_right(quadratic_form(), {{"N", 8192}, {"I", 512}, {"J", 512}}, {{"N", 70}, {"I", 72}, {"J", 88}}, 2);
  expect_right(quadratic_form({.type = ElementType::bf16, .rows = "x"}), {{"N", 8192}, {"I", 512}, {"J", 512}},
               {{"N", 33}, {"I", 40}, {"J", 40}}, 1);
}

TEST(NestedProductsSpace, SumsOnLanesStayWhereOthersAreProducts) {
  Guesses all(quadratic_form({.type = ElementType::f32}), {{"N", 8192}, {"I", 512}, {"J", 512}});
  EXPECT_FALSE(all.nests(0));
}

TEST(NestedProductsSpace, BatchesAndMoreFactorsAreRight) {
  expect_right(batched_forms(), {{"B", 16}, {"R", 1024}, {"I", 512}, {"J", 512}}, {{"B", 2}, {"R", 37}, {"I", 24}, {"J", 40}}, 1);
  expect_right(products_of_four(), {{"P", 128}, {"Q", 32}, {"T", 32}, {"S", 64}, {"U", 64}},
               {{"P", 3}, {"Q", 3}, {"T", 5}, {"S", 24}, {"U", 16}}, 1, false);
}

TEST(NestedProductsSpace, TrianglesAreRight) {
  Guesses all(quadratic_form({.mask = " and j <= i"}), {{"N", 4096}, {"I", 512}, {"J", 512}});
  EXPECT_EQ(testing::run_emulated(compile_nvptx(all.program(0), {}), all.meaning(), {{"N", 5}, {"I", 24}, {"J", 24}},
                                  {.tolerance = 4e-3}, {1}),
            "");
}

/// Rows of y, of x and of m with one or some special values, against the oracle of the definition.
TEST(NestedProductsSpace, InfinitiesAndNaNStayWhereTheyAre) {
  const Nest nest = quadratic_form();
  Guesses all(nest, {{"N", 8192}, {"I", 512}, {"J", 512}});
  const TileProgram program = all.program(0);
  const CompiledNvptx compiled = compile_nvptx(program, {});
  constexpr std::int64_t kRows = 70, kLeft = 24, kRight = 40;
  testing::NestInputs inputs{{{"N", kRows}, {"I", kLeft}, {"J", kRight}}, {}, {}};
  std::mt19937 random(5);
  const auto fill = [&](const char* tensor, std::int64_t elements) {
    for (std::int64_t k = 0; k < elements; ++k) inputs.tensors[tensor].push_back(1 + static_cast<double>(random() % 3));
  };
  fill("x", kRows * kLeft);
  fill("m", kLeft * kRight);
  fill("y", kRows * kRight);
  auto &x = inputs.tensors["x"], &m = inputs.tensors["m"], &y = inputs.tensors["y"];
  m[3 * kRight + 7] = 0;   // meets an infinite y: NaN
  m[5 * kRight + 9] = -2;  // both signs in a column
  const std::vector<double> specials{kInfinity, -kInfinity, kNaN, 0, 65504, -65504};
  for (std::int64_t row = 0; row < kRows; ++row) {
    const double special = specials[static_cast<std::size_t>(row) % specials.size()];
    const std::int64_t column = std::vector<std::int64_t>{7, 9, 11, 39}[static_cast<std::size_t>(row / 6) % 4];
    if (row % 5 != 4) y[static_cast<std::size_t>(row * kRight + column)] = special;
    if (row % 7 == 6) x[static_cast<std::size_t>(row * kLeft + row % kLeft)] = special;
    if (row % 11 == 10) y[static_cast<std::size_t>(row * kRight)] = -special;
  }
  const std::vector<double> want = testing::run_oracle(nest, inputs, false).at("out");
  EXPECT_EQ(testing::special_difference(testing::run_emulated(compiled, program, inputs).at("out"), want), "");
  const auto count = [&](const auto& is) { return std::count_if(want.begin(), want.end(), is); };
  EXPECT_GT(count([](double value) { return std::isnan(value); }), 10);
  EXPECT_GT(count([](double value) { return value == kInfinity; }), 5);
  EXPECT_GT(count([](double value) { return value == -kInfinity; }), 3);
  EXPECT_GT(count([](double value) { return std::isfinite(value); }), 10);
}

/// A product of three matrices as one sum, on hosts: N^3 terms, and infinities where the definition has them.
TEST(NestedProductsSpace, BlocksOfTermsWithScalesAreAddedUpInRegisters) {
  const Nest nest = products_with_scales();
  expect_right(nest, {{"N", 4096}, {"M", 2048}, {"L", 16}}, {{"N", 70}, {"M", 136}, {"L", 3}}, 2);
  Guesses all(nest, {{"N", 4096}, {"M", 2048}, {"L", 16}});
  const TileProgram program = all.program(0);
  const CompiledNvptx compiled = compile_nvptx(program, {});
  EXPECT_EQ(compiled.plans->kernels.size(), 1U);
  constexpr std::int64_t kRows = 66, kColumns = 40, kBlocks = 2;
  testing::NestInputs inputs{{{"N", kRows}, {"M", kColumns}, {"L", kBlocks}}, {}, {}};
  std::mt19937 random(3);
  const auto fill = [&](const char* tensor, std::int64_t elements) {
    for (std::int64_t k = 0; k < elements; ++k) inputs.tensors[tensor].push_back(1 + static_cast<double>(random() % 3));
  };
  fill("x", kRows * 128 * kBlocks);
  fill("w", kColumns * 128 * kBlocks);
  fill("a", kRows * kBlocks);
  fill("b", kColumns * kBlocks);
  inputs.tensors["w"][5 * 128 * kBlocks + 9] = 0;     // meets infinite scales: NaN
  inputs.tensors["w"][6 * 128 * kBlocks + 130] = -2;  // both signs in a block
  const std::vector<double> specials{kInfinity, -kInfinity, kNaN, 0};
  for (std::int64_t row = 0; row < kRows; row += 3)
    inputs.tensors["a"][static_cast<std::size_t>(row * kBlocks + row % kBlocks)] =
        specials[static_cast<std::size_t>(row / 3) % 4];
  inputs.tensors["b"][7 * kBlocks] = kInfinity;
  inputs.tensors["x"][4 * 128 * kBlocks + 17] = -kInfinity;
  const std::vector<double> want = testing::run_oracle(nest, inputs, false).at("out");
  EXPECT_EQ(testing::special_difference(testing::run_emulated(compiled, program, inputs).at("out"), want), "");
  const auto count = [&](const auto& is) { return std::count_if(want.begin(), want.end(), is); };
  EXPECT_GT(count([](double value) { return std::isnan(value); }), 10);
  EXPECT_GT(count([](double value) { return std::isinf(value); }), 10);
  EXPECT_GT(count([](double value) { return std::isfinite(value); }), 10);
}

TEST(NestedSumsSpace, HostsTakeInnerSumsOnce) {
  const Nest nest = chained_matrices();
  const Sizes large{{"N", 64}, {"I", 48}, {"J", 40}, {"K", 56}};
  BaseSchedules schedules(nest_for_tuning(nest, complete_sizes(nest, large)));
  SpaceLimits limits;
  limits.threads = 2;
  const auto space = make_nest_space(schedules, complete_sizes(nest, large), limits);
  const std::vector<Point> points = space->defaults();
  testing::NestInputs inputs{{{"N", 7}, {"I", 5}, {"J", 9}, {"K", 6}}, {}, {}};
  std::mt19937 random(5);
  const auto fill = [&](const char* tensor, std::int64_t elements) {
    for (std::int64_t k = 0; k < elements; ++k) inputs.tensors[tensor].push_back(1 + static_cast<double>(random() % 3));
  };
  fill("x", 7 * 5);
  fill("m", 5 * 9);
  fill("y", 9 * 6);
  inputs.tensors["y"][8] = kInfinity;    // of one sign
  inputs.tensors["y"][15] = -kInfinity;  // beside a 0
  inputs.tensors["m"][9 + 2] = 0;
  inputs.tensors["y"][22] = kInfinity;  // beside both signs
  inputs.tensors["m"][2 * 9 + 3] = -5;
  inputs.tensors["x"][6] = kNaN;
  const std::vector<double> want = testing::run_oracle(nest, inputs, false).at("out");
  EXPECT_GT(std::count_if(want.begin(), want.end(), [](double value) { return std::isnan(value); }), 5);
  EXPECT_GT(std::count(want.begin(), want.end(), kInfinity), 3);
  int nested = 0;
  for (std::size_t k = 0; k < std::min<std::size_t>(points.size(), 4); ++k) {
    const NamedValues values = named_values(*space, points[k]);
    nested += value_or(values, "rule.nest_sums", 0) == 1 ? 1 : 0;
    const Candidate candidate = space->candidate(points[k]);
    ASSERT_EQ(candidate.infeasible, "");
    const Schedule schedule = schedules.replay(candidate.steps);
    const TileProgram program = build_tile_program(schedule);
    EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
    EXPECT_EQ(testing::special_difference(testing::run_host(program, inputs, {"x86-64-v2", "", 16, 16}).at("out"), want), "")
        << k;
  }
  EXPECT_GT(nested, 2);
}

}  // namespace
}  // namespace nestor
