// Finds the counter of a stream, or makes one for a launch.
#include "device/work_counter.h"

namespace nestor {

WorkCounters::WorkCounters(CudaDevicePtr device)
    : device_(std::move(device)), memory_(device_, kStreams * kSpacing), pool_(device_) {
  const CudaStream stream(device_);
  memory_.fill_words(0, stream);
  stream.synchronise();
}

std::size_t WorkCounters::place_of(cuda::Stream stream) const {
  const CudaDriver& driver = device_->driver();
  int capturing = 0;
  // The legacy default stream cannot be captured, and may not be asked while another stream is.
  if (stream != nullptr) driver.check(driver.api().stream_is_capturing(stream, &capturing), "cuStreamIsCapturing");
  if (capturing != 0) return kStreams;
  unsigned long long id = 0;
  driver.check(driver.api().stream_get_id(stream, &id), "cuStreamGetId");
  for (std::size_t probe = 0; probe < kStreams; ++probe) {
    const std::size_t place = (id + probe) % kStreams;
    std::uint64_t owner = owners_[place].load(std::memory_order_relaxed);
    if (owner == 0 && owners_[place].compare_exchange_strong(owner, id + 1, std::memory_order_relaxed)) return place;
    if (owner == id + 1) return place;
  }
  return kStreams;
}

WorkCounters::Lease::Lease(const WorkCounters& counters, cuda::Stream stream) {
  const std::size_t place = counters.place_of(stream);
  if (place < kStreams) {
    data_ = static_cast<std::byte*>(counters.memory_.data()) + place * kSpacing;
    return;
  }
  own_.emplace(counters.pool_, sizeof(std::uint32_t), stream);
  data_ = own_->data();
  const CudaDriver& driver = counters.device_->driver();
  driver.check(driver.api().memset_d32_async(reinterpret_cast<cuda::Address>(data_), 0, 1, stream), "cuMemsetD32Async");
}

}  // namespace nestor
