// What the launch recipes of a tile program say for every target.
#pragma once

#include "codegen/tile/tile_program.h"
#include "support/launch_recipe.h"

namespace nestor {

/// Arguments, sizes, scalars and valid sizes (fixed ones included). Target, symbol, workspace and launches are left to the back end.
LaunchRecipe recipe_of(const TileProgram& program);

}  // namespace nestor
