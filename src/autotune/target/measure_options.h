// MeasureOptions: how candidates are compiled and measured.
#pragma once

#include "autotune/target/target.h"

#include <cstdint>
#include <map>
#include <string>

namespace nestor {

/// How one candidate is compiled and measured; shared by `tune` and `measure_schedule`.
struct MeasureOptions {
  Target target{};                ///< where candidates run
  int threads = 0;                ///< host: threads of a kernel; 0: all cores
  double compile_timeout_s = 30;  ///< limit of replay and compilation of one candidate
  double run_timeout_s = 0;       ///< limit of checking and timing one; 0: 30 on the host, 12 on a GPU
  /// Bytes that a host's workers together, or each compiling process for a GPU, may allocate beyond the arguments.
  std::int64_t memory_limit = std::int64_t{3} << 29;
  int repetitions = 9;                                 ///< host: timed runs of a candidate that is not cut early
  std::int64_t flush_bytes = std::int64_t{256} << 20;  ///< GPU: written before each run, to empty the caches
  std::int64_t oracle_samples = 256;                   ///< output elements compared when comparing all is too expensive
  double oracle_seconds = 0;              ///< that reference values may take, about, before outputs are left out; 0: any
  std::uint64_t data_seed = 1;            ///< of the random inputs
  std::map<std::string, double> scalars;  ///< values of scalar arguments; others take their default
};

}  // namespace nestor
