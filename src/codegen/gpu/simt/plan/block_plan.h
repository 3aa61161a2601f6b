// Block plan: how the threads of one block share the ops of a kernel: layouts, registers or shared memory for every scratch
// buffer, vector accesses, barriers. Made before any code; the emitter only follows it.
#pragma once

#include "codegen/gpu/kernel/kernel_plan.h"
#include "codegen/gpu/target/gpu_target.h"
#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/op_shape.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace nestor::nvptx {

/// How a tile [rows x columns] falls on the threads of a block (or of a cluster of blocks, numbered through). Thread t has lane = t % lanes and group = t / lanes. It holds
/// row r = slot*groups + group, and column c = (chunk*lanes + lane)*vector + e for 0 <= e < vector. So e runs along a 16-byte
/// access, lane along neighbouring threads (of several warps when lanes > 32), slot and chunk along a thread's registers.
/// With runs, `run` neighbouring rows take the place of one: r = (slot/run*groups + group)*run + slot%run.
struct Layout {
  int vector = 1;
  int lanes = 1;
  int groups = 1;
  int run = 1;
  bool operator==(const Layout& other) const = default;
  int threads() const { return lanes * groups; }
  /// Slots of a thread for so many rows: whole runs.
  std::int64_t row_slots(std::int64_t rows) const { return ceil_div(rows, std::int64_t{groups} * run) * run; }
};

/// Which thread touches which element of a buffer, as one access of one op does it: each index over the tokens "#row<k>" and
/// "#column" (positions within the tile, from 0). Equal maps of two accesses: the same thread touches the same element.
struct ThreadMap {
  Layout layout;
  std::vector<std::int64_t> row_extents;  ///< bounds of the row dims; empty when no index uses a row
  std::int64_t column_extent = 0;         ///< 0 when no index uses the column
  std::vector<Affine> index;
  bool operator==(const ThreadMap& other) const = default;
};
inline constexpr const char* kColumnToken = "#column";
std::string row_token(std::size_t row);

/// Where a buffer lives in this kernel.
struct Placement {
  enum class Kind : std::uint8_t { global, shared, registers } kind = Kind::global;
  // shared
  std::int64_t offset = 0;  ///< bytes, a multiple of 16
  std::int64_t bytes = 0;
  std::vector<std::int64_t> strides;  ///< elements
  // registers, or what stands for them: slots of each thread, numbered row slot * column_slots + column slot
  int row_slots = 1;
  int column_slots = 1;
  bool by_row = false;
  bool by_column = false;
  /// The slots are in a part of shared memory that is each thread's own, in pieces of 16 bytes, rather than in registers.
  bool outside = false;
  std::int64_t outside_offset = -1;
  std::int64_t stages_offset = -1;  ///< bytes in shared memory: pieces of the work tiles to come, each thread's own
  int stages = 0;                   ///< work tiles to come, each in a slot
  int piece = 16;                   ///< bytes that an asynchronous copy moves: 16, or 4 where rows do not consist of such
};

/// A contract computed by register blocks: each k tile of A and B passes through shared memory, unless it is there already.
struct ProductPlan {
  ProductForm form;
  bool a_direct = false, b_direct = false;  ///< read where it lies in shared memory
  int k_tile = 16;
  std::int64_t a_offset = 0, b_offset = 0;  ///< bytes in shared memory
  int a_stride = 0, b_stride = 0;           ///< floats from one row of the staged tile to the next
  bool b_by_column = false;  ///< a row of B's staged tile is a thread's vector of columns, each with its ks next to each other
  int row_slots = 1, chunks = 1;
  int a_copy_width = 1, b_copy_width = 1;              ///< elements a thread copies at once
  bool a_copy_along_k = true, b_copy_along_k = false;  ///< neighbouring threads copy along k
  int stages =
      1;  ///< k tiles in shared memory: of more than one, all but the current one are on their way by asynchronous copies

