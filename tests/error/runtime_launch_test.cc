// Everything that is wrong with a launch or a query is said before anything is written.
#include "nestor/runtime.h"
#include "support/error.h"
#include "unit/runtime/runtime_fixture.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace nestor {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;

class LaunchError : public testing::Test {
 protected:
  void SetUp() override {
    NESTOR_NEEDS_C_COMPILER();
    store_kernel(path, scale_object(), scale_recipe(), 4, 8);
    library = Library::open(path, {.threads = 2, .system_path = "", .use_system = false});
    kernel = library->query("scale", "f32", {{"rows", 4}, {"cols", 8}});
    ASSERT_TRUE(kernel);
  }
  // The message of a launch that must fail and must not touch the output.
  std::string launch_error(std::vector<TensorArg> tensors, std::initializer_list<NamedSize> sizes = {{"rows", 4}, {"cols", 8}},
                           std::initializer_list<NamedScalar> scalars = {}) {
    const std::vector<float> before = memory;
    const std::string message = message_of(
        [&] { kernel.launch(tensors, std::span(sizes.begin(), sizes.size()), std::span(scalars.begin(), scalars.size())); });
    EXPECT_EQ(memory, before) << "nothing is written";
    EXPECT_THAT(message, HasSubstr("scale (f32)"));
    return message;
  }
  std::vector<TensorArg> good() { return {{x}, {y}}; }

  TemporaryFolder folder;
  std::string path = folder.file("t.db");
  std::optional<Library> library;
  Kernel kernel;
  std::vector<float> memory = std::vector<float>(256, 1.0f);
  float* x = memory.data();
  float* y = memory.data() + 128;
};

TEST_F(LaunchError, TheGoodLaunchIsGood) {
  kernel.launch(good(), {{"rows", 4}, {"cols", 8}});
  EXPECT_EQ(y[31], 2);
}

TEST_F(LaunchError, WrongNumberOfTensors) {
  EXPECT_THAT(launch_error({{x}}), HasSubstr("takes 2 tensors (x, y), not 1"));
  EXPECT_THAT(launch_error({}), HasSubstr("not 0"));
  EXPECT_THAT(launch_error({{x}, {y}, {y}}), HasSubstr("not 3"));
}

TEST_F(LaunchError, NullAndMisalignedPointers) {
  EXPECT_THAT(launch_error({{x}, {nullptr}}), HasSubstr("\"y\" is a null pointer"));
  EXPECT_THAT(launch_error({{reinterpret_cast<char*>(x) + 1}, {y}}), AllOf(HasSubstr("\"x\""), HasSubstr("aligned")));
}

TEST_F(LaunchError, WrongType) {
  EXPECT_THAT(launch_error({{x, {}, {}, ElementType::f16}, {y}}), HasSubstr("\"x\" holds f32, not f16"));
}

TEST_F(LaunchError, WrongShape) {
  const std::int64_t wrong[] = {4, 9}, short_one[] = {4};
  EXPECT_THAT(launch_error({{x, {}, wrong}, {y}}), HasSubstr("must have the shape 4 x 8, not 4 x 9"));
  EXPECT_THAT(launch_error({{x, {}, short_one}, {y}}), HasSubstr("must have the shape 4 x 8, of 2 indices, not one of 1"));
  EXPECT_THAT(launch_error({{x, {}, {wrong, 0}}, {y}}), HasSubstr("of 2 indices, not one of 0"));
  EXPECT_THAT(launch_error({{x, {wrong, 0}}, {y}}), HasSubstr("2 indices, but 0 strides"));
}

