// Tensor plan: how the warpgroups of one block share a tile program whose products run on tensor cores. Values live in
// registers as fragments, operands in circular buffers of stages in shared memory that one warp fills by tensor copies, or all threads by asynchronous
// ones; what waits for what is derived from the ops and written down as events, which the emitter follows and a checker proves.
#pragma once

#include "codegen/gpu/kernel/kernel_plan.h"
#include "codegen/gpu/mma/plan/tensor_event.h"
#include "codegen/gpu/target/tensor_block.h"
#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/op_shape.h"
#include "codegen/tile/seldom_sum.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace nestor::nvptx {

inline constexpr int kAmidParts = 8;  ///< parts of an op between which stages can be given back
/// Instructions that products and copies are made of.
enum class TensorCores : std::uint8_t {
  wgmma,  ///< sm_90a: a warpgroup multiplies operands in shared memory while it goes on; a warp of its own starts tensor copies
  mma,    ///< sm_80: warps multiply registers; all threads of the block copy, and go on to the next tiles together
};
/// Names of a tile's row and column in masks, and of a row's place in its pack.
inline constexpr const char* kRow = "#row";
inline constexpr const char* kPack = "#pack";
inline constexpr const char* kColumn = "#column";

/// A scratch tile in registers. Thread t of a warpgroup holds, of every 64 rows, rows r = 16*(t/32) + t%32/4 + 8h and columns
/// c = 8i + 2*(t%4) + e (0 <= h, e < 2): number 4i + 2h + e. Without columns: one value a row, the same in the four threads that share it.
struct Fragment {
  bool by_row = false;
  int columns = 0;           ///< 0: one value a row; else a multiple of 8
  bool thread_sums = false;  ///< each of the four threads holds its own part of a sum; added up when first used otherwise
};

/// A tile of an argument in shared memory, in `stages` copies: blocks of 64 dense elements, each [rows][64] with a 128-byte swizzle.
struct CircularBuffer {
  int buffer = -1;
  std::vector<IntExpr> origin;          ///< of the tile, one an index of the argument
  int row_index = -1;                   ///< index that runs over the rows; the last one is dense
  int pack_index = -1;                  ///< index that runs over the places in a pack of rows; -1: rows are not packed
  int row_stride = 1, pack_stride = 1;  ///< elements of the argument between neighbours along these indices
  int rows = 0;
  int columns = 0;  ///< dense elements used
  int stages = 2;
  bool streamed = false;      ///< filled at every iteration of the loop around its reader; else once a work tile
  std::string var;            ///< with mma, streamed: the variable of that loop, and
  IntExpr upper;              ///< where it ends
  bool in_registers = false;  ///< read once into registers, as the first operand of a product
  bool scheduler =
      false;  ///< no tile of an argument: the number of the block's next work tile, which the producer warp has drawn
  int own_index =
      -1;  ///< in a cluster: index along which each block has tiles of its own, a block's rows apart; -1: all have the same
  int blocks = 1;           ///< of a cluster, that have the same tiles: each copies its share of a tile to all of them
  int readers = 1;          ///< warpgroups, of all these blocks, that must release a stage before it is filled again
  std::int64_t offset = 0;  ///< bytes in shared memory
  BlockTile tile() const { return {.rows = rows, .columns = columns, .stages = stages, .blocks = blocks, .held = in_registers}; }
  int column_blocks() const { return static_cast<int>(tile().column_blocks()); }
  bool shares_columns() const { return tile().shares_columns(); }
  int copied_rows() const { return static_cast<int>(tile().copied_rows()); }
  int copied_blocks() const { return shares_columns() ? column_blocks() / blocks : column_blocks(); }
  std::int64_t stage_bytes() const { return scheduler ? kWorkTileBytes : tile().bytes(); }
};

/// Does a copy by a tensor map that starts at this place of the last index start at a multiple of 16 bytes, as the hardware demands?
bool starts_with_unit(const IntExpr& dense, ElementType type);

