// WorkCounters: zeroed numbers in device memory from which the blocks of a kernel draw their work.
#pragma once

#include "device/cuda.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

namespace nestor {

/// Counters for the kernels of one recipe, which leave them at zero when they end. Safe to use from several threads.
///
/// The launches of a stream run one after the other, so they can share a counter: the last launch left it at zero, and nothing
/// needs to be done before the next one. Each of the first kStreams streams keeps one, known by the stream's id, which unlike its
/// handle is never used again. All other launches get a counter for themselves, taken from and given back to a memory pool in
/// the stream's order and set to zero by the stream: in streams that come later, and in captures, where memory, zeroing and
/// release become nodes of the graph, because it may be launched in any stream.
class WorkCounters {
 public:
  static constexpr std::size_t kStreams = 64;

  /// Takes the memory and waits until it is zero; not while a stream is captured. Throws UserError when the device has no
  /// memory pools, and CudaError.
  explicit WorkCounters(CudaDevicePtr device);

  /// A counter for the kernels launched in `stream` during its scope. The device's context must be current at both ends.
  /// Allocates no host memory and takes no lock.
  class Lease {
   public:
    Lease(const WorkCounters& counters, cuda::Stream stream);
    void* data() const { return data_; }

   private:
    std::optional<StreamMemoryPool::Lease> own_;
    void* data_ = nullptr;
  };

 private:
  static constexpr std::size_t kSpacing = 128;  // bytes: a cache line each
  // The place of the stream's counter; kStreams: it has none.
  std::size_t place_of(cuda::Stream stream) const;

  CudaDevicePtr device_;
  DeviceBuffer memory_;
  StreamMemoryPool pool_;
  mutable std::array<std::atomic<std::uint64_t>, kStreams> owners_{};  // stream id + 1; 0: free
};

}  // namespace nestor
