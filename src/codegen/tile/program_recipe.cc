// From a program's buffers, sizes and scalars to those of a recipe.
#include "codegen/tile/program_recipe.h"

#include <utility>

namespace nestor {

LaunchRecipe recipe_of(const TileProgram& program) {
  LaunchRecipe recipe;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.memory != Memory::argument) continue;
    recipe.arguments.push_back({buffer.name, buffer.type, buffer.role == TensorRole::output, buffer.extents});
  }
  recipe.sizes = program.sizes;
  recipe.fixed_sizes = program.fixed_sizes;
  for (const ScalarParam& scalar : program.scalars)
    recipe.scalars.push_back({scalar.name, scalar.type, scalar.default_value, scalar.minimum, scalar.maximum});
  recipe.valid = program.valid;
  for (const auto& [size, value] : program.fixed_sizes) {
    SizeConstraint fixed;
    fixed.terms[size] = 1;
    fixed.constant = -value;
    fixed.equality = true;
    recipe.valid.push_back(std::move(fixed));
  }
  check_limits(recipe, program.name);
  return recipe;
}

}  // namespace nestor
