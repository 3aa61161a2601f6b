// Block emitter: a block plan to LLVM IR. Every decision is in the plan; here are only instructions.
#pragma once

#include "codegen/gpu/kernel/kernel_arguments.h"
#include "codegen/gpu/ptx/ptx_math.h"
#include "codegen/gpu/simt/plan/block_plan.h"
#include "codegen/llvm/int_emit.h"
#include "codegen/llvm/scalar_emit.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace nestor::nvptx {

class BlockEmitter {
 public:
  using Value = llvm::Value;
  BlockEmitter(llvm::IRBuilder<>& b, llvm::Function& function, KernelArguments arguments);

  /// Emits the body of one block at the builder's position.
  void emit(const BlockPlan& plan);

 private:
  using Body = std::function<void()>;
  using IndexBody = std::function<void(Value*)>;

  /// The position of a thread in a layout.
  struct Position {
    Value* lane = nullptr;   ///< i32
    Value* group = nullptr;  ///< i32
  };
  /// Where within a tile code is being emitted: the slots of register tiles.
  struct Slot {
    int row = 0;
    int column = 0;
  };

  // control flow
  static constexpr int kRolled = 0;
  /// `unroll` > 1: so many iterations at once, for loads that need not wait for each other; kRolled: one at a time.
  void loop(Value* lower, Value* upper, std::int64_t step, const IndexBody& body, int unroll = 1);
  void when(Value* condition, const Body& body);  ///< null: always
  void when_else(Value* condition, const Body& yes, const Body& no);
  Value* both(Value* a, Value* b);  ///< conjunction; null stands for true
  void barrier();                   ///< of the block, or of the cluster when one shares the ops
  void await_cluster_start();       ///< before the first store into another block of the cluster
  Value* entry_alloca(llvm::Type* type, const llvm::Twine& name);

  // values
  Value* integer(const IntExpr& expr);
  Value* variable(const std::string& name);
  Value* condition(const IntExpr& expr);
  Value* extent(const OpDim& dim);
  const Position& position(const Layout& layout);
  Value* square_thread(const Layout& layout);
  /// Of a value of the buffer, and of an element of it in memory.
  llvm::Type* type_of(const Buffer& buffer) { return register_type(b_.getContext(), buffer.type); }
  llvm::Type* element_of(const Buffer& buffer) { return element_type(b_.getContext(), buffer.type); }

  // memory
  Value* address(const TileAccess& access);
  Value* shared_address(llvm::Type* type, std::int64_t bytes, Value* index);
  Value* load_element(const TileAccess& access);
  std::vector<Value*> load_once(Value* pointer, llvm::Type* word);
  std::vector<Value*> load_whole(Value* pointer, llvm::Type* type, std::uint64_t bytes);
  std::vector<Value*> load_words(const TileAccess& access, int width);
  std::vector<Value*> elements_of(const std::vector<Value*>& words, ElementType type);
  std::vector<Value*> load_vector(const TileAccess& access, int width);
  std::vector<Value*> load_strided(TileAccess access, const StridedRead& run, int width);
  std::vector<Value*> load(const BlockOp& op, const TileAccess& access, bool vector, int width, Slot slot);
  void store(const BlockOp& op, const std::vector<Value*>& values, ElementType type, Slot slot);
  void store_vector(const TileAccess& access, const std::vector<Value*>& values, ElementType type);
  void store_floats(Value* pointer, const std::vector<Value*>& values);
  std::vector<Value*> load_floats(Value* pointer, int width);
  std::vector<Value*> convert(const std::vector<Value*>& values, ElementType from, ElementType to);
  std::vector<Value*> load_outside(const TileAccess& access, int width, Slot slot);
  void store_outside(const TileAccess& access, const std::vector<Value*>& values, Slot slot);
  Value* outside_address(int buffer, int element);
  std::vector<Value*> load_piece(Value* address, ElementType type, int bytes);
  std::vector<Value*> packed(const std::vector<Value*>& values, ElementType type);
  int slot_number(const TileAccess& access, Slot slot, int element);
  Value* register_slot(const TileAccess& access, Slot slot, int element);
  void at_element(const BlockOp& op, int element, const Body& body);

