// Argument memory between guard pages.
#include "autotune/host/guarded_buffer.h"

#include "support/error.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace nestor {
namespace {
constexpr std::byte kPadding{0xa5};
constexpr std::size_t kAlignment = 64;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }
}  // namespace

GuardedBuffer::GuardedBuffer(std::size_t bytes) : bytes_(bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t used = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  const std::size_t body = round_up(used, page);
  mapped_ = body + 2 * page;
  void* map = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED || mprotect(static_cast<std::byte*>(map) + page, body, PROT_READ | PROT_WRITE) != 0) {
    user_error("cannot allocate {} bytes for an argument", bytes);
  }
  map_ = static_cast<std::byte*>(map);
  data_ = map_ + page + body - used;
  std::memset(data_ + bytes, static_cast<int>(kPadding), used - bytes);
}

GuardedBuffer::~GuardedBuffer() {
  if (map_) munmap(map_, mapped_);
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept
    : map_(std::exchange(other.map_, nullptr)), mapped_(other.mapped_), data_(other.data_), bytes_(other.bytes_) {}

void GuardedBuffer::make_read_only() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  mprotect(map_ + page, mapped_ - 2 * page, PROT_READ);
}

bool GuardedBuffer::padding_intact() const {
  const std::size_t used = round_up(std::max<std::size_t>(bytes_, 1), kAlignment);
  return std::all_of(data_ + bytes_, data_ + used, [](std::byte b) { return b == kPadding; });
}

}  // namespace nestor
