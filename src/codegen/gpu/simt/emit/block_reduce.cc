// Reductions along columns: in a thread, across the lanes of a warp by butterfly shuffles, across warps through shared memory. The
// results of warps are sums or, of a fused reduction (fused_reduction.cc), pairs with the value of its lead.
#include "codegen/gpu/simt/emit/block_emitter.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

using llvm::Value;

/// Independent partial sums a thread keeps, so that an addition need not wait for the one before.
constexpr int kPartialSums = 4;
/// Partial results that each thread combines by itself: of more, each lane of a warp takes its own. A pair costs several
/// instructions and registers, so that lanes pay off earlier.
constexpr int kFewPartials = 8, kFewPairs = 4;

/// Of a partial result in memory.
llvm::Type* partial_type(llvm::IRBuilderBase& b, const BlockOp& op) {
  llvm::Type* type = register_type(b.getContext(), op.sum_type());
  return op.fused ? llvm::FixedVectorType::get(type, 2) : type;
}

}  // namespace

void BlockEmitter::emit_column_reduction(const BlockOp& op) {
  if (op.joins >= 0) return;  // emitted where its pass begins
  if (const std::vector<const BlockOp*> together = joined_with(op); together.size() > 1 || takes_rows_at_once(together))
    return emit_joined_reductions(together);
  const bool crosses = op.crosses_warps();
  const bool shares = plan_->cluster > 1;
  if (crosses && shares && op.unroll_rows) begin_exchange(op);
  for_rows(op, crosses, [&](int slot, Value* slot_value, Value* row_ok) {
    const Partial total = warp_partial(op, slot, row_ok);
    if (!crosses) return finish_reduction(op, slot, row_ok, total);
    Value* place = op.unroll_rows ? slot_value : b_.getInt64(0);
    if (shares && !op.unroll_rows) begin_exchange(op);
    publish_partial(op, place, total);
    if (op.unroll_rows) return;
    meet(op, false);
    finish_reduction(op, slot, row_ok, combined_partials(op, place));
    if (!op.rows.empty() && !shares) barrier();  // the next rows use the same place
  });
  if (!crosses || !op.unroll_rows) return;
  meet(op, true);
  for_rows(op, true, [&](int slot, Value* slot_value, Value* row_ok) {
    finish_reduction(op, slot, row_ok, combined_partials(op, slot_value));
  });
}

/// The op, and those whose columns its threads go through in the same pass.
std::vector<const BlockOp*> BlockEmitter::joined_with(const BlockOp& op) const {
  std::vector<const BlockOp*> together{&op};
  for (const BlockOp& other : plan_->ops) {
    if (other.joins >= 0 && &plan_->ops[static_cast<std::size_t>(other.joins)] == &op) together.push_back(&other);
  }
  return together;
}

/// Terms in one pass; then each op combines its results as it would by itself.
void BlockEmitter::emit_joined_reductions(const std::vector<const BlockOp*>& together) {
  const BlockOp& lead = *together.front();
  std::vector<std::vector<Value*>> of_rows;
  if (takes_rows_at_once(together)) of_rows = partials_of_rows(together);
  for_rows(lead, lead.crosses_warps(), [&](int slot, Value*, Value* row_ok) {
    std::vector<Value*> partials =
        of_rows.empty() ? thread_partials(together, slot, row_ok) : of_rows[static_cast<std::size_t>(slot)];
    for (std::size_t k = 0; k < together.size(); ++k) {
      const BlockOp& op = *together[k];
      name_dims(lead, op);
      if (k > 0 && op.barrier_before) barrier();
      // Registers may hold a row of another op where this one has none.
      if (!of_rows.empty() && row_ok != nullptr) partials[k] = b_.CreateSelect(row_ok, partials[k], neutral(op));
      const Partial total{butterfly(partials[k], op, std::min(op.meeting().lanes, 32))};
      if (!op.crosses_warps()) {
        finish_reduction(op, slot, row_ok, total);
        continue;
      }
      publish_partial(op, b_.getInt64(0), total);
      meet(op, false);
      finish_reduction(op, slot, row_ok, combined_partials(op, b_.getInt64(0)));
    }
  });
}

/// The dims of an op in the pass of another one are those of the other, in order.
void BlockEmitter::name_dims(const BlockOp& lead, const BlockOp& op) {
  for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
    const auto found = environment_.find(lead.op.dims[d].var);
    if (found != environment_.end()) environment_[op.op.dims[d].var] = found->second;
  }
}

