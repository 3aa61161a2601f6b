// A launch recipe that is damaged is refused with the key that is wrong.
#include "nestor/error.h"
#include "support/launch_recipe.h"

#include <gtest/gtest.h>

#include <string>

namespace nestor {
namespace {

// The message for a recipe whose kernel has that parameter.
std::string message_for(const nlohmann::json& param) {
  LaunchRecipe recipe;
  recipe.target = "nvptx";
  recipe.launches.emplace_back();
  nlohmann::json json = recipe_to_json(recipe);
  json["launches"][0]["params"].push_back(param);
  try {
    recipe_from_json(json);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(DamagedRecipe, TensorMaps) {
  const nlohmann::json good{{"kind", "tensor_map"}, {"index", 0}, {"dim", 0}, {"name", "x"}, {"box", {64, 64}}, {"swizzle", 128}};
  EXPECT_EQ(message_for(good), "");
  nlohmann::json bad = good;
  bad.erase("box");
  EXPECT_EQ(message_for(bad), "launch recipe: key \"box\" is missing");
  bad = good;
  bad["box"] = {64, "wide"};
  EXPECT_EQ(message_for(bad), "launch recipe: key \"box\" has the wrong type");
  bad = good;
  bad.erase("swizzle");
  EXPECT_EQ(message_for(bad), "launch recipe: key \"swizzle\" is missing");
  bad = good;
  bad["kind"] = "tensor map";
  EXPECT_EQ(message_for(bad), "launch recipe: \"tensor map\" is no kind of kernel parameter");
}

}  // namespace
}  // namespace nestor
