// NVIDIA GPUs through the driver library, opened when first asked for: devices, memory, streams, events, graphs, kernels.
//
// Every object here belongs to one device, keeps its context alive, and makes that context current on the calling thread only
// while it needs it. A failing call throws CudaError. Destructors do not throw. No object may be used in a process that was
// forked after the driver was first used.
#pragma once

#include "device/driver_api.h"
#include "nestor/error.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nestor {

/// A call of the driver that failed: what() carries the call, the error's name and text, and the kernel where there is one.
class CudaError : public DeviceError {
 public:
  CudaError(const std::string& message, cuda::Result code) : DeviceError(message), code_(code) {}
  cuda::Result code() const { return code_; }
  bool out_of_memory() const { return code_ == cuda::kOutOfMemory; }
  /// The context is lost: every later call in this process fails too (illegal address, hang, hardware fault).
  bool context_lost() const;

 private:
  cuda::Result code_;
};

/// The driver of this process: libcuda.so.1, or the file that $NESTOR_LIBCUDA names.
class CudaDriver {
 public:
  static constexpr int kOldestVersion = 12000;  ///< 1000 * major + 10 * minor, of the driver API

  /// Loaded at the first call that succeeds, then kept. nullptr with the reason in `why` (if given) when there is no driver,
  /// it is too old, or it sees no device.
  static const CudaDriver* find(std::string* why = nullptr);
  /// Loads it anew, whatever find() holds; what a test of the reasons needs. nullptr with the reason.
  static std::unique_ptr<const CudaDriver> load(std::string& why);
  /// The same; throws UserError with the reason.
  static const CudaDriver& get();

  const cuda::Api& api() const { return api_; }
  int version() const { return version_; }  ///< 1000 * major + 10 * minor
  int device_count() const { return devices_; }

  /// Throws CudaError unless `result` is 0. `call`: the entry point. `kernel`: the kernel it was for.
  void check(cuda::Result result, const char* call, std::string_view kernel = {}) const {
    if (result != cuda::kSuccess) fail(result, call, kernel, {});
  }
  /// `details`: further text, for example the log of the driver's compiler.
  [[noreturn]] void fail(cuda::Result result, const char* call, std::string_view kernel, std::string_view details) const;

 private:
  CudaDriver() = default;
  /// Fills this object; the reason when that cannot be done, else "".
  std::string open(const char* file);
  cuda::Api api_;
  int version_ = 0;
  int devices_ = 0;
  int process_ = 0;
};

/// What a GPU is. Sizes in bytes, clocks in kHz.
struct CudaIdentity {
  int ordinal = 0;
  std::string name;  ///< "NVIDIA H200"
  int sm = 0;        ///< compute capability times ten: 90
  int units = 0;     ///< multiprocessors
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  int clock_khz = 0;
  int memory_clock_khz = 0;
  int memory_bus_bits = 0;
  int shared_bytes_per_block = 0;  ///< with opt-in
  int shared_bytes_per_unit = 0;
  int registers_per_unit = 0;
  int threads_per_unit = 0;
  bool clusters = false;
  int driver_version = 0;  ///< 1000 * major + 10 * minor
  std::string uuid;        ///< "GPU-8-4-4-4-12" hexadecimal digits
  std::string pci;         ///< "0000:19:00.0"

  std::string arch() const;  ///< "sm_90"
  /// Bytes a second at the memory's peak: two transfers a clock.
  double peak_bandwidth() const { return 2e3 * memory_clock_khz * (memory_bus_bits / 8.0); }
};

/// A device with its primary context, the one that the CUDA runtime and PyTorch use, too.
class CudaDevice : public std::enable_shared_from_this<CudaDevice> {
 public:
  /// One object a device as long as any user of it lives. Throws UserError when there is no such device, and CudaError.
  static std::shared_ptr<const CudaDevice> open(int ordinal = 0);
  /// Without making a context. Throws as open().
  static CudaIdentity identify(int ordinal);

  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const CudaIdentity& identity() const { return identity_; }
  int ordinal() const { return identity_.ordinal; }
  const CudaDriver& driver() const { return driver_; }
  const cuda::Api& api() const { return driver_.api(); }
  cuda::Context context() const { return context_; }

  /// False in a process that was forked after the device was opened: CUDA does not work there.
  bool of_this_process() const;
  /// Waits for everything that was launched in this context.
  void synchronise() const;
  std::size_t free_memory() const;  ///< bytes

 private:
  CudaDevice(const CudaDriver& driver, CudaIdentity identity);
  const CudaDriver& driver_;
  CudaIdentity identity_;
  cuda::Context context_ = nullptr;
  std::uint64_t forks_ = 0;  ///< fork_count() where it was opened
};

/// Every device; none, with the reason in `why`, when there is no driver that can be used. Makes no context.
std::vector<CudaIdentity> cuda_identities(std::string& why);

using CudaDevicePtr = std::shared_ptr<const CudaDevice>;

/// Makes a device's context current on this thread, and what was current before at the end. Throws DeviceError in a process that was
/// forked after the device was opened, before any call of the driver.
class ContextScope {
 public:
  explicit ContextScope(const CudaDevice& device);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const CudaDevice* pushed_ = nullptr;
};