/// What this thread's own columns contribute.
Value* BlockEmitter::thread_partial(const BlockOp& op, int slot, Value* row_ok) {
  return thread_partials({&op}, slot, row_ok)[0];
}

/// What they contribute to each of several ops in one pass.
std::vector<Value*> BlockEmitter::thread_partials(const std::vector<const BlockOp*>& together, int slot, Value* row_ok) {
  const BlockOp& op = *together.front();
  const int count = op.vectors ? std::min(op.layout.vector, kPartialSums) : 1;
  std::vector<std::vector<Value*>> sums;
  for (const BlockOp* each : together) sums.push_back(new_sums(*each, count));
  const auto bound = op.column_bound();
  // One test of the thread's only columns, then loads that wait for none.
  const bool columns_first =
      bound && *bound <= std::int64_t{op.layout.lanes} * op.layout.vector && (op.vectors || op.layout.vector == 1);
  const auto serially = [&](const Body& body) { for_serial(op, [](const OpDim&) { return true; }, body); };
  const auto add = [&](int width, int column_slot) {
    for (std::size_t k = 0; k < together.size(); ++k) {
      if (k > 0) name_dims(op, *together[k]);
      accumulate(*together[k], sums[k], width, {slot, column_slot});
    }
  };
  when(row_ok, [&] {
    if (columns_first) return for_columns(op, [&](int width, int slots) { serially([&] { add(width, slots); }); });
    serially([&] { for_columns(op, add); });
  });
  std::vector<Value*> partials;
  for (std::size_t k = 0; k < together.size(); ++k) {
    const BlockOp& each = *together[k];
    std::vector<Value*> values = read_sums(each, sums[k]);
    while (values.size() > 1) {
      const std::size_t half = values.size() / 2;
      for (std::size_t v = 0; v < half; ++v)
        values[v] = emit_combine(b_, math_, *each.op.reduction, each.sum_type(), values[v], values[v + half]);
      values.resize(half);
    }
    partials.push_back(values[0]);
  }
  return partials;
}

/// What the lead of a fused reduction has found so far. Its dims of one value are set again: earlier, a branch may have set them.
Value* BlockEmitter::lead_value(const BlockOp& lead, int slot) {
  Value* value = nullptr;
  for_serial(
      lead, [](const OpDim& dim) { return !dim.reduced; }, [&] { value = load(lead, lead.op.write, false, 1, {slot, 0})[0]; });
  return value;
}

BlockEmitter::Partial BlockEmitter::warp_partial(const BlockOp& op, int slot, Value* row_ok) {
  Value* total = butterfly(thread_partial(op, slot, row_ok), op, std::min(op.meeting().lanes, 32));
  if (!op.fused) return {total};
  return {lead_value(plan_->ops[op.fused->lead], slot), total};
}

/// The value of the lane whose number differs in the bit `distance`.
Value* BlockEmitter::shuffled(Value* value, ElementType type, int distance) {
  const auto shuffle =
      type == ElementType::i32 ? llvm::Intrinsic::nvvm_shfl_sync_bfly_i32 : llvm::Intrinsic::nvvm_shfl_sync_bfly_f32;
  return b_.CreateIntrinsic(shuffle, {},
                            {b_.getInt32(0xffffffff), value, b_.getInt32(static_cast<std::uint32_t>(distance)), b_.getInt32(31)});
}

/// Combines over so many neighbouring lanes, a power of two; every lane gets the result.
Value* BlockEmitter::butterfly(Value* value, const BlockOp& op, int lanes) {
  const ElementType type = op.sum_type();
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    value = emit_combine(b_, math_, *op.op.reduction, type, value, shuffled(value, type, distance));
  return value;
}

/// Where a warp of this block (when it gathers), or of all that share the row, puts its result.
Value* BlockEmitter::partial_address(const BlockOp& op, Value* row_slot, Value* warp) {
  const Layout meeting = op.meeting();
  const auto groups = static_cast<std::uint64_t>(meeting.groups);
  const auto warps = static_cast<std::uint64_t>((op.gathers ? plan_->threads : meeting.lanes) / 32);
  Value* group = b_.CreateZExt(position(meeting).group, b_.getInt64Ty());
  Value* row = b_.CreateNSWAdd(b_.CreateNSWMul(row_slot, b_.getInt64(groups)), group);
  Value* index = b_.CreateNSWAdd(b_.CreateNSWMul(row, b_.getInt64(warps)), b_.CreateZExt(warp, b_.getInt64Ty()));
  llvm::Type* type = partial_type(b_, op);
  if (plan_->cluster > 1 && !op.gathers) return b_.CreateInBoundsGEP(type, exchange_.place, {index});
  return shared_address(type, op.partials_offset, index);
}

