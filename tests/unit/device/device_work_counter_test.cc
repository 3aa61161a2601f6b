// Kernels find their work counter at zero, and never share it with a launch that may run at the same time.
#include "unit/tensor_map_fixture.h"

#include <map>
#include <memory>
#include <set>

namespace nestor {
namespace {

using namespace test;

class Counters : public FakeCudaTest {
 protected:
  Counters() {
    // Counts as blocks would that draw work, and leaves the counter at zero.
    fake.kernels["tiles"] = [this](const FakeLaunch& launch) {
      auto* counter = reinterpret_cast<std::uint32_t*>(launch.params[3]);
      found.push_back(*counter);
      *counter += 100;
      *counter = 0;
    };
  }
  std::uint64_t counter_in(cuda::Stream stream) {
    launcher->launch(TileValues(), stream);
    return fake.launches.back().params[3];
  }
  CudaDevicePtr device = CudaDevice::open(0);
  std::unique_ptr<RecipeLauncher> launcher =
      std::make_unique<RecipeLauncher>(CudaModule::load(device, tile_ptx()), tile_recipe());
  std::vector<std::uint32_t> found;
};

TEST_F(Counters, AStreamKeepsItsCounterAndOthersHaveTheirOwn) {
  const CudaStream a(device), b(device);
  const std::uint64_t in_a = counter_in(a), in_b = counter_in(b), in_default = counter_in(nullptr);
  EXPECT_NE(in_a, in_b);
  EXPECT_NE(in_a, in_default);
  EXPECT_NE(in_b, in_default);
  EXPECT_EQ(counter_in(a), in_a);
  EXPECT_EQ(counter_in(nullptr), in_default);
  EXPECT_EQ(fake.memory.size(), 1) << "all of one allocation";
  EXPECT_THAT(found, ::testing::Each(0));
}

TEST_F(Counters, LaunchersDoNotShareThem) {
  const RecipeLauncher other(CudaModule::load(device, tile_ptx()), tile_recipe());
  const std::uint64_t first = counter_in(nullptr);
  other.launch(TileValues(), nullptr);
  EXPECT_NE(fake.launches.back().params[3], first);
}

// The work of a destroyed stream may still run while a new stream has its handle.
TEST_F(Counters, ANewStreamAtAnOldHandleHasANewCounter) {
  std::map<void*, std::uint64_t> seen;
  bool again = false;
  for (int k = 0; k < 50; ++k) {
    const CudaStream stream(device);
    const std::uint64_t counter = counter_in(stream);
    const auto [old, fresh] = seen.emplace(stream.handle(), counter);
    if (fresh) continue;
    again = true;
    EXPECT_NE(old->second, counter);
    old->second = counter;
  }
  EXPECT_TRUE(again) << "no handle came twice: nothing was tested";
}

TEST_F(Counters, LateStreamsGetOneForEachLaunch) {
  std::vector<std::unique_ptr<CudaStream>> streams;
  std::set<std::uint64_t> kept;
  for (std::size_t k = 0; k < WorkCounters::kStreams; ++k) {
    streams.push_back(std::make_unique<CudaStream>(device));
    kept.insert(counter_in(*streams.back()));
  }
  EXPECT_EQ(kept.size(), WorkCounters::kStreams);
  const CudaStream late(device);
  EXPECT_EQ(kept.count(counter_in(late)), 0);
  EXPECT_EQ(fake.memory.size(), 1) << "it was given back";
  EXPECT_EQ(counter_in(*streams[5]), fake.launches[5].params[3]);
  EXPECT_EQ(found.size(), WorkCounters::kStreams + 2);
  EXPECT_THAT(found, ::testing::Each(0));
}

TEST_F(Counters, AGraphHasItsOwnAndZeroesIt) {
  const CudaStream stream(device);
  const std::uint64_t kept = counter_in(stream);
  const CudaGraph first = stream.capture([&] { launcher->launch(TileValues(), stream); });
  const CudaGraph second = stream.capture([&] { launcher->launch(TileValues(), stream); });
  fake.kernels["tiles"] = [this](const FakeLaunch& launch) {  // memory of a graph is anything when the graph starts
    auto* counter = reinterpret_cast<std::uint32_t*>(launch.params[3]);
    found.push_back(*counter);
    *counter = 77;
  };
  first.launch(stream);
  const std::uint64_t in_first = fake.launches.back().params[3];
  first.launch(stream);
  second.launch(stream);
  EXPECT_NE(in_first, kept);
  EXPECT_NE(fake.launches.back().params[3], in_first);
  EXPECT_EQ(found.size(), 4);
  EXPECT_THAT(found, ::testing::Each(0));
}

TEST_F(Counters, KernelsOfALaunchShareTheirs) {
  LaunchRecipe recipe = tile_recipe();
  recipe.launches.push_back(recipe.launches[0]);
  const RecipeLauncher twice(CudaModule::load(device, tile_ptx()), recipe);
  twice.launch(TileValues(), nullptr);
  EXPECT_EQ(fake.launches.at(0).params[3], fake.launches.at(1).params[3]);
  EXPECT_THAT(found, ::testing::ElementsAre(0, 0));
}

}  // namespace
}  // namespace nestor
