// Where the ops of a tensor plan have points, what the code computes there, and under which tests: as isl sets, from the kernel's body and the
// finished plan.
#pragma once

#include "codegen/gpu/mma/proof/tensor_proof.h"
#include "codegen/proof/model/int_sets.h"

#include <string>
#include <vector>

namespace nestor::nvptx {

/// Coordinates of a point: the iteration (0 outside of loops), place in a pack, row, column, and the k of a product. What an op has not is 0.
/// An element of a fragment is such a point too, with k = 0.
enum Coordinate : int { kIteration, kPlace, kTileRow, kTileColumn, kTerm, kCoordinates };

/// Which coordinates an access to a fragment follows; `from_term`: its column is the k of a product.
struct Followed {
  bool place = false, row = false, column = false, from_term = false;
  std::string by_index;  ///< one letter an index: the same for all accesses to one fragment
};

/// All sets hold the iterations, and what is known of sizes and of the block.
struct OpPoints {
  isl::set iterations;  ///< at which the op runs, over all coordinates
  isl::set untested;    ///< of these, those at which masks are left out
  bool tested = true;   ///< masks are applied at some iteration
  isl::set test_reads;  ///< what lanes read of a column test where masks are left out, whether the op runs there or not
  isl::set computed;    ///< what the code goes through
  isl::set dims;        ///< points of the op's dims, whatever its guard says
  isl::set points;      ///< those that the guard holds for: the op's meaning
  isl::set mask, memory_mask;
  Followed write;
  std::vector<Followed> reads;  ///< of fragments; those of memory follow nothing
};

class PointReader {
 public:
  explicit PointReader(TensorProof& proof);

  /// Of op `k`: with what is wrong with its roles and accesses added to the proof's violations.
  OpPoints of(int k) const;
  /// Points of the op at which the access lies within its argument or workspace.
  isl::set within(int k, const TileAccess& access) const;
  /// { point -> element of the argument or workspace } of an access, of these points of the op.
  isl::map reached(int k, const isl::set& points, const TileAccess& access) const;
  /// Points of the op at which two integers over its dims are equal.
  isl::set equal(int k, const IntExpr& a, const IntExpr& b) const;
  /// The points with all that is known of sizes and of the block; other sets know what bears on bounds and conditions.
  isl::set known(const isl::set& points) const { return points.intersect_params(everything_); }
  /// The elements that an access of these points touches.
  static isl::set elements(const isl::set& points, const Followed& access);
  /// The elements, at any iteration.
  static isl::set at_any_iteration(const isl::set& elements);
  /// The elements as ops outside of loops have them.
  static isl::set outside_of_loops(const isl::set& elements);
  /// All elements of the op's written fragment at its iterations, as a tile of so many columns.
  isl::set tile(const OpPoints& op, int columns) const;
  static isl::set columns_below(const isl::set& points, std::int64_t columns, int coordinate = kTileColumn);

 private:
  proof::IntSpace space_of(int k, bool masks, const isl::set& context) const;
  isl::set iterations_of(int k, const proof::IntSpace& space) const;
  isl::set untested_of(int k, Event::Kind kind, const proof::IntSpace& space, bool& tested) const;
  isl::set test_reads_of(int k, const proof::IntSpace& space) const;
  Followed followed(int k, const TileAccess& access) const;
  isl::set conditions(int k, const std::vector<IntExpr>& all) const;
  const TileOp& body_op(int k) const { return *body_[static_cast<std::size_t>(k)]; }

  TensorProof& proof_;
  std::vector<const TileOp*> body_;  ///< ops of the kernel's body, in order
  isl::set everything_, context_;    ///< of sizes and the block's coordinates: all, and what bears on bounds and conditions
};

}  // namespace nestor::nvptx
