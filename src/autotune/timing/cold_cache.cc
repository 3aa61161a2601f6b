// Cache eviction.
#include "autotune/timing/cold_cache.h"

#include <unistd.h>

#include <algorithm>

namespace nestor {
namespace {

std::size_t flush_bytes() {
  constexpr long kAtLeast = 16L << 20, kAtMost = 256L << 20;
  const long last_level = std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE));
  return static_cast<std::size_t>(std::clamp(2 * last_level, kAtLeast, kAtMost));
}

}  // namespace

ColdCache::ColdCache(int threads) : pool_(threads), threads_(threads), memory_(flush_bytes() / sizeof(std::uint64_t), 1) {}

void ColdCache::flush() {
  struct Task {
    const std::vector<std::uint64_t>& memory;
    int threads;
    std::vector<std::uint64_t> sums;
  } task{memory_, threads_, std::vector<std::uint64_t>(threads_)};
  const auto* services = pool_.services();
  services->parallel_for(
      services->context, threads_, 0,
      [](void* closure, std::int64_t index, void*) {
        auto& t = *static_cast<Task*>(closure);
        const std::size_t part = t.memory.size() / static_cast<std::size_t>(t.threads);
        constexpr std::size_t kLine = 64 / sizeof(std::uint64_t);
        std::uint64_t sum = 0;
        for (std::size_t k = part * static_cast<std::size_t>(index); k < part * static_cast<std::size_t>(index + 1); k += kLine)
          sum += t.memory[k];
        t.sums[index] = sum;
      },
      &task);
  for (const std::uint64_t sum : task.sums) sink_ += sum;
}

}  // namespace nestor
