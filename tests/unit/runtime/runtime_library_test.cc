// Look up and launch: from a database file to numbers in memory.
#include "nestor/runtime.h"

#include "runtime/kernel_state.h"
#include "runtime/kernel_table.h"
#include "support/error.h"
#include "support/error_text.h"
#include "unit/runtime/runtime_fixture.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <malloc.h>
#include <nlohmann/json.hpp>

#include <numeric>
#include <thread>
#include <vector>

namespace nestor {
namespace {

using namespace test;
using testing::HasSubstr;

class LibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    NESTOR_NEEDS_C_COMPILER();
    store_kernel(path, scale_object(), scale_recipe(), 32, 16);
  }
  Library open() { return Library::open(path, {.threads = 0, .system_path = "", .use_system = false}); }

  TemporaryFolder folder;
  std::string path = folder.file("t.db");
};

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

TEST_F(LibraryTest, AKernelRunsAtTheSizesItWasMeasuredAt) {
  const Kernel kernel = open().query("scale", "f32", {{"rows", 32}, {"cols", 16}});
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel.match(), MatchKind::exact);
  EXPECT_EQ(kernel.distance(), 0);
  std::vector<float> x = numbers(32 * 16), y(32 * 16);
  kernel.launch({{x.data()}, {y.data()}}, {{"rows", 32}, {"cols", 16}});
  for (std::size_t k = 0; k < x.size(); ++k) ASSERT_EQ(y[k], 2 * x[k]);
}

TEST_F(LibraryTest, TwoDefinitionsOfOneNameAreToldApartByDigest) {
  const std::string twice(32, 'a'), thrice(32, 'b');
  LaunchRecipe other = scale_recipe();
  other.scalars[0].default_value = 3;
  for (const auto& [digest, recipe] : {std::pair(twice, scale_recipe()), std::pair(thrice, other)})
    store_kernel(path, scale_object(), recipe, 8, 8, "scale", "x86-64:x86-64:+sse2", 0, digest);
  const Library library = open();
  const Sizes measured{{"rows", 8}, {"cols", 8}}, near{{"rows", 4}, {"cols", 8}};
  for (const auto& [digest, factor] : {std::pair(twice, 2.0f), std::pair(thrice, 3.0f)}) {
    const Kernel exact = library.query_nest(digest, measured), nearest = library.query_nest(digest, near);
    ASSERT_TRUE(exact && nearest);
    EXPECT_EQ(exact.match(), MatchKind::exact);
    EXPECT_EQ(nearest.match(), MatchKind::nearest);
    for (const Kernel& kernel : {exact, nearest, library.query_nest(digest, measured)}) {
      EXPECT_EQ(nlohmann::json::parse(kernel.info()).at("nest_digest"), digest);
      std::vector<float> x = numbers(64), y(64);
      kernel.launch({{x.data()}, {y.data()}}, {{"rows", 8}, {"cols", 8}});
      EXPECT_EQ(y[63], factor * x[63]);
    }
  }
  EXPECT_TRUE(library.query("scale", "f32", measured)) << "by name: one of them";
  EXPECT_FALSE(library.query_nest(std::string(32, 'c'), measured));
  EXPECT_FALSE(library.query_nest(twice, Sizes{{"rows", 8}, {"cols", 7}}));
  for (const std::string& none : {std::string(), std::string(31, 'a'), std::string(32, 'g'), std::string("scale")})
    EXPECT_THAT(message_of([&] { library.query_nest(none, measured); }), HasSubstr("is no digest of a nest"));
  EXPECT_THAT(message_of([&] { library.query("", "f32", measured); }), HasSubstr("the operator's name is empty"));
}

TEST_F(LibraryTest, AndAtOthersForWhichItIsValid) {
  const Library library = open();
  const Sizes sizes{{"rows", 5}, {"cols", 8}};
  const Kernel kernel = library.query("scale", "f32", sizes);
  EXPECT_EQ(kernel.match(), MatchKind::nearest);
  EXPECT_NEAR(kernel.distance(), 2.678 + 1, 0.001);
  std::vector<float> x = numbers(40), y(40);
  const std::vector<TensorArg> tensors{{x.data()}, {y.data()}};
  kernel.launch(tensors, sizes);
  EXPECT_EQ(y[39], 80);
  EXPECT_FALSE(library.query("scale", "f32", {{"rows", 5}, {"cols", 7}})) << "cols must be divisible by 4";
  EXPECT_FALSE(library.query("scale", "f16", sizes));
  EXPECT_FALSE(library.query("other", "f32", sizes));
}

