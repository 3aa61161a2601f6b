// TileClasses: which tiles of a schedule's tiled loops are never visited, which are visited whole and which in part.
#pragma once

#include "poly/schedule/schedule.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nestor {

/// A loop over tiles, around the statements whose dims it tiles.
struct TileLoop {
  std::string name;
  std::string dim;         ///< the tiled dim, as the first of the statements names it
  std::int64_t first = 0;  ///< smallest and
  std::int64_t last = 0;   ///< largest value at the sizes that tiles are counted at
};

/// Statements with the same tiles. A tile is one iteration of `loops`; the others of their outer loops (batches, heads) do not
/// count: a tile is visited if any of their iterations visits it, and full if none visits it in part.
struct TileClasses {
  std::vector<std::string> statements;
  std::vector<TileLoop> loops;
  std::int64_t all = 0;      ///< tiles of the smallest box around those that are visited
  std::int64_t visited = 0;  ///< with an instance; the others, all - visited, are never run
  std::int64_t partial = 0;  ///< visited with less instances than the largest tile: there, ops test what they run
  std::int64_t full() const { return visited - partial; }
  std::int64_t empty() const { return all - visited; }
};

/// The classes of all statements with tiled dims, in the order of execution, counted exactly by isl at `sizes` (complete). Throws
/// UserError when there are too many tiles to count.
std::vector<TileClasses> classify_tiles(const Schedule& schedule, const Sizes& sizes);

/// A table, with the loops of each class.
std::string describe(const std::vector<TileClasses>& classes);

}  // namespace nestor
