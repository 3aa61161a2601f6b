// Where ops stand in a tile program: loops and conditions around them.
#pragma once

#include "codegen/tile/tile_program.h"

#include <string>
#include <vector>

namespace nestor::nvptx {

/// Where an op stands in the tile program: ops are numbered in its order.
struct OpPlace {
  int loop = -1;  ///< which loop is around it; -1: none
  std::string var;
  IntExpr lower, upper;
  IntExpr condition;  ///< over `var`: iterations at which it runs; undefined: all
};
std::vector<OpPlace> places_of_ops(const TileTree& body);

}  // namespace nestor::nvptx
