// Passes that find what a tensor plan works on: tiles, masks, sums, what blocks share.
#pragma once

#include "codegen/gpu/mma/plan/op_places.h"
#include "codegen/gpu/mma/plan/tensor_plan.h"

#include <string>
#include <vector>

namespace nestor::nvptx {

void find_tiles(TensorPlan& plan, const TileTree& tree);  ///< ops, their rows and columns, fragments, circular buffers
void plan_visits(TensorPlan& plan);                       ///< loops that go past tiles which data hides
void plan_masks(TensorPlan& plan);                        ///< where ops have points, and what stands elsewhere
void require_whole_terms(TensorPlan& plan);               ///< products add up whole tiles, or those that end with an argument
void plan_column_tests(TensorPlan& plan);                 ///< tests of values that all rows of a tile share
void plan_sums(TensorPlan& plan, const TileTree& tree);   ///< sums that stay in lanes
void plan_sharing(TensorPlan& plan);                      ///< what blocks of a cluster copy for each other
/// Threads see what others of their kernel write to memory at no certain time: ops read there what their own thread has written, or nothing
/// that the kernel writes.
void check_memory(const TensorPlan& plan);

/// The loop around ops [begin, end) of the kernel, all of them in their order, if it can go past tiles whose block tests fail. Sets `why` where it has
/// such tests, and cannot.
std::optional<VisitedLoop> visited_loop(const TileProgram& program, const OpPlace& loop, const std::vector<TileOp>& ops,
                                        std::size_t begin, std::size_t end, std::string& why);

/// Do they read the same elements of a table?
bool same_visits(const VisitedLoop& a, const VisitedLoop& b);

/// What products need of their operands beside what the definition says: finite values where a mask cuts a tile, as a weight of 0 is
/// multiplied there (docs/values.md, masked places).
struct FiniteOperand {
  std::string op;
  std::string tensor;
  std::string why;  ///< a sentence
};
std::vector<FiniteOperand> finite_operands(const TensorPlan& plan);

}  // namespace nestor::nvptx
