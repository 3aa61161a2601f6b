// A kernel that copies its arguments by tensor maps and draws its work from a counter, over the fake driver.
#pragma once

#include "unit/device/device_fixture.h"

#include <array>
#include <vector>

namespace nestor::test {

/// y[batch, rows, cols] of f16 from x of the same shape, by tiles of 1 x 64 x 32 (x, swizzled) and 1 x 8 x 64 (y); one block a row.
inline LaunchRecipe tile_recipe() {
  const IntExpr batch = IntExpr::variable("batch"), rows = IntExpr::variable("rows"), cols = IntExpr::variable("cols");
  LaunchRecipe recipe;
  recipe.target = "nvptx";
  recipe.arguments = {{"x", ElementType::f16, false, {batch, rows, cols}}, {"y", ElementType::f16, true, {batch, rows, cols}}};
  recipe.sizes = {"batch", "rows", "cols"};
  LaunchNode node;
  node.symbol = "tiles";
  node.grid[0] = rows;
  node.block = {128, 1, 1};
  using Kind = KernelParam::Kind;
  node.params = {{Kind::tensor_map, 0, 0, "x", {1, 64, 32}, 64},
                 {Kind::tensor_map, 1, 0, "y", {1, 8, 64}, 0},
                 {Kind::pointer, 0, 0, ""},
                 {Kind::counter, 0, 0, ""}};
  recipe.launches = {node};
  return recipe;
}

/// PTX with kernels of tile_recipe()'s parameters.
inline std::string tile_ptx(const std::vector<std::string>& kernels = {"tiles"}) {
  std::string text = ".version 8.0\n.target sm_90\n";
  for (const std::string& kernel : kernels)
    text += ".visible .entry " + kernel +
            "(.param .align 64 .b8 x[128], .param .align 64 .b8 y[128], .param .u64 p, .param .u64 c)\n{ ret; }\n";
  return text;
}

/// What a launch of such a kernel is given, dense unless changed. Addresses are numbers: nothing reads there.
struct TileValues {
  explicit TileValues(std::int64_t batch = 3, std::int64_t rows = 100, std::int64_t cols = 40)
      : sizes{batch, rows, cols}, strides{rows * cols, cols, 1, rows * cols, cols, 1} {}
  std::array<std::int64_t, 3> sizes;
  std::array<std::int64_t, 6> strides;
  std::array<void*, 2> pointers{reinterpret_cast<void*>(0x10000), reinterpret_cast<void*>(0x20000)};
  operator LaunchValues() const { return {pointers, strides, sizes, {}, nullptr}; }
};

}  // namespace nestor::test
