// Instructions of compute capability 9.0 that LLVM has no intrinsics for, or only in a form that hides their order: barriers in
// shared memory, tensor copies, matrix products. Names and operands as in NVIDIA's PTX manual (ISA 8.0).
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nestor::nvptx {

/// Shared-memory addresses are i32 (the shared window), predicates i1.
class PtxEmitter {
 public:
  using Value = llvm::Value;
  using Values = std::vector<Value*>;
  explicit PtxEmitter(llvm::IRBuilder<>& b) : b_(b) {}

  // barriers in shared memory
  void mbarrier_init(Value* barrier, int count);
  void fence_mbarrier_init();
  void mbarrier_expect(Value* barrier, Value* bytes);  ///< arrives, and lets the phase wait for so many bytes
  void mbarrier_arrive(Value* barrier, Value* predicate);
  /// Arrives at the barrier that stands where `barrier` does in block `rank` of the cluster. For those who have read, not written:
  /// in the scope of the block, since to release to the cluster costs a fence of the whole device, and products have ended by then.
  void mbarrier_arrive_at(Value* barrier, Value* rank, Value* predicate);
  void mbarrier_wait(Value* barrier, Value* parity);  ///< until the phase of that parity is over
  void cluster_barrier();  ///< until all threads of the cluster are here. Of earlier writes it shows barriers behind their fence
  void named_barrier_sync(Value* id, int threads);
  void named_barrier_arrive(Value* id, int threads);
  void fence_async_proxy();  ///< what this thread wrote to shared memory becomes visible to copies and products
  void set_max_registers(int count, bool increase);

  // kernels of one launch
  void launch_dependents();       ///< blocks of the kernel after this one may be placed once all blocks here have come this far
  void wait_for_kernel_before();  ///< until the kernel before this one has ended, and all that it wrote can be read

  // numbers of work tiles
  Value* atomic_increment(Value* counter);               ///< u32 in global memory; its value before
  void reset_counter(Value* counter, Value* condition);  ///< to 0
  Value* load_word(Value* shared);                       ///< 32 bits, in all lanes of a warp before any of them goes on

  // tensor copies; coordinates innermost first, up to five
  /// `blocks` > 1: to the first `blocks` blocks of the cluster, where each has the same place and barrier. `read_once`: by nobody else, so
  /// that it need not drive other data out of the L2 cache.
  void load_tile(Value* shared, Value* map, const Values& coordinates, Value* barrier, int blocks = 1, bool read_once = false);
  void store_tile(Value* map, const Values& coordinates, Value* shared);
  void commit_stores();
  void wait_stores_read(int pending);  ///< shared memory of all but the last `pending` groups may be written again
  void prefetch_map(Value* map);

  // products of a group of four warps
  void wgmma_fence();
  void wgmma_commit();
  void wgmma_wait(int pending);
  /// sums[64 x n] (+)= a[64 x 16] b[16 x n], n/2 f32 a thread. `a`: a descriptor (i64), or four registers of 16-bit pairs. `sums` empty:
  /// starts from zero. `transpose_a`, `transpose_b`: the operand in shared memory runs along its rows (a) or columns (b).
  Values wgmma(int n, std::string_view type, const Values& sums, const Values& a, Value* b, bool transpose_a, bool transpose_b);
  /// Descriptor of a tile with 128-byte swizzle at `address`, a multiple of 1024. Strides in bytes.
  Value* descriptor(Value* address, int leading_stride, int stride);
  /// Orders register values after what was emitted before: uses of the results stay behind it.
  void pin(Values& values);
  /// The i32 itself, of which LLVM knows nothing.
  Value* opaque(Value* word);
  Value* opaque_wide(Value* word);  ///< of 64 bits

  // fragments
  /// ldmatrix: `count` (2 or 4) 8 x 8 tiles of 16-bit elements; `transposed`: a thread's pairs run down columns.
  Values load_matrices(Value* address, int count = 4, bool transposed = false);
  void store_matrices(Value* address, const Values& words);

  // what compute capability 8.0 has
  /// Starts the copy of `bytes` (at most 16; zeros follow) at a global address to 16 bytes of shared memory.
  void copy_piece(Value* shared, Value* global, Value* bytes);
  void commit_pieces();           ///< what this thread has started since the last one is a batch
  void wait_pieces(int pending);  ///< until all but the last `pending` batches of this thread have arrived
  void block_barrier();
  void warp_barrier();
  /// sums[16 x 8] + a[16 x 16] b[16 x 8] of a warp: four f32 a thread, four and two words of 16-bit pairs.
  Values mma(std::string_view type, const Values& sums, const Values& a, const Values& b);
  void store_word(Value* shared, Value* word);  ///< 32 bits
  void store_half(Value* shared, Value* half);  ///< 16 bits
  Values load_piece(Value* shared);             ///< 16 bytes
  void store_piece(Value* global, const Values& words, Value* predicate);

  /// An instruction with side effects that is not moved across others of this kind.
  llvm::CallInst* assembly(llvm::Type* result, std::string_view text, std::string constraints, const Values& arguments);

 private:
  Value* evict_first();  ///< a cache policy of the L2 cache
  Value* moved(Value* word, const char* text, const char* constraints);
  llvm::Type* nothing() { return b_.getVoidTy(); }
  Values results(llvm::CallInst* call, std::size_t count);
  llvm::IRBuilder<>& b_;
};

}  // namespace nestor::nvptx
