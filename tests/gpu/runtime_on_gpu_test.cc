// Kernels served on a real GPU: look up, launch in streams, capture into graphs, refuse what would go wrong.
#include "db/devices/cuda_identity.h"
#include "gpu/gpu_fixture.h"
#include "gpu/gpu_kernels.h"
#include "nestor/runtime.h"
#include "unit/db/db_fixture.h"

#include <optional>
#include <thread>
#include <vector>

namespace nestor {
namespace {

using namespace test;
using ::testing::HasSubstr;

class Served : public GpuTest {
 protected:
  static constexpr std::int64_t kRows = 1000, kCols = 300;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    store("scale", scale_recipe_gpu());
    store("scale_workspace", scale_recipe_gpu(64));
    library = Library::open(folder.file("t.db"), {.threads = 1, .system_path = "", .use_system = false});
    std::vector<float> numbers(kRows * kCols);
    for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] = static_cast<float>(k);
    x = DeviceBuffer(device, 4 * numbers.size());
    y = DeviceBuffer(device, 4 * numbers.size());
    x.upload(numbers.data(), x.bytes());
    y.fill_words(0);
    device->synchronise();
  }
  void store(const std::string& op, const LaunchRecipe& recipe) {
    Database database = Database::open(folder.file("t.db"));
    TrialRecord trial = ok_trial(1, "");
    trial.kernel = KernelRecord{"sm_80", scale_ptx(), recipe_to_json(recipe).dump(), ""};
    database.add_trial(cuda_device_identity(device->identity()), {op, "f32", "d1", {{"rows", kRows}, {"cols", kCols}}}, kNest,
                       trial);
  }
  Kernel query(const std::string& op = "scale") const { return library->query(op, "f32", sizes, "cuda:0"); }
  // The first element, in order, that is not `factor` times its input; -1 when all are.
  std::int64_t first_wrong(float factor) const {
    std::vector<float> values(kRows * kCols);
    y.download(values.data(), y.bytes());
    for (std::size_t k = 0; k < values.size(); ++k)
      if (values[k] != factor * static_cast<float>(k)) return static_cast<std::int64_t>(k);
    return -1;
  }

  TemporaryFolder folder;
  std::optional<Library> library;
  DeviceBuffer x, y;
  const std::array<NamedSize, 2> sizes{NamedSize{"rows", kRows}, NamedSize{"cols", kCols}};
};

TEST_F(Served, InTheDefaultStream) {
  const Kernel kernel = query();
  EXPECT_EQ(kernel.match(), MatchKind::exact);
  kernel.launch({{x.data()}, {y.data()}}, {{"rows", kRows}, {"cols", kCols}}, {{"alpha", 3}});
  device->synchronise();
  EXPECT_EQ(first_wrong(3), -1);
}

TEST_F(Served, InAStreamAndCapturedIntoAGraph) {
  for (const char* op : {"scale", "scale_workspace"}) {
    const Kernel kernel = query(op);
    const CudaStream stream(device);
    const TensorArg tensors[] = {{x.data()}, {y.data()}};
    y.fill_words(0, stream);
    kernel.launch(tensors, sizes, {}, {.stream = stream.handle()});
    stream.synchronise();
    EXPECT_EQ(first_wrong(2), -1) << op;
    const CudaGraph graph = stream.capture([&] { kernel.launch(tensors, sizes, {}, {.stream = stream.handle()}); });
    y.fill_words(0, stream);
    graph.launch(stream);
    graph.launch(stream);
    stream.synchronise();
    EXPECT_EQ(first_wrong(2), -1) << op;
  }
}

TEST_F(Served, CapturedAtOnceAfterTheQuery) {
  const CudaStream stream(device);
  const Kernel kernel = query("scale_workspace");
  const TensorArg tensors[] = {{x.data()}, {y.data()}};
  const CudaGraph graph = stream.capture([&] { kernel.launch(tensors, sizes, {}, {.stream = stream.handle()}); });
  graph.launch(stream);
  stream.synchronise();
  EXPECT_EQ(first_wrong(2), -1);
}

TEST_F(Served, FromSeveralThreads) {
  const Kernel kernel = query("scale_workspace");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const CudaStream stream(device);
      const DeviceBuffer own(device, y.bytes());
      const TensorArg tensors[] = {{x.data()}, {own.data()}};
      for (int k = 0; k < 50; ++k) kernel.launch(tensors, sizes, {}, {.stream = stream.handle()});
      stream.synchronise();
      float last = 0;
      own.download(&last, 4, own.bytes() - 4);
      EXPECT_EQ(last, 2.0f * (kRows * kCols - 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Served, OnTheSecondGpu) {
  if (device->driver().device_count() < 2) GTEST_SKIP() << "there is one GPU";
  const CudaDevicePtr second = CudaDevice::open(1);
  DeviceBuffer from(second, x.bytes()), to(second, y.bytes());
  from.fill_words(0x3f800000);
  second->synchronise();
  const Kernel kernel = library->query("scale", "f32", sizes, "cuda:1");
  kernel.launch({{from.data()}, {to.data()}}, {{"rows", kRows}, {"cols", kCols}});
  second->synchronise();
  float last = 0;
  to.download(&last, 4, to.bytes() - 4);
  EXPECT_EQ(last, 2);
  EXPECT_THAT(message_of([&] { kernel.launch({{x.data()}, {to.data()}}, {{"rows", kRows}, {"cols", kCols}}); }),
              HasSubstr("is in the memory of cuda:0, the kernel runs on cuda:1"));
  const CudaStream stream(device);
  const TensorArg tensors[] = {{from.data()}, {to.data()}};
  EXPECT_THAT(message_of([&] { kernel.launch(tensors, sizes, {}, {.stream = stream.handle()}); }),
              HasSubstr("the stream belongs to another device"));
}

TEST_F(Served, WrongMemoryIsRefused) {
  std::vector<float> host(kRows * kCols);
  EXPECT_THAT(message_of([&] { query().launch({{host.data()}, {y.data()}}, {{"rows", kRows}, {"cols", kCols}}); }),
              HasSubstr("tensor \"x\" is not in the memory of a GPU"));
  const DeviceBuffer large(device, 64 << 20);
  EXPECT_THAT(message_of([&] { query().launch({{large.data()}, {y.data()}}, {{"rows", kRows + 1}, {"cols", kCols}}); }),
              HasSubstr("tensor \"y\" takes 1201200 bytes, but its memory ends after"));
  EXPECT_EQ(first_wrong(0), -1) << "nothing is written";
}

}  // namespace
}  // namespace nestor
