// Tensor maps of what earlier kernels of a launch have left in the workspace.
#include "unit/tensor_map_fixture.h"

namespace nestor {
namespace {

using namespace test;
using ::testing::ElementsAre;
using testing::FakeTensorMap;

/// kn[batch, rows, cols] of f16, rows padded to `cols + 8` elements, at 64 bytes a batch.
WorkspaceTensor normalised_keys() {
  const IntExpr batch = IntExpr::variable("batch"), rows = IntExpr::variable("rows"), cols = IntExpr::variable("cols");
  const IntExpr row = cols + IntExpr(8);
  return {ElementType::f16, batch * IntExpr(64), {batch, rows, cols}, {rows * row, row}};
}

class WorkspaceMaps : public FakeCudaTest {
 protected:
  WorkspaceMaps() {
    recipe.workspace_bytes = IntExpr(1 << 20);
    KernelParam& map = recipe.launches[0].params[0];
    map = {KernelParam::Kind::tensor_map, -1, 0, "kn", {1, 64, 32}, 64};
    map.held = normalised_keys();
  }

  void launch(const LaunchRecipe& launched, const std::string& ptx = tile_ptx()) {
    const RecipeLauncher launcher(CudaModule::load(device, ptx), launched);
    launch(launcher, 0x40000);
  }
  void launch(const RecipeLauncher& launcher, std::uint64_t workspace) {
    const TileValues values;
    LaunchValues given = values;
    given.workspace = reinterpret_cast<void*>(workspace);
    launcher.launch(given, nullptr);
  }

  CudaDevicePtr device = CudaDevice::open(0);
  LaunchRecipe recipe = tile_recipe();
};

TEST_F(WorkspaceMaps, HaveTheAddressExtentsAndStridesOfTheTensor) {
  launch(recipe_from_json(recipe_to_json(recipe)));
  ASSERT_EQ(fake.launches.size(), 1U);
  const FakeTensorMap& map = fake.launches[0].tensor_maps.at(0);
  EXPECT_EQ(map.magic, FakeTensorMap::kMagic);
  EXPECT_EQ(map.address, 0x40000U + 3 * 64);
  EXPECT_EQ(map.type, cuda::kTensorMapF16);
  EXPECT_EQ(map.rank, 3);
  EXPECT_THAT(map.extents, ElementsAre(40, 100, 3, 0, 0)) << "without what rows are padded by";
  EXPECT_THAT(map.byte_strides, ElementsAre(96, 9600, 0, 0));
  EXPECT_THAT(map.box, ElementsAre(32, 64, 1, 0, 0));
  EXPECT_EQ(map.swizzle, 2);  // CU_TENSOR_MAP_SWIZZLE_64B
  EXPECT_EQ(fake.launches[0].tensor_maps.at(1).address, 0x20000U) << "the argument's own";
}

TEST_F(WorkspaceMaps, TheLastIndexIsDense) {
  // A row is one index: all of its elements are neighbours, whatever stands in the recipe for the others.
  recipe.launches[0].params[0].box = {32};
  recipe.launches[0].params[0].held->shape = {IntExpr::variable("cols")};
  recipe.launches[0].params[0].held->strides = {};
  launch(recipe);
  const FakeTensorMap& map = fake.launches.at(0).tensor_maps.at(0);
  EXPECT_EQ(map.rank, 1);
  EXPECT_EQ(map.extents[0], 40U);
}

TEST_F(WorkspaceMaps, FollowTheWorkspace) {
  const RecipeLauncher launcher(CudaModule::load(device, tile_ptx()), recipe);
  launch(launcher, 0x40000);
  const int encoded = fake.encoded_maps;
  launch(launcher, 0x40000);
  EXPECT_EQ(fake.encoded_maps, encoded);
  launch(launcher, 0x80000);
  EXPECT_EQ(fake.encoded_maps, encoded + 1);
  EXPECT_EQ(fake.launches.at(2).tensor_maps.at(0).address, 0x80000U + 3 * 64);
}

/// Neither has a number: names tell them apart.
TEST_F(WorkspaceMaps, OfTwoTensorsAreTwo) {
  KernelParam& second = recipe.launches[0].params[1];
  second = recipe.launches[0].params[0];
  second.name = "vn";
  second.held->offset = IntExpr(4096);
  launch(recipe);
  EXPECT_EQ(fake.launches.at(0).tensor_maps.at(0).address, 0x40000U + 3 * 64);
  EXPECT_EQ(fake.launches.at(0).tensor_maps.at(1).address, 0x41000U);
  fake.launches.clear();
  second.name = "kn";
  second.held = normalised_keys();
  const int before = fake.encoded_maps;
  launch(recipe);
  EXPECT_EQ(fake.encoded_maps, before + 1) << "one tensor has one map";
}

TEST_F(WorkspaceMaps, WhatCannotBeCopiedIsRefused) {
  recipe.launches[0].params[0].held->strides[1] = IntExpr(44);
  EXPECT_EQ(message_of<UserError>([&] { launch(recipe); }),
            "tensor \"kn\" is copied by tensor maps: its stride 1 must be a multiple of 8 elements (16 bytes), not 44");
  EXPECT_TRUE(fake.launches.empty());
  recipe.launches[0].params[0].held.reset();
  EXPECT_EQ(message_of<UserError>([&] { launch(recipe); }), "launch recipe: a parameter belongs to argument -1; there are 2");
}

}  // namespace
}  // namespace nestor