/// Where the result of warp or block `from` of a cluster arrives.
Value* BlockEmitter::exchanged_address(const BlockOp& op, Value* row_slot, Value* from) {
  if (!op.gathers) return partial_address(op, row_slot, from);
  Value* blocks = b_.getInt64(static_cast<std::uint64_t>(plan_->cluster));
  Value* index = b_.CreateNSWAdd(b_.CreateNSWMul(row_slot, blocks), b_.CreateZExt(from, b_.getInt64Ty()));
  return b_.CreateInBoundsGEP(partial_type(b_, op), exchange_.place, {index});
}

void BlockEmitter::store_partial(const BlockOp& op, const Partial& partial, Value* address) {
  if (!op.fused) {
    b_.CreateAlignedStore(partial[0], address, llvm::Align(4));
    return;
  }
  Value* pair = llvm::PoisonValue::get(partial_type(b_, op));
  for (std::uint64_t k = 0; k < 2; ++k) pair = b_.CreateInsertElement(pair, partial[k], k);
  b_.CreateAlignedStore(pair, address, llvm::Align(8));
}

BlockEmitter::Partial BlockEmitter::load_partial(const BlockOp& op, Value* address) {
  Value* value = b_.CreateAlignedLoad(partial_type(b_, op), address, llvm::Align(op.fused ? 8 : 4));
  if (!op.fused) return {value};
  return {b_.CreateExtractElement(value, std::uint64_t{0}), b_.CreateExtractElement(value, std::uint64_t{1})};
}

/// One lane of each warp stores the warp's result; in a cluster, one lane for each block sends it there.
void BlockEmitter::publish_partial(const BlockOp& op, Value* row_slot, const Partial& total) {
  const bool sends = plan_->cluster > 1 && !op.gathers;
  Value* thread = op.gathers ? own_thread_ : position(op.meeting()).lane;
  Value* lane = b_.CreateURem(thread, b_.getInt32(32));
  Value* address = partial_address(op, row_slot, b_.CreateUDiv(thread, b_.getInt32(32)));
  when(b_.CreateICmpULT(lane, b_.getInt32(sends ? static_cast<std::uint32_t>(plan_->cluster) : 1U)), [&] {
    if (sends) return send(total, address, lane);
    store_partial(op, total, address);
  });
}

/// The first warp combines what the warps of its block have gathered, and sends it to all blocks.
void BlockEmitter::send_gathered(const BlockOp& op, bool all_rows) {
  b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {});
  const auto warps = static_cast<std::uint32_t>(plan_->threads / 32);
  when(b_.CreateICmpULT(own_thread_, b_.getInt32(32)), [&] {
    for (std::int64_t row = 0; row < (all_rows ? op.row_slots() : 1); ++row) {
      Value* slot = b_.getInt64(static_cast<std::uint64_t>(row));
      // Lanes without a warp read the first one's result and drop it.
      Value* some = b_.CreateICmpULT(own_thread_, b_.getInt32(warps));
      Value* warp = b_.CreateSelect(some, own_thread_, b_.getInt32(0));
      const Partial own = load_partial(op, partial_address(op, slot, warp));
      const std::int64_t points = op.fused ? op.fused->points : 0;
      const Partial total = combined(op, {own}, {points, warps * points}, 32, some);
      when(b_.CreateICmpULT(own_thread_, b_.getInt32(static_cast<std::uint32_t>(plan_->cluster))),
           [&] { send(total, exchanged_address(op, slot, arguments_.cluster_rank), own_thread_); });
    }
  });
}

/// After this, every thread can read what all warps or blocks have published.
void BlockEmitter::meet(const BlockOp& op, bool all_rows) {
  if (plan_->cluster == 1) return barrier();
  if (op.gathers) send_gathered(op, all_rows);
  end_exchange();
}