  // ops
  using Loaded = std::map<int, std::vector<Value*>>;  ///< a point's (or a vector of points') elements, by the read's number
  void visit(const BlockNode& node);
  void emit_op(const BlockOp& op);
  void emit_unit(const BlockOp& op, int width, Slot slot);
  void emit_ahead(const BlockOp& op, int width, Slot slot);
  void advance(int buffer);
  Value* piece_address(int buffer, Value* trip, std::int64_t piece);
  void emit_points(const BlockOp& op, int width, Slot slot, const Loaded& loaded = {});
  void emit_point_reduction(const BlockOp& op, Slot slot);
  void emit_accumulation(const BlockOp& op, int width, Slot slot);
  void emit_scattered(const BlockOp& op);
  /// A term that may have a sum of the thread.
  struct FoundTerm {
    Value* counts = nullptr;  ///< null: it does
    Value* at = nullptr;      ///< along the dim that the threads look along
    Value* place = nullptr;   ///< along the chosen dim
  };
  void add_scattered(const BlockOp& op, const OpDim* along, const std::vector<FoundTerm>& terms, int width);
  void look_for_terms(const BlockOp& op, const OpDim* along, const std::function<void(std::vector<FoundTerm>)>& body);
  struct Vote {
    Value *counts = nullptr, *lane = nullptr;
  };
  void for_votes(Value* votes, const std::function<void(const std::vector<Vote>&)>& body);
  Value* chosen_place(const BlockOp& op, const ChosenTerm& chosen, Slot slot);
  Value* is_own_sum(const BlockOp& op, Value* place);
  void add_chosen_terms(const BlockOp& op, const std::vector<Value*>& sums, int width, Slot slot);
  void emit_own_sums(const BlockOp& op, Slot slot);
  void emit_rows_of_sums(const BlockOp& op, Value* start, int count, bool whole, Slot slot);
  void add_common_terms(const BlockOp& op, Value* start, const std::vector<Value*>& sums, bool whole, Slot slot);
  std::vector<Loaded> load_terms(const BlockOp& op, int width);
  void add_own_term(const BlockOp& op, Value* sum, Slot slot, const Loaded& loaded);
  /// Calls `body` for every row slot: unrolled ones with their number and a constant, others once within a loop.
  void for_rows(const BlockOp& op, bool at_least_once,
                const std::function<void(int slot, Value* slot_value, Value* row_ok)>& body);
  void for_own_elements(const BlockOp& op, const std::function<void(int width, Slot slot)>& body);
  Value* row_slots(const BlockOp& op);
  Value* set_row(const BlockOp& op, int slot, Value* slot_value);
  void for_columns(const BlockOp& op, const std::function<void(int width, int column_slot)>& body);
  void column_chunk(const BlockOp& op, Value* first, bool whole, int column_slot, const std::function<void(int, int)>& body);
  void for_serial(const BlockOp& op, const std::function<bool(const OpDim&)>& pick, const Body& body, std::size_t from = 0);
  std::vector<Value*> load_read(const BlockOp& op, int ordinal, int width, Slot slot);
  std::vector<Value*> point_values(const BlockOp& op, const ScalarExpr& value, int width, Slot slot, Loaded loaded = {});
  Value* masked_element(const BlockOp& op, int ordinal, Slot slot, int element, Value* mask);
  Value* owner(const BlockOp& op);
  ScalarExpr stored_value(const BlockOp& op) const;
  void accumulate(const BlockOp& op, const std::vector<Value*>& sums, int width, Slot slot);
  void write_sums(const BlockOp& op, std::vector<Value*> sums, Slot slot);
  Value* neutral(const BlockOp& op);
  std::vector<Value*> new_sums(const BlockOp& op, int count);
  std::vector<Value*> read_sums(const BlockOp& op, const std::vector<Value*>& sums);

  // rows that share what is read along columns
  void emit_rows_at_once(const BlockOp& op, const std::set<int>& shared);
  void emit_batch_of_rows(const BlockOp& op, int width, Slot slot, const Loaded& shared, Value* first, std::int64_t count,
                          Value* end);