/// A test of values in memory that is the same for all rows of a tile. Its outcomes at all columns are read before the op needs them.
struct ColumnTest {
  ScalarExpr condition;  ///< a part of the op's value
  bool usual = true;     ///< the outcome that most columns have
  ScalarExpr value;      ///< the op's, where the condition has the usual outcome
  bool clamped =
      true;  ///< in tiles without masks, too, lanes may be beyond the argument, and read the last element in their place
};

/// Two indices of an argument along which one dim lies: at / period is the one, at % period the other. `period` 0: there are none.
struct JoinedIndex {
  int quotient = -1, remainder = -1;
  std::int64_t period = 0;
  IntExpr at;  ///< whose quotient and remainder they are
};

/// Rows of a tile that one copy writes, in memory as in shared memory: `rows` in order, places `inner` of them within each of `outer`.
struct CopiedRows {
  int rows = 0;
  int outer = -1, inner = -1;  ///< indices of the argument; inner -1: rows are along `outer` alone
  int per_outer = 1;
};

/// One op of the work tile's body, with what it means for fragments.
struct TensorOp {
  enum class Kind : std::uint8_t { product, reduce, map, store, seldom } kind = Kind::map;
  TileOp op;
  int row = -1, column = -1;  ///< dims; -1: none
  int pack = -1;              ///< dim of a row's place in its pack; -1: none
  /// Where the op has points: clauses (mask_cnf.h) over kRow, kColumn and the variables around. `mask`: those that tell elements
  /// of a fragment apart; the others (rows that the work tile as a whole has not) matter to memory alone.
  std::vector<IntExpr> mask, memory_mask;
  /// Of a guard of many clauses: pieces (mask_cnf.h), one of which holds at a point, and the clauses that hold beside. Empty: none is.
  std::vector<std::vector<IntExpr>> pieces;
  std::vector<IntExpr> beside_pieces;
  std::optional<double> outside;  ///< value given to points outside of the mask
  bool select = false;            ///< `outside` must be written; false: it follows from the operands
  bool keeps = false;             ///< outside of the mask stands what ops before have written: each writes a part of the tile
  bool finite_rows =
      false;          ///< it follows if values of rows are finite: that of a row without points yet, an infinity, is read as 0
  bool late = false;  ///< runs beside the next iteration
  std::map<int, int>
      read_rings;  ///< reads of an op that is no product, whose tiles come through circular buffers: read -> circular buffer
  std::optional<ColumnTest> test;   ///< of a map: a tile with the usual outcome at all columns takes a branch without the test
  std::optional<SeldomSum> seldom;  ///< of an op of that kind: terms of memory alone, along the dim form.k
  // product
  ProductForm form;
  int a_ring = -1, b_ring = -1;                 ///< operands in shared memory; a_ring < 0: a fragment
  bool a_by_row = false;                        ///< the first operand runs along its rows, not along k
  bool b_by_column = false;                     ///< the second runs along columns, not along k
  int k = 0, n = 0;                             ///< extents, multiples of 16 and 8
  bool mask_a = false;                          ///< the first operand's fragment must be masked
  ElementType product_type = ElementType::f16;  ///< of both operands, as tensor cores see them: f16 or bf16
  int halves = 1;  ///< 16-bit numbers whose sum stands for an element of the first operand's fragment
  /// Conditions beyond which one operand's tile lies outside of its argument and brings zeros, by the other one's circular buffer.
  std::map<int, std::vector<IntExpr>> zeros_meet;
  // store of a 16-bit tile through shared memory
  bool through_shared = false;
  int row_index = -1;   ///< index of the argument that runs over the rows
  int pack_index = -1;  ///< that which runs over the places in a pack of rows; -1: rows are not packed
  JoinedIndex joined_rows,
      joined_columns;                 ///< where the argument has two indices for rows (row_index is one of them), or for columns
  std::int64_t stage_offset = -1;     ///< of the first of its places: with ping_pong_tiles each warpgroup has one
  int stage_columns = kBlockColumns;  ///< of a block: 64, swizzled over 128 bytes, or 32, over 64 bytes
  int stage_blocks = 0;               ///< blocks of columns that have a place there; the others take their turn
  bool waits_for_place = false;       ///< until the tile that it stored there before has left
  /// For each batch of blocks that goes at once, all or one: how many of the youngest batches may still leave while it is written to its
  /// place; -1: it waits for none.
  std::vector<int> stage_pending;
  int stage_batch(int blocks) const { return stage_blocks < blocks ? 1 : blocks; }  ///< blocks that go at once, of so many
  int stage_pitch() const { return stage_columns * 2; }  ///< bytes of a row of a block, and of its swizzle
};

