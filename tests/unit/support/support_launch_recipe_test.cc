// A launch recipe as JSON says all of it.
#include "support/launch_recipe.h"

#include "support/error.h"

#include <gtest/gtest.h>

#include <limits>

namespace nestor {
namespace {

using Kind = KernelParam::Kind;

LaunchRecipe recipe_with(std::vector<KernelParam> params) {
  LaunchRecipe recipe;
  recipe.target = "nvptx";
  recipe.launches.emplace_back();
  recipe.launches.back().symbol = "kernel";
  recipe.launches.back().params = std::move(params);
  return recipe;
}

TEST(Recipe, MoreThanALaunchTakesIsRefused) {
  const auto message = [](const LaunchRecipe& recipe) {
    try {
      check_limits(recipe, "kernel k");
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  LaunchRecipe recipe;
  for (std::size_t k = 0; k < LaunchLimits::kTensors; ++k)
    recipe.arguments.push_back({"x" + std::to_string(k), ElementType::f32, false, {}});
  EXPECT_EQ(message(recipe), "");
  recipe.arguments.push_back({"y", ElementType::f32, true, {}});
  EXPECT_EQ(message(recipe), "kernel k: 129 tensors are more than the 128 that a launch takes");
  LaunchRecipe deep;
  deep.arguments.push_back({"y", ElementType::f32, true, std::vector<IntExpr>(LaunchLimits::kRank + 1, IntExpr(1))});
  EXPECT_EQ(message(deep), "kernel k: tensor \"y\" has 17 indices, more than 16");
}

TEST(RecipeJson, EveryKindOfParameterComesBack) {
  const std::vector<KernelParam> params{{Kind::pointer, 1, 0, "y"},
                                        {Kind::stride, 1, 2, ""},
                                        {Kind::size, 0, 0, "rows"},
                                        {Kind::scalar, 0, 0, "alpha"},
                                        {Kind::loop, 0, 0, "t"},
                                        {Kind::workspace, 0, 0, ""},
                                        {Kind::tensor_map, 2, 0, "x", {1, 128, 64}, 128},
                                        {Kind::counter, 0, 0, ""}};
  const nlohmann::json json = recipe_to_json(recipe_with(params));
  const LaunchRecipe back = recipe_from_json(json);
  ASSERT_EQ(back.launches.at(0).params.size(), params.size());
  for (std::size_t k = 0; k < params.size(); ++k) {
    const KernelParam &given = params[k], &param = back.launches[0].params[k];
    EXPECT_EQ(param.kind, given.kind);
    EXPECT_EQ(param.index, given.index);
    EXPECT_EQ(param.dim, given.dim);
    EXPECT_EQ(param.name, given.name);
    EXPECT_EQ(param.box, given.box);
    EXPECT_EQ(param.swizzle, given.swizzle);
  }
  EXPECT_EQ(recipe_to_json(back), json);
}

TEST(RecipeJson, AMapWithStridesIsAKindThatOlderProgramsRefuse) {
  KernelParam map{Kind::tensor_map, 2, 0, "x", {1, 128, 64}, 128};
  EXPECT_EQ(recipe_to_json(recipe_with({map}))["launches"][0]["params"][0]["kind"], "tensor_map");
  map.element_strides = {1, 2, 1};
  const nlohmann::json json = recipe_to_json(recipe_with({map}));
  EXPECT_EQ(json["launches"][0]["params"][0]["kind"], "strided_tensor_map");
  const KernelParam back = recipe_from_json(json).launches.at(0).params.at(0);
  EXPECT_EQ(back.kind, Kind::tensor_map);
  EXPECT_EQ(back.element_strides, map.element_strides);
}

TEST(RecipeJson, OnlyTensorMapsHaveBoxes) {
  const nlohmann::json json = recipe_to_json(recipe_with({{Kind::pointer, 0, 0, ""}}));
  EXPECT_EQ(json["launches"][0]["params"][0],
            (nlohmann::json{{"kind", "pointer"}, {"index", 0}, {"dim", 0}, {"name", ""}}));  // as in records made before
}

TEST(RecipeJson, ATensorInTheWorkspaceComesBack) {
  KernelParam map{Kind::tensor_map, -1, 0, "kn", {1, 64, 64}, 128};
  const IntExpr heads = IntExpr::variable("heads"), keys = IntExpr::variable("keys");
  map.held =
      WorkspaceTensor{ElementType::bf16, heads * IntExpr(256), {heads, keys, IntExpr(72)}, {keys * IntExpr(80), IntExpr(80)}};
  const nlohmann::json json = recipe_to_json(recipe_with({map}));
  const LaunchRecipe recipe = recipe_from_json(json);
  const KernelParam& back = recipe.launches.at(0).params.at(0);
  EXPECT_EQ(back.index, -1);
  ASSERT_TRUE(back.held.has_value());
  const auto value = [](const IntExpr& formula) {
    return formula.evaluate([](const std::string& name) { return name == "heads" ? 3 : 5; });
  };
  EXPECT_EQ(back.held->type, ElementType::bf16);
  EXPECT_EQ(value(back.held->offset), 768);
  ASSERT_EQ(back.held->shape.size(), 3U);
  EXPECT_EQ(value(back.held->shape[1]), 5);
  EXPECT_EQ(value(back.held->shape[2]), 72);
  ASSERT_EQ(back.held->strides.size(), 2U) << "the last index is dense";
  EXPECT_EQ(value(back.held->strides[0]), 400);
  EXPECT_EQ(recipe_to_json(recipe), json);
}

TEST(RecipeJson, ProgrammaticLaunchesAreSaidAndOthersAreNot) {
  LaunchRecipe recipe = recipe_with({});
  EXPECT_FALSE(recipe_to_json(recipe)["launches"][0].contains("programmatic")) << "as in records made before";
  recipe.launches[0].programmatic = true;
  const nlohmann::json json = recipe_to_json(recipe);
  EXPECT_EQ(json["launches"][0]["programmatic"], true);
  EXPECT_TRUE(recipe_from_json(json).launches.at(0).programmatic);
}

TEST(SizeConstraint, TheLeastConstantIsWrittenWithoutOverflow) {
  const SizeConstraint least{{{"n", 1}}, std::numeric_limits<std::int64_t>::min(), false, 0};
  EXPECT_EQ(least.str(), "n >= 9223372036854775808");
}

}  // namespace
}  // namespace nestor
