// Tensor emitter: a tensor plan to LLVM IR. Follows the plan's events; every decision is there. What depends on the instructions that
// products and copies are made of is in one class for each kind of them; loops, masks and ops on fragments are the same for all.
#pragma once

#include "codegen/gpu/kernel/kernel_arguments.h"
#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "codegen/gpu/ptx/ptx_emit.h"
#include "codegen/gpu/ptx/ptx_math.h"
#include "codegen/llvm/int_emit.h"
#include "codegen/llvm/scalar_emit.h"

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace nestor::nvptx {

inline constexpr int kProductStep = 16;  ///< of k, in one product

class TensorEmitter {
 public:
  using Value = llvm::Value;
  using Values = std::vector<Value*>;
  /// `maps`: tensor maps, of the circular buffers in order and then of the stores that need one, in order.
  TensorEmitter(llvm::IRBuilder<>& b, llvm::Function& function, KernelArguments arguments, Values maps);

  virtual ~TensorEmitter() = default;

  /// Emits the body of one block at the builder's position, without the return.
  void emit(const TensorPlan& plan);

 protected:
  using Body = std::function<void()>;

  /// Everything that changes while a role runs: what loops carry from one iteration to the next.
  struct State {
    std::map<int, Values> tiles;                         ///< fragments, by buffer
    std::map<int, Values> operands;                      ///< 16-bit first operands, by op: one half of all, then the other
    std::map<int, Values> held;                          ///< operands held in registers, by circular buffer
    std::map<int, std::pair<Value*, Value*>> positions;  ///< by circular buffer: stage and phase of the next tile
    std::map<int, std::pair<Value*, Value*>> fills;      ///< mma, by circular buffer: of the next tile to copy
    /// i32, by variable of a loop that goes past tiles: the numbers of the one before, of the latest one and of the next one.
    std::map<std::string, std::array<Value*, 3>> visits;
    std::vector<Value**> all();
  };

  /// A place in a fragment: 64-row tile, column pair, row half, element.
  struct FragmentPlace {
    int tile = 0, pair = 0, half = 0, element = 0;
  };

  /// A linear distance as a number at the thread's first element, and its slopes.
  struct LinearMask {
    Value* base = nullptr;  ///< i32; null: not linear
    std::int64_t row_slope = 0, column_slope = 0;
  };

  /// A clause of a mask: one of its alternatives holds.
  struct ClauseTest {
    const IntExpr* clause = nullptr;
    std::vector<LinearMask> alternatives;  ///< none: not linear
    bool equality = false;                 ///< of the only alternative
    std::int64_t slope = 0;                ///< the only column slope of alternatives beside 0
    bool mixed = false;                    ///< there are several
    bool is_bound() const { return !alternatives.empty() && !equality && !mixed; }
  };

  /// The tests of one op's points. Bounds with one column slope are taken together for each row: one comparison an element.
  struct Tests {
    std::vector<ClauseTest> clauses;
    std::map<std::pair<std::int64_t, int>, Value*> bounds;                  ///< by column slope and row of the thread
    std::map<std::tuple<const IntExpr*, std::int64_t, int>, Value*> parts;  ///< of mixed clauses: by clause, slope and row
  };

  // control flow
  void within_branch(const Body& body);
  void when(Value* condition, const Body& body);    ///< nothing in the state changes in `body`
  void choose(Value* condition, const Body& body);  ///< what `body` changes is kept where it ran
  using Advance = std::function<Value*(Value*)>;
  void counted_loop(const std::string& var, Value* lower, Value* upper, const Advance& next, const Body& body);
  void tile_loop(const EventNode& node);
  void visiting_loop(const VisitedLoop& loop, const EventNode& node);
  void visit_if_any(const VisitedLoop& loop, const EventNode& node);
  void visit(const VisitedLoop& loop, const EventNode& node);
  void go_on(const VisitedLoop& loop);
  void begin_visits(const VisitedLoop& loop);
  Value* next_tile(const VisitedLoop& loop, Value* tile);
  Value* last_tile(const VisitedLoop& loop);
  void forget_private(const State& before);
  void work_tiles(const Body& body);
  void run(const EventNode& node, bool masked);
  void run_children(const EventNode& node, bool masked);

  // set-up
  void name_threads();
  Value* own_rows(Value* row);  ///< the row of the work tile that is the block's `row`
  virtual void roles() = 0;     ///< what the block's threads do

  // values
  Value* integer(const IntExpr& expr);
  Value* lookup(const std::string& name);
  Value* constant(int value) { return b_.getInt32(static_cast<std::uint32_t>(value)); }
  Value* row_at(const FragmentPlace& place);  ///< the value of the row dim
  int row_distance(const FragmentPlace& place) const;
  Value* pack_at(Value* row);  ///< the value of the row dim of the work tile's `row`
  Value* place_in_pack();      ///< of all rows of the thread
  Values copied_at(const Values& index, int row_index, int pack_index) const;
  Value* column_at(const FragmentPlace& place);
  void set_point(const TensorOp& op, const FragmentPlace& place);
  void set_start(const TensorOp& op);  ///< the op's dims where its tile starts
  const CircularBuffer& ring(int k) const { return plan_->circular_buffers[static_cast<std::size_t>(k)]; }
  const TensorOp& op(int k) const { return plan_->ops[static_cast<std::size_t>(k)]; }
  Value* stage_address(int ring, Value* stage);
  void advance(int ring) { advance(ring, state_.positions.at(ring)); }
  void advance(int ring, std::pair<Value*, Value*>& position);

  // events
  void event(const Event& event, bool masked);
  virtual void synchronise(const Event& event) = 0;  ///< copies, waits, and what tells others of them
  /// Gives back what waits for this place in op `k`, where `made` of `count` values have been computed, `value` >= 0 the last of them.
  virtual void release_amid(int /*k*/, int /*made*/, int /*count*/, Value* /*value*/) {}
  /// After how many of kAmidParts of op `k` something is given back; 0: nothing is.
  virtual int amid_parts(int /*k*/) const { return 0; }
  virtual void product(int k) = 0;
  virtual bool products_under_way() const { return false; }
  virtual void settle_products() {}  ///< waits for all of them; what has to be done about them still comes
  void take_registers(int ring);
  void own_work_tiles();  ///< those of this warpgroup, of ping_pong_tiles
  void pass_over(int ring, Value* tiles);
  Value* tiles_brought(const EventNode& node, int ring);
  void draw_work_tile();  ///< asks for the number of the block's next work tile
  void take_work_tile(int ring);
  Value* first_row_of(int tile);
  Values row_matrices(int ring, int tile, int step);
  Values held_operand(const TensorOp& op, int k, int tile, int step, int half);
  void narrow(int k, bool masked);
  void quad_reduction(int buffer);

  // computing ops
  void compute(int k, bool masked);
  void read_test(int k, bool masked);
  Values usual_columns(int k);
  void tested_map(int k, bool masked);
  Value* test_outcome(const TensorOp& op, const FragmentPlace& place);
  void map(int k, const ScalarExpr& expr, bool masked, bool gives_back = true);
  void scale_seldom(int buffer, const std::function<Value*(const FragmentPlace& row)>& factor);
  void reduce(const TensorOp& op, bool masked);
  void seldom_sum(const TensorOp& op);
  void seldom_elements(const TensorOp& op, Values& values, int first, Value* bits);
  Value* direct_sum(const TensorOp& op, Value* number);
  void set_number(const TensorOp& op, Value* number);
  Value* is_point(const TensorOp& op);
  void store(const TensorOp& op, int number);
  virtual void store_tile(const TensorOp& op, int number) = 0;  ///< through shared memory
  Values tile_words(const TensorOp& op, int tile, int pair);
  void store_elements(const TensorOp& op);
  void store_column_pairs(const TensorOp& op);
  Value* pair_word(const TensorOp& op, FragmentPlace place);
  bool uses_row(const TensorOp& op, const IntExpr& index) const;
  static bool pairs_are_neighbours(const TileAccess& access, const std::string& column);
  Value* pairs_are_aligned(const TileAccess& access);
  Value* argument_offset(const TileAccess& access, const std::function<bool(const IntExpr&)>& pick);
  Value* element(const TensorOp& op, const ScalarExpr& value, const FragmentPlace& place);
  ScalarExpr row_factor(const TensorOp& op) const;
  Value* ring_element(int ring, const FragmentPlace& place);
  Value* argument_element(const TensorOp& op, const TileAccess& access, const FragmentPlace& place, Value* wanted);
  Value* shared_element(const TensorOp& op, int read, const FragmentPlace& place);
  llvm::LoadInst* load_element(const TileAccess& access, Value* address);  ///< as it lies in memory
  Value* argument_load(const TileAccess& access, Value* address);
  Value* load_where(Value* wanted, const TileAccess& access, Value* address);
  bool written_here(int buffer) const;
  Value* argument_address(const TileAccess& access, bool bounded = false);
  Value* fragment_value(int buffer, const FragmentPlace& place);
  int number_in(const Fragment& fragment, const FragmentPlace& place) const;
  Tests masks(const TensorOp& op, const std::vector<IntExpr>& conditions);
  Value* inside(const TensorOp& op, Tests& tests, const FragmentPlace& place);  ///< null: always
  ClauseTest clause_test(const IntExpr& clause);
  LinearMask linear_mask(const IntExpr& distance);
  Value* distance_at(const LinearMask& mask, int row);
  Value* largest_at(const ClauseTest& test, std::int64_t slope, int row);
  Value* row_bound(Tests& tests, std::int64_t slope, int row);
  Value* mixed_test(Tests& tests, const ClauseTest& test, int row, int column);
  Value* finite_or_zero(Value* value, int buffer);
  void store_where(Value* test, Value* address, Value* value, std::size_t bytes);
  Value* quad_sum(Value* value, ReductionOp op, ElementType type);
  Value* pack(Value* low, Value* high, ElementType from, ElementType to);
  int pairs_of(const TensorOp& op) const;

  llvm::IRBuilder<>& b_;
  llvm::Function& function_;
  KernelArguments arguments_;
  Values maps_;
  NvptxMath math_;
  PtxEmitter ptx_;
  const TensorPlan* plan_ = nullptr;
  std::map<std::string, Value*> environment_;
  State state_;
  Value* drawn_ = nullptr;           ///< i32: what the counter held when the work tile after this one was drawn
  Value* next_work_tile_ = nullptr;  ///< i32: the work tile after this one
  Value* work_tile_count_ = nullptr;
  /// i32, in resident blocks: 0 for every work tile, which neither LLVM nor ptxas knows. What depends on it is computed for each work tile rather than
  /// kept in registers throughout.
  Value* work_tile_zero_ = nullptr;
  bool copying_ = false;  ///< the producer warp's program is emitted
  /// Of the op being computed: by read, row and column where it has them.
  std::map<std::tuple<int, int, int>, Value*> shared_elements_;
  std::map<std::tuple<int, int, int>, Values>
      words_;  ///< of the op being computed: by circular buffer, 64-row tile and two column pairs
  std::map<int, std::vector<std::map<int, Value*>>> test_elements_;  ///< by op with a column test, 32 columns and read
  Values column_votes_;      ///< of the op being computed: bit 0 is the thread's first column, with the usual outcome
  Value* shared_ = nullptr;  ///< i32 address, a multiple of 1024
  Value *thread_ = nullptr, *lane_ = nullptr, *warp_ = nullptr,
        *warpgroup_ = nullptr,                            ///< i32; warp within its warpgroup, consumers from 0
            *sharer_ = nullptr;                           ///< i32; of the warpgroups that share a work tile, from 0
  Value *first_row_ = nullptr, *first_column_ = nullptr;  ///< i32, of the thread's elements
  Value* leads_warp_ = nullptr;                           ///< i1
};

/// TensorCores::wgmma: barriers in shared memory, tensor copies, products by descriptors.
class WgmmaEmitter : public TensorEmitter {
 public:
  using TensorEmitter::TensorEmitter;

 private:
  void roles() override;
  void init_barriers();
  void producer();
  void drain();
  void consumers();
  Value* full_barrier(int ring, Value* stage);
  Value* empty_barrier(int ring, Value* stage);
  void synchronise(const Event& event) override;
  void load(const Event& event);
  void tell_work_tile(int ring);
  bool lanes_read(int ring) const;
  void release(const Event& event, Value* known = nullptr);
  void release_amid(int k, int made, int count, Value* value) override;
  int amid_parts(int k) const override;
  void wait_products(int count);
  void product(int k) override;
  bool products_under_way() const override { return !in_flight_.empty(); }
  void settle_products() override;
  std::set<int> sums_under_way() const;
  Value* descriptor(int ring, Value* own, int offset, int leading_stride);
  Values first_operand(const TensorOp& op, int k, int tile, int step, int half);
  void turn(bool wait);
  void store_tile(const TensorOp& op, int number) override;
  Values joined_start(const TensorOp& op, Value* row, int column);
  void store_columns(const TensorOp& op, std::pair<int, int> column_blocks, int pending, Value* map);

  std::deque<int> in_flight_;               ///< products under way
  std::map<int, int> behind_;               ///< tiles that are kept behind the current one, by circular buffer
  std::map<int, std::vector<Event>> amid_;  ///< what is given back in the middle of an op, after `count` of kAmidParts, by op
};

/// TensorCores::mma: asynchronous copies by all threads, products of registers.
class MmaEmitter : public TensorEmitter {
 public:
  using TensorEmitter::TensorEmitter;

 private:
  /// A tile's place in an argument: the first element's address and offset, and what is known of its surroundings.
  struct Source {
    Value *data = nullptr, *row_stride = nullptr;  ///< address of the tile's first element; elements from row to row
    Value* argument = nullptr;                     ///< address of the argument's first element
    Value *first_row = nullptr, *rows = nullptr;   ///< i64: where the tile starts, and how many rows the argument has
    Value *before = nullptr, *columns = nullptr;   ///< i64: the tile's columns from `before` up to `columns` are the argument's
    Value* inside = nullptr;                       ///< i1: the argument has the indices that the tile does not run over
    Value* in_pieces = nullptr;                    ///< i1: pieces of 16 bytes are aligned
  };

  void roles() override;
  void synchronise(const Event& event) override;
  void load(int ring, int ahead);
  Source source_of(int buffer, int row_index, const std::vector<IntExpr>& origin);
  Value* row_inside(const Source& source, Value* row);
  void copy_pieces(const CircularBuffer& ring, Value* address, const Source& source);
  void copy_elements(const CircularBuffer& ring, Value* address, const Source& source);
  void product(int k) override;
  Values first_operand(const TensorOp& op, int k, int tile, int step, int half);
  Values second_operand(const TensorOp& op, int column, int step);
  void store_tile(const TensorOp& op, int number) override;
  void store_pieces(const TensorOp& op, const Source& target);
};

}  // namespace nestor::nvptx