  // columns that several rows of a thread share
  struct PairRow {
    std::map<std::string, Value*> dims;
    std::vector<Loaded> loaded;  ///< by op
  };
  bool takes_rows_at_once(const std::vector<const BlockOp*>& together) const;
  std::vector<std::vector<Value*>> partials_of_rows(const std::vector<const BlockOp*>& together);
  void add_rows(const std::vector<const BlockOp*>& together, const std::vector<std::vector<llvm::Value*>>& sums);
  PairRow pair_row(const std::vector<const BlockOp*>& together, int slot);
  /// What reads of a term follow: its row or nothing; its column alone; both.
  enum class PairRead : std::uint8_t { row, column, both };
  Loaded read_pairs(const BlockOp& op, PairRead wanted, int width, Slot slot);
  void add_pairs(const std::vector<const BlockOp*>& together, const std::vector<PairRow>& rows,
                 const std::vector<std::vector<Value*>>& sums, int width, int column_slot);
  // sums of neighbouring rows that share what they read
  struct Window;
  Value* wanted_ = nullptr;  ///< where it does not hold, an argument's first element takes the place of what is loaded
  bool whole_loads_ = false;
  bool short_code_ = false;  ///< of rows beside a run
  void emit_windows(const BlockOp& op);
  void emit_run(const BlockOp& op, int slot, Value* slot_value);
  void sum_run(const BlockOp& op, int slot);
  void add_window(const BlockOp& op, Window& window);
  using Term = std::map<std::string, std::int64_t>;  ///< positions of the dims that are written out
  void set_term(const BlockOp& op, const Window& window, int row, const Term& term);
  void set_window_row(const BlockOp& op, const Window& window, int row);
  static std::string text_at(const BlockOp& op, IntExpr expr, int row, const Term& term);
  Value* term_counts(const BlockOp& op, Window& window, const IntExpr& guard, int row, const Term& term);

  // exchanges between the blocks of a cluster
  void prepare_exchanges();
  void begin_exchange(const BlockOp& op);
  void send(const std::vector<Value*>& words, Value* address, Value* rank);
  void end_exchange();

  // reductions over columns
  /// What a warp or a block contributes: its sum or, of a fused reduction, the lead's value and the sum.
  using Partial = std::vector<Value*>;
  /// Points of a fused reduction that partial results stand for; 0 where nobody asks.
  struct Points {
    std::int64_t each = 0;  ///< one of them
    std::int64_t all = 0;   ///< their combination
  };
  void emit_column_reduction(const BlockOp& op);
  Value* thread_partial(const BlockOp& op, int slot, Value* row_ok);
  std::vector<Value*> thread_partials(const std::vector<const BlockOp*>& together, int slot, Value* row_ok);
  std::vector<const BlockOp*> joined_with(const BlockOp& op) const;
  void emit_joined_reductions(const std::vector<const BlockOp*>& together);
  void name_dims(const BlockOp& lead, const BlockOp& op);
  Value* shuffled(Value* value, ElementType type, int distance);
  Value* butterfly(Value* value, const BlockOp& op, int lanes);
  Value* partial_address(const BlockOp& op, Value* row_slot, Value* warp);
  Value* exchanged_address(const BlockOp& op, Value* row_slot, Value* from);
  Value* lead_value(const BlockOp& lead, int slot);
  void store_total(const BlockOp& op, int slot, Value* total);
  Partial warp_partial(const BlockOp& op, int slot, Value* row_ok);
  void store_partial(const BlockOp& op, const Partial& partial, Value* address);
  Partial load_partial(const BlockOp& op, Value* address);
  void publish_partial(const BlockOp& op, Value* row_slot, const Partial& total);
  void send_gathered(const BlockOp& op, bool all_rows);
  void meet(const BlockOp& op, bool all_rows);
  Partial combined_partials(const BlockOp& op, Value* row_slot);
  Partial combined(const BlockOp& op, const std::vector<Partial>& partials, Points points, int lanes, Value* counts);
  Value* corrected(const BlockOp& op, const Partial& partial, Value* lead, Points points);
  void finish_reduction(const BlockOp& op, int slot, Value* row_ok, const Partial& total);