TEST_F(LaunchError, WrongStrides) {
  const std::int64_t last[] = {8, 2}, negative[] = {-8, 1}, few[] = {1}, overlapping[] = {4, 1}, zero[] = {0, 1};
  EXPECT_THAT(launch_error({{x, last}, {y}}), HasSubstr("last stride 2; it must be 1"));
  EXPECT_THAT(launch_error({{x, negative}, {y}}), HasSubstr("negative stride"));
  EXPECT_THAT(launch_error({{x, few}, {y}}), HasSubstr("2 indices, but 1 strides"));
  EXPECT_THAT(launch_error({{x}, {y, overlapping}}), HasSubstr("output \"y\" let its elements overlap"));
  EXPECT_THAT(launch_error({{x}, {y, zero}}), HasSubstr("overlap"));
  const std::int64_t huge[] = {std::numeric_limits<std::int64_t>::max(), 1};
  EXPECT_THAT(launch_error({{x, huge}, {y}}), HasSubstr("address space"));
}

TEST_F(LaunchError, OverlappingMemory) {
  EXPECT_THAT(launch_error({{x}, {x}}), HasSubstr("output \"y\" overlaps that of \"x\""));
  EXPECT_THAT(launch_error({{x}, {x + 31}}), HasSubstr("overlaps"));
  EXPECT_THAT(launch_error({{x + 31}, {x}}), HasSubstr("overlaps"));
  kernel.launch({{x}, {x + 32}}, {{"rows", 4}, {"cols", 8}});
  EXPECT_EQ(x[63], 2);
}

TEST_F(LaunchError, ColumnsOfOneBufferDoNotOverlap) {
  const std::int64_t rows_of_16[] = {16, 1}, rows_of_12[] = {12, 1};
  kernel.launch({{x, rows_of_16}, {x + 8, rows_of_16}}, {{"rows", 4}, {"cols", 8}});
  EXPECT_EQ(x[15], 2);
  EXPECT_EQ(x[16], 1);
  kernel.launch({{x + 24, rows_of_16}, {x + 16, rows_of_16}}, {{"rows", 4}, {"cols", 8}});
  EXPECT_THAT(launch_error({{x, rows_of_16}, {x + 4, rows_of_16}}), HasSubstr("overlaps"));
  EXPECT_THAT(launch_error({{x + 4, rows_of_16}, {x, rows_of_16}}), HasSubstr("overlaps"));
  EXPECT_THAT(launch_error({{x, rows_of_16}, {x + 12, rows_of_16}}), HasSubstr("overlaps"))
      << "its last columns are the next row's";
  EXPECT_THAT(launch_error({{x, rows_of_12}, {x + 8, rows_of_12}}), HasSubstr("overlaps"));
  EXPECT_THAT(launch_error({{x, rows_of_16}, {x + 8, rows_of_12}}), HasSubstr("overlaps")) << "other rows";
}

TEST_F(LaunchError, WrongSizes) {
  EXPECT_THAT(launch_error(good(), {{"rows", 4}}), HasSubstr("size \"cols\" is missing; its sizes are: rows, cols"));
  EXPECT_THAT(launch_error(good(), {{"rows", 4}, {"cols", 8}, {"depth", 2}}),
              HasSubstr("no size \"depth\"; its sizes are: rows, cols"));
  EXPECT_THAT(launch_error(good(), {{"rows", 0}, {"cols", 8}}), HasSubstr("\"rows\" is 0; sizes are positive"));
  EXPECT_THAT(launch_error(good(), {{"rows", -4}, {"cols", 8}}), HasSubstr("\"rows\" is -4"));
  EXPECT_THAT(launch_error(good(), {{"rows", 4}, {"rows", 4}, {"cols", 8}}), HasSubstr("given twice"));
  EXPECT_THAT(launch_error(good(), {{"rows", 4}, {"cols", 6}}),
              AllOf(HasSubstr("not valid for these sizes"), HasSubstr("divisible by 4")));
  EXPECT_THAT(launch_error(good(), {{"rows", std::int64_t{1} << 62}, {"cols", 8}}), HasSubstr("address space"));
}

