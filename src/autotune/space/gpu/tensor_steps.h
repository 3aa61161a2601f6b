// TensorSteps: what a candidate on tensor cores chooses, and the steps that say so: how warpgroups share the work.
#pragma once

#include "autotune/space/gpu/axes/tensor_axes.h"
#include "autotune/space/space.h"
#include "autotune/space/structure/group_steps.h"
#include "support/knobs.h"

#include <array>
#include <cstdint>
#include <vector>

namespace nestor {

/// The parameter of what shape products beside the main group have: a place among the likely shapes that fit. Spaces with such products have it.
inline constexpr const char* kShapeBesideParameter = "shape_beside";

/// First compute capability whose products take operands from shared memory and run while their warpgroup goes on.
constexpr int kGroupProducts = 90;
constexpr int kDoublings = 8;  ///< of terms, before their extremum is moved

/// Stages of sums of products, which keep nothing else in shared memory.
inline constexpr std::array<std::int64_t, 9> kSumStages{2, 3, 4, 5, 6, 8, 10, 12, 16};

constexpr int kMostFewRows = 32;  ///< of which half a warpgroup's would be empty

constexpr int kMostMulticast = 2;  ///< blocks of a cluster that candidates on tensor cores have

/// One choice of the parameters below.
struct TensorChoice {
  GridShape grid = {};  ///< no warpgroups: no tensor cores
  int row_tiles = 1;
  std::int64_t columns = 128;
  std::int64_t depth = 64;  ///< terms of a streamed sum in one iteration
  bool descending = false;  ///< tiles of columns in falling order: what a triangular mask cuts comes first
  /// Work tiles in falling order of their rows, so that those with most work start first: 1 among all, more among those that the outermost
  /// loops but one (two, ...) leave, whose other operands then stay in the cache; 0 in rising order.
  int longest_first = 0;
  int rescale = 0;   ///< doublings of terms up to which an extremum stays behind (rule online); 0: it never does
  int unroll = 1;    ///< iterations a round of the loop over columns
  int pack_gqa = 1;  ///< rows of a tile that differ in the pack axis alone
  int few_rows =
      0;  ///< rows of a tile whose products are transposed (swap_ab), and which has whole warpgroups of columns; 0: they are not
  bool streaming_inputs = false;  ///< where a block has all rows: streamed operands are read once
  bool persistent() const { return grid.persistent > 0; }
  /// Of one block.
  std::int64_t rows() const {
    return few_rows > 0 ? few_rows : std::int64_t{nvptx::kWarpgroupRows} * (grid.warpgroups / work_tiles()) * row_tiles;
  }
  /// Of a block, under way at once.
  int work_tiles() const { return grid.ping_pong_tiles != 0 ? grid.warpgroups : 1; }
};

/// Rows of a pack that leave the fewest places empty, as many as one may have.
int fullest_pack(const TensorAxes& axes);

/// May products be transposed, for the few rows that there are?
bool may_have_few_rows(const TensorAxes& axes, int sm);

/// `sm`: compute capability times ten. `rescale`: there are extrema that may stay behind.
std::vector<Parameter> tensor_parameters(const TensorAxes& axes, int sm, bool rescale);
TensorChoice tensor_choice(const NamedValues& values);
/// Inverse.
NamedValues values_of(const TensorChoice& choice);

/// Tiles of the common loops, and of the one over columns.
GroupPlan tensor_plan(const FusionGroup& group, const TensorAxes& axes, const TensorChoice& choice);

/// The fusion group's steps with a grid in place of parallel loops, and the choice's steps after them.
std::vector<Step> tensor_steps(const GroupSteps& shape, const TensorAxes& axes, const TensorChoice& choice);

}  // namespace nestor
