// How the threads of a block share a multiprocessor's registers and shared memory: known to plans and to the search.
#pragma once

#include "codegen/gpu/target/gpu_target.h"

#include <algorithm>
#include <cstdint>

namespace nestor::nvptx {

inline constexpr std::int64_t kReservedBytes = 1024;  ///< of shared memory, by the system for each block
inline constexpr int kMostRegisters = 240;            ///< of a computing thread
inline constexpr int kRegisterStep = 8;
/// Rows of one thread for which code is written one by one: more take seconds to compile, and find no room in the instruction cache.
inline constexpr int kMostRowSlots = 128;

/// Elements of 32 bits that the blocks of a cluster, of so many threads each, keep in registers at most.
inline std::int64_t register_room(int threads, int cluster) { return tile_registers(threads) * threads * cluster; }
/// The same with what their shared memory holds beside.
inline std::int64_t chip_room(int threads, int cluster, std::int64_t shared_limit) {
  constexpr std::int64_t kElementBytes = 4;
  return register_room(threads, cluster) + shared_limit / kElementBytes * cluster;
}

/// Registers that each thread of a block on tensor cores has when it starts.
inline int starting_registers(int threads, int blocks) {
  return kUnitRegisters / blocks / threads / kRegisterStep * kRegisterStep;
}

/// Those of a thread of the warpgroup that copies. Blocks that stay need more: where work tiles are, and how many.
inline int copying_registers(int warpgroups, bool persistent) { return warpgroups == 3 ? 32 : persistent ? 40 : 24; }

/// Those of a thread of the `warpgroups` that compute, when each of the copying warpgroup has kept `copying`.
inline int computing_registers(int warpgroups, int blocks, int copying) {
  const int all = starting_registers((warpgroups + 1) * kWarpgroupThreads, blocks) * (warpgroups + 1);
  return std::min((all - copying) / warpgroups / kRegisterStep * kRegisterStep, kMostRegisters);
}

}  // namespace nestor::nvptx
