// Devices, memory, streams, events, graphs and modules, over the fake driver.
#include "unit/device/device_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <thread>

namespace nestor {
namespace {

using namespace test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Cuda : public FakeCudaTest {
 protected:
  CudaDevicePtr device = CudaDevice::open(0);
};

TEST_F(Cuda, TellsTheWholeIdentity) {
  const CudaIdentity& gpu = device->identity();
  EXPECT_EQ(gpu.name, "Fake H200");
  EXPECT_EQ(gpu.arch(), "sm_90");
  EXPECT_EQ(gpu.units, 132);
  EXPECT_EQ(gpu.l2_bytes, 60 << 20);
  EXPECT_EQ(gpu.memory_bytes, std::int64_t{141} << 30);
  EXPECT_EQ(gpu.shared_bytes_per_block, 232448);
  EXPECT_EQ(gpu.driver_version, 12040);
  EXPECT_TRUE(gpu.clusters);
  EXPECT_EQ(gpu.uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
  EXPECT_NEAR(gpu.peak_bandwidth(), 4.917e12, 1e9);
}

TEST_F(Cuda, OneObjectADeviceAndAContextEach) {
  EXPECT_EQ(CudaDevice::open(0), device);
  const CudaDevicePtr other = CudaDevice::open(1);
  EXPECT_NE(other->context(), device->context());
  EXPECT_EQ(fake.contexts, 2);
}

TEST_F(Cuda, LeavesTheCallersContextCurrent) {
  const CudaDevicePtr other = CudaDevice::open(1);
  const auto current = [&] {
    cuda::Context found = nullptr;
    device->api().ctx_get_current(&found);
    return found;
  };
  EXPECT_EQ(current(), nullptr);
  {
    const ContextScope outer(*other);
    const DeviceBuffer buffer(device, 16);
    EXPECT_EQ(fake.memory.begin()->second.device, 0);
    EXPECT_EQ(current(), other->context());
  }
  EXPECT_EQ(current(), nullptr);
}

TEST_F(Cuda, BuffersCopyAndFill) {
  DeviceBuffer buffer(device, 8);
  EXPECT_EQ(buffer.address() % 256, 0);
  buffer.fill_words(0x01020304);
  std::array<unsigned char, 8> bytes{};
  buffer.download(bytes.data(), 8);
  EXPECT_EQ(bytes[7], 1);
  const std::array<unsigned char, 2> patch{7, 8};
  buffer.upload(patch.data(), 2, 6);
  buffer.download(bytes.data(), 8);
  EXPECT_EQ(bytes[7], 8);
  EXPECT_THROW(buffer.upload(patch.data(), 2, 7), InternalError);
  DeviceBuffer moved = std::move(buffer);
  EXPECT_EQ(buffer.address(), 0);  // NOLINT(bugprone-use-after-move)
  moved.reset();
  EXPECT_EQ(moved.bytes(), 0);
}

TEST_F(Cuda, EventsMeasureBetweenTwoPoints) {
  const CudaStream stream(device);
  const CudaEvent start(device), end(device);
  start.record(stream);
  end.record(stream);
  end.synchronise();
  EXPECT_TRUE(end.done());
  EXPECT_DOUBLE_EQ(CudaEvent::elapsed_ms(start, end), 0.25);
}

TEST_F(Cuda, KnowsWhereMemoryLies) {
  const CudaDevicePtr other = CudaDevice::open(1);
  const DeviceBuffer here(device, 100), there(other, 50);
  int local = 0;
  EXPECT_TRUE(place_of(*device, here.address() + 99).on_device);
  EXPECT_EQ(place_of(*device, here.address() + 10).begin, here.address());
  EXPECT_EQ(place_of(*device, there.address()).ordinal, 1);
  EXPECT_FALSE(place_of(*device, reinterpret_cast<cuda::Address>(&local)).on_device);
}

TEST_F(Cuda, LoadsPtxAndCubins) {
  const auto module = CudaModule::load(device, fake_ptx("kernel", 1));
  EXPECT_THAT(module->log(), HasSubstr("32 registers"));
  EXPECT_EQ(module->function("kernel").report().registers, 32);
  const JitOutput output = assemble_with_driver(*device, fake_ptx("kernel", 1));
  EXPECT_TRUE(output.cubin.starts_with("\177ELF"));
  EXPECT_THAT(output.log, HasSubstr("32 registers"));
  const auto from_cubin = CudaModule::load(device, output.cubin);
  EXPECT_EQ(from_cubin->log(), "");
  EXPECT_EQ(from_cubin->function("kernel").name(), "kernel");
}

TEST_F(Cuda, LaunchesWithClustersAndSharedMemory) {
  const auto module = CudaModule::load(device, fake_ptx("kernel", 1));
  const CudaFunction kernel = module->function("kernel");
  kernel.prepare(100000, 16);
  EXPECT_EQ(fake.function_attributes["kernel"][cuda::kFunctionMaxDynamicShared], 100000);
  EXPECT_EQ(fake.function_attributes["kernel"][cuda::kFunctionNonPortableCluster], 1);
  std::uint64_t value = 77;
  void* params[] = {&value};
  const ContextScope scope(*device);
  kernel.launch({32, 1, 1}, {.block = {128, 1, 1}, .cluster = {16, 1, 1}, .dynamic_shared_bytes = 100000}, nullptr, params);
  kernel.launch({8, 2, 1}, {.block = {128, 1, 1}}, nullptr, params);
  ASSERT_EQ(fake.launches.size(), 2);
  EXPECT_THAT(fake.launches[0].cluster, ElementsAre(16, 1, 1));
  EXPECT_EQ(fake.launches[0].shared_bytes, 100000);
  EXPECT_THAT(fake.launches[0].params, ElementsAre(77));
  EXPECT_THAT(fake.launches[1].grid, ElementsAre(8, 2, 1));
}

TEST_F(Cuda, LittleSharedMemoryNeedsNoOptIn) {
  const auto module = CudaModule::load(device, fake_ptx("kernel", 1));
  module->function("kernel").prepare(48 * 1024, 8);
  EXPECT_TRUE(fake.function_attributes.empty());
}

TEST_F(Cuda, GraphsRunWhatWasCaptured) {
  const auto module = CudaModule::load(device, fake_ptx("kernel", 0));
  const CudaFunction kernel = module->function("kernel");
  const CudaStream stream(device);
  const CudaGraph graph = stream.capture([&] {
    const ContextScope scope(*device);
    kernel.launch({1, 1, 1}, {.block = {32, 1, 1}}, stream, nullptr);
  });
  EXPECT_TRUE(fake.launches.empty());
  graph.launch(stream);
  graph.launch(stream);
  EXPECT_EQ(fake.launches.size(), 2);
}

TEST_F(Cuda, ACaptureThatFailsIsEnded) {
  const CudaStream stream(device);
  EXPECT_THROW(stream.capture([] { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(fake.captures, 0);
}

TEST_F(Cuda, StreamOrderedMemoryGoesBack) {
  const StreamMemoryPool pool(device);
  const ContextScope scope(*device);
  {
    const StreamMemoryPool::Lease lease(pool, 1000, nullptr), none(pool, 0, nullptr);
    EXPECT_NE(lease.data(), nullptr);
    EXPECT_EQ(none.data(), nullptr);
    EXPECT_EQ(fake.memory.size(), 1);
  }
  EXPECT_TRUE(fake.memory.empty());
}

TEST_F(Cuda, ThreadsCanShareAModule) {
  const auto module = CudaModule::load(device, fake_ptx("kernel", 0));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const ContextScope scope(*device);
      for (int k = 0; k < 50; ++k) module->function("kernel").launch({1, 1, 1}, {.block = {32, 1, 1}}, nullptr, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake.launches.size(), 200);
}

TEST_F(Cuda, InAForkedChildIsRefusedAndFreedWithoutTheDriver) {
  auto buffer = std::make_unique<DeviceBuffer>(device, 64);
  auto module = CudaModule::load(device, fake_ptx("kernel", 0));
  const pid_t child = fork();
  if (child == 0) {
    const std::string refused = message_of<DeviceError>([&] { buffer->fill_bytes(0); });
    buffer.reset();
    module.reset();
    device.reset();
    // Nothing was asked of the driver: the child's copy of the fake still has everything.
    const bool untouched = fake.memory.size() == 1 && fake.modules == 1 && fake.contexts == 1;
    _exit(untouched && refused.find("forked after cuda:0 was opened") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  buffer->fill_bytes(0);  // the parent goes on
}

}  // namespace
}  // namespace nestor
