// A tile program computes what its nest defines, whatever the schedule: interpreted results of scheduled programs are
// compared with the program of the original order, and that one with formulas written out here.
#include "codegen/tile/tile_program.h"
#include "poly/schedule/schedule.h"
#include "support/nests/apply_steps.h"
#include "support/nests/sample_nests.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <random>

namespace nestor {
namespace {

using testing::scheduled;
using ArgumentValues = std::map<std::string, std::vector<double>>;

Sizes default_sizes(const Nest& nest) {
  Sizes sizes;
  for (const SizeParam& size : nest.sizes) sizes[size.name] = size.default_value;
  return sizes;
}

ArgumentValues random_arguments(const Nest& nest, const Sizes& sizes) {
  std::mt19937 generator(7);
  std::normal_distribution<double> normal;
  ArgumentValues memory;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::temporary) continue;
    std::int64_t count = 1;
    for (const std::int64_t extent : shape_at(tensor, sizes)) count *= extent;
    std::vector<double>& values = memory[tensor.name];
    values.resize(static_cast<std::size_t>(count));
    for (double& value : values) value = tensor.role == TensorRole::input ? normal(generator) : std::nan("");
  }
  return memory;
}

ArgumentValues result(const Schedule& schedule, const Sizes& sizes) {
  ArgumentValues memory = random_arguments(schedule.original_nest(), sizes);
  interpret(build_tile_program(schedule), sizes, {}, memory);
  return memory;
}

void expect_same(const ArgumentValues& a, const ArgumentValues& b, double tolerance = 1e-9) {
  for (const auto& [name, values] : a) {
    for (std::size_t k = 0; k < values.size(); ++k) ASSERT_NEAR(values[k], b.at(name)[k], tolerance) << name << " at " << k;
  }
}

int count_ops(const TileTree& node, OpKind kind, bool guarded_only = false) {
  int count = node->kind == TileNode::Kind::op && node->op.kind == kind && (!guarded_only || node->op.guard.defined()) ? 1 : 0;
  for (const TileTree& child : node->children) count += count_ops(child, kind, guarded_only);
  return count;
}

const Buffer& buffer_of(const TileProgram& program, const std::string& name) {
  for (const Buffer& buffer : program.buffers) {
    if (buffer.name == name) return buffer;
  }
  throw std::runtime_error("no buffer " + name);
}

TEST(TileProgram, OriginalMatmulIsOneContraction) {
  const Nest nest = samples::matmul(5, 6, 7);
  const Schedule schedule(nest);
  const TileProgram program = build_tile_program(schedule);
  EXPECT_EQ(count_ops(program.root, OpKind::contract), 1) << describe(program);
  const Sizes sizes = default_sizes(nest);
  const ArgumentValues memory = result(schedule, sizes);
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 6; ++j) {
      double sum = 0;
      for (int k = 0; k < 7; ++k)
        sum += memory.at("A")[static_cast<std::size_t>(i * 7 + k)] * memory.at("B")[static_cast<std::size_t>(k * 6 + j)];
      EXPECT_NEAR(memory.at("C")[static_cast<std::size_t>(i * 6 + j)], sum, 1e-12);
    }
  }
}

const std::vector<std::string> kMatmulTiles{"apply_rule(reassociate)", "fuse_with(C_init.i, C_update.i)",
                                            "fuse_with(C_init.j, C_update.j)",
                                            "tile(C_update.i, C_update.j, io, jo, ii, ji, 4, 4)"};

TEST(TileProgram, TiledMatmulWithPartialTilesIsTheSame) {
  for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{{5, 6, 7}, {8, 8, 8}, {1, 9, 3}}) {
    const Nest nest = samples::matmul(m, n, k);
    expect_same(result(Schedule(nest), default_sizes(nest)), result(scheduled(nest, kMatmulTiles), default_sizes(nest)));
  }
}

