// Kernels on a GPU: code to a loaded module, and launching its functions.
#pragma once

#include "device/cuda.h"

#include <map>
#include <mutex>
#include <string>

namespace nestor {

/// What the driver says of a loaded kernel.
struct FunctionReport {
  int registers = 0;     ///< a thread
  int local_bytes = 0;   ///< a thread: stack and spills
  int shared_bytes = 0;  ///< static, a block
  int max_threads = 0;   ///< a block
};

/// How a kernel is launched, whatever its grid.
struct LaunchForm {
  std::array<unsigned, 3> block{1, 1, 1};
  std::array<unsigned, 3> cluster{1, 1, 1};  ///< blocks; {1, 1, 1}: none
  unsigned dynamic_shared_bytes = 0;
  bool programmatic = false;  ///< may start before the kernel before it in the stream has ended (its code waits for that itself)
};

/// A kernel of a module. Valid as long as its module; cheap to copy.
class CudaFunction {
 public:
  CudaFunction() = default;
  const std::string& name() const { return *name_; }
  /// Registers and such; asks the driver.
  FunctionReport report() const;
  /// Blocks that run at once on one multiprocessor.
  int blocks_per_unit(int threads, std::int64_t dynamic_shared_bytes) const;
  /// Clusters of so many blocks (along x) that run at once on the device: no multiple of what the multiprocessors would hold, as a
  /// cluster stays within a group of them. Call after prepare().
  int clusters_at_once(const std::array<unsigned, 3>& block, unsigned cluster_blocks, unsigned dynamic_shared_bytes) const;

  /// Makes the kernel ready for launches with so much dynamic shared memory and such clusters (blocks a cluster): opts in to
  /// more than 48 KiB, and to clusters above the portable 8 blocks. Call once, when loading, not while capturing.
  /// Throws UserError when the device does not have so much.
  void prepare(std::int64_t dynamic_shared_bytes, int cluster_blocks) const;

  /// Asynchronous in `stream` (nullptr: the legacy default stream). `params`: addresses of the values, as for cuLaunchKernel.
  /// `grid` in blocks; the device's context must be current (ContextScope). Allocates nothing.
  void launch(const std::array<unsigned, 3>& grid, const LaunchForm& form, cuda::Stream stream, void** params) const;

 private:
  friend class CudaModule;
  CudaFunction(const CudaDevice& device, cuda::Function handle, const std::string& name)
      : device_(&device), handle_(handle), name_(&name) {}
  const CudaDevice* device_ = nullptr;
  cuda::Function handle_ = nullptr;
  const std::string* name_ = nullptr;
};

struct JitOptions {
  int max_registers = 0;  ///< a thread; 0: the compiler's choice
};

/// PTX assembled by the driver.
struct JitOutput {
  std::string cubin;
  std::string log;  ///< registers, spills and remarks, as the driver writes them
};
/// Throws CudaError with the compiler's log. Safe on several threads at once.
JitOutput assemble_with_driver(const CudaDevice& device, const std::string& ptx, const JitOptions& options = {});

/// Code in a device's memory. Immutable; safe to use from several threads.
class CudaModule {
 public:
  /// `code`: PTX text or a cubin. Throws CudaError with the driver's log when it cannot be compiled or is not for this device.
  static std::shared_ptr<const CudaModule> load(CudaDevicePtr device, const std::string& code, const JitOptions& options = {});
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  const CudaDevice& device() const { return *device_; }
  const CudaDevicePtr& device_ptr() const { return device_; }
  const std::string& log() const { return log_; }  ///< of the driver's compiler; "" for a cubin
  /// Throws CudaError when the module has no such kernel.
  CudaFunction function(const std::string& name) const;

 private:
  explicit CudaModule(CudaDevicePtr device) : device_(std::move(device)) {}
  CudaDevicePtr device_;
  cuda::Module handle_ = nullptr;
  std::string log_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, cuda::Function> functions_;  // nodes stay where they are: functions point to the names
};

}  // namespace nestor