  /// Bytes in shared memory of the staged tiles of one operand, of all stages.
  std::int64_t a_bytes(const Layout& layout) const { return std::int64_t{4} * stages * row_slots * layout.groups * a_stride; }
  std::int64_t b_bytes(const Layout& layout) const {
    return std::int64_t{4} * stages * b_stride * (b_by_column ? std::int64_t{chunks} * layout.lanes : k_tile);
  }
};

/// A reduction whose partial results are combined together with those of the lead of its composite.
struct FusedReduction {
  int lead = -1;          ///< op; what it writes is, until this reduction ends, the value of the thread's own warp
  ScalarExpr correction;  ///< as in Follower and Composite, with "n_total" a number
  ScalarExpr view;
  ScalarExpr reference;     ///< the lead's value as the correction takes it
  std::int64_t points = 0;  ///< of the reduction in each warp; 0 where they differ and the formulas do not ask
};

inline constexpr const char* kWarpLead = "$warp_lead";

/// out[s] = sum over k <= s - shift of f(k): all the sums from one pass over the terms. The plan's op has no dim k, and reads at s what f
/// reads at s - shift.
struct PrefixPlan {
  OpDim summed;            ///< k, as the body has it
  int kept = -1;           ///< s, a dim of the plan's op
  bool backward = false;   ///< k >= s + shift, and f at s + shift
  bool exclusive = false;  ///< k < s, or k > s, while f is read at s
  std::int64_t shift = 0;
  /// The op has one more place at the start of the sums, which has no term and keeps what it has.
  bool widened = false;
};

/// A read whose elements at neighbouring columns are `stride` apart, at `offset` of each such piece of memory, of which the op reads the first
/// and the last element, too: whole pieces are loaded. 0: it is no such read.
struct StridedRead {
  int stride = 0, offset = 0;
};

/// Sums of an op that reads other elements of what it writes, as forward substitution does: x[t] -= a[t, u] x[u] for u < t. A thread has the sum
/// of an element in a register from its first term to its last; the order of the terms is the op's.
struct OwnSums {
  /// Neighbouring sums that a thread has at once. Terms that all of them have come first, each read once for all; then those that read one
  /// another's results, from registers. With 1 sums are made one after the other, and `row`, `term`, `end` and `shift` mean nothing.
  int at_once = 1;
  int row = -1, term = -1;    ///< dims t and u, the only ones of several values that the thread runs through
  std::int64_t end = 0;       ///< the terms of row t are those below t + end
  std::int64_t shift = 0;     ///< term u reads what row u + shift writes, where it reads that buffer
  int width = 1;              ///< terms whose elements are loaded at once, from the start of the terms on
  std::vector<bool> vectors;  ///< by read: those that such a load serves, if any
};

/// The only term of a sum that may change it, among those along `dim`: where `index` of the op, which moves by one along it, is `place`. Or the
/// only sum that a term may change.
struct ChosenTerm {
  int dim = -1;      ///< reduced, run through by the thread; of sums no reduced one
  int index = -1;    ///< of TileOp::indices
  ScalarExpr place;  ///< i32, the same for all points that differ in `dim`, and of terms for all terms
};

struct BlockOp {
  TileOp op;
  std::vector<DimRole> roles;
  int column = -1;
  std::vector<int> rows;  ///< dims, outermost first
  Layout layout;
  std::optional<ProductPlan> product;
  std::optional<PrefixPlan> prefix;
  bool vectors = false;  ///< memory accesses marked below move layout.vector elements at once
  bool write_vector = false;
  std::vector<bool> read_vectors;
  std::vector<StridedRead> strided_reads;
  bool unroll_rows = false, unroll_columns = false;
  bool barrier_before = false;
  int ahead = 0;     ///< an asynchronous copy for the work tile so many trips later, into the circular buffer of its buffer
  int divided = -1;  ///< reduced dim whose points the groups of threads divide among them
  std::int64_t partials_offset = -1;  ///< bytes in shared memory, for a reduction over several warps of one block
  bool deferred = false;              ///< a lead whose follower combines the results of warps
  std::optional<FusedReduction> fused;
  int warp_lead = -1;    ///< op whose value over the thread's own warp is meant by the scalar kWarpLead
  bool gathers = false;  ///< the warps of a block combine their results before blocks of a cluster exchange them
  /// Op before it in whose pass it is computed: a reduction over the same columns, or an elementwise op at the same points.
  int joins = -1;
  /// Read of the element that the thread wrote at the point before, along its serial dim: the value stays in a register.
  int carried = -1;
  std::optional<OwnSums> own_sums;
  std::optional<ChosenTerm> chosen;
  /// Each term is added to the one sum, in memory, that it may change: a thread goes through the terms and takes those of its own sums.
  std::optional<ChosenTerm> scattered;
  /// Reduced dims whose points are written out for all rows of a run together, so that a term that several of them read is loaded once.
  /// Empty: sums are made row by row.
  std::vector<int> window;
  Multiples multiples;  ///< of the loop variables around it