TEST_F(LibraryTest, StridesLeaveTheRestOfTheMemoryAlone) {
  const Kernel kernel = open().query("scale", "f32", {{"rows", 3}, {"cols", 4}});
  std::vector<float> x = numbers(3 * 10), y(3 * 7, -1);
  const std::int64_t x_strides[] = {10, 1}, y_strides[] = {7, 1}, shape[] = {3, 4};
  kernel.launch({{x.data(), x_strides, shape, ElementType::f32}, {y.data(), y_strides, shape, ElementType::f32}},
                {{"rows", 3}, {"cols", 4}});
  EXPECT_EQ(y[0], 2);
  EXPECT_EQ(y[7 + 3], 2 * 14);
  EXPECT_EQ(y[4], -1);
  EXPECT_EQ(y[2 * 7 + 4], -1);
}

TEST_F(LibraryTest, AStrideOfZeroRepeatsAnInput) {
  const Kernel kernel = open().query("scale", "f32", {{"rows", 3}, {"cols", 4}});
  std::vector<float> x = numbers(4), y(12);
  const std::int64_t strides[] = {0, 1};
  kernel.launch({{x.data(), strides}, {y.data()}}, {{"rows", 3}, {"cols", 4}});
  EXPECT_EQ(y[11], 8);
}

TEST_F(LibraryTest, ScalarsTakeTheirDefaultUnlessGiven) {
  const Kernel kernel = open().query("scale", "f32", {{"rows", 1}, {"cols", 4}});
  std::vector<float> x = numbers(4), y(4);
  kernel.launch({{x.data()}, {y.data()}}, {{"cols", 4}, {"rows", 1}}, {{"offset", 100}});
  EXPECT_EQ(y[3], 108);
  kernel.launch({{x.data()}, {y.data()}}, {{"cols", 4}, {"rows", 1}}, {{"offset", -1}, {"alpha", 0.5}});
  EXPECT_EQ(y[3], 1);
}

TEST_F(LibraryTest, TheInfoSaysWhatToPass) {
  const Kernel kernel = open().query("scale", "f32", {{"rows", 64}, {"cols", 16}});
  const auto info = nlohmann::json::parse(kernel.info());
  EXPECT_EQ(kernel.match(), MatchKind::nearest);
  EXPECT_EQ(kernel.distance(), 1);
  EXPECT_EQ(info["passed_over"], nlohmann::json::array());
  EXPECT_EQ(info["measured"]["sizes"]["rows"], 32);
  EXPECT_EQ(info["tensors"][1]["name"], "y");
  EXPECT_EQ(info["tensors"][1]["type"], "f32");
  EXPECT_EQ(info["tensors"][1]["output"], true);
  EXPECT_EQ(info["sizes"], nlohmann::json::array({"rows", "cols"}));
  EXPECT_EQ(info["scalars"][0]["default"], 2.0);
  EXPECT_EQ(Kernel().info(), R"({"match":"none"})");
  EXPECT_EQ(Kernel().match(), MatchKind::none);
}

TEST_F(LibraryTest, SizesMayComeInAnyOrder) {
  const Library library = open();
  const auto info = [&](std::initializer_list<NamedSize> sizes) { return library.query("scale", "f32", sizes).info().data(); };
  const char* first = info({{"rows", 4}, {"cols", 8}});
  EXPECT_EQ(info({{"cols", 8}, {"rows", 4}}), first) << "one answer, remembered";
  EXPECT_NE(library.query("scale", "f32", {{"cols", 4}, {"rows", 8}}).distance(),
            library.query("scale", "f32", {{"cols", 8}, {"rows", 8}}).distance());
  EXPECT_THAT(message_of([&] { info({{"cols", 8}, {"cols", 8}}); }), HasSubstr("given twice"));
}

TEST_F(LibraryTest, ManyAnswersAreRememberedApart) {
  const Library library = open();
  std::vector<const char*> first;
  for (int rows = 1; rows <= 300; ++rows)
    first.push_back(library.query("scale", "f32", {{"rows", rows}, {"cols", 16}}).info().data());
  for (int rows = 1; rows <= 300; ++rows) {
    EXPECT_EQ(library.query("scale", "f32", {{"rows", rows}, {"cols", 16}}).info().data(),
              first[static_cast<std::size_t>(rows - 1)]);
  }
}

