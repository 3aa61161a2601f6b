// Device memory and page-locked host memory.
#include "device/cuda.h"
#include "support/error.h"

namespace nestor {
namespace {

void check_range(std::size_t offset, std::size_t bytes, std::size_t available) {
  if (offset > available || bytes > available - offset)
    internal_error("copy of {} bytes at {} in a device buffer of {} bytes", bytes, offset, available);
}

}  // namespace

DeviceBuffer::DeviceBuffer(CudaDevicePtr device, std::size_t bytes) : device_(std::move(device)), bytes_(bytes) {
  if (bytes == 0) return;
  const ContextScope scope(*device_);
  if (const auto result = device_->api().mem_alloc(&address_, bytes); result != cuda::kSuccess)
    device_->driver().fail(result, "cuMemAlloc", {}, fmt::format("{} bytes were asked for", bytes));
}

void DeviceBuffer::reset() noexcept {
  if (address_ != 0) {
    try {
      const ContextScope scope(*device_);
      device_->api().mem_free(address_);
    } catch (const DeviceError&) {  // the context is lost, and its memory with it
    }
  }
  address_ = 0;
  bytes_ = 0;
}

void DeviceBuffer::swap(DeviceBuffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
}

void DeviceBuffer::upload(const void* from, std::size_t bytes, std::size_t offset) const {
  check_range(offset, bytes, bytes_);
  if (bytes == 0) return;
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().copy_to_device(address_ + offset, from, bytes), "cuMemcpyHtoD");
}

void DeviceBuffer::download(void* to, std::size_t bytes, std::size_t offset) const {
  check_range(offset, bytes, bytes_);
  if (bytes == 0) return;
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().copy_to_host(to, address_ + offset, bytes), "cuMemcpyDtoH");
}

void DeviceBuffer::fill_bytes(unsigned char value, cuda::Stream stream) const {
  if (bytes_ == 0) return;
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().memset_d8_async(address_, value, bytes_, stream), "cuMemsetD8Async");
}

void DeviceBuffer::fill_words(std::uint32_t value, cuda::Stream stream) const {
  if (bytes_ < 4) return;
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().memset_d32_async(address_, value, bytes_ / 4, stream), "cuMemsetD32Async");
}

PinnedBuffer::PinnedBuffer(CudaDevicePtr device, std::size_t bytes) : device_(std::move(device)), bytes_(bytes) {
  if (bytes == 0) return;
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().mem_alloc_host(&memory_, bytes), "cuMemAllocHost");
}

PinnedBuffer::~PinnedBuffer() {
  if (memory_ == nullptr) return;
  try {
    const ContextScope scope(*device_);
    device_->api().mem_free_host(memory_);
  } catch (const DeviceError&) {  // the context is lost
  }
}

StreamMemoryPool::StreamMemoryPool(CudaDevicePtr device) : device_(std::move(device)) {
  const cuda::Api& api = device_->api();
  int supported = 0;
  device_->driver().check(api.device_get_attribute(&supported, cuda::kMemoryPools, device_->ordinal()), "cuDeviceGetAttribute");
  if (supported == 0) user_error("{} has no memory pools, which kernels with a workspace need", device_->identity().name);
  const ContextScope scope(*device_);
  cuda::MemoryPoolProps props;
  props.device = device_->ordinal();
  device_->driver().check(api.pool_create(&handle_, &props), "cuMemPoolCreate");
  std::uint64_t keep_all = ~std::uint64_t{0};
  device_->driver().check(api.pool_set_attribute(handle_, cuda::kPoolReleaseThreshold, &keep_all), "cuMemPoolSetAttribute");
}

StreamMemoryPool::~StreamMemoryPool() {
  try {
    const ContextScope scope(*device_);
    if (handle_ != nullptr) device_->api().pool_destroy(handle_);
  } catch (const DeviceError&) {  // the context is lost
  }
}

StreamMemoryPool::Lease::Lease(const StreamMemoryPool& pool, std::size_t bytes, cuda::Stream stream)
    : pool_(pool), stream_(stream) {
  if (bytes == 0) return;
  const auto result = pool.device_->api().pool_alloc_async(&address_, bytes, pool.handle_, stream);
  if (result == cuda::kSuccess) return;
  std::size_t free = 0, total = 0;
  const bool known = result == cuda::kOutOfMemory && pool.device_->api().mem_get_info(&free, &total) == cuda::kSuccess;
  const std::string there = known ? fmt::format(", {} of {} are free", free, total) : "";
  pool.device_->driver().fail(result, "cuMemAllocFromPoolAsync", {},
                              fmt::format("{} bytes were asked for a workspace{}", bytes, there));
}

StreamMemoryPool::Lease::~Lease() {
  if (address_ != 0) pool_.device_->api().mem_free_async(address_, stream_);
}

void PinnedBuffer::swap(PinnedBuffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
}

}  // namespace nestor