/// A loop over tiles that goes past those whose points data hides whole. Its events count the tiles that are left (0 <= n < `count`); the loop's
/// own variable has the tile's number there.
struct VisitedLoop {
  std::string var;
  std::string count;     ///< name of the number of tiles that are left, which no thread computes
  IntExpr lower, upper;  ///< of the tiles' numbers
  /// Says, for a block of columns, which is the next one with points (Buffer::next_blocks): at the first rows of the work tile, without its last index.
  TileAccess next;
  int row_index = -1;                  ///< index of `next` that goes on over the work tile's rows, to
  IntExpr last_rows;                   ///< its value at the last ones; -1: they share one element
  int row_blocks = 1;                  ///< no more values than that
  std::int64_t blocks = 1, tiles = 1;  ///< tile t starts in block floor(blocks * t / tiles)
  std::set<int> finite;                ///< buffers that must be finite where data hides: weights of 0 would multiply them
};

struct TensorPlan {
  const TileProgram* program = nullptr;
  const KernelPlan* kernel = nullptr;
  TensorCores cores = TensorCores::wgmma;
  int warpgroups = 1;  ///< of four warps, that compute
  int row_tiles = 1;   ///< of 64 rows, that each takes
  /// Rows of a tile that have one value of the row dim: row r has value r / pack of it, and r % pack of the pack dim. 1, 2, 4 or 8: so all
  /// rows of a thread have one place in their packs.
  int pack = 1;
  std::map<int, Fragment> fragments;  ///< by scratch buffer
  std::vector<CircularBuffer> circular_buffers;
  std::vector<TensorOp> ops;
  std::vector<VisitedLoop> visited;
  EventNode consumer, producer;  ///< one work tile; with mma all threads are consumers
  std::int64_t shared_bytes = 0;
  std::int64_t barriers_offset = 0;
  bool cluster_start = false;  ///< no block of the cluster goes on before the barriers of all are ready
  bool drains = false;         ///< a block's producer warp ends after the last tiles that the cluster shares have been released

