// The fake driver and a launch recipe for tests of the device layer.
#pragma once

#include "device/recipe_launcher.h"
#include "support/cuda/fake_cuda_use.h"
#include "support/error_text.h"

#include <gmock/gmock.h>

#include <string>

namespace nestor::test {

using testing::fake_ptx;
using testing::FakeCuda;
using testing::FakeLaunch;

/// A fresh fake, which every test must leave without anything alive.
class FakeCudaTest : public ::testing::Test {
 protected:
  ~FakeCudaTest() override {
    EXPECT_TRUE(fake.memory.empty());
    EXPECT_EQ(fake.modules, 0);
    EXPECT_EQ(fake.streams, 0);
    EXPECT_EQ(fake.events, 0);
    EXPECT_EQ(fake.graphs, 0);
    EXPECT_EQ(fake.pools, 0);
    EXPECT_EQ(fake.contexts, 0);
  }
  FakeCuda& fake = testing::use_fake_cuda();
};

/// One kernel that a row of blocks runs: one block a row, at most 4 a multiprocessor.
inline LaunchRecipe row_recipe() {
  const IntExpr rows = IntExpr::variable("rows"), cols = IntExpr::variable("cols");
  LaunchRecipe recipe;
  recipe.target = "nvptx";
  recipe.arguments = {{"x", ElementType::f32, false, {rows, cols}}, {"y", ElementType::f32, true, {rows, cols}}};
  recipe.sizes = {"rows"};
  recipe.fixed_sizes = {{"cols", 64}};
  recipe.scalars = {{"alpha", ElementType::f32, 2.0}};
  recipe.valid = {{{{"rows", 1}}, -1, false, 0}, {{{"cols", 1}}, -64, true, 0}};
  LaunchNode node;
  node.symbol = "rows_kernel";
  node.grid[0] = min(rows, IntExpr::variable(kUnits) * IntExpr(4));
  node.block = {256, 1, 1};
  using Kind = KernelParam::Kind;
  node.params = {{Kind::pointer, 0, 0, ""},     {Kind::pointer, 1, 0, ""},  {Kind::stride, 0, 0, ""},
                 {Kind::stride, 1, 0, ""},      {Kind::size, 0, 0, "rows"}, {Kind::size, 0, 0, "cols"},
                 {Kind::scalar, 0, 0, "alpha"}, {Kind::workspace, 0, 0, ""}};
  recipe.launches = {node};
  return recipe;
}

/// PTX whose kernel takes what row_recipe() passes.
inline std::string row_ptx() {
  return ".version 8.0\n.target sm_90\n.visible .entry rows_kernel(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,"
         " .param .u64 e, .param .u64 f, .param .f32 g, .param .u64 h)\n{ ret; }\n";
}

}  // namespace nestor::test