TEST_F(LibraryTest, ARefreshFindsWhatWasTunedSince) {
  Library library = open();
  const Kernel before = library.query("scale", "f32", {{"rows", 64}, {"cols", 16}});
  EXPECT_EQ(before.match(), MatchKind::nearest);
  store_kernel(path, scale_object(), scale_recipe(), 64, 16);
  EXPECT_EQ(library.query("scale", "f32", {{"rows", 64}, {"cols", 16}}).match(), MatchKind::nearest);
  library.refresh();
  EXPECT_EQ(library.query("scale", "f32", {{"rows", 64}, {"cols", 16}}).match(), MatchKind::exact);
  std::vector<float> x = numbers(64), y(64);
  before.launch({{x.data()}, {y.data()}}, {{"rows", 4}, {"cols", 16}});
  EXPECT_EQ(y[63], 128);
}

TEST_F(LibraryTest, WhatIsNotThereIsRememberedUntilARefresh) {
  Library library = open();
  EXPECT_FALSE(library.query("later", "f32", {{"rows", 4}, {"cols", 4}}));
  store_kernel(path, scale_object(), scale_recipe(), 4, 4, "later");
  EXPECT_FALSE(library.query("later", "f32", {{"rows", 4}, {"cols", 4}}));
  library.refresh();
  EXPECT_TRUE(library.query("later", "f32", {{"rows", 4}, {"cols", 4}}));
}

TEST_F(LibraryTest, AKernelThatDoesNotLoadIsPassedOverAndTheReasonKept) {
  store_kernel(path, scale_object().substr(0, 700), scale_recipe(), 40, 16, "half");
  store_kernel(path, scale_object(), scale_recipe(), 48, 16, "half");
  const Kernel kernel = open().query("half", "f32", {{"rows", 40}, {"cols", 16}});
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel.match(), MatchKind::nearest);
  EXPECT_THAT(std::string(kernel.info()), HasSubstr("the kernel's object"));
  std::vector<float> x = numbers(16), y(16);
  kernel.launch({{x.data()}, {y.data()}}, {{"rows", 1}, {"cols", 16}});
  EXPECT_EQ(y[15], 32);
}

TEST_F(LibraryTest, DetailsOfADeviceNestedDeepEndInNoSignal) {
  {
    SQLite::Database raw(path, SQLite::OPEN_READWRITE);
    SQLite::Statement deep(raw, "UPDATE device SET details = ?");
    deep.bind(1, std::string(100'000, '[') + std::string(100'000, ']'));
    deep.exec();
  }
  EXPECT_FALSE(open().query("scale", "f32", {{"rows", 32}, {"cols", 16}}));
}

TEST_F(LibraryTest, RecordsThatNobodyTrustedSignedAreNotLaunchedWithoutTheWord) {
  const std::string foreign = folder.file("foreign.db");
  {
    const std::string keys = folder.file("keys");
    ASSERT_EQ(setenv("NESTOR_KEYS", keys.c_str(), 1), 0);
    store_kernel(foreign, scale_object(), scale_recipe(), 8, 16);
    unsetenv("NESTOR_KEYS");
  }
  const Sizes sizes{{"rows", 8}, {"cols", 16}};
  EXPECT_FALSE(Library::open(foreign, {.use_system = false}).query("scale", "f32", sizes));
  EXPECT_TRUE(Library::open(foreign, {.use_system = false, .allow_unsigned = true}).query("scale", "f32", sizes));
  ASSERT_EQ(setenv("NESTOR_ALLOW_UNSIGNED", "1", 1), 0);
  EXPECT_TRUE(Library::open(foreign, {.use_system = false}).query("scale", "f32", sizes));
  unsetenv("NESTOR_ALLOW_UNSIGNED");
}

/// Bytes that this process has on the heap.
std::size_t heap_bytes() { return mallinfo2().uordblks; }

TEST_F(LibraryTest, ALongLifeStaysWithinItsBound) {
  Library library = open();
  const auto ask = [&](std::int64_t rows) {
    if (!library.query("scale", "f32", {{"rows", rows}, {"cols", 16}})) std::abort();
  };
  for (std::int64_t rows = 1; rows <= 2000; ++rows) ask(rows);
  library.refresh();
  for (std::int64_t rows = 1; rows <= 2000; ++rows) ask(rows);
  const std::size_t before = heap_bytes();
  for (int round = 0; round < 20; ++round) {
    library.refresh();
    for (std::int64_t rows = 1; rows <= 2000; ++rows) ask(rows + round * 2000);
  }
  EXPECT_LT(heap_bytes(), before + (256 << 10)) << "what was refreshed away is freed";
  library.refresh();
  const std::size_t empty = heap_bytes();
  constexpr std::int64_t kAnswers = 8000;
  for (std::int64_t rows = 1; rows <= kAnswers; ++rows) ask(rows);
  EXPECT_LT(heap_bytes() - empty, kAnswers * 512) << "half a KiB an answer";
}

TEST_F(LibraryTest, AFullTableStartsAfresh) {
  KernelTable table;
  const auto state = std::make_shared<const KernelState>();
  std::int64_t value = 0;
  const auto key = [&](std::int64_t rows) {
    value = rows;
    static NamedSize size{"rows", 0};
    size.value = value;
    return KernelKey{"op", "f32", "host", {&size, 1}};
  };
  for (std::int64_t rows = 1; rows <= static_cast<std::int64_t>(KernelTable::kMostAnswers); ++rows)
    table.insert(key(rows), state);
  EXPECT_TRUE(table.find(key(1)));
  table.insert(key(1 << 20), state);
  EXPECT_FALSE(table.find(key(1)));
  EXPECT_TRUE(table.find(key(1 << 20)));
  EXPECT_EQ(state.use_count(), 2);
}

TEST_F(LibraryTest, ThreadsAskWhileOthersRefresh) {
  Library library = open();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t k = 0; !stop; ++k) {
        const Kernel kernel = library.query("scale", "f32", {{"rows", 1 + (k * 5 + t) % 50}, {"cols", 16}});
        wrong += !kernel || kernel.info().empty() ? 1 : 0;
      }
    });
  }
  for (int round = 0; round < 200; ++round) library.refresh();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(LibraryTest, AKernelOutlivesItsLibrary) {
  const Kernel kernel = open().query("scale", "f32", {{"rows", 4}, {"cols", 4}});
  std::vector<float> x = numbers(16), y(16);
  kernel.launch({{x.data()}, {y.data()}}, {{"rows", 4}, {"cols", 4}});
  EXPECT_EQ(y[15], 32);
}

