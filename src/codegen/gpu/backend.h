// SIMT back end: a tile program to PTX, one thread block an iteration of its gpu_block (or parallel) loops.
#pragma once

#include "codegen/tile/tile_program.h"
#include "support/launch_recipe.h"

#include <string>
#include <vector>

namespace nestor {

struct NvptxTarget {
  int sm = 90;                            ///< 80, 90: compute capability times ten
  int threads = 256;                      ///< threads a block, a multiple of 32
  std::int64_t shared_limit = 227 << 10;  ///< bytes of shared memory a block may take
  bool keep_ir = true;                    ///< fill CompiledNvptx::ir
};

/// 32-bit registers that each of `threads` threads of a block may fill with tiles; the others compute.
std::int64_t tile_registers(int threads);

struct CompiledNvptx {
  CompiledKernel kernel;  ///< code: PTX; recipe.launches filled
  std::string ir;         ///< LLVM IR after optimisation, on request
  /// What could not be decided of how threads share the work; empty: all of it is proved.
  std::vector<std::string> unproved;
};

/// Throws UserError when a scratch buffer has no constant size or the block's buffers exceed the shared memory, InternalError when the plan
/// of a kernel is refuted.
CompiledNvptx compile_nvptx(const TileProgram& program, const NvptxTarget& target);

/// Of the kernels on tensor cores of a program, in sentences that name them; empty without such kernels.
struct TensorFacts {
  std::vector<std::string> proved;  ///< of their synchronisation, for all sizes
  std::vector<std::string> needed;  ///< finite values of operands where a mask cuts a tile (docs/values.md, masked places)
  std::vector<std::string> finite;  ///< the tensors of these
};

/// Proves each kernel on tensor cores. Throws UserError when a kernel cannot be planned, InternalError when a plan has no proof.
TensorFacts prove_tensor_kernels(const TileProgram& program, const NvptxTarget& target);

/// Marks what could not be decided among the facts of prove_block_kernels().
inline constexpr const char* kNotProved = "not proved: ";

/// What is proved of how threads share the work of the other kernels (block_check.h), in sentences; where something could not be decided,
/// that. Throws as compile_nvptx().
std::vector<std::string> prove_block_kernels(const TileProgram& program, const NvptxTarget& target);

/// What ptxas said of a kernel: registers, spills, stack, warnings C75xx.
struct PtxasReport {
  bool available = false;  ///< a ptxas program was found
  bool accepted = false;
  int registers = 0;
  int spill_bytes = 0;
  int stack_bytes = 0;
  std::string log;
  std::string cubin;  ///< when accepted
};
/// Assembles with `ptxas -v` (from $NESTOR_PTXAS, $PATH or /usr/local/cuda/bin); does not throw when there is none.
/// `architecture`: "sm_90"
PtxasReport run_ptxas(const std::string& ptx, const std::string& architecture);

}  // namespace nestor