  bool reduces_columns() const { return column >= 0 && op.dims[column].reduced && !product; }
  /// Sums are kept in f32, or in i32 for integers.
  ElementType sum_type() const { return op.value.type() == ElementType::i32 ? ElementType::i32 : ElementType::f32; }
  /// Groups of threads have points of their own of one sum.
  bool divides() const { return divided >= 0 && layout.groups > 1; }
  /// As lanes: the threads that have parts of one element of a sum over columns.
  Layout meeting() const { return divides() ? Layout{layout.vector, layout.threads(), 1} : layout; }
  /// What it writes is stored once for all points that differ in reduced dims alone.
  bool stores_sums() const { return op.reduction && (op.kind != OpKind::points || own_sums); }
  /// The results of several warps meet here.
  bool crosses_warps() const { return reduces_columns() && meeting().lanes > 32 && !deferred; }
  /// Lanes of one row add up each other's terms: a reduction, or sums of prefixes.
  bool meets_along_columns() const { return reduces_columns() || spreads_prefix(); }
  bool spreads_prefix() const { return prefix && column == prefix->kept; }
  bool prefix_crosses_warps() const { return spreads_prefix() && layout.lanes > 32; }
  /// Chunks of a row whose sums are made together; those of longer rows one by one.
  std::int64_t prefix_chunks() const;
  bool prefix_in_one_pass() const;                     ///< over each row
  int partial_words() const { return fused ? 2 : 1; }  ///< of 32 bits, of a partial result
  bool crosses_groups() const { return divides() && !reduces_columns(); }
  /// Sums of a column that threads of different warps have when crosses_groups().
  int group_partials() const { return layout.lanes <= 32 ? layout.threads() / 32 : layout.groups; }
  std::int64_t row_slots() const;                    ///< of the rows that a reduction over warps has in memory at once
  int threads_along(int dim) const;                  ///< that have different elements of it
  std::optional<std::int64_t> row_bound() const;     ///< product of the rows' extents; 1 without rows
  std::optional<std::int64_t> column_bound() const;  ///< 1 without a column
};

struct BlockNode {
  TileNode::Kind kind = TileNode::Kind::sequence;
  std::string var;
  IntExpr lower, upper;
  std::int64_t step = 1;
  IntExpr condition;
  std::vector<BlockNode> children;
  int op = -1;
  bool once = false;         ///< a loop of one iteration: `var` is a name for `lower`
  bool independent = false;  ///< iterations are blocks of the grid: they meet in nothing but the block's own memory
  bool commit = false;       ///< the asynchronous copies issued up to here belong together
  int advance = -1;          ///< buffer whose copy for the next work tile becomes the current one here
};

