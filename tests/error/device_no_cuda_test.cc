// What is said when there is no driver, when it is too old, and when a call of it fails.
#include "unit/device/device_fixture.h"

#include <cstdlib>

namespace nestor {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CudaErrors : public FakeCudaTest {
 protected:
  // Why no driver can be loaded now.
  std::string reason() {
    std::string why;
    EXPECT_EQ(CudaDriver::load(why), nullptr);
    return why;
  }
};

TEST_F(CudaErrors, NoDriver) {
  ::setenv("NESTOR_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  EXPECT_THAT(reason(), AllOf(StartsWith("the CUDA driver cannot be loaded"), HasSubstr("/nowhere/libcuda.so.1")));
}

TEST_F(CudaErrors, SomeOtherLibrary) {
  ::setenv("NESTOR_LIBCUDA", "libc.so.6", 1);
  EXPECT_EQ(reason(), "libc.so.6 is no CUDA driver: it does not tell its version");
}

TEST_F(CudaErrors, ADriverThatIsTooOld) {
  fake.version = 11080;
  EXPECT_EQ(reason(), "the CUDA driver is too old: it has CUDA 11.8, Nestor needs 12.0 or newer");
}

TEST_F(CudaErrors, NoDevice) {
  fake.devices = 0;
  EXPECT_EQ(reason(), "the CUDA driver sees no device");
  fake.fail["cuInit"] = cuda::kNoDevice;
  EXPECT_EQ(reason(), "the CUDA driver sees no device");
}

TEST_F(CudaErrors, ADriverThatDoesNotStart) {
  fake.fail["cuInit"] = 999;
  EXPECT_EQ(reason(), "cuInit failed: CUDA error 999");
}

TEST_F(CudaErrors, ADeviceThatIsNotThere) {
  EXPECT_EQ(message_of<UserError>([] { CudaDevice::open(7); }), "there is no CUDA device 7: this machine has 2 (0 to 1)");
  EXPECT_THROW(CudaDevice::open(-1), UserError);
}

TEST_F(CudaErrors, OutOfMemory) {
  const CudaDevicePtr device = CudaDevice::open(0);
  fake.fail["cuMemAlloc_v2"] = cuda::kOutOfMemory;
  try {
    const DeviceBuffer buffer(device, 1024);
    FAIL() << "nothing was thrown";
  } catch (const CudaError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY"), HasSubstr("1024 bytes")));
    EXPECT_TRUE(error.out_of_memory());
    EXPECT_FALSE(error.context_lost());
  }
}

TEST_F(CudaErrors, ABadAddressNamesTheKernel) {
  const CudaDevicePtr device = CudaDevice::open(0);
  const CudaStream stream(device);
  fake.fail["cuStreamSynchronize"] = 700;
  try {
    stream.synchronise("rows_kernel");
    FAIL() << "nothing was thrown";
  } catch (const CudaError& error) {
    EXPECT_STREQ(error.what(),
                 "cuStreamSynchronize failed for kernel \"rows_kernel\": CUDA_ERROR_ILLEGAL_ADDRESS (an illegal "
                 "memory access was encountered)");
    EXPECT_TRUE(error.context_lost());
  }
}

TEST_F(CudaErrors, PtxThatDoesNotCompileComesWithTheLog) {
  const CudaDevicePtr device = CudaDevice::open(0);
  EXPECT_THAT(message_of<CudaError>([&] { CudaModule::load(device, "nonsense"); }),
              AllOf(HasSubstr("cuModuleLoadDataEx failed: CUDA_ERROR_INVALID_PTX"), HasSubstr("Missing .version directive")));
  EXPECT_THAT(message_of<CudaError>([&] { assemble_with_driver(*device, "nonsense"); }),
              AllOf(HasSubstr("cuLinkAddData failed"), HasSubstr("Missing .version directive")));
}

TEST_F(CudaErrors, AKernelThatTheModuleLacks) {
  const auto module = CudaModule::load(CudaDevice::open(0), fake_ptx("kernel", 0));
  EXPECT_THAT(message_of<CudaError>([&] { module->function("other"); }),
              HasSubstr("cuModuleGetFunction failed for kernel \"other\": CUDA_ERROR_NOT_FOUND"));
}

TEST_F(CudaErrors, MoreSharedMemoryThanThereIs) {
  LaunchRecipe recipe = row_recipe();
  recipe.launches[0].shared_bytes = 300000;
  EXPECT_EQ(message_of<UserError>([&] { RecipeLauncher(CudaModule::load(CudaDevice::open(0), row_ptx()), recipe); }),
            "kernel \"rows_kernel\" needs 300000 bytes of shared memory a block; Fake H200 (sm_90) has 232448");
}

class RecipeErrors : public FakeCudaTest {
 protected:
  std::string made_from(const LaunchRecipe& recipe) {
    return message_of<UserError>([&] { RecipeLauncher(CudaModule::load(device, row_ptx()), recipe); });
  }
  // The message of a launch with so many rows.
  std::string launched(const LaunchRecipe& recipe, std::int64_t rows) {
    const RecipeLauncher launcher(CudaModule::load(device, row_ptx()), recipe);
    const std::array<void*, 2> pointers{};
    const std::array<std::int64_t, 4> strides{};
    const std::array<std::int64_t, 2> sizes{rows, 64};
    const std::array<double, 1> scalars{};
    const std::string message =
        message_of<UserError>([&] { launcher.launch({pointers, strides, sizes, scalars, nullptr}, nullptr); });
    EXPECT_TRUE(fake.launches.empty());
    return message;
  }
  CudaDevicePtr device = CudaDevice::open(0);
  LaunchRecipe recipe = row_recipe();
};

TEST_F(RecipeErrors, AGridThatIsTooLarge) {
  recipe.launches[0].grid[0] = IntExpr::variable("rows");
  EXPECT_EQ(launched(recipe, std::int64_t{1} << 31),
            "kernel \"rows_kernel\" would have 2147483648 blocks along x at these sizes; 0 to 2147483647 are possible");
  recipe.launches[0].grid = {IntExpr(1), IntExpr::variable("rows"), IntExpr(1)};
  EXPECT_THAT(launched(recipe, 65536), HasSubstr("65536 blocks along y"));
}

TEST_F(RecipeErrors, NothingIsLaunchedWhenALaterKernelCannotBe) {
  recipe.launches.push_back(recipe.launches[0]);
  recipe.launches[1].grid[0] = IntExpr(0) - IntExpr::variable("rows");
  EXPECT_THAT(launched(recipe, 5), HasSubstr("-5 blocks along x"));
}

TEST_F(RecipeErrors, AGridThatIsNoMultipleOfItsCluster) {
  recipe.launches[0].cluster = {4, 1, 1};
  EXPECT_THAT(launched(recipe, 6), HasSubstr("6 blocks along x at these sizes, no multiple of its cluster of 4"));
}

TEST_F(RecipeErrors, RecipesThatContradictThemselves) {
  const LaunchRecipe good = recipe;
  recipe.target = "host";
  EXPECT_THAT(made_from(recipe), HasSubstr("the target is \"host\""));
  recipe = good;
  recipe.launches[0].params[0].index = 9;
  EXPECT_THAT(made_from(recipe), HasSubstr("belongs to argument 9; there are 2"));
  recipe = good;
  recipe.launches[0].params[2].dim = 2;
  EXPECT_THAT(made_from(recipe), HasSubstr("stride 2 of \"x\""));
  recipe = good;
  recipe.launches[0].params[4].name = "depth";
  EXPECT_THAT(made_from(recipe), HasSubstr("\"depth\", which is no size or loop"));
  recipe = good;
  recipe.launches[0].params[6].name = "beta";
  EXPECT_THAT(made_from(recipe), HasSubstr("the scalar \"beta\""));
  recipe = good;
  recipe.launches[0].block = {1025, 1, 1};
  EXPECT_THAT(made_from(recipe), HasSubstr("1025 threads a block"));
  recipe = good;
  recipe.launches[0].cluster = {17, 1, 1};
  EXPECT_THAT(made_from(recipe), HasSubstr("17 blocks a cluster"));
}

}  // namespace
}  // namespace nestor
