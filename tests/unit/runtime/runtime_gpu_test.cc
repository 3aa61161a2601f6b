// Kernels of a GPU through the public API: look up, launch in a stream, capture, several devices and threads.
#include "nestor/nestor.h"
#include "unit/runtime/runtime_gpu_fixture.h"

#include <nlohmann/json.hpp>

#include <thread>

namespace nestor {
namespace {

using namespace test;
using ::testing::HasSubstr;

class GpuLibrary : public GpuRuntimeTest {};

TEST_F(GpuLibrary, AKernelRunsInTheDefaultStream) {
  const Kernel kernel = query();
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel.match(), MatchKind::exact);
  kernel.launch({{x.data()}, {y.data()}}, {{"rows", kRows}, {"cols", kCols}}, {{"alpha", 3}});
  EXPECT_EQ(result()[100], 300);
  EXPECT_EQ(fake.launches.at(0).stream, nullptr);
}

TEST_F(GpuLibrary, InfoNamesTheDevice) {
  const auto info = nlohmann::json::parse(query("cuda:1").info());
  EXPECT_EQ(info["device"], "cuda:1");
  EXPECT_EQ(info["measured"]["device"], "cuda/sm_90/132/Fake H200");
  EXPECT_EQ(info["kernel"]["architecture"], "sm_90");
}

TEST_F(GpuLibrary, AKernelRunsInTheStreamGiven) {
  const CudaStream stream(CudaDevice::open(0));
  const TensorArg tensors[] = {{x.data()}, {y.data()}};
  query().launch(tensors, sizes, {}, {.stream = stream.handle()});
  EXPECT_EQ(fake.launches.at(0).stream, stream.handle());
  EXPECT_EQ(result()[100], 200);
}

TEST_F(GpuLibrary, StridesAndOtherSizes) {
  const Kernel kernel = query("cuda", 3);
  EXPECT_EQ(kernel.match(), MatchKind::nearest);
  const std::int64_t strides[] = {128, 1};
  kernel.launch({{x.data(), strides}, {y.data()}}, {{"rows", 3}, {"cols", kCols}});
  EXPECT_EQ(result()[65], 2 * 129);
  EXPECT_EQ(result()[3 * 64], -1);
}

TEST_F(GpuLibrary, LaunchesCanBeCaptured) {
  const CudaStream stream(CudaDevice::open(0));
  const Kernel kernel = query();
  const TensorArg tensors[] = {{x.data()}, {y.data()}};
  const CudaGraph graph = stream.capture([&] { kernel.launch(tensors, sizes, {}, {.stream = stream.handle()}); });
  EXPECT_TRUE(fake.launches.empty());
  graph.launch(stream);
  EXPECT_EQ(fake.launches.size(), 1);
  EXPECT_EQ(result()[100], 200);
}

// y = alpha * x by rows, x read through its tensor map.
TEST_F(GpuLibrary, KernelsWithTensorMapsAreServed) {
  LaunchRecipe recipe = row_recipe();
  recipe.launches[0].params = {{KernelParam::Kind::tensor_map, 0, 0, "x", {8, 32}, 128}, {KernelParam::Kind::pointer, 1, 0, ""}};
  store_gpu_kernel(path,
                   ".version 8.0\n.target sm_90\n.entry rows_kernel(.param .align 64 .b8 x[128], .param .u64 y)\n{ ret; }\n",
                   recipe, kRows, "tiled");
  fake.kernels["rows_kernel"] = [](const FakeLaunch& launch) {
    const testing::FakeTensorMap& x = launch.tensor_maps.at(0);
    for (std::uint64_t i = 0; i < x.extents[1]; ++i) {
      const auto* row = reinterpret_cast<const float*>(x.address + i * x.byte_strides[0]);
      for (std::uint64_t j = 0; j < x.extents[0]; ++j)
        reinterpret_cast<float*>(launch.params[1])[i * x.extents[0] + j] = 3 * row[j];
    }
  };
  const Kernel kernel = library->query("tiled", "f32", sizes, "cuda");
  const TensorArg tensors[] = {{x.data()}, {y.data()}};
  for (int launch = 0; launch < 3; ++launch) kernel.launch(tensors, sizes);
  EXPECT_EQ(result()[100], 300);
  EXPECT_EQ(fake.encoded_maps, 1);
}

TEST_F(GpuLibrary, DevicesAreIndependent) {
  const CudaDevicePtr second = CudaDevice::open(1);
  const DeviceBuffer from(second, x.bytes()), to(second, y.bytes());
  query("cuda:1").launch({{from.data()}, {to.data()}}, {{"rows", kRows}, {"cols", kCols}});
  query("cuda:0").launch({{x.data()}, {y.data()}}, {{"rows", kRows}, {"cols", kCols}});
  EXPECT_EQ(fake.launches.at(0).device, 1);
  EXPECT_EQ(fake.launches.at(1).device, 0);
  cuda::Context current = nullptr;
  second->api().ctx_get_current(&current);
  EXPECT_EQ(current, nullptr) << "the caller's context is left alone";
}

TEST_F(GpuLibrary, NamesOfOneDeviceShareItsModules) {
  query("cuda");
  query("cuda:0");
  query("cuda", 5);
  EXPECT_EQ(fake.modules, 1);
  library.reset();
  EXPECT_EQ(fake.modules, 0);
}

TEST_F(GpuLibrary, AKernelOutlivesItsLibrary) {
  const Kernel kernel = query();
  library.reset();
  kernel.launch({{x.data()}, {y.data()}}, {{"rows", kRows}, {"cols", kCols}});
  EXPECT_EQ(result()[1], 2);
}

TEST_F(GpuLibrary, ThreadsMayShareAKernel) {
  const Kernel kernel = query();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const CudaStream stream(CudaDevice::open(0));
      const DeviceBuffer own(CudaDevice::open(0), y.bytes());
      const TensorArg tensors[] = {{x.data()}, {own.data()}};
      for (int k = 0; k < 20; ++k) kernel.launch(tensors, sizes, {}, {.stream = stream.handle()});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake.launches.size(), 80);
}