struct BlockPlan {
  const TileProgram* program = nullptr;
  const KernelPlan* kernel = nullptr;
  int threads = 32;  ///< of a block
  int cluster = 1;   ///< blocks whose threads share the ops; their registers alone, as shared memory is a block's own
  Layout layout;     ///< of ops that touch register tiles
  /// Threads are numbered so that a warp has 8 lanes of 4 groups, and neighbours a lane in common: `square_of()`. Only where no results of
  /// lanes meet.
  bool square_warps = false;
  BlockNode root;
  std::vector<BlockOp> ops;
  std::map<int, Placement> placements;  ///< by buffer, those of scratch
  std::set<int> lasting;                ///< buffers that are filled once for all trips of a loop
  int blocks_per_unit = 1;              ///< blocks of a multiprocessor among which registers are shared out
  std::int64_t shared_bytes = 0;
  std::int64_t exchange_offset = -1;  ///< bytes in shared memory: where the blocks of a cluster exchange partial results
  std::int64_t exchange_bytes = 0;    ///< of one exchange at most
  bool vector_memory = false;         ///< global accesses may be vectors: only under the conditions below
  std::map<std::string, std::int64_t> size_divisors;  ///< sizes must be divisible by these
  std::map<int, std::int64_t> alignments;             ///< bytes that address and strides of argument buffers must be multiples of

  const Buffer& buffer(int k) const { return program->buffers[k]; }
  const Placement* placement(int k) const;
  bool in_registers(const TileAccess& access) const;  ///< or in the thread's own shared memory
  int all_threads() const { return threads * cluster; }
  std::int64_t partials_bytes(const BlockOp& op) const;   ///< of a reduction or prefix that crosses warps or groups
  std::int64_t exchanged_bytes(const BlockOp& op) const;  ///< of what each block of a cluster receives for it
  bool has_conditions() const { return !size_divisors.empty() || !alignments.empty(); }
};

// Passes (block_kernel.h).
void normalise(BlockPlan& plan);         ///< tree and ops; loops in place of dims that cannot be spread
void gather_followers(BlockPlan& plan);  ///< ops that need a lead's final value, after its followers
void reside(BlockPlan& plan);        ///< resident blocks: a loop over their work tiles; copies before it, or ahead of their trip
void choose_roles(BlockPlan& plan);  ///< rows and columns of every op
void choose_terms(BlockPlan& plan);  ///< sums of which data says where their only terms stand, or to which of them a term belongs
void choose_layouts(BlockPlan& plan, int most_threads, int exact_threads);
/// The dim along memory of sums that are worth looking for the terms of, which lanes share; -1: it has no such sums.
int column_of_scattered(const BlockPlan& plan, const BlockOp& op);
void settle_scattered(BlockPlan& plan);  ///< where a thread has too few sums to look for their terms
void place_scratch(BlockPlan& plan);     ///< registers or shared
void choose_vectors(BlockPlan& plan);
void join_reductions(BlockPlan& plan);  ///< leads and followers whose partial results are combined together
void carry_values(BlockPlan& plan);     ///< what a thread writes and reads again at its next point
void keep_sums(BlockPlan& plan);        ///< sums that read other elements of what they write
void choose_windows(BlockPlan& plan);   ///< sums of neighbouring rows that share what they read
void join_passes(BlockPlan& plan);      ///< ops over the same points of the same memory, in one pass
void allocate_shared(BlockPlan& plan, const NvptxTarget& target);
void insert_barriers(BlockPlan& plan);
void part_at_barriers(BlockPlan& plan);  ///< elementwise ops that stand behind a barrier leave the pass before it

/// `op` with the dims of `like` in place of its own, which are as many.
TileOp with_dims_of(const TileOp& like, const TileOp& op);
/// May neighbours change places?
bool are_independent(const BlockOp& a, const BlockOp& b);

/// Layout for a tile of `rows` x `columns` (nullopt: unknown, taken to be large) on `threads` threads. `any_lanes`: nothing is combined over
/// threads, so that a row's lanes need be neither a power of two nor whole warps.
Layout best_layout(int threads, int vector, std::optional<std::int64_t> rows, std::optional<std::int64_t> columns, bool reduces,
                   bool product, bool any_lanes = false, std::int64_t rows_at_once = 0);
/// How many neighbouring rows a thread had best sum up together in this layout: those of a sliding window read much in common. 1: none.
int window_run(const BlockPlan& plan, const BlockOp& op, const Layout& layout);
/// The layout with runs that suit all of the ops; with other lanes where windows have more in common there.
Layout with_windows(const BlockPlan& plan, const std::vector<const BlockOp*>& ops, const Layout& layout,
                    std::optional<std::int64_t> rows, std::optional<std::int64_t> columns);
