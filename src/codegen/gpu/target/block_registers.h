// How the threads of a block share a multiprocessor's registers and shared memory: known to plans and to the search.
#pragma once

#include "codegen/gpu/target/gpu_target.h"

#include <algorithm>
#include <cstdint>

namespace nestor::nvptx {

inline constexpr std::int64_t kReservedBytes = 1024;  ///< of shared memory, by the system for each block
inline constexpr int kMostRegisters = 240;            ///< of a computing thread
inline constexpr int kRegisterStep = 8;

/// Elements of 32 bits that the blocks of a cluster, of so many threads each, keep in registers at most.
inline std::int64_t register_room(int threads, int cluster) { return tile_registers(threads) * threads * cluster; }
/// The same with what their shared memory holds beside.
inline std::int64_t chip_room(int threads, int cluster, std::int64_t shared_limit) {
  constexpr std::int64_t kElementBytes = 4;
  return register_room(threads, cluster) + shared_limit / kElementBytes * cluster;
}

/// Registers that each thread of a block on tensor cores has when it starts.
inline int starting_registers(int threads, int residents) {
  return kUnitRegisters / residents / threads / kRegisterStep * kRegisterStep;
}

/// Those of a thread of the group that copies. Blocks that stay need more: where items are, and how many.
inline int copying_registers(int groups, bool persistent) { return groups == 3 ? 32 : persistent ? 40 : 24; }

/// Those of a thread of the `groups` that compute, when each of the copying group has kept `copying`.
inline int computing_registers(int groups, int residents, int copying) {
  const int all = starting_registers((groups + 1) * kGroupThreads, residents) * (groups + 1);
  return std::min((all - copying) / groups / kRegisterStep * kRegisterStep, kMostRegisters);
}

}  // namespace nestor::nvptx
