// Recipes are launched as they say: grids, loops and parameters.
#include "support/element_codec.h"
#include "unit/device/device_fixture.h"

namespace nestor {
namespace {

using namespace test;
using ::testing::ElementsAre;
using Kind = KernelParam::Kind;

class Recipe : public FakeCudaTest {
 protected:
  RecipeLauncher make(const LaunchRecipe& recipe, const std::string& ptx) { return {CudaModule::load(device, ptx), recipe}; }
  CudaDevicePtr device = CudaDevice::open(0);
  std::array<void*, 2> pointers{reinterpret_cast<void*>(0x1000), reinterpret_cast<void*>(0x2000)};
  std::array<std::int64_t, 4> strides{80, 1, 64, 1};
  std::array<double, 1> scalars{1.5};

  LaunchValues values(std::span<const std::int64_t> sizes) const { return {pointers, strides, sizes, scalars, nullptr}; }
};

TEST_F(Recipe, PassesEveryKindOfParameter) {
  const RecipeLauncher launcher = make(row_recipe(), row_ptx());
  EXPECT_THAT(launcher.size_names(), ElementsAre("rows", "cols"));
  const std::array<std::int64_t, 2> sizes{10, 64};
  LaunchValues given = values(sizes);
  given.workspace = reinterpret_cast<void*>(0x3000);
  launcher.launch(given, nullptr);
  ASSERT_EQ(fake.launches.size(), 1);
  const FakeLaunch& launch = fake.launches[0];
  EXPECT_EQ(launch.kernel, "rows_kernel");
  EXPECT_THAT(launch.grid, ElementsAre(10, 1, 1));
  EXPECT_THAT(launch.block, ElementsAre(256, 1, 1));
  EXPECT_THAT(launch.params, ElementsAre(0x1000, 0x2000, 80, 64, 10, 64, 0x3fc00000, 0x3000));
}

TEST_F(Recipe, GridsKnowTheNumberOfMultiprocessors) {
  const RecipeLauncher launcher = make(row_recipe(), row_ptx());
  const std::array<std::int64_t, 2> sizes{100000, 64};
  launcher.launch(values(sizes), nullptr);
  EXPECT_THAT(fake.launches.at(0).grid, ElementsAre(528, 1, 1));
}

TEST_F(Recipe, NoMoreResidentBlocksThanRunAtOnce) {
  LaunchRecipe recipe = row_recipe();
  recipe.launches[0].block = {1024, 1, 1};
  const std::array<std::int64_t, 2> sizes{100000, 64};
  make(recipe, row_ptx()).launch(values(sizes), nullptr);
  EXPECT_THAT(fake.launches.at(0).grid, ElementsAre(2 * 132, 1, 1));
  recipe.launches[0].cluster = {4, 1, 1};
  make(recipe, row_ptx()).launch(values(sizes), nullptr);
  EXPECT_THAT(fake.launches.at(1).grid, ElementsAre(8 * 4, 1, 1));  // the fake device runs 8 clusters of any size
  recipe.launches[0].grid[0] = IntExpr::variable("rows") * IntExpr(4);
  make(recipe, row_ptx()).launch(values(sizes), nullptr);
  EXPECT_THAT(fake.launches.at(2).grid, ElementsAre(400000, 1, 1));
}

TEST_F(Recipe, ScalarsComeInTheirOwnType) {
  for (const auto& [type, bits] : std::vector<std::pair<ElementType, std::uint64_t>>{
           {ElementType::f16, 0x3e00}, {ElementType::bf16, 0x3fc0}, {ElementType::i32, 1}}) {
    LaunchRecipe recipe = row_recipe();
    recipe.scalars[0].type = type;
    recipe.launches[0].params = {{Kind::scalar, 0, 0, "alpha"}};
    const RecipeLauncher launcher =
        make(recipe, ".version 8.0\n.target sm_90\n.visible .entry rows_kernel(.param .u32 a)\n{ ret; }\n");
    fake.launches.clear();
    const std::array<std::int64_t, 2> sizes{1, 64};
    launcher.launch(values(sizes), nullptr);
    EXPECT_THAT(fake.launches.at(0).params, ElementsAre(bits)) << to_string(type);
  }
}

// for t in [0, 3): even(rows - t blocks, t); then for t in [0, 2): odd
TEST_F(Recipe, LoopsRunInOrderAndAGridOfZeroIsSkipped) {
  LaunchRecipe recipe = row_recipe();
  const auto loop = [](const std::string& symbol, int upper) {
    LaunchNode kernel;
    kernel.symbol = symbol;
    kernel.grid[0] = IntExpr::variable("rows") - IntExpr::variable("t");
    kernel.params = {{Kind::loop, 0, 0, "t"}};
    LaunchNode node;
    node.kind = LaunchNode::Kind::loop;
    node.var = "t";
    node.lower = IntExpr(0);
    node.upper = IntExpr(upper);
    node.children = {kernel};
    return node;
  };
  recipe.launches = {loop("even", 3), loop("odd", 2)};
  const RecipeLauncher launcher = make(recipe, fake_ptx("even", 1) + fake_ptx("odd", 1));
  EXPECT_EQ(launcher.functions().size(), 2);
  const std::array<std::int64_t, 2> sizes{2, 64};
  launcher.launch(values(sizes), nullptr);
  std::vector<std::string> seen;
  for (const FakeLaunch& launch : fake.launches)
    seen.push_back(launch.kernel + std::to_string(launch.params[0]) + "x" + std::to_string(launch.grid[0]));
  EXPECT_THAT(seen, ElementsAre("even0x2", "even1x1", "odd0x2", "odd1x1"));
}

TEST_F(Recipe, KernelsMayStartBeforeTheOneBeforeEnds) {
  LaunchRecipe recipe = row_recipe();
  recipe.launches.push_back(recipe.launches[0]);
  recipe.launches.push_back(recipe.launches[0]);
  recipe.launches[1].programmatic = true;
  recipe.launches[2].programmatic = true;
  recipe.launches[2].cluster = {2, 1, 1};
  const std::array<std::int64_t, 2> sizes{10, 64};
  make(recipe, row_ptx()).launch(values(sizes), nullptr);
  ASSERT_EQ(fake.launches.size(), 3U);
  EXPECT_FALSE(fake.launches[0].programmatic);
  EXPECT_TRUE(fake.launches[1].programmatic);
  EXPECT_THAT(fake.launches[1].cluster, ElementsAre(1, 1, 1));
  EXPECT_TRUE(fake.launches[2].programmatic);
  EXPECT_THAT(fake.launches[2].cluster, ElementsAre(2, 1, 1));
  for (const FakeLaunch& launch : fake.launches) EXPECT_THAT(launch.block, ElementsAre(256, 1, 1));
}

TEST_F(Recipe, WorkspaceIsAFormulaOfTheSizes) {
  LaunchRecipe recipe = row_recipe();
  recipe.workspace_bytes = IntExpr::variable("rows") * IntExpr(4);
  const RecipeLauncher launcher = make(recipe, row_ptx());
  const std::array<std::int64_t, 2> sizes{10, 64};
  EXPECT_EQ(launcher.workspace_bytes(sizes), 40);
}

}  // namespace
}  // namespace nestor