TEST(TileProgram, RowsFusedKeepTemporariesInScratch) {
  const Nest nest = samples::row_norm(5, 9);
  const Schedule schedule = scheduled(nest, {"fuse_with(mean_init.i, mean_update.i)", "fuse_with(mean_update.i, variance_init.i)",
                                             "fuse_with(variance_init.i, variance_update.i)",
                                             "fuse_with(variance_update.i, out.i)", "split(out.i, 2, io, ii)", "parallel(io)"});
  const TileProgram program = build_tile_program(schedule);
  EXPECT_EQ(buffer_of(program, "mean").memory, Memory::scratch) << describe(program);
  expect_same(result(Schedule(nest), default_sizes(nest)), result(schedule, default_sizes(nest)));
}

/// Splits the rows and columns of every statement, then fuses the row tiles, then the column tiles.
std::vector<std::string> one_pass(int rows, int cols) {
  std::vector<std::string> steps{"apply_rule(reassociate)", "apply_rule(online, Mx_update)",
                                 "reorder(PV_update.i, PV_update.j, PV_update.d)"};
  const std::vector<std::string> all{"QK_init", "QK_update", "S",       "Mx_init",   "Mx_update", "P",
                                     "L_init",  "L_update",  "PV_init", "PV_update", "O"};
  const std::vector<std::string> with_columns{"QK_init", "QK_update", "S", "Mx_update", "P", "L_update", "PV_update"};
  for (const std::string& s : all) steps.push_back(fmt::format("split({0}.i, {1}, {0}.io, {0}.ii)", s, rows));
  for (const std::string& s : with_columns) {
    steps.push_back(fmt::format("split({0}.j, {1}, {0}.jo, {0}.ji)", s, cols));
    steps.push_back(fmt::format("reorder({0}.io, {0}.jo, {0}.ii, {0}.ji)", s));
  }
  for (std::size_t k = 0; k + 1 < all.size(); ++k) steps.push_back(fmt::format("fuse_with({}.io, {}.io)", all[k], all[k + 1]));
  // The sums join their exponentials before these join the maximum: in between, the sums would not be corrected.
  for (const char* pair : {"P.jo, L_update.jo", "L_update.jo, PV_update.jo", "QK_init.jo, QK_update.jo", "QK_update.jo, S.jo",
                           "S.jo, Mx_update.jo", "Mx_update.jo, PV_update.jo"}) {
    steps.push_back(fmt::format("fuse_with({})", pair));
  }
  steps.push_back("parallel(O.io)");
  return steps;
}

TEST(TileProgram, OnePassOverColumnsCorrectsRunningSums) {
  for (const samples::Mask mask : {samples::Mask::none, samples::Mask::domain}) {
    const Nest nest = samples::scores_softmax_values(mask, 7, 7, 4);
    const Schedule schedule = scheduled(nest, one_pass(2, 3));
    const TileProgram program = build_tile_program(schedule);
    EXPECT_EQ(buffer_of(program, "P").memory, Memory::scratch) << describe(program);
    EXPECT_EQ(buffer_of(program, "P").extents.back().as_constant(), 3) << describe(program);
    expect_same(result(Schedule(nest), default_sizes(nest)), result(schedule, default_sizes(nest)));
  }
}

TEST(TileProgram, SpecialisedLoopFreesFullTilesOfGuards) {
  const Nest nest = samples::scores_softmax_values(samples::Mask::domain, 9, 9, 4);
  std::vector<std::string> steps = one_pass(2, 2);
  const TileProgram plain = build_tile_program(scheduled(nest, steps));
  steps.push_back("specialize(PV_update.jo)");
  const Schedule schedule = scheduled(nest, steps);
  const TileProgram program = build_tile_program(schedule);
  EXPECT_GT(count_ops(program.root, OpKind::reduce), count_ops(plain.root, OpKind::reduce)) << describe(program);
  EXPECT_EQ(count_ops(program.root, OpKind::contract, true), 0) << "products need no tests: their operands are filled\n"
                                                                << describe(program);
  expect_same(result(Schedule(nest), default_sizes(nest)), result(schedule, default_sizes(nest)));
}