TEST_F(LibraryTest, ThreadsQueryAndLaunchAtOnce) {
  const Library library = open();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 1; round <= 60; ++round) {
        const std::int64_t rows = 1 + (round * 7 + t) % 23;
        const Kernel kernel = library.query("scale", "f32", {{"rows", rows}, {"cols", 8}});
        std::vector<float> x(static_cast<std::size_t>(rows) * 8, static_cast<float>(t + 1)), y(x.size());
        kernel.launch({{x.data()}, {y.data()}}, {{"rows", rows}, {"cols", 8}});
        for (const float value : y) wrong += value != static_cast<float>(2 * (t + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(LibraryTest, TheNumberOfThreadsIsPartOfTheDevice) {
  const Library library = Library::open(path, {.threads = host_threads() + 3, .system_path = "", .use_system = false});
  EXPECT_EQ(library.threads(), host_threads() + 3);
  const Kernel kernel = library.query("scale", "f32", {{"rows", 32}, {"cols", 16}});
  EXPECT_EQ(kernel.match(), MatchKind::other_device);
  std::vector<float> x = numbers(32 * 16), y(32 * 16);
  kernel.launch({{x.data()}, {y.data()}}, {{"rows", 32}, {"cols", 16}});
  EXPECT_EQ(y[511], 1024);
}

TEST_F(LibraryTest, FixedSizesNeedNotBeGiven) {
  LaunchRecipe recipe = scale_recipe();
  recipe.fixed_sizes = {{"cols", 16}};
  recipe.valid.push_back({{{"cols", 1}}, -16, true, 0});
  store_kernel(path, scale_object(), recipe, 7, 16, "fixed");
  const Kernel kernel = open().query("fixed", "f32", {{"rows", 2}, {"cols", 16}});
  std::vector<float> x = numbers(32), y(32);
  kernel.launch({{x.data()}, {y.data()}}, {{"rows", 2}});
  EXPECT_EQ(y[31], 64);
}

TEST_F(LibraryTest, ASystemDatabaseAloneIsEnough) {
  setenv("NESTOR_DB", folder.file("not_there.db").c_str(), 1);
  const Library library = Library::open("", {.threads = 0, .system_path = path, .use_system = true});
  EXPECT_TRUE(library.query("scale", "f32", {{"rows", 32}, {"cols", 16}}));
  EXPECT_THAT(message_of([] { Library::open("", {.threads = 0, .system_path = "", .use_system = false}); }),
              HasSubstr("nestor tune"));
  unsetenv("NESTOR_DB");
}

}  // namespace
}  // namespace nestor