TEST_F(GpuLibrary, StoredCubinsAreLoadedAsTheyAre) {
  store_gpu_kernel(path, assemble_with_driver(*CudaDevice::open(0), row_ptx()).cubin, served_recipe(), kRows, "cubin");
  open();
  const Kernel kernel = library->query("cubin", "f32", sizes, "cuda");
  kernel.launch({{x.data()}, {y.data()}}, {{"rows", kRows}, {"cols", kCols}});
  EXPECT_EQ(result()[1], 2);
}

TEST_F(GpuLibrary, TheCApiLaunchesInStreams) {
  nestor_library* opened = nullptr;
  nestor_kernel* kernel = nullptr;
  const nestor_options options{1, ""};
  ASSERT_EQ(nestor_open(path.c_str(), &options, &opened), NESTOR_OK) << nestor_last_error();
  const char* const names[] = {"rows", "cols"};
  const std::int64_t values[] = {kRows, kCols};
  ASSERT_EQ(nestor_query(opened, "scale", "f32", "cuda:0", 2, names, values, &kernel), NESTOR_OK) << nestor_last_error();
  {
    const CudaStream stream(CudaDevice::open(0));
    nestor_tensor tensors[2] = {};
    tensors[0].data = x.data();
    tensors[1].data = y.data();
    EXPECT_EQ(nestor_launch_stream(kernel, 2, tensors, 2, names, values, 0, nullptr, nullptr, stream.handle()), NESTOR_OK)
        << nestor_last_error();
    EXPECT_EQ(nestor_launch_trusted(kernel, 2, tensors, 2, names, values, 0, nullptr, nullptr, nullptr), NESTOR_OK);
    EXPECT_EQ(nestor_launch(kernel, 2, tensors, 2, names, values, 0, nullptr, nullptr), NESTOR_OK);
    EXPECT_EQ(fake.launches.at(0).stream, stream.handle());
    EXPECT_EQ(fake.launches.at(2).stream, nullptr);
    float host[64] = {};
    tensors[0].data = host;
    EXPECT_EQ(nestor_launch_stream(kernel, 2, tensors, 2, names, values, 0, nullptr, nullptr, nullptr), NESTOR_USER_ERROR);
    fake.fail["cuLaunchKernel"] = 700;
    tensors[0].data = x.data();
    EXPECT_EQ(nestor_launch_stream(kernel, 2, tensors, 2, names, values, 0, nullptr, nullptr, nullptr), NESTOR_DEVICE_ERROR);
    EXPECT_THAT(nestor_last_error(), HasSubstr("cuLaunchKernel failed for kernel \"rows_kernel\": CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
  nestor_close(opened);
}

}  // namespace
}  // namespace nestor
