// The model of a multiprocessor's registers.
#include "codegen/gpu/target/gpu_target.h"

#include <algorithm>

namespace nestor {
namespace {

constexpr std::int64_t kComputeRegisters = 20;  ///< that a thread needs besides its tiles, at least
constexpr std::int64_t kMostTileRegisters = 128;

}  // namespace

std::int64_t tile_registers(int threads) {
  return std::min<std::int64_t>(nvptx::kUnitRegisters / threads - kComputeRegisters, kMostTileRegisters);
}

}  // namespace nestor
