// Asking again, and launching again, allocates nothing.
#include "nestor/runtime.h"
#include "unit/runtime/runtime_fixture.h"
#include "unit/runtime/runtime_gpu_fixture.h"

#include <cstdlib>
#include <new>
#include <vector>

namespace {
thread_local std::size_t allocations = 0;

void* counted(std::size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
// Sanitizers have one of their own, which does not go through the first.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace nestor {
namespace {

using namespace test;

TEST(WarmPath, QueryAndLaunchAllocateNothing) {
  NESTOR_NEEDS_C_COMPILER();
  TemporaryFolder folder;
  store_kernel(folder.file("t.db"), scale_object(), scale_recipe(), 32, 16);
  const Library library = Library::open(folder.file("t.db"), {.threads = 2, .system_path = "", .use_system = false});
  const Sizes map{{"rows", 8}, {"cols", 16}};
  std::vector<float> x(128), y(128);
  const TensorArg tensors[] = {{x.data()}, {y.data()}};
  const auto once = [&] {
    const Kernel kernel = library.query("scale", "f32", map);
    if (!library.query("scale", "f32", {{"rows", 8}, {"cols", 16}})) std::abort();
    kernel.launch({{x.data()}, {y.data()}}, {{"rows", 8}, {"cols", 16}}, {{"alpha", 3}});
    kernel.launch(tensors, map);
  };
  for (int warm_up = 0; warm_up < 3; ++warm_up) once();
  const std::size_t before = allocations;
  for (int round = 0; round < 100; ++round) once();
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_GT(before, 0u) << "allocations are counted";
}

class WarmGpuPath : public GpuRuntimeTest {};

TEST_F(WarmGpuPath, QueryAndLaunchAllocateNothing) {
  const LaunchRecipe recipe = row_recipe();  // without workspace: the fake's pool is the heap
  store_gpu_kernel(path, row_ptx(), recipe, kRows, "plain");
  fake.note_launches = false;
  const CudaStream stream(CudaDevice::open(0));
  const TensorArg tensors[] = {{x.data()}, {y.data()}};
  const auto once = [&] {
    library->query("plain", "f32", sizes, "cuda").launch(tensors, sizes, {}, {.stream = stream.handle()});
  };
  for (int warm_up = 0; warm_up < 3; ++warm_up) once();
  const std::size_t before = allocations;
  for (int round = 0; round < 100; ++round) once();
  EXPECT_EQ(allocations - before, 0u);
}

TEST_F(WarmGpuPath, TensorMapsAndCountersAllocateNothing) {
  LaunchRecipe recipe = row_recipe();
  recipe.launches[0].params = {{KernelParam::Kind::tensor_map, 0, 0, "x", {8, 32}, 128}, {KernelParam::Kind::counter, 0, 0, ""}};
  store_gpu_kernel(path,
                   ".version 8.0\n.target sm_90\n.entry rows_kernel(.param .align 64 .b8 x[128], .param .u64 c)\n{ ret; }\n",
                   recipe, kRows, "tiled");
  fake.note_launches = false;
  const CudaStream stream(CudaDevice::open(0));
  const TensorArg tensors[] = {{x.data()}, {y.data()}};
  const auto once = [&] {
    library->query("tiled", "f32", sizes, "cuda").launch(tensors, sizes, {}, {.stream = stream.handle()});
  };
  for (int warm_up = 0; warm_up < 3; ++warm_up) once();
  const std::size_t before = allocations;
  for (int round = 0; round < 100; ++round) once();
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_EQ(fake.encoded_maps, 1);
}

}  // namespace
}  // namespace nestor
