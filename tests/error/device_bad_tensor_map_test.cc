// What cannot be copied by tensor maps is refused before anything is launched, with the argument and what would be right.
#include "support/error.h"
#include "unit/tensor_map_fixture.h"

namespace nestor {
namespace {

using namespace test;
using ::testing::HasSubstr;

class TensorMapErrors : public FakeCudaTest {
 protected:
  std::string made() {
    return message_of<UserError>([&] { RecipeLauncher(CudaModule::load(device, tile_ptx()), recipe); });
  }
  std::string launched(const TileValues& values) {
    const RecipeLauncher launcher(CudaModule::load(device, tile_ptx()), recipe);
    const std::string message = message_of<UserError>([&] { launcher.launch(values, nullptr); });
    EXPECT_TRUE(fake.launches.empty());
    return message;
  }
  KernelParam& map() { return recipe.launches[0].params[0]; }
  CudaDevicePtr device = CudaDevice::open(0);
  LaunchRecipe recipe = tile_recipe();
};

TEST_F(TensorMapErrors, AnAddressThatIsNotAligned) {
  TileValues values;
  values.pointers[1] = reinterpret_cast<void*>(0x20008);
  EXPECT_EQ(launched(values),
            "tensor \"y\" is copied by tensor maps: its address must be a multiple of 16 bytes, but 0x20008 is not");
}

TEST_F(TensorMapErrors, Strides) {
  TileValues values;
  values.strides[1] = 42;
  EXPECT_EQ(launched(values),
            "tensor \"x\" is copied by tensor maps: its stride 1 must be a multiple of 8 elements (16 bytes), not 42");
  values = TileValues();
  values.strides[3] = 4004;
  EXPECT_EQ(launched(values),
            "tensor \"y\" is copied by tensor maps: its stride 0 must be a multiple of 8 elements (16 bytes), not 4004");
  values = TileValues();
  values.strides[2] = 2;
  EXPECT_EQ(launched(values), "tensor \"x\" is copied by tensor maps: its last stride must be 1, not 2");
  values = TileValues();
  values.strides[0] = -8;
  EXPECT_THAT(launched(values), HasSubstr("its stride 0 must be 0 to 549755813887 elements (less than 2^40 bytes), not -8"));
  values.strides[0] = std::int64_t{1} << 39;
  EXPECT_THAT(launched(values), HasSubstr("(less than 2^40 bytes), not 549755813888"));
}

TEST_F(TensorMapErrors, Extents) {
  recipe.launches[0].grid[0] = IntExpr(1);
  EXPECT_EQ(launched(TileValues(3, 0, 40)), "tensor \"x\" is copied by tensor maps: its extent 1 must be 1 to 4294967295, not 0");
  EXPECT_THAT(launched(TileValues(std::int64_t{1} << 32, 1, 8)),
              HasSubstr("its extent 0 must be 1 to 4294967295, not 4294967296"));
}

TEST_F(TensorMapErrors, RowsThatAreWrittenInPartOfSixteenBytes) {
  TileValues values(3, 100, 36);
  values.strides = {4000, 40, 1, 4000, 40, 1};
  EXPECT_EQ(launched(values),
            "tensor \"y\" is written by tensor maps: its extent 2 must be a multiple of 8 elements (16 bytes), not 36");
  recipe.arguments[1].output = false;
  const RecipeLauncher launcher(CudaModule::load(device, tile_ptx()), recipe);
  launcher.launch(values, nullptr);
  EXPECT_EQ(fake.launches.size(), 1);
}

TEST_F(TensorMapErrors, NothingIsLaunchedWhenALaterKernelCannotBe) {
  recipe.launches.push_back(recipe.launches[0]);
  recipe.launches[0].params = {{KernelParam::Kind::pointer, 0, 0, ""}};
  recipe.launches[0].symbol = "plain";
  const RecipeLauncher launcher(CudaModule::load(device, tile_ptx() + fake_ptx("plain", 1)), recipe);
  TileValues values;
  values.strides[1] = 42;
  EXPECT_THROW(launcher.launch(values, nullptr), UserError);
  EXPECT_TRUE(fake.launches.empty());
}

TEST_F(TensorMapErrors, TheDriverRefuses) {
  fake.fail["cuTensorMapEncodeTiled"] = 1;
  const RecipeLauncher launcher(CudaModule::load(device, tile_ptx()), recipe);
  EXPECT_EQ(message_of<CudaError>([&] { launcher.launch(TileValues(), nullptr); }),
            "cuTensorMapEncodeTiled failed: CUDA_ERROR_INVALID_VALUE (text of the fake driver)\nfor tensor \"x\"");
  EXPECT_TRUE(fake.launches.empty());
}

TEST_F(TensorMapErrors, RecipesThatContradictThemselves) {
  const LaunchRecipe good = recipe;
  map().index = 5;
  EXPECT_EQ(made(), "launch recipe: a parameter belongs to argument 5; there are 2");
  recipe = good;
  map().box = {64, 32};
  EXPECT_EQ(made(), "launch recipe: the box of \"x\" has 2 dimensions; the tensor has 3");
  recipe = good;
  map().box = {1, 257, 32};
  EXPECT_EQ(made(), "launch recipe: the box of \"x\" has 257 elements along a dimension; 1 to 256 are possible");
  recipe = good;
  map().box = {0, 64, 32};
  EXPECT_THAT(made(), HasSubstr("the box of \"x\" has 0 elements"));
  recipe = good;
  map().box = {1, 64, 33};
  EXPECT_EQ(made(), "launch recipe: the box of \"x\" has 66 dense bytes; they must be a multiple of 16");
  recipe = good;
  map().box = {1, 64, 40};
  EXPECT_EQ(made(), "launch recipe: the box of \"x\" has 80 dense bytes, more than its swizzle of 64");
  recipe = good;
  map().swizzle = 16;
  EXPECT_EQ(made(), "launch recipe: the swizzle of \"x\" spans 16 bytes; 0, 32, 64 and 128 are possible");
  for (const std::vector<int>& strides : {std::vector<int>{1, 2}, {1, 1, 2}}) {
    recipe = good;
    map().element_strides = strides;
    EXPECT_THAT(made(), HasSubstr("of \"x\" must be one a dimension, 1 for the last"));
  }
  for (const int stride : {0, 5, 9}) {
    recipe = good;
    map().box = {1, 64, 32};
    map().element_strides = {1, stride, 1};
    EXPECT_THAT(made(), HasSubstr(fmt::format(
                            "the box of \"x\" has 64 elements with stride {} along a dimension; strides are 1 to 8, over "
                            "256 elements at most",
                            stride)));
  }
  for (const std::vector<int>& order : {std::vector<int>{0, 2, 1}, {0, 0, 2}, {1, 2}, {0, 1, 3}}) {
    recipe = good;
    map().order = order;
    EXPECT_THAT(made(), HasSubstr("of \"x\" must name its dimensions 0 to 2 once each, the last one last"));
  }
  recipe = good;
  recipe.arguments[0].shape = std::vector<IntExpr>(6, IntExpr(8));
  EXPECT_EQ(made(), "launch recipe: \"x\" has 6 indices; a tensor map has 1 to 5");
  recipe = good;
  recipe.arguments[0].type = ElementType::i32;
  EXPECT_EQ(made(), "launch recipe: \"x\" holds i32, but tensor maps are for f16, bf16 and f32");
  recipe = good;
  for (int k = 0; k < 40; ++k)
    recipe.launches[0].params.push_back({KernelParam::Kind::tensor_map, 0, 0, "x", {1, 1 + k, 32}, 64});
  EXPECT_EQ(made(), "launch recipe: more than 32 tensor maps");
}

TEST_F(TensorMapErrors, AGpuWithoutTensorMaps) {
  CudaIdentity old = device->identity();
  old.name = "Fake A100";
  old.sm = 80;
  EXPECT_EQ(message_of<UserError>([&] { require_tensor_maps(device->driver(), old); }),
            "the kernel copies tiles by tensor maps, which need sm_90 or newer; Fake A100 is sm_80");
}

TEST_F(TensorMapErrors, ADriverWithoutTensorMapsIsGoodForOtherKernels) {
  ::setenv("NESTOR_LIBCUDA", NESTOR_FAKE_CUDA_OLD, 1);
  std::string why;
  const auto old = CudaDriver::load(why);
  ::setenv("NESTOR_LIBCUDA", NESTOR_FAKE_CUDA, 1);
  ASSERT_NE(old, nullptr) << why;
  EXPECT_EQ(message_of<UserError>([&] { require_tensor_maps(*old, device->identity()); }),
            "the kernel copies tiles by tensor maps, which this CUDA driver (12.4) cannot encode: it lacks the entry point "
            "cuTensorMapEncodeTiled, which drivers of CUDA 12.0 and newer have");
}

}  // namespace
}  // namespace nestor