/// Memory of a device, aligned to 256 bytes. Its contents are not initialised.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// `bytes` 0 takes no memory.
  DeviceBuffer(CudaDevicePtr device, std::size_t bytes);
  ~DeviceBuffer() { reset(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }

  cuda::Address address() const { return address_; }
  void* data() const { return reinterpret_cast<void*>(address_); }
  std::size_t bytes() const { return bytes_; }
  void reset() noexcept;
  /// Copies from or to host memory; these wait until the copy is done.
  void upload(const void* from, std::size_t bytes, std::size_t offset = 0) const;
  void download(void* to, std::size_t bytes, std::size_t offset = 0) const;
  /// Sets every byte, or every 4 byte word of `bytes()` / 4, in the stream's order.
  void fill_bytes(unsigned char value, cuda::Stream stream = nullptr) const;
  void fill_words(std::uint32_t value, cuda::Stream stream = nullptr) const;

 private:
  void swap(DeviceBuffer& other) noexcept;
  CudaDevicePtr device_;
  cuda::Address address_ = 0;
  std::size_t bytes_ = 0;
};

/// Page-locked host memory: asynchronous copies need it.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(CudaDevicePtr device, std::size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  void* data() const { return memory_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(PinnedBuffer& other) noexcept;
  CudaDevicePtr device_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A graph ready to be launched.
class CudaGraph {
 public:
  CudaGraph(CudaDevicePtr device, cuda::Graph graph);  ///< takes the graph over
  ~CudaGraph();
  CudaGraph(CudaGraph&& other) noexcept : device_(std::move(other.device_)), exec_(std::exchange(other.exec_, nullptr)) {}
  CudaGraph& operator=(CudaGraph&&) = delete;
  void launch(cuda::Stream stream) const;

 private:
  CudaDevicePtr device_;
  cuda::GraphExec exec_ = nullptr;
};

/// A stream of its own, which does not wait for the legacy default stream (nullptr, wherever a stream is asked for).
class CudaStream {
 public:
  explicit CudaStream(CudaDevicePtr device);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cuda::Stream handle() const { return handle_; }
  operator cuda::Stream() const { return handle_; }
  /// Waits. `kernel` is named in the error when what ran before has failed.
  void synchronise(std::string_view kernel = {}) const;
  void copy_to_device(cuda::Address to, const void* from, std::size_t bytes) const;
  void copy_to_host(void* to, cuda::Address from, std::size_t bytes) const;
  void copy_on_device(cuda::Address to, cuda::Address from, std::size_t bytes) const;
  void fill_bytes(cuda::Address at, unsigned char value, std::size_t bytes) const;
  void fill_words(cuda::Address at, std::uint32_t value, std::size_t words) const;

  /// What `work` launches in this stream, recorded instead of run. An exception of `work` passes through, capture ended.
  template <class Work>
  CudaGraph capture(Work&& work) const {
    begin_capture();
    try {
      std::forward<Work>(work)();
    } catch (...) {
      abandon_capture();
      throw;
    }
    return end_capture();
  }

 private:
  void begin_capture() const;
  void abandon_capture() const noexcept;
  CudaGraph end_capture() const;
  CudaDevicePtr device_;
  cuda::Stream handle_ = nullptr;
};

/// A point in a stream, with its time.
class CudaEvent {
 public:
  explicit CudaEvent(CudaDevicePtr device);
  ~CudaEvent();
  CudaEvent(CudaEvent&& other) noexcept : device_(std::move(other.device_)), handle_(std::exchange(other.handle_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&&) = delete;

  cuda::Event handle() const { return handle_; }
  void record(cuda::Stream stream) const;
  void synchronise(std::string_view kernel = {}) const;
  bool done(std::string_view kernel = {}) const;  ///< does not wait
  /// Milliseconds between two events that are done; resolution about half a microsecond.
  static double elapsed_ms(const CudaEvent& start, const CudaEvent& end);

 private:
  CudaDevicePtr device_;
  cuda::Event handle_ = nullptr;
};

/// Where an address lies. `begin`, `bytes`: the allocation around it; 0 when the driver does not say.
struct PointerPlace {
  bool on_device = false;  ///< device or managed memory; false: host memory, or no memory at all
  int ordinal = -1;
  cuda::Address begin = 0;
  std::size_t bytes = 0;
};
/// Costs a few hundred nanoseconds; allowed while a stream is captured. The device's context must be current.
PointerPlace place_of(const CudaDevice& device, cuda::Address address);

/// Memory in the order of a stream: taken when the stream comes there, given back when it has passed. A pool keeps what is
/// given back for the next launch. While a stream is captured, both become nodes of the graph, whose memory it then is.
class StreamMemoryPool {
 public:
  /// Throws UserError when the device has no such pools.
  explicit StreamMemoryPool(CudaDevicePtr device);
  ~StreamMemoryPool();
  StreamMemoryPool(const StreamMemoryPool&) = delete;
  StreamMemoryPool& operator=(const StreamMemoryPool&) = delete;

  /// Memory from here to the end of its scope, in the order of `stream`. 256-byte aligned; 0 bytes take none. The device's
  /// context must be current at both ends.
  class Lease {
   public:
    Lease(const StreamMemoryPool& pool, std::size_t bytes, cuda::Stream stream);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    void* data() const { return reinterpret_cast<void*>(address_); }

   private:
    const StreamMemoryPool& pool_;
    cuda::Stream stream_;
    cuda::Address address_ = 0;
  };

 private:
  CudaDevicePtr device_;
  cuda::MemoryPool handle_ = nullptr;
};

}  // namespace nestor
