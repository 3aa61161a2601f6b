// Where ops stand in a tile program: loops and conditions around them.
#pragma once

#include "codegen/tile/tile_program.h"

#include <string>
#include <vector>

namespace nestor::nvptx {

/// Where an op stands in the tile program: ops are numbered in its order.
struct OpPlace {
  int loop = -1;           ///< which loop is around it; -1: none
  std::vector<int> loops;  ///< all that are, outermost first
  std::string var;
  IntExpr lower, upper;
  IntExpr condition;  ///< over `var`: iterations at which it runs; undefined: all
};
std::vector<OpPlace> places_of_ops(const TileTree& body);
/// The ops, in the same order.
std::vector<const TileOp*> ops_of(const TileTree& body);

/// Are all loops around the first place around the other one, too? Else values that it makes in an iteration end with that loop for the other.
bool is_around(const OpPlace& place, const OpPlace& other);

}  // namespace nestor::nvptx
