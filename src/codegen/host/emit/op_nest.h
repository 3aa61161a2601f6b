// The loops of one op: guards split over the loops that decide them, and loops that advance by vectors.
#pragma once

#include "codegen/host/emit/op_context.h"

#include <functional>
#include <vector>

namespace nestor {

/// A guard taken apart: each part stands at the outermost place that knows all its dims.
struct GuardLevels {
  struct Level {
    std::vector<IntExpr> bounds;      ///< comparisons linear in the dim: they shorten its loop
    std::vector<IntExpr> conditions;  ///< tested inside its loop
  };
  std::vector<IntExpr> before;  ///< outside all loops
  std::vector<Level> levels;    ///< by position in the order of loops
  std::vector<IntExpr> lanes;   ///< differ between the lanes of a vector
};

/// `order`: the op's dims, outermost loop first; `vector_dim` is one of them or -1.
GuardLevels split_guard(const TileOp& op, const std::vector<int>& order, int vector_dim);

/// A loop's range: `count` iterations from `lower`, never negative; a constant when it is known.
struct Range {
  llvm::Value* lower = nullptr;
  llvm::Value* count = nullptr;
};
Range range_of(OpContext& context, int dim, const std::vector<IntExpr>& bounds);

/// How an op is vectorised.
struct VectorChoice {
  int dim = -1;         ///< -1: not at all
  unsigned width = 1;   ///< lanes
  unsigned count = 1;   ///< vectors an iteration
  bool masked = false;  ///< the rest of a loop is done under a mask, else element by element
};

/// Chooses among `candidates` (dims) by how accesses move with them; `vectors`: wished vectors an iteration.
VectorChoice choose_vector(const OpContext& context, const std::vector<int>& candidates, unsigned vectors);

/// body(value of the dim relative to the range's start, lanes, vectors, mask or null); mask belongs to one vector.
using VectorBody = std::function<void(llvm::Value*, Lanes, unsigned, llvm::Value*)>;
void vector_loop(OpContext& context, const VectorChoice& choice, const Range& range, const VectorBody& body);

/// Vectors an iteration that suit the cost of the op's value.
unsigned wished_vectors(const TileOp& op);

/// Unroll factor requested for a dim; 1 when none.
std::int64_t unroll_of(const OpDim& dim);

}  // namespace nestor
