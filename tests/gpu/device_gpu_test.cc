// The device layer on a real GPU: what the fake driver of the unit tests only imitates.
#include "device/recipe_launcher.h"
#include "gpu/gpu_fixture.h"
#include "gpu/gpu_kernels.h"

#include <vector>

namespace nestor {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RealDevice : public GpuTest {};

TEST_F(RealDevice, TellsItsIdentity) {
  const CudaIdentity& gpu = device->identity();
  EXPECT_FALSE(gpu.name.empty());
  EXPECT_GT(gpu.units, 0);
  EXPECT_GT(gpu.l2_bytes, 0);
  EXPECT_GT(gpu.memory_bytes, std::int64_t{1} << 30);
  EXPECT_GE(gpu.shared_bytes_per_block, 48 * 1024);
  EXPECT_GE(gpu.driver_version, CudaDriver::kOldestVersion);
  EXPECT_EQ(gpu.uuid.size(), 40);
  EXPECT_GT(device->free_memory(), 0);
}

TEST_F(RealDevice, CopiesFillsAndTellsWhereMemoryLies) {
  const DeviceBuffer buffer(device, 1024);
  buffer.fill_words(0x3f800000);
  std::vector<float> values(256);
  buffer.download(values.data(), 1024);
  EXPECT_EQ(values[255], 1.0f);
  const ContextScope scope(*device);
  const PointerPlace place = place_of(*device, buffer.address() + 100);
  EXPECT_TRUE(place.on_device);
  EXPECT_EQ(place.ordinal, 0);
  EXPECT_EQ(place.begin, buffer.address());
  EXPECT_GE(place.bytes, 1024);
  EXPECT_FALSE(place_of(*device, reinterpret_cast<cuda::Address>(values.data())).on_device);
}

TEST_F(RealDevice, AssemblesLoadsAndReportsRegisters) {
  const JitOutput output = assemble_with_driver(*device, scale_ptx());
  EXPECT_TRUE(output.cubin.starts_with("\177ELF"));
  EXPECT_THAT(output.log, HasSubstr("registers"));
  const FunctionReport report = CudaModule::load(device, output.cubin)->function("scale_kernel").report();
  EXPECT_GT(report.registers, 0);
  EXPECT_EQ(report.local_bytes, 0);
  EXPECT_GE(report.max_threads, 256);
}

TEST_F(RealDevice, BadPtxComesWithTheCompilersLog) {
  std::string ptx = scale_ptx();
  ptx.replace(ptx.find("mul.f32"), 7, "mul.f99");
  try {
    CudaModule::load(device, ptx);
    FAIL() << "nothing was thrown";
  } catch (const CudaError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cuModuleLoadDataEx failed: CUDA_ERROR_INVALID_PTX"), HasSubstr("ptxas")));
  }
}

TEST_F(RealDevice, TimesWithEvents) {
  const DeviceBuffer buffer(device, 256 << 20);
  const CudaStream stream(device);
  const CudaEvent start(device), end(device);
  buffer.fill_words(0, stream);
  start.record(stream);
  buffer.fill_words(1, stream);
  end.record(stream);
  end.synchronise();
  EXPECT_GT(CudaEvent::elapsed_ms(start, end), 0);
}

// Every block of a cluster of 16 adds its rank to the first block's shared memory, through distributed shared memory.
TEST_F(RealDevice, LaunchesClustersOfSixteenWithLargeSharedMemory) {
  if (!device->identity().clusters) GTEST_SKIP() << device->identity().name << " has no clusters";
  const auto module = CudaModule::load(device, cluster_ptx());
  const CudaFunction kernel = module->function("cluster_kernel");
  constexpr unsigned kShared = 100 * 1024;
  kernel.prepare(kShared, 16);
  const DeviceBuffer out(device, 4);
  cuda::Address address = out.address();
  void* params[] = {&address};
  const ContextScope scope(*device);
  kernel.launch({16, 1, 1}, {32, 1, 1}, {16, 1, 1}, kShared, nullptr, params);
  device->synchronise();
  int sum = 0;
  out.download(&sum, 4);
  EXPECT_EQ(sum, 120);
}

}  // namespace
}  // namespace nestor
