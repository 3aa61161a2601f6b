// How the blocks of a cluster exchange partial results. Every warp sends its own to the shared memory of all blocks, by asynchronous
// stores that report their bytes to a barrier in the memory they arrive in. A thread that has waited for its own block's barrier
// sees all results. No other synchronisation is needed, and none of the block's other stores is waited for. Where the messages would
// be many, the warps of a block gather their results in its own shared memory first, and its first warp sends what they come to.
//
// Exchanges of a kernel are numbered in the order in which all threads of a cluster go through them; exchange n uses slot n mod 2
// and phase n div 2 of the slot's barrier. Two slots suffice: a warp sends its result of exchange n + 2 after it has seen all
// results of n + 1, each of which its sender sent after it had seen, and read, all results of n. So nobody overwrites what is still
// to be read, and no phase of a barrier is followed by another one before all threads have seen its end. The same holds for the place
// where warps gather: they write to it after exchange n, and so after the first warp read it, which it did before it sent n.
//
// At the start of a kernel the cluster meets once, as nobody may send to a block that does not run yet or whose barriers are not
// ready. Nothing is needed at its end: a block has waited for all that is ever sent to it.
#include "codegen/gpu/ptx/ptx_emit.h"
#include "codegen/gpu/simt/emit/block_emitter.h"

#include "support/error.h"

namespace nestor::nvptx {

using llvm::Value;

/// The barriers of both slots, with one arrival a phase: that of the thread which tells how many bytes will come.
void BlockEmitter::prepare_exchanges() {
  exchange_ = {};
  if (plan_->exchange_offset < 0) return;
  exchange_.count = entry_alloca(b_.getInt32Ty(), "exchanges");
  b_.CreateStore(b_.getInt32(0), exchange_.count);
  PtxEmitter ptx(b_);
  when(b_.CreateICmpEQ(own_thread_, b_.getInt32(0)), [&] {
    for (std::int64_t slot = 0; slot < kExchangeSlots; ++slot) {
      Value* place = shared_address(b_.getInt8Ty(), plan_->exchange_offset + 8 * slot, b_.getInt64(0));
      ptx.mbarrier_init(b_.CreatePtrToInt(place, b_.getInt32Ty()), 1);
    }
    ptx.fence_mbarrier_init();
  });
}

void BlockEmitter::begin_exchange(const BlockOp& op) {
  if (exchange_.count == nullptr) internal_error("{}: no place for the partial results of a cluster", op.op.name);
  await_cluster_start();
  Value* number = b_.CreateLoad(b_.getInt32Ty(), exchange_.count);
  b_.CreateStore(b_.CreateAdd(number, b_.getInt32(1)), exchange_.count);
  Value* slot = b_.CreateZExt(b_.CreateAnd(number, b_.getInt32(1)), b_.getInt64Ty());
  exchange_.parity = b_.CreateAnd(b_.CreateLShr(number, 1), b_.getInt32(1));
  exchange_.place = shared_address(b_.getInt8Ty(), plan_->exchange_offset + kExchangeBarriers,
                                   b_.CreateNSWMul(slot, b_.getInt64(static_cast<std::uint64_t>(plan_->exchange_bytes))));
  Value* barrier = shared_address(b_.getInt64Ty(), plan_->exchange_offset, slot);
  exchange_.barrier = b_.CreatePtrToInt(barrier, b_.getInt32Ty());
  when(b_.CreateICmpEQ(own_thread_, b_.getInt32(0)), [&] {
    PtxEmitter(b_).mbarrier_expect(exchange_.barrier, b_.getInt32(static_cast<std::uint32_t>(plan_->exchanged_bytes(op))));
  });
}

/// Stores one or two words of 32 bits to where `address` is in block `rank`.
void BlockEmitter::send(const std::vector<Value*>& words, Value* address, Value* rank) {
  const bool pair = words.size() == 2;
  std::vector<Value*> operands{b_.CreatePtrToInt(address, b_.getInt32Ty()), rank, exchange_.barrier};
  for (Value* word : words) operands.push_back(b_.CreateBitCast(word, b_.getInt32Ty()));
  PtxEmitter(b_).assembly(b_.getVoidTy(),
                          std::string("{\n\t.reg .b32 there, barrier;\n\tmapa.shared::cluster.u32 there, $0, $1;\n\t"
                                      "mapa.shared::cluster.u32 barrier, $2, $1;\n\t"
                                      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.") +
                              (pair ? "v2.b32 [there], {$3, $4}" : "b32 [there], $3") + ", [barrier];\n\t}",
                          pair ? "r,r,r,r,r" : "r,r,r,r", operands);
}

/// The wait acquires for the block alone, as it does for tensor copies: one for the cluster would also empty the first cache.
void BlockEmitter::end_exchange() { PtxEmitter(b_).mbarrier_wait(exchange_.barrier, exchange_.parity); }

}  // namespace nestor::nvptx