TEST_F(LaunchError, SizesOtherThanThoseTheKernelWasCompiledFor) {
  LaunchRecipe recipe = scale_recipe();
  recipe.fixed_sizes = {{"cols", 16}};
  store_kernel(path, scale_object(), recipe, 4, 16, "fixed");
  library->refresh();
  kernel = library->query("fixed", "f32", {{"rows", 4}, {"cols", 16}});
  const std::string message = message_of([&] { kernel.launch(good(), {{"rows", 4}, {"cols", 8}}); });
  EXPECT_THAT(message, HasSubstr("compiled for cols = 16, not 8"));
}

TEST_F(LaunchError, WrongScalars) {
  EXPECT_THAT(launch_error(good(), {{"rows", 4}, {"cols", 8}}, {{"beta", 1}}),
              HasSubstr("no scalar \"beta\"; its scalars are: alpha, offset"));
  EXPECT_THAT(launch_error(good(), {{"rows", 4}, {"cols", 8}}, {{"alpha", -1e6}}),
              HasSubstr("\"alpha\" is -1000000; it must be -1000 to inf"));
  EXPECT_THAT(launch_error(good(), {{"rows", 4}, {"cols", 8}}, {{"offset", 1.5}}),
              HasSubstr("\"offset\" is 1.5, not a 32-bit integer"));
}

TEST_F(LaunchError, AStreamForTheHost) {
  const std::vector<TensorArg> tensors = good();
  const NamedSize sizes[] = {{"rows", 4}, {"cols", 8}};
  EXPECT_EQ(message_of([&] { kernel.launch(tensors, sizes, {}, {.stream = x}); }),
            "scale (f32): a kernel of the host takes no stream");
}

TEST_F(LaunchError, NoKernelToLaunch) {
  EXPECT_THAT(message_of([&] { Kernel().launch(good(), {{"rows", 4}, {"cols", 8}}); }), HasSubstr("no kernel to launch"));
}

TEST_F(LaunchError, DevicesThatAreNotHere) {
  for (const char* name : {"tpu", "", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cudas", "hosts"}) {
    EXPECT_THAT(message_of([&] { library->query("scale", "f32", {{"rows", 4}, {"cols", 8}}, name); }),
                HasSubstr("no device \"" + std::string(name) + "\"; devices are: host, cuda (the first GPU), cuda:0, cuda:1"));
  }
}

TEST_F(LaunchError, SizesOfAQueryMustBePositive) {
  EXPECT_THAT(message_of([&] { library->query("scale", "f32", {{"rows", 0}, {"cols", 8}}); }), HasSubstr("size rows is 0"));
}

TEST_F(LaunchError, AKernelForAnotherCpuIsNoAnswer) {
  if (__builtin_cpu_supports("amx-tile")) GTEST_SKIP() << "this CPU runs everything";
  store_kernel(path, scale_object(), scale_recipe(), 4, 8, "amx", "x86-64:sapphirerapids:+avx512f,+amx-tile");
  library->refresh();
  EXPECT_FALSE(library->query("amx", "f32", {{"rows", 4}, {"cols", 8}}));
}

TEST_F(LaunchError, AnObjectThatCannotBeLoaded) {
  store_kernel(path, scale_object().substr(0, 700), scale_recipe(), 4, 8, "cut");
  LaunchRecipe renamed = scale_recipe();
  renamed.symbol = "other";
  store_kernel(path, scale_object(), renamed, 4, 8, "renamed");
  library->refresh();
  EXPECT_THAT(message_of([&] { library->query("cut", "f32", {{"rows", 4}, {"cols", 8}}); }), HasSubstr("object"));
  EXPECT_THAT(message_of([&] { library->query("renamed", "f32", {{"rows", 4}, {"cols", 8}}); }),
              HasSubstr("no function \"other\""));
}

TEST_F(LaunchError, LibrariesThatCannotBeOpened) {
  EXPECT_THAT(message_of([&] { Library::open(folder.file("none.db")); }), HasSubstr("there is no tuning database"));
  EXPECT_THAT(message_of([&] { Library::open(path, {.threads = -1}); }), HasSubstr("-1 threads"));
}

}  // namespace
}  // namespace nestor
