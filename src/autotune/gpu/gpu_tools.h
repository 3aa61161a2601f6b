// GpuTools: small kernels that look at whole buffers where they are, so that no buffer travels to the host to be checked.
#pragma once

#include "device/cuda_module.h"

#include <cstdint>
#include <optional>

namespace nestor {

class GpuTools {
 public:
  explicit GpuTools(const CudaDevicePtr& device);

  /// Number of the first element of `width` bytes (1, 2 or 4) with the bits `pattern`; nothing when there is none. `at` is
  /// aligned to 4 bytes; waits for the stream.
  std::optional<std::int64_t> find(cuda::Address at, std::int64_t elements, int width, std::uint32_t pattern,
                                   const CudaStream& stream) const;
  /// A number that changes, all but certainly, when any of the bytes does. Waits for the stream.
  std::uint64_t digest(cuda::Address at, std::int64_t bytes, const CudaStream& stream) const;

 private:
  std::uint64_t run(const CudaFunction& function, std::uint64_t initial, std::int64_t words, void** params,
                    const CudaStream& stream) const;
  std::shared_ptr<const CudaModule> module_;
  CudaFunction find_, digest_;
  DeviceBuffer result_;
};

}  // namespace nestor