TEST(TileProgram, OnePassMomentsFollowTheRunningMean) {
  const Nest nest = samples::row_norm(5, 9);
  std::vector<std::string> steps{"apply_rule(reassociate)", "apply_rule(moments, mean_update)"};
  const std::vector<std::string> all{"mean_init", "mean_update", "variance_init", "variance_update"};
  for (std::size_t k = 0; k + 1 < all.size(); ++k) steps.push_back(fmt::format("fuse_with({}.i, {}.i)", all[k], all[k + 1]));
  for (const std::string s : {"mean_update", "variance_update"})
    steps.push_back(fmt::format("split({0}.k, 4, {0}.ko, {0}.ki)", s));
  steps.push_back("fuse_with(mean_update.ko, variance_update.ko)");
  const Schedule schedule = scheduled(nest, steps);
  ASSERT_EQ(schedule.active_composites().size(), 1U);
  expect_same(result(Schedule(nest), default_sizes(nest)), result(schedule, default_sizes(nest)));
}

TEST(TileProgram, SkewedSweepsKeepTheirOrder) {
  const Nest nest = samples::seidel(3, 6, 7);
  const Schedule schedule =
      scheduled(nest, {"skew(sweep.t, sweep.y, 1)", "skew(sweep.t, sweep.x, 1)", "tile(sweep.t, sweep.y, to, yo, ti, yi, 2, 3)"});
  expect_same(result(Schedule(nest), default_sizes(nest)), result(schedule, default_sizes(nest)));
}

TEST(TileProgram, ValidSizesAreTheContext) {
  const TileProgram program = build_tile_program(Schedule(samples::matmul()));
  std::string why;
  EXPECT_TRUE(is_valid_for(program.valid, {{"M", 1}, {"N", 2}, {"K", 3}}));
  EXPECT_FALSE(is_valid_for(program.valid, {{"M", 0}, {"N", 2}, {"K", 3}}, &why));
  EXPECT_EQ(why, "M >= 1");
}

TEST(TileProgram, FixedSizesBecomeConstants) {
  const Nest nest = fix_sizes(samples::matmul(), {{"K", 7}});
  const TileProgram program = build_tile_program(Schedule(nest));
  EXPECT_EQ(program.fixed_sizes.at("K"), 7);
  EXPECT_EQ(buffer_of(program, "A").extents[1].as_constant(), 7);
  EXPECT_FALSE(is_valid_for(program.valid, {{"M", 1}, {"N", 2}, {"K", 8}}));
}

/// y[t] = the sum of x[t - k] over k < 4 with k <= t.
Nest causal_sums() {
  return samples::NestBuilder("causal_sums", {{"T", 40}})
      .context("T >= 1")
      .tensor("x", TensorRole::input, {"T"})
      .tensor("y", TensorRole::output, {"T"})
      .statement("init[t] : 0 <= t < T", "y[t]", {}, ScalarExpr::constant(0.0))
      .statement("y[t, k] : 0 <= t < T and 0 <= k < 4 and k <= t", "y[t]", {"x[t - k]"}, samples::read(0), ReductionOp::add)
      .build();
}

TEST(TileProgram, LoopsOfFewTermsThatShortSizesAloneCutHaveConstantBounds) {
  const Schedule schedule(causal_sums());
  const TileProgram program = build_tile_program(schedule);
  std::vector<OpDim> reduced;
  const std::function<void(const TileTree&)> visit = [&](const TileTree& node) {
    for (const OpDim& dim : node->op.dims) {
      if (node->kind == TileNode::Kind::op && dim.reduced) reduced.push_back(dim);
    }
    for (const TileTree& child : node->children) visit(child);
  };
  visit(program.root);
  ASSERT_EQ(reduced.size(), 1U);
  EXPECT_EQ(reduced[0].lower.as_constant(), 0);
  EXPECT_EQ(reduced[0].upper.as_constant(), 4);
  for (const std::int64_t length : {2, 9}) {
    ArgumentValues memory{{"x", std::vector<double>(static_cast<std::size_t>(length), 1.0)},
                          {"y", std::vector<double>(static_cast<std::size_t>(length))}};
    interpret(program, {{"T", length}}, {}, memory);
    for (std::int64_t t = 0; t < length; ++t)
      EXPECT_EQ(memory["y"][static_cast<std::size_t>(t)], std::min<std::int64_t>(t + 1, 4));
  }
}

}  // namespace
}  // namespace nestor
