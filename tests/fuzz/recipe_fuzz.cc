// Any bytes as a stored launch recipe: prepared for launches, or refused with a UserError.
#include "db/records/record.h"
#include "runtime/launch_plan.h"
#include "support/error.h"
#include "support/launch_recipe.h"

#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nestor;
  Record record{{"host", "CPU", "cpu", 1, ""}, {"op", "f32", "d", {}}, "", {}, false};
  record.trial.kernel = KernelRecord{"x86-64:x86-64:", "code", std::string(reinterpret_cast<const char*>(data), size), ""};
  try {
    normalise(record);  // as every record that is stored
    const LaunchRecipe recipe = recipe_from_json(nlohmann::json::parse(record.trial.kernel->recipe));
    if (recipe_to_json(recipe_from_json(recipe_to_json(recipe))) != recipe_to_json(recipe)) std::abort();
    const LaunchPlan plan(recipe, "op (f32)");
    PreparedLaunch launch;
    plan.prepare({}, {}, {}, launch);
  } catch (const UserError&) {}
  return 0;
}
