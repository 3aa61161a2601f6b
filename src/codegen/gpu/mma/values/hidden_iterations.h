// Iterations of a loop over tiles at whose points a condition of data fails: do they leave everything as it is?
#pragma once

#include "codegen/tile/tile_program.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace nestor::nvptx {

/// A condition that the value of an op asks: is a block the one that a table has for itself (Buffer::next_blocks)?
struct BlockTest {
  int read = -1;  ///< of the op: the table's element
  IntExpr block;
};
/// `node`, of the op's value, as such a condition.
std::optional<BlockTest> block_test(const TileProgram& program, const TileOp& op, const ScalarExpr& node);

/// Have two accesses the same indices?
bool same_element(const TileAccess& a, const TileAccess& b);

/// The node without what constants make needless. Adding 0 is left out as the rule `simplify` does.
ScalarExpr without_constants(const ScalarExpr& node);

/// The op's value where its block tests all hold, or all fail.
ScalarExpr value_by_blocks(const TileProgram& program, const TileOp& op, bool holds);

/// What an iteration is without which the others compute the same.
struct HiddenIteration {
  std::string why;       ///< why it is none; empty: it is
  std::set<int> finite;  ///< buffers that must be finite, as it would multiply them by 0
};

/// An iteration of the loop over `var` around ops [begin, end) of `ops`, in the order of the kernel, where all block tests fail. Nothing that is read
/// in other iterations or behind the loop changes: extrema get their neutral element, and so do sums; a sum that an extremum scales is multiplied by 1.
/// An extremum that has become NaN has made NaN of the sums that it scales before.
HiddenIteration hidden_iteration(const TileProgram& program, const std::string& var, const std::vector<TileOp>& ops,
                                 std::size_t begin, std::size_t end);

}  // namespace nestor::nvptx