  // prefix sums
  struct PrefixSums;
  void emit_prefix(const BlockOp& op);
  void emit_recurrence(const BlockOp& op, Slot slot);
  void emit_serial_prefix(const BlockOp& op, int width, Slot slot);
  void prefix_pass(const BlockOp& op, int slot, Value* row_ok, Value* base, PrefixSums& sums);
  void load_prefix_terms(const BlockOp& op, int slot, Value* row_ok, Value* base, PrefixSums& sums);
  void scan_warps(const BlockOp& op, PrefixSums& sums);
  void scan_block(const BlockOp& op, PrefixSums& sums);
  void store_prefix(const BlockOp& op, int slot, Value* row_ok, Value* base, const PrefixSums& sums);
  void for_prefix_chunks(const BlockOp& op, Value* base, const std::function<void(int, int)>& body);
  Value* prefix_address(const BlockOp& op, std::int64_t chunk, std::int64_t warp);
  std::vector<Value*> prefix_terms(const BlockOp& op, int width, Slot slot);
  Value* added(const BlockOp& op, Value* a, Value* b);

  // sums that groups of threads divide among them
  void emit_divided_sum(const BlockOp& op);
  void add_own_points(const BlockOp& op, const std::vector<Value*>& sums);
  void combine_in_warp(const BlockOp& op, const std::vector<Value*>& sums);
  Value* group_partial(const BlockOp& op, Value* number);
  void publish_sums(const BlockOp& op, const std::vector<Value*>& sums);
  std::vector<Value*> combined_groups(const BlockOp& op, const std::vector<Value*>& own, int width);

  // products
  struct OperandCopy;
  using Accumulators = std::vector<Value*>;  ///< allocas: row slot, chunk, element
  void emit_product(const BlockOp& op);
  OperandCopy operand_copy(const BlockOp& op, bool is_a);
  Value* staged_place(const OperandCopy& copy, Value* line, Value* k);
  void copy_operand(const BlockOp& op, const OperandCopy& copy, Value* k_start);
  void start_copies(const BlockOp& op, const OperandCopy& copy, Value* k_start, Value* stage);
  void product_with_copies_ahead(const BlockOp& op, const Accumulators& sums, Value* k_end);
  void product_steps(const BlockOp& op, const Accumulators& sums, Value* k_start, Value* k_count);
  Loaded read_beside(const BlockOp& op, Value* k_start, Value* k_offset);
  void product_step(const BlockOp& op, const Accumulators& sums, Value* k_start, Value* k_offset);
  std::vector<Value*> read_a(const BlockOp& op, int row_slot, Value* k_start, Value* k_offset);
  std::vector<Value*> read_b(const BlockOp& op, int chunk, Value* k_start, Value* k_offset);
  Value* in_stage(Value* index, std::int64_t stage_bytes);
  std::vector<Value*> read_column(const BlockOp& op, int chunk, int element, Value* k_offset);
  void set_product_row(const BlockOp& op, int row_slot);
  void set_product_column(const BlockOp& op, int chunk, int element);
  void write_product(const BlockOp& op, const Accumulators& sums);
  Value* inside_tensor(const TileAccess& access);

  llvm::IRBuilder<>& b_;
  llvm::Function& function_;
  KernelArguments arguments_;
  NvptxMath math_;
  const BlockPlan* plan_ = nullptr;
  Value* thread_ = nullptr;      ///< i32, numbered through the blocks of a cluster, or as square warps have it
  Value* own_thread_ = nullptr;  ///< i32, numbered within the block
  bool cluster_started_ = false;
  struct Exchange {
    Value* count = nullptr;    ///< alloca i32: exchanges so far
    Value* place = nullptr;    ///< of the current one's partial results
    Value* barrier = nullptr;  ///< i32 address in shared memory, of the current one
    Value* parity = nullptr;   ///< i32, of the current one's phase
  } exchange_;
  Value* stage_ = nullptr;  ///< i64, of a product whose tiles are copied ahead: where the current one lies
  llvm::GlobalVariable* shared_ = nullptr;
  std::map<std::string, Value*> environment_;  ///< loop variables and dims
  std::map<std::pair<int, int>, Position> positions_;
  std::map<std::pair<int, int>, Value*> registers_;   ///< alloca by buffer and slot
  std::map<std::pair<int, int>, Value*> warp_leads_;  ///< alloca by lead and row slot
};

}  // namespace nestor::nvptx