/// All results of a row, of warps or of blocks that gathered theirs, combined in one order, so that every thread gets the same
/// value: one after the other when they are few, else spread over the lanes of each warp.
BlockEmitter::Partial BlockEmitter::combined_partials(const BlockOp& op, Value* row_slot) {
  const Layout meeting = op.meeting();
  const int count = op.gathers ? plan_->cluster : meeting.lanes / 32;
  const std::int64_t points = !op.fused ? 0 : op.fused->points * (op.gathers ? plan_->threads / 32 : 1);
  const bool spreads =
      count > (op.fused ? kFewPairs : kFewPartials) && (count % 32 == 0 || (32 % count == 0)) && meeting.groups == 1;
  const int lanes = spreads ? std::min(count, 32) : 1;
  std::vector<Partial> partials;
  for (int from = 0; from < count; from += lanes) {
    Value* number = b_.getInt32(static_cast<std::uint32_t>(from));
    if (spreads)
      number = b_.CreateAdd(b_.CreateURem(position(meeting).lane, b_.getInt32(static_cast<std::uint32_t>(lanes))), number);
    partials.push_back(load_partial(op, exchanged_address(op, row_slot, number)));
  }
  return combined(op, partials, {points, count * points}, lanes, nullptr);
}

/// The combination of this thread's partial results with those of so many neighbouring lanes (1: its own). `counts`: whether this
/// lane's do; null: always.
BlockEmitter::Partial BlockEmitter::combined(const BlockOp& op, const std::vector<Partial>& partials, Points points, int lanes,
                                             Value* counts) {
  const auto fold = [&](const BlockOp& member, const std::vector<Value*>& values) {
    const ElementType type = member.sum_type();
    Value* total = nullptr;
    for (Value* value : values)
      total = total == nullptr ? value : emit_combine(b_, math_, *member.op.reduction, type, total, value);
    if (counts != nullptr) total = b_.CreateSelect(counts, total, neutral(member));
    return butterfly(total, member, lanes);
  };
  std::vector<Value*> values;
  if (!op.fused) {
    for (const Partial& partial : partials) values.push_back(partial[0]);
    return {fold(op, values)};
  }
  for (const Partial& partial : partials) values.push_back(partial[0]);
  Value* lead = fold(plan_->ops[op.fused->lead], values);
  values.clear();
  for (const Partial& partial : partials) values.push_back(corrected(op, partial, lead, points));
  return {lead, fold(op, values)};
}

/// A follower's partial result, moved from its own value of the lead to the combined one.
Value* BlockEmitter::corrected(const BlockOp& op, const Partial& partial, Value* lead, Points points) {
  const auto number = [&](std::int64_t value) {
    return scalar_constant(b_.getContext(), ElementType::f32, static_cast<double>(value));
  };
  const auto evaluate = [&](const ScalarExpr& expr, const std::map<std::string, Value*>& values) {
    ScalarLeaves leaves;
    leaves.scalar = [&](const std::string& name, ElementType) {
      const auto found = values.find(name);
      return found != values.end() ? found->second : arguments_.scalars.at(name);
    };
    return emit_scalar(b_, math_, expr, leaves);
  };
  const auto view = [&](Value* value, std::int64_t n) { return evaluate(op.fused->reference, {{"m", value}, {"n", number(n)}}); };
  return evaluate(op.fused->correction, {{"r", partial[1]},
                                         {"m_old", view(partial[0], points.each)},
                                         {"m_new", view(lead, points.all)},
                                         {"n_old", number(points.each)}});
}

void BlockEmitter::finish_reduction(const BlockOp& op, int slot, Value* row_ok, const Partial& total) {
  if (op.fused) {
    const BlockOp& lead = plan_->ops[op.fused->lead];
    Value*& kept = warp_leads_[{op.fused->lead, slot}];
    if (kept == nullptr) kept = entry_alloca(type_of(plan_->buffer(lead.op.write.buffer)), "warp_lead");
    b_.CreateStore(lead_value(lead, slot), kept);
    store_total(lead, slot, total.front());
  }
  if (plan_->in_registers(op.op.write)) return store_total(op, slot, total.back());
  when(both(row_ok, owner(op)), [&] { store_total(op, slot, total.back()); });
}

/// Dims that are not reduced and are no rows have one value.
void BlockEmitter::store_total(const BlockOp& op, int slot, Value* total) {
  for_serial(op, [](const OpDim& dim) { return !dim.reduced; }, [&] { write_sums(op, {total}, {slot, 0}); });
}

}  // namespace nestor::nvptx
