// TensorBlock: what a block on tensor cores keeps in registers and in shared memory. The search fills one in before there is a plan, the
// plan from its ops; both ask estimate() whether it fits, so that they cannot disagree.
#pragma once

#include "codegen/gpu/target/gpu_target.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace nestor::nvptx {

inline constexpr int kBlockColumns = 64;  ///< 16-bit elements of a swizzled row of 128 bytes
inline constexpr int kSwizzleBytes = 128;
inline constexpr int kSwizzleRows = 8;  ///< after which the pattern of a swizzle repeats
inline constexpr std::int64_t kTileAlignment = std::int64_t{kSwizzleBytes} * kSwizzleRows;  ///< bytes, of tiles in shared memory
inline constexpr int kMostCopiedRows = 256;                                                 ///< by one tensor copy
inline constexpr int kMostStride = 8;      ///< elements of an argument from one row of a tensor copy to the next
inline constexpr int kSumColumns = 8;      ///< of a product's sum
inline constexpr int kTerms = 16;          ///< of its terms, that one instruction takes
inline constexpr int kMostPartTerms = 64;  ///< of a sum of products of parts (rule bf16x6), between two roundings to nearest
inline constexpr int kBarrierBytes = 8;    ///< of one barrier in shared memory
inline constexpr int kWorkTileBytes = 4;   ///< of a work tile's number in shared memory
inline constexpr int kWorkTileStages = 2;  ///< numbers that a block has at once

/// A tile of 16-bit elements in shared memory, in blocks of 64 dense elements, each [rows][64].
struct BlockTile {
  std::string what = "a tile";         ///< for messages
  std::int64_t rows = 0, columns = 0;  ///< the columns are dense in memory
  int stages = 1;                      ///< tiles that it holds in turn
  int blocks = 1;                      ///< of a cluster, that have the same tile: each copies its share to all
  bool held = false;                   ///< read once into registers, as a first operand
  bool lends = false;  ///< stays for the work tile, and each group reads its own rows alone: a result may take its place

  std::int64_t column_blocks() const { return (columns + kBlockColumns - 1) / kBlockColumns; }
  std::int64_t bytes() const { return column_blocks() * rows * kSwizzleBytes; }  ///< of one slot
  /// A block's share of a tile: blocks of columns where they can be shared out evenly, rows of all of them otherwise.
  bool shares_columns() const { return column_blocks() % blocks == 0; }
  std::int64_t copied_rows() const { return shares_columns() ? rows : rows / blocks; }
};

/// A product of tiles. Numbers of columns and terms are rounded up to what instructions take.
struct BlockProduct {
  std::int64_t columns = 0;  ///< of its sum, which is in registers
  std::int64_t terms = 0;    ///< of a first operand that is made from a fragment; 0: it is in shared memory
};

/// Columns of the blocks in which a tile of so many leaves through shared memory, where the argument has others beside it: 32 where that
/// divides them and 64 does not, so that no block goes beyond them.
inline int stored_columns(std::int64_t columns) {
  return columns % kBlockColumns == kBlockColumns / 2 ? kBlockColumns / 2 : kBlockColumns;
}

/// A 16-bit tile of rows that leaves through shared memory.
struct BlockResult {
  std::int64_t columns = 0;
  /// It leaves once a work tile, after what the block computes: in a resident block, a tile that lends its place can be waited for.
  bool leaves_last = true;
  int block_columns = kBlockColumns;  ///< of the blocks in which it leaves by tensor copies
};

/// What one block keeps.
struct TensorBlock {
  int warpgroups = 1;       ///< of four warps, that compute
  int row_tiles = 1;        ///< of 64 rows, that each takes
  int work_tiles = 1;       ///< under way at once: 1, or one for each warpgroup
  int blocks_per_unit = 1;  ///< blocks of a multiprocessor
  bool persistent = false;
  bool scheduler = false;  ///< work tiles are drawn from a counter
  int chains = 0;          ///< of products that are under way at once; 0: no chain by chain
  std::vector<BlockProduct> products{};
  std::vector<BlockTile> tiles{};
  std::vector<BlockResult> results{};

  std::int64_t rows() const { return std::int64_t{warpgroups} / work_tiles * row_tiles * kWarpgroupRows; }  ///< of a work tile
};

/// Where tiles and results are in shared memory: bytes from its first swizzle on.
struct SharedPlaces {
  std::vector<std::int64_t> tiles, results;  ///< in the block's order; a result's may be a tile's
  std::vector<std::int64_t>
      result_blocks;  ///< blocks of columns that a result's place holds; fewer than it has: it leaves in parts. Of each work tile
  std::int64_t barriers = 0;   ///< of a full and an empty barrier for each slot of each tile
  std::int64_t scheduler = 0;  ///< of the stages of work tile numbers
  std::int64_t bytes = 0;      ///< that the block asks for
};

struct TensorNeeds {
  std::int64_t registers = 0;       ///< of a computing thread, for sums, operands made from fragments, and operands that are held
  std::int64_t registers_left = 0;  ///< what its share leaves beside addresses and temporaries
  SharedPlaces places;
  /// Why the target cannot run the block, and what would do, as the rest of a sentence about the kernel; "": it can.
  std::string refusal;
  /// Why most of it would spill; "": it would not. A plan takes it all the same, a search need not try.
  std::string spills;
};

/// Registers and shared memory that the block takes on the target.
TensorNeeds estimate(const TensorBlock& block, const NvptxTarget& target);

/// Registers of a thread of the copying group and of a computing one: what all threads start with, moved between them.
std::pair<int, int> moved_registers(const TensorBlock& block);

/// Do warps of the target multiply operands in shared memory while one of them copies?
inline bool has_group_products(const NvptxTarget& target) { return target.sm >= 90; }

}  // namespace nestor::nvptx
