// What is wrong with a query for a GPU or a launch on one is said before anything is written.
#include "unit/runtime/runtime_gpu_fixture.h"

namespace nestor {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuError : public GpuRuntimeTest {
 protected:
  // The message of a launch that must fail and must not touch the output.
  std::string launch_error(const std::vector<TensorArg>& tensors, const LaunchOptions& options = {}, std::int64_t rows = kRows) {
    const std::vector<float> before = result();
    const NamedSize asked[] = {{"rows", rows}, {"cols", kCols}};
    const std::string message = message_of([&] { query().launch(tensors, asked, {}, options); });
    EXPECT_EQ(result(), before);
    EXPECT_TRUE(fake.launches.empty());
    return message;
  }
  std::string query_error(const std::string& device, const std::string& op = "scale") {
    return message_of([&] { library->query(op, "f32", sizes, device); });
  }
};

TEST_F(GpuError, ADeviceThatIsNotThere) {
  EXPECT_EQ(query_error("cuda:2"), "there is no CUDA device 2: this machine has 2 (0 to 1)");
}

TEST_F(GpuError, HostMemory) {
  std::vector<float> host(kRows * kCols);
  EXPECT_EQ(launch_error({{host.data()}, {y.data()}}), "scale (f32): tensor \"x\" is not in the memory of a GPU");
  EXPECT_EQ(launch_error({{x.data()}, {host.data()}}), "scale (f32): tensor \"y\" is not in the memory of a GPU");
}

TEST_F(GpuError, AnArgumentThatCannotHaveItsTensorMap) {
  LaunchRecipe recipe = row_recipe();
  recipe.launches[0].params = {{KernelParam::Kind::tensor_map, 0, 0, "x", {8, 32}, 128}};
  store_gpu_kernel(path, ".version 8.0\n.target sm_90\n.entry rows_kernel(.param .align 64 .b8 x[128])\n{ ret; }\n", recipe,
                   kRows, "tiled");
  const std::int64_t odd[] = {66, 1};
  EXPECT_EQ(message_of([&] {
              library->query("tiled", "f32", sizes, "cuda")
                  .launch(std::vector<TensorArg>{{x.data(), odd}, {y.data()}}, sizes, {}, {.check_memory = false});
            }),
            "tensor \"x\" is copied by tensor maps: its stride 0 must be a multiple of 4 elements (16 bytes), not 66");
  EXPECT_TRUE(fake.launches.empty());
}

TEST_F(GpuError, MemoryOfAnotherDevice) {
  const DeviceBuffer far(CudaDevice::open(1), y.bytes());
  EXPECT_EQ(launch_error({{x.data()}, {far.data()}}),
            "scale (f32): tensor \"y\" is in the memory of cuda:1, the kernel runs on cuda:0");
}

TEST_F(GpuError, MemoryThatIsTooSmall) {
  const DeviceBuffer small(CudaDevice::open(0), 4 * kRows * kCols - 4);
  EXPECT_THAT(launch_error({{x.data()}, {small.data()}}),
              HasSubstr("tensor \"y\" takes 2048 bytes, but its memory ends after 2044"));
}

TEST_F(GpuError, NullMisalignedAndOverlapping) {
  EXPECT_THAT(launch_error({{nullptr}, {y.data()}}), HasSubstr("\"x\" is a null pointer"));
  EXPECT_THAT(launch_error({{static_cast<char*>(x.data()) + 2}, {y.data()}}), HasSubstr("not aligned to its 4 byte elements"));
  EXPECT_THAT(launch_error({{y.data()}, {y.data()}}), HasSubstr("overlaps"));
}

TEST_F(GpuError, AStreamOfAnotherDevice) {
  const CudaStream far(CudaDevice::open(1));
  EXPECT_EQ(launch_error({{x.data()}, {y.data()}}, {.stream = far.handle()}),
            "scale (f32): the stream belongs to another device or context than cuda:0");
}

TEST_F(GpuError, SizesTheKernelIsNotFor) {
  EXPECT_THAT(launch_error({{x.data()}, {y.data()}}, {}, 0), HasSubstr("sizes are positive"));
  const NamedSize other[] = {{"rows", kRows}, {"cols", 65}};
  EXPECT_FALSE(library->query("scale", "f32", other, "cuda"));
  EXPECT_THAT(message_of([&] { query().launch(std::vector<TensorArg>{{x.data()}, {y.data()}}, other); }),
              HasSubstr("compiled for cols = 64, not 65"));
}

TEST_F(GpuError, ThePlaceOfMemoryCanBeTrusted) {
  fake.kernels.clear();
  fake.fail["cuPointerGetAttributes"] = 1;
  const TensorArg tensors[] = {{x.data()}, {y.data()}};
  query().launch(tensors, sizes, {}, {.check_memory = false});
  EXPECT_EQ(fake.launches.size(), 1);
  EXPECT_THROW(query().launch(tensors, sizes), DeviceError);
}

TEST_F(GpuError, PtxOfANewerDriver) {
  std::string ptx = row_ptx();
  ptx.replace(ptx.find("8.0"), 3, "9.3");
  store_gpu_kernel(path, ptx, served_recipe(), kRows, "new");
  EXPECT_THAT(query_error("cuda", "new"),
              AllOf(HasSubstr("the CUDA driver (12.4) is too old for the kernel"),
                    HasSubstr("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), HasSubstr("Unsupported .version")));
}

TEST_F(GpuError, AKernelForANewerGpuIsNoAnswer) {
  store_gpu_kernel(path, row_ptx(), served_recipe(), kRows, "newer", "sm_100");
  EXPECT_FALSE(library->query("newer", "f32", sizes, "cuda"));
}

TEST_F(GpuError, CodeThatDoesNotCompile) {
  store_gpu_kernel(path, "nonsense", served_recipe(), kRows, "bad");
  try {
    library->query("bad", "f32", sizes, "cuda");
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("CUDA_ERROR_INVALID_PTX"), HasSubstr("Missing .version directive")));
  }
}

TEST_F(GpuError, AHostKernelOnAGpu) {
  LaunchRecipe recipe = served_recipe();
  recipe.target = "host";
  store_gpu_kernel(path, row_ptx(), recipe, kRows, "host_code");
  EXPECT_THAT(query_error("cuda", "host_code"), HasSubstr("is for target \"host\", not for a GPU"));
}

TEST_F(GpuError, NoMemoryForAWorkspace) {
  fake.fail["cuMemAllocFromPoolAsync"] = cuda::kOutOfMemory;
  const TensorArg tensors[] = {{x.data()}, {y.data()}};
  try {
    query().launch(tensors, sizes);
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cuMemAllocFromPoolAsync"), HasSubstr("256 bytes")));
  }
  EXPECT_TRUE(fake.launches.empty());
}

}  // namespace
}  // namespace nestor
