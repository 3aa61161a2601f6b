// Flush, event, launch, event; many times over before anybody waits.
#include "autotune/gpu/gpu_timer.h"

#include <algorithm>
#include <chrono>

namespace nestor {
namespace {

/// Runs queued at once; the driver's queue holds several times as many commands.
constexpr int kQueued = 64;

}  // namespace

GpuTimer::GpuTimer(CudaDevicePtr device, const CudaStream& stream, std::size_t flush_bytes)
    : device_(std::move(device)), stream_(stream), cache_(device_, flush_bytes) {}

void GpuTimer::flush() const { cache_.fill_words(0, stream_); }

std::vector<double> GpuTimer::time(const std::function<void()>& launch, int runs, const std::string& kernel) {
  while (static_cast<int>(starts_.size()) < std::min(runs, kQueued)) {
    starts_.emplace_back(device_);
    ends_.emplace_back(device_);
  }
  std::vector<double> samples;
  while (static_cast<int>(samples.size()) < runs) {
    const int queued = std::min(runs - static_cast<int>(samples.size()), kQueued);
    for (int k = 0; k < queued; ++k) {
      flush();
      starts_[k].record(stream_);
      launch();
      ends_[k].record(stream_);
    }
    stream_.synchronise(kernel);
    for (int k = 0; k < queued; ++k) {
      const auto at = static_cast<std::size_t>(k);
      samples.push_back(CudaEvent::elapsed_ms(starts_[at], ends_[at]));
    }
  }
  last_busy_ = Clock::now();
  return samples;
}

void GpuTimer::warm_up() {
  using std::chrono::milliseconds;
  const auto pause = Clock::now() - last_busy_;
  // Clocks fall slowly: a pause of some milliseconds costs little, one of a second most of them.
  const auto needed = pause > milliseconds(500)  ? milliseconds(60)
                      : pause > milliseconds(50) ? milliseconds(10)
                                                 : milliseconds(1);
  const auto start = Clock::now();
  do {
    for (int k = 0; k < 8; ++k) flush();
    stream_.synchronise();
  } while (Clock::now() - start < needed);
  last_busy_ = Clock::now();
}

}  // namespace nestor
