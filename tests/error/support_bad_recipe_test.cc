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

TEST(DamagedRecipe, TensorsInTheWorkspace) {
  const nlohmann::json good{{"kind", "tensor_map"},
                            {"index", -1},
                            {"dim", 0},
                            {"name", "kn"},
                            {"box", {64, 64}},
                            {"swizzle", 128},
                            {"held", {{"type", "f16"}, {"offset", 0}, {"shape", {8, 64}}, {"strides", {64}}}}};
  EXPECT_EQ(message_for(good), "");
  for (const char* key : {"type", "offset", "shape", "strides"}) {
    nlohmann::json bad = good;
    bad["held"].erase(key);
    EXPECT_EQ(message_for(bad), std::string("launch recipe: key \"") + key + "\" is missing");
  }
  nlohmann::json bad = good;
  bad["held"]["strides"] = {64, 1};
  EXPECT_EQ(message_for(bad),
            "launch recipe: a tensor in the workspace has 2 strides and 2 indices: all indices but the last have one");
  bad = good;
  bad["index"] = 0;
  EXPECT_EQ(message_for(bad),
            "launch recipe: the map of \"kn\", a tensor in the workspace, belongs to argument 0: its index must be -1");
  bad = good;
  bad["held"] = "kn";
  EXPECT_NE(message_for(bad), "");
}

}  // namespace
}  // namespace nestor
