// Tensor maps and work counters on a real GPU: that the driver takes the maps, and that the hardware reads what they say.
#include "device/recipe_launcher.h"
#include "gpu/gpu_fixture.h"
#include "gpu/gpu_kernels.h"

#include <array>
#include <memory>
#include <vector>

namespace nestor {
namespace {

using namespace test;
using Kind = KernelParam::Kind;

constexpr std::int64_t kTileRows = 8, kTileCols = 32;

class RealTensorMaps : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (device && device->identity().sm < 90) GTEST_SKIP() << device->identity().name << " has no tensor maps";
  }

  static LaunchRecipe recipe(int swizzle) {
    const auto tiles = [](const char* size, std::int64_t extent) {
      return floor_div(IntExpr::variable(size) + IntExpr(extent - 1), extent);
    };
    LaunchRecipe made;
    made.target = "nvptx";
    made.arguments = {
        {"x", ElementType::f32, false, {IntExpr::variable("batch"), IntExpr::variable("rows"), IntExpr::variable("cols")}},
        {"out", ElementType::f32, true, {}}};
    made.sizes = {"batch", "rows", "cols"};
    LaunchNode node;
    node.symbol = "tile_copy";
    node.grid = std::array{tiles("cols", kTileCols), tiles("rows", kTileRows), IntExpr::variable("batch")};
    node.block = {kTileRows * kTileCols, 1, 1};
    node.params = {{Kind::tensor_map, 0, 0, "x", {1, kTileRows, kTileCols}, swizzle}, {Kind::pointer, 1, 0, ""}};
    made.launches = {node};
    return made;
  }

  // Copies x of that shape, with those strides, by tiles, and compares every element; element k of x's memory is k + 1.
  void copies(std::array<std::int64_t, 3> shape, std::array<std::int64_t, 3> strides, int swizzle = 0) {
    SCOPED_TRACE(::testing::PrintToString(shape) + " " + ::testing::PrintToString(strides) + " " + std::to_string(swizzle));
    std::int64_t count = 1;
    for (std::size_t d = 0; d < 3; ++d) count += (shape[d] - 1) * strides[d];
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] = static_cast<float>(k + 1);
    const std::int64_t rows = (shape[1] + kTileRows - 1) / kTileRows, cols = (shape[2] + kTileCols - 1) / kTileCols;
    std::vector<float> tiles(static_cast<std::size_t>(shape[0] * rows * cols * kTileRows * kTileCols), -1.0F);
    const DeviceBuffer x(device, 4 * numbers.size()), out(device, 4 * tiles.size());
    x.upload(numbers.data(), x.bytes());
    out.upload(tiles.data(), out.bytes());
    const RecipeLauncher launcher(CudaModule::load(device, tile_copy_ptx()), recipe(swizzle));
    const std::array<void*, 2> pointers{x.data(), out.data()};
    launcher.launch({pointers, strides, shape, {}, nullptr}, nullptr);
    device->synchronise();
    out.download(tiles.data(), out.bytes());
    std::size_t at = 0;
    int wrong = 0;
    for (std::int64_t b = 0; b < shape[0]; ++b) {
      for (std::int64_t tile = 0; tile < rows * cols; ++tile) {
        for (std::int64_t place = 0; place < kTileRows * kTileCols; ++place, ++at) {
          const std::int64_t i = place / kTileCols;
          // Swizzling by 128 bytes exchanges the 16 byte pieces of a row by the row's number.
          const std::int64_t j = swizzle == 128 ? ((place % kTileCols / 4) ^ (i % 8)) * 4 + place % 4 : place % kTileCols;
          const std::int64_t row = tile / cols * kTileRows + i, col = tile % cols * kTileCols + j;
          const bool inside = row < shape[1] && col < shape[2];
          const float expected = inside ? static_cast<float>(b * strides[0] + row * strides[1] + col * strides[2] + 1) : 0.0F;
          if (tiles[at] != expected && ++wrong <= 5)
            ADD_FAILURE() << "batch " << b << " row " << row << " col " << col << ": " << tiles[at] << ", not " << expected;
        }
      }
    }
  }
};

TEST_F(RealTensorMaps, TilesAreCopiedAndFilledWithZeros) {
  copies({1, 8, 32}, {256, 32, 1});
  copies({3, 21, 100}, {2100, 100, 1});
  copies({3, 21, 100}, {2100, 100, 1}, 128);
  copies({2, 5, 4}, {20, 4, 1});
}

TEST_F(RealTensorMaps, StridesOfAllKinds) {
  copies({3, 21, 100}, {4000, 104, 1});
  copies({5, 21, 36}, {36, 180, 1});  // the outer stride is the smaller one
  copies({5, 21, 36}, {0, 36, 1});    // the same rows for all batches
  copies({1, 21, 36}, {3, 36, 1});    // strides of dimensions of one index
  copies({3, 1, 36}, {40, 3, 1});
  copies({3, 21, 1}, {84, 4, 7});
  copies({1, 1, 6}, {5, 5, 1});
}

class RealCounters : public GpuTest {};

// Were two launches to share a counter, or one to find it off zero, items would be drawn twice or never.
TEST_F(RealCounters, ManyStreamsAndGraphsDrawEachItemOnce) {
  constexpr std::int64_t kItems = 10000;
  constexpr int kStreamCount = 4, kRounds = 50;
  LaunchRecipe recipe;
  recipe.target = "nvptx";
  recipe.arguments = {{"out", ElementType::i32, true, {IntExpr::variable("items")}}};
  recipe.sizes = {"items"};
  LaunchNode node;
  node.symbol = "draw_work";
  node.grid[0] = IntExpr::variable(kUnits);
  node.params = {{Kind::pointer, 0, 0, ""}, {Kind::size, 0, 0, "items"}, {Kind::counter, 0, 0, ""}};
  recipe.launches = {node};
  const RecipeLauncher launcher(CudaModule::load(device, draw_work_ptx()), recipe);
  const DeviceBuffer out(device, 4 * kItems);
  out.fill_words(0);
  device->synchronise();
  const std::array<void*, 1> pointers{out.data()};
  const std::array<std::int64_t, 1> strides{1}, sizes{kItems};
  const LaunchValues values{pointers, strides, sizes, {}, nullptr};
  std::vector<std::unique_ptr<CudaStream>> streams;
  for (int k = 0; k < kStreamCount; ++k) streams.push_back(std::make_unique<CudaStream>(device));
  const CudaGraph graph = streams[0]->capture([&] {
    for (int k = 0; k < 3; ++k) launcher.launch(values, *streams[0]);
  });
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& stream : streams) launcher.launch(values, *stream);
    graph.launch(*streams[static_cast<std::size_t>(round % kStreamCount)]);
    launcher.launch(values, nullptr);
  }
  device->synchronise();
  std::vector<std::uint32_t> drawn(kItems);
  out.download(drawn.data(), out.bytes());
  EXPECT_THAT(drawn, ::testing::Each(kRounds * (kStreamCount + 3 + 1)));
}

}  // namespace
}  // namespace nestor