  const Buffer& buffer(int k) const { return program->buffers[static_cast<std::size_t>(k)]; }
  /// Each warpgroup takes work tiles of its own, in turn: the n-th of a block is that of warpgroup n % warpgroups.
  bool ping_pong_tiles() const { return kernel->shape.ping_pong_tiles != 0 && warpgroups > 1; }
  int sharing_warpgroups() const { return ping_pong_tiles() ? 1 : warpgroups; }   ///< that take one work tile together
  int rows() const { return sharing_warpgroups() * row_tiles * kWarpgroupRows; }  ///< of one block in one work tile
  /// Blocks that take a work tile together. Each has its own rows of it: those of block r start at r * rows().
  int cluster() const { return kernel->shape.cluster; }
  int work_tile_rows() const { return cluster() * rows(); }
  int packs() const { return rows() / pack; }                      ///< of rows, of one block
  int work_tile_packs() const { return work_tile_rows() / pack; }  ///< of a work tile: values of the row dim
  /// Warpgroups 0 to warpgroups - 1 compute. With wgmma one warp behind them copies, in a warpgroup of its own where registers move from it to them.
  int threads() const {
    const int copying = cores != TensorCores::wgmma ? 0 : moves_registers() ? kWarpgroupThreads : kWarpThreads;
    return warpgroups * kWarpgroupThreads + copying;
  }
  bool moves_registers() const { return cores == TensorCores::wgmma && warpgroups > 1; }
  int blocks_per_unit() const { return kernel->shape.blocks_per_unit(); }
  bool persistent() const { return kernel->shape.persistent > 0; }
  bool dynamic_scheduler() const { return persistent() && kernel->shape.dynamic_scheduler != 0; }
  /// Circular buffers of tiles come first, one tensor map each; then the one of numbers of work tiles.
  std::size_t tile_rings() const {
    return circular_buffers.size() - (!circular_buffers.empty() && circular_buffers.back().scheduler ? 1 : 0);
  }
  bool ping_pong() const { return kernel->shape.ping_pong != 0 && warpgroups > 1; }
  bool has_turns() const { return ping_pong() || ping_pong_tiles(); }
  /// The loop over the variable, if it goes past tiles; else nullptr.
  const VisitedLoop* visited_loop(const std::string& var) const {
    const auto found = std::find_if(visited.begin(), visited.end(), [&](const VisitedLoop& loop) { return loop.var == var; });
    return found == visited.end() ? nullptr : &*found;
  }
  /// The circular buffer through whose place the result of a store through shared memory leaves; -1: it has a place of its own.
  int lender(const TensorOp& store) const {
    const auto found = std::find_if(circular_buffers.begin(), circular_buffers.end(),
                                    [&](const CircularBuffer& ring) { return ring.offset == store.stage_offset; });
    return found == circular_buffers.end() ? -1 : static_cast<int>(found - circular_buffers.begin());
  }
};

/// Is the op run once a work tile, and by itself?
bool runs_last(const TensorPlan& plan, int op);
/// What one copy of a store through shared memory writes; no rows: copies cannot write them.
CopiedRows copied_rows(const TensorPlan& plan, const TensorOp& store);
/// The only index that uses the variable, `stride` times its value but for where it starts; -1: there is none such.
int runs_along(const std::vector<IntExpr>& index, const std::string& var, int stride = 1);
/// The same with any stride that tensor copies have, which is set.
int strides_along(const std::vector<IntExpr>& index, const std::string& var, int& stride);
/// Can rows of the argument be whole units of 16 bytes? Copies take no others, and write no less, even beyond a row's end. Where its
/// length is not known here, the runtime refuses other lengths (support/tensor_view.h).
bool has_whole_units(const Buffer& buffer);
/// The indices of an argument in the order in which a tile has them, outermost first: places in a pack run within rows. Empty: as they are.
std::vector<int> copied_order(std::size_t rank, int row_index, int pack_index);

/// What a block of the plan keeps: tiles in the order of the circular buffers, results in that of their stores.
TensorBlock block_of(const TensorPlan& plan);
/// Is it a product with both operands in shared memory, which can be issued before anything else of its iteration?
bool leads(const TensorOp& op);
/// The op sets its tile to zero.
bool writes_zero(const TileOp& op);
/// value = sum * x, the sum in `buffer` and x free of it: parts of the sum may be scaled each for itself.
bool scales(const TileOp& op, int buffer);
/// What a row value is before any point has come to it: the neutral element of the reduction that writes it; nothing if there is none.
std::optional<double> value_without_points(const TensorPlan& plan, int buffer);
/// The value of `expr` if it follows from what is known of its reads (nullopt: some finite number); `scalars` with their ranges.
std::optional<double> known_value(const ScalarExpr& expr, const std::vector<ScalarParam>& scalars,
                                  const std::function<std::optional<double>(int)>& read);

}  // namespace nestor::nvptx
