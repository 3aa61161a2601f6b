// GpuTimer: cold-cache times of launches between events, with the device never waiting for the host.
#pragma once

#include "device/cuda.h"

#include <chrono>
#include <functional>
#include <vector>

namespace nestor {

class GpuTimer {
 public:
  /// `flush_bytes`: of a buffer larger than the L2 cache.
  GpuTimer(CudaDevicePtr device, const CudaStream& stream, std::size_t flush_bytes);

  /// Milliseconds of `runs` launches. Before each, zeros are written over that buffer, outside the timed part, as do_bench of
  /// Triton does, with which final figures are compared; all of it is queued ahead, so that launching costs nothing that is measured. `kernel`: for errors.
  std::vector<double> time(const std::function<void()>& launch, int runs, const std::string& kernel);
  /// Keeps the device busy until its clocks are up: long after a pause, hardly at all right after other work.
  void warm_up();

 private:
  using Clock = std::chrono::steady_clock;
  void flush() const;

  CudaDevicePtr device_;
  const CudaStream& stream_;
  DeviceBuffer cache_;
  std::vector<CudaEvent> starts_, ends_;
  Clock::time_point last_busy_{};
};

}  // namespace nestor
