// A launch recipe as JSON says all of it.
#include "support/launch_recipe.h"

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

TEST(RecipeJson, OnlyTensorMapsHaveBoxes) {
  const nlohmann::json json = recipe_to_json(recipe_with({{Kind::pointer, 0, 0, ""}}));
  EXPECT_EQ(json["launches"][0]["params"][0],
            (nlohmann::json{{"kind", "pointer"}, {"index", 0}, {"dim", 0}, {"name", ""}}));  // as in records made before
}

TEST(SizeConstraint, TheLeastConstantIsWrittenWithoutOverflow) {
  const SizeConstraint least{{{"n", 1}}, std::numeric_limits<std::int64_t>::min(), false, 0};
  EXPECT_EQ(least.str(), "n >= 9223372036854775808");
}

}  // namespace
}  // namespace nestor
