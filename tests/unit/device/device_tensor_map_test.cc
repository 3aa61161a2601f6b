// Kernels get the tensor maps that their recipe asks for, encoded once for each address, shape and strides.
#include "unit/tensor_map_fixture.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace nestor {
namespace {

using namespace test;
using ::testing::ElementsAre;
using testing::FakeTensorMap;

class TensorMaps : public FakeCudaTest {
 protected:
  RecipeLauncher make(const LaunchRecipe& recipe, const std::string& ptx = tile_ptx()) {
    return {CudaModule::load(device, ptx), recipe};
  }
  const FakeTensorMap& map_of(int param) const { return fake.launches.back().tensor_maps.at(param); }
  CudaDevicePtr device = CudaDevice::open(0);
};

TEST_F(TensorMaps, DescribeTheArgumentInnermostFirst) {
  const RecipeLauncher launcher = make(tile_recipe());
  TileValues values;
  values.strides = {8000, 48, 1, 4000, 40, 1};
  launcher.launch(values, nullptr);
  ASSERT_EQ(fake.launches.size(), 1);
  const FakeTensorMap& x = map_of(0);
  EXPECT_EQ(x.magic, FakeTensorMap::kMagic);
  EXPECT_EQ(x.address, 0x10000);
  EXPECT_EQ(x.type, cuda::kTensorMapF16);
  EXPECT_EQ(x.rank, 3);
  EXPECT_THAT(x.extents, ElementsAre(40, 100, 3, 0, 0));
  EXPECT_THAT(x.byte_strides, ElementsAre(96, 16000, 0, 0));
  EXPECT_THAT(x.box, ElementsAre(32, 64, 1, 0, 0));
  EXPECT_EQ(x.swizzle, 2);       // CU_TENSOR_MAP_SWIZZLE_64B
  EXPECT_EQ(x.l2_promotion, 3);  // CU_TENSOR_MAP_L2_PROMOTION_L2_256B
  const FakeTensorMap& y = map_of(1);
  EXPECT_EQ(y.address, 0x20000);
  EXPECT_THAT(y.byte_strides, ElementsAre(80, 8000, 0, 0));
  EXPECT_THAT(y.box, ElementsAre(64, 8, 1, 0, 0));
  EXPECT_EQ(y.swizzle, 0);
  EXPECT_EQ(fake.launches[0].params[2], 0x10000);
}

TEST_F(TensorMaps, GoInStridesOverAsMuchOfTheArgumentAsABoxReaches) {
  LaunchRecipe recipe = tile_recipe();
  recipe.launches[0].params[0].box = {2, 64, 32};
  recipe.launches[0].params[0].element_strides = {3, 4, 1};
  const RecipeLauncher launcher = make(recipe);
  TileValues values;
  values.strides = {8000, 48, 1, 4000, 40, 1};
  launcher.launch(values, nullptr);
  EXPECT_THAT(map_of(0).box, ElementsAre(32, 253, 4, 0, 0));
  EXPECT_THAT(map_of(0).element_strides, ElementsAre(1, 4, 3, 0, 0));
  EXPECT_THAT(map_of(1).element_strides, ElementsAre(1, 1, 1, 0, 0));
}

TEST_F(TensorMaps, HaveTheDimensionsInTheOrderOfTheTile) {
  LaunchRecipe recipe = tile_recipe();
  recipe.launches[0].params[0].order = {1, 0, 2};
  recipe.launches[0].params[0].box = {2, 64, 32};
  recipe.launches[0].params[1].order = {0, 1, 2};
  recipe = recipe_from_json(recipe_to_json(recipe));
  const RecipeLauncher launcher = make(recipe);
  TileValues values;
  values.strides = {8000, 48, 1, 4000, 40, 1};
  launcher.launch(values, nullptr);
  const FakeTensorMap& x = map_of(0);
  EXPECT_THAT(x.extents, ElementsAre(40, 3, 100, 0, 0));
  EXPECT_THAT(x.byte_strides, ElementsAre(16000, 96, 0, 0));
  EXPECT_THAT(x.box, ElementsAre(32, 2, 64, 0, 0));
  EXPECT_THAT(map_of(1).extents, ElementsAre(40, 100, 3, 0, 0));
}

TEST_F(TensorMaps, HoldEveryTypeAndRank) {
  for (const auto& [type, number] : std::vector<std::pair<ElementType, int>>{{ElementType::f16, cuda::kTensorMapF16},
                                                                             {ElementType::bf16, cuda::kTensorMapBf16},
                                                                             {ElementType::f32, cuda::kTensorMapF32}}) {
    for (std::size_t rank = 1; rank <= 5; ++rank) {
      LaunchRecipe recipe = tile_recipe();
      recipe.arguments = {{"x", type, false, std::vector<IntExpr>(rank, IntExpr::variable("cols"))}};
      recipe.launches[0].params = {{KernelParam::Kind::tensor_map, 0, 0, "x", std::vector<int>(rank, 8), 0}};
      const RecipeLauncher launcher =
          make(recipe, ".version 8.0\n.target sm_90\n.entry tiles(.param .align 64 .b8 x[128])\n{ ret; }\n");
      const std::array<void*, 1> pointers{reinterpret_cast<void*>(0x1000)};
      const std::array<std::int64_t, 5> strides{4096, 512, 64, 8, 1};
      const std::array<std::int64_t, 3> sizes{1, 1, 8};
      launcher.launch({pointers, std::span(strides).last(rank), sizes, {}, nullptr}, nullptr);
      EXPECT_EQ(map_of(0).type, number);
      EXPECT_EQ(map_of(0).rank, rank);
      if (rank == 5) {
        const std::uint64_t width = size_in_bytes(type);
        EXPECT_THAT(map_of(0).byte_strides, ElementsAre(8 * width, 64 * width, 512 * width, 4096 * width));
      }
    }
  }
}

// Whatever the strides of such dimensions, 7 elements here, no element is reached by them.
TEST_F(TensorMaps, DimensionsOfOneIndexMayHaveAnyStride) {
  LaunchRecipe recipe = tile_recipe();
  recipe.arguments[1].output = false;  // rows that are written are multiples of 16 bytes
  const RecipeLauncher launcher = make(recipe);
  TileValues values(1, 100, 40);
  values.strides[0] = 7;
  launcher.launch(values, nullptr);
  EXPECT_THAT(map_of(0).byte_strides, ElementsAre(80, 80, 0, 0));
  TileValues column(3, 100, 1);
  column.strides = {800, 8, 5, 800, 8, 5};
  launcher.launch(column, nullptr);
  EXPECT_THAT(map_of(0).extents, ElementsAre(1, 100, 3, 0, 0));
  EXPECT_THAT(map_of(0).byte_strides, ElementsAre(16, 1600, 0, 0));
  TileValues row(1, 1, 20);  // 40 bytes: no multiple of 16
  launcher.launch(row, nullptr);
  EXPECT_THAT(map_of(0).byte_strides, ElementsAre(48, 48, 0, 0));
}

TEST_F(TensorMaps, AreEncodedAgainOnlyWhenTheArgumentChanges) {
  const RecipeLauncher launcher = make(tile_recipe());
  TileValues values;
  launcher.launch(values, nullptr);
  EXPECT_EQ(fake.encoded_maps, 2);
  launcher.launch(values, nullptr);
  EXPECT_EQ(fake.encoded_maps, 2);
  EXPECT_EQ(fake.launches[1].tensor_maps, fake.launches[0].tensor_maps);
  values.pointers[0] = reinterpret_cast<void*>(0x30000);
  launcher.launch(values, nullptr);
  EXPECT_EQ(fake.encoded_maps, 3);
  EXPECT_EQ(map_of(0).address, 0x30000);
  values.strides[1] = 48;
  launcher.launch(values, nullptr);
  EXPECT_EQ(fake.encoded_maps, 4);
  EXPECT_EQ(map_of(0).byte_strides[0], 96);
  values.sizes[1] = 99;
  launcher.launch(values, nullptr);
  EXPECT_EQ(fake.encoded_maps, 6);
  EXPECT_EQ(map_of(0).extents[1], 99);
  EXPECT_EQ(map_of(1).extents[1], 99);
  launcher.launch(values, nullptr);
  EXPECT_EQ(fake.encoded_maps, 6);
}

TEST_F(TensorMaps, AreSharedByTheKernelsOfALaunch) {
  LaunchRecipe recipe = tile_recipe();
  LaunchNode loop;
  loop.kind = LaunchNode::Kind::loop;
  loop.var = "t";
  loop.lower = IntExpr(0);
  loop.upper = IntExpr(3);
  loop.children = {recipe.launches[0], recipe.launches[0]};
  loop.children[1].symbol = "more";
  recipe.launches = {loop};
  const RecipeLauncher launcher = make(recipe, tile_ptx({"tiles", "more"}));
  launcher.launch(TileValues(), nullptr);
  ASSERT_EQ(fake.launches.size(), 6);
  EXPECT_EQ(fake.encoded_maps, 2);
  for (const FakeLaunch& launch : fake.launches) EXPECT_EQ(launch.tensor_maps, fake.launches[0].tensor_maps);
}

TEST_F(TensorMaps, AreNotMadeWhereNothingIsLaunched) {
  const RecipeLauncher launcher = make(tile_recipe());
  TileValues none(3, 0, 40);
  none.pointers = {};
  launcher.launch(none, nullptr);
  EXPECT_TRUE(fake.launches.empty());
  EXPECT_EQ(fake.encoded_maps, 0);
}

TEST_F(TensorMaps, AreCopiedWhenCaptured) {
  const RecipeLauncher launcher = make(tile_recipe());
  const CudaStream stream(device);
  TileValues values;
  const CudaGraph graph = stream.capture([&] { launcher.launch(values, stream); });
  values.pointers[0] = reinterpret_cast<void*>(0x30000);
  launcher.launch(values, stream);
  EXPECT_EQ(map_of(0).address, 0x30000);
  graph.launch(stream);
  EXPECT_EQ(map_of(0).address, 0x10000);
}

// Each launch has the map of its own pointer, however the threads get in each other's way.
TEST_F(TensorMaps, ThreadsMayShareALauncher) {
  const RecipeLauncher launcher = make(tile_recipe());
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      TileValues values;
      for (std::uint64_t k = 0; k < 2000; ++k) {
        values.pointers[0] = reinterpret_cast<void*>(0x10000 * (1 + t + k % 3));
        launcher.launch(values, nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(fake.launches.size(), 8000);
  for (const FakeLaunch& launch : fake.launches) {
    FakeTensorMap expected = fake.launches[0].tensor_maps.at(0);
    expected.address = launch.params[2];
    ASSERT_EQ(launch.tensor_maps.at(0), expected);
  }
}

// More views than places, so that threads write over what others read: what is found is whole, and the view's own.
TEST(TensorMapCache, IsNeverReadHalfWritten) {
  TensorMapCache cache;
  std::atomic<int> wrong{0}, hits{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t k = 0; k < 300000; ++k) {
        TensorView view;
        view.words.fill((k + t) % 16);
        cuda::TensorMap map;
        if (cache.find(view, map)) {
          ++hits;
          for (const std::uint64_t word : map.words) wrong += word == view.words[0] ? 0 : 1;
        } else {
          std::fill_n(map.words, 16, view.words[0]);
          cache.store(view, map);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(hits, 0);
}

}  // namespace
}  // namespace nestor
