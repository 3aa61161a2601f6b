// GpuMemory: the arguments of a problem in device memory, each between guard zones.
#pragma once

#include "autotune/check/peer_check.h"
#include "autotune/gpu/gpu_problem.h"
#include "autotune/gpu/gpu_tools.h"
#include "device/cuda.h"

#include <string>
#include <vector>

namespace nestor {

/// Device memory between two zones of a pattern that no kernel may touch.
class GuardedDeviceBuffer {
 public:
  GuardedDeviceBuffer(CudaDevicePtr device, std::size_t bytes, const CudaStream& stream);
  cuda::Address address() const;  ///< of the data, aligned to 256 bytes
  void* data() const { return reinterpret_cast<void*>(address()); }
  std::size_t bytes() const { return bytes_; }
  /// Waits. Restores a damaged zone.
  bool zones_intact(const CudaStream& stream);
  /// Words of `pattern` over the data; a remainder below 4 bytes gets its first bytes.
  void fill(std::uint32_t pattern, const CudaStream& stream) const;
  void upload(const void* from, const CudaStream& stream) const;
  void download(void* to, std::size_t offset, std::size_t bytes, const CudaStream& stream) const;

 private:
  void fill_zones(const CudaStream& stream) const;
  DeviceBuffer memory_;
  std::size_t bytes_ = 0;
};

/// Throws UserError for a workspace that is larger than the device, LackOfResources for one that does not fit beside what is there now.
void require_workspace(const CudaDevice& device, std::int64_t bytes);

class GpuMemory {
 public:
  /// Uploads the inputs of one of the problem's sets of data. Throws LackOfResources when the device has not so much free.
  GpuMemory(const GpuProblem& problem, std::size_t set, CudaDevicePtr device, const CudaStream& stream);

  /// Address of an argument, by its number in the problem.
  void* pointer(std::size_t argument) const { return buffers_.at(argument).data(); }
  /// Memory of at least `bytes` for a kernel's temporaries, filled with NaNs, or nullptr for 0 bytes.
  void* workspace(std::int64_t bytes);
  /// Outputs hold a pattern that no kernel writes by chance, another one each time.
  void poison_outputs();
  /// What a finished run did that it must not: touched memory around an argument, changed an input, left elements unwritten.
  /// "" when nothing. A changed input is restored.
  std::string find_damage();
  /// Compares the outputs with the oracle's samples; `error` gets the worst error. "" when nothing is wrong.
  std::string compare(double& error);
  /// The outputs with these pieces of them.
  const HostTensors& fetch(const std::vector<OutputPiece>& pieces);

 private:
  std::size_t size_of(std::size_t argument) const;
  const HostTensor& tensor(std::size_t argument) const;
  void fetch_samples();

  const GpuProblem& problem_;
  const std::size_t set_;
  CudaDevicePtr device_;
  const CudaStream& stream_;
  GpuTools tools_;
  std::vector<GuardedDeviceBuffer> buffers_;
  std::vector<std::uint64_t> digests_;  ///< of inputs
  std::unique_ptr<GuardedDeviceBuffer> workspace_;
  HostTensors results_;           ///< outputs; only what is compared is fetched
  std::uint32_t generation_ = 0;  ///< of the poison
};

}  // namespace nestor
