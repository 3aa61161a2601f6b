// TensorSteps: candidates whose products run on tensor cores: which loops become rows and columns of their tiles, and how groups of
// warps share the work.
#pragma once

#include "autotune/space/cluster_steps.h"
#include "autotune/space/gpu/gpu_steps.h"
#include "autotune/space/space.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// The loops that products of a cluster tile, and what their tiles hold. Axes are those of the structure.
struct TensorAxes {
  int row = -1;     ///< common axis along the rows of every product
  int stream = -1;  ///< axis whose tiles are columns of the first product: the loop over them stays in a block
  /// Common axis along the columns of a product whose sum itself is streamed: `stream` is what it sums over. -1: columns are streamed.
  int column = -1;
  int pack = -1;           ///< common axis that first operands follow and second ones do not, beside `row`; -1: none
  std::int64_t inner = 1;  ///< extent of the reduced dim of the first product
  std::int64_t row_extent = 1, pack_extent = 1, column_extent = 1;
  // Extents beside rows and streamed columns, one entry a tile.
  std::vector<std::int64_t> row_operands;       ///< elements of a row, of inputs that stay for a block's rows
  std::vector<std::int64_t> streamed_operands;  ///< elements of a streamed position, of inputs that come tile by tile
  std::vector<std::int64_t> sums;               ///< elements of a row, of sums along the streamed axis
  int tile_operands = 0;                        ///< 16-bit inputs of rows and streamed columns that are no operand of a product
  int first_products = 0;                       ///< tiles of rows and streamed columns that products leave
  int register_operands = 0;                    ///< such tiles that are first operands of products
  int functions = 0;                            ///< exponentials and the like for an element of such tiles
};

/// The axes if a statement of the cluster is a sum of products of 16-bit inputs (or of one with a temporary) that fits.
std::optional<TensorAxes> tensor_axes(const Nest& nest, const NestStructure& structure, const Cluster& cluster);

/// One choice of the parameters below.
struct TensorChoice {
  int groups = 0;  ///< of four warps; 0: no tensor cores
  int row_tiles = 1;
  std::int64_t columns = 128;
  std::int64_t depth = 64;  ///< terms of a streamed sum in one iteration
  int slots = 2;
  int overlap = 0;  ///< 1: products of two iterations together; more: 1 + the chains of products under way at once
  bool turns = false, hold = false, stagger = false;
  int polynomial = 0;       ///< sixteenths of exponentials
  bool descending = false;  ///< tiles of columns in falling order: what a triangular mask cuts comes first
  /// Items in falling order of their rows, so that those with most work start first: 1 among all, more among those that the outermost
  /// loops but one (two, ...) leave, whose other operands then stay in the cache; 0 in rising order.
  int longest_first = 0;
  int rescale = 0;  ///< doublings of terms up to which an extremum stays behind (rule online); 0: it never does
  int unroll = 1;   ///< iterations a round of the loop over columns
  bool persistent = false, claims = false;
  int pack = 1;       ///< rows of a tile that differ in the pack axis alone
  int residents = 1;  ///< blocks of a multiprocessor
  int cluster = 1;    ///< blocks that take an item together, and copy streamed tiles for each other
  /// Of one block.
  std::int64_t rows() const { return std::int64_t{64} * groups * row_tiles; }
};

/// Do several tiles of weights come from as many tiles of scores? Then they may be independent chains of products.
bool several_chains(const TensorAxes& axes);

/// `sm`: compute capability times ten. `rescale`: there are extrema that may stay behind.
std::vector<Parameter> tensor_parameters(const TensorAxes& axes, int sm, bool rescale);
TensorChoice tensor_choice(const std::map<std::string, std::int64_t>& values);

/// Tiles of the common loops, and of the one over columns.
ClusterPlan tensor_plan(const Cluster& cluster, const TensorAxes& axes, const TensorChoice& choice);

/// The cluster's steps with a grid in place of parallel loops, and the choice's steps after them.
std::vector<Step> tensor_steps(const ClusterSteps& shape, const TensorAxes& axes, const TensorChoice& choice);

/// Choices worth trying first, best guess first, all of which fit.
std::vector<std::map<std::string, std::int64_t>> likely_tensor_choices(const TensorAxes& axes, const GpuLimits& limits);

/// Why the registers or the shared memory of a block cannot hold the choice's tiles; empty when they can.
std::string tensor_infeasible(const TensorAxes& axes, const TensorChoice& choice, const GpuLimits& limits);

}  // namespace nestor