/// Is the place of each row of a run known from that of the first, by the extents that rows are numbered with?
bool run_fits(const BlockOp& op, int run);
/// Positions of the row dims of a run's row less those of its first row.
std::vector<std::int64_t> places_in_run(const BlockOp& op, int row);
/// Lets the groups of threads divide the points of a sum over rows of memory or over several dims, where they have nothing else to do.
void divide_sum(BlockOp& op);
/// Has each thread few enough columns in this layout to keep all their sums while it runs over its share of the points?
bool divides_well(const BlockOp& op, const Layout& layout);

/// Positions of dims of known extents at each of their points, the last dim moving first.
std::vector<std::vector<std::int64_t>> points_of_dims(const BlockOp& op, const std::vector<int>& dims);
/// Rows of a thread that a reduction along columns takes at once, at most: each operand follows rows or columns, and not both, unless what belongs
/// to a column takes some operations. More where none follows rows, as counts of the values of each kind have it. 0: rows come one by one.
std::int64_t most_rows_at_once(const BlockOp& op);
/// Is it at another place in each row?
bool follows_rows(const BlockOp& op, const TileAccess& access);
/// Does the reduction take all rows of a thread at once in its layout?
bool fits_rows_at_once(const BlockOp& op);
/// Does no operand of such a reduction follow rows?
bool shares_terms(const BlockOp& op);

/// The op with prefix sums in place of its sums over all that stands before; nullopt: it has no such form.
std::optional<BlockOp> prefix_sums_of(const TileOp& op, const std::vector<Buffer>& buffers);

/// Reads from memory that follow the columns and no row, where threads have several rows each; none: the op is emitted row by row.
std::set<int> read_by_all_rows(const BlockPlan& plan, const BlockOp& op);

/// Numbers of reads of which none stands behind a condition, where an address may lie outside of the tensor.
std::set<int> unconditional_reads(const ScalarExpr& expr);

/// Can the op's accesses along its column be vectors of `width`? Notes the conditions in `plan` when `commit`.
bool can_vectorise(BlockPlan& plan, BlockOp& op, int width, bool commit);
/// Can so many neighbours along a dim be loaded at once, from its lower bound on? Notes the conditions in `plan` when `commit`.
bool can_load_neighbours(BlockPlan& plan, const BlockOp& op, int read, int dim, int width, bool commit);
/// Conditions for a copy of a k tile of one operand by vectors of `width` along `dim`.
bool can_copy_vectors(BlockPlan& plan, const BlockOp& op, int read, int dim, int width, bool commit);
std::optional<ThreadMap> thread_map(const BlockOp& op, const TileAccess& access, bool is_write);

/// Bits of a thread's place in its warp that number its group; the others number its lane. So threads that lie one apart read the same
/// element of what follows lanes, and those that lie two apart of what follows groups: shared memory serves such at once.
inline constexpr int kSquareGroupBits = 0b10001, kSquareLanes = 8, kSquareGroups = 4;
/// Can warps of threads in this layout be squares?
inline bool fits_squares(const Layout& layout) { return layout.lanes % kSquareLanes == 0 && layout.groups % kSquareGroups == 0; }

/// The place of exchanges between the blocks of a cluster: so many slots in turn, after their barriers.
inline constexpr std::int64_t kExchangeSlots = 2, kExchangeBarriers = 16;

/// Sums of one warp or group start at a multiple of so many: 16-byte accesses.
inline constexpr std::int64_t kPartialsPad = 8;

/// Name of the number of trips before the current one: of work tiles that a resident block has taken, of iterations of a loop.
inline constexpr const char* kTrip = "$trip";
/// Name of the work tile that a resident block has taken.
inline constexpr const char* kWorkTile = "$work_tile";
/// Pieces of its circular buffer that a thread holds of a register tile.
std::int64_t pieces_of(const BlockPlan& plan, int buffer);

}  // namespace nestor::nvptx
