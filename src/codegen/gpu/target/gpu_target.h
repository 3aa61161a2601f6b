// What a GPU has: registers, shared memory, threads, and what a target asks of code for it.
#pragma once

#include <cstdint>

namespace nestor {

namespace nvptx {
inline constexpr int kWarpThreads = 32;
/// Operations on a factor that several rows of a thread have in common, from which on it takes them at once: unpacking a weight takes more.
inline constexpr int kWorthSharing = 6;
/// How a message says that a size must be known when compiling; stored reasons of trials are told by it.
inline constexpr const char* kUnknownSize = "not known when compiling";
inline constexpr int kWarpgroupThreads = 128;  ///< a warpgroup: four warps
inline constexpr int kWarpgroupRows = 64;      ///< rows of a product of one warpgroup
inline constexpr int kUnitRegisters = 65536;   ///< of 32 bits, that a multiprocessor has
inline constexpr int kUnitThreads = 2048;      ///< that it runs at once
inline constexpr double kClocksPerMs = 2.1e6;  ///< no GPU of compute capability 8 or 9 runs faster

}  // namespace nvptx

struct NvptxTarget {
  int sm = 90;                            ///< 80, 90: compute capability times ten
  int threads = 256;                      ///< threads a block, a multiple of 32
  std::int64_t shared_limit = 227 << 10;  ///< bytes of shared memory a block may take
  bool keep_ir = true;                    ///< fill CompiledNvptx::ir
};

/// 32-bit registers that each of `threads` threads of a block may fill with tiles; the others compute.
std::int64_t tile_registers(int threads);

}  // namespace nestor
