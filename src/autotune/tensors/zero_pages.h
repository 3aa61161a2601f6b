// Zero pages: large arrays that take memory only where they are touched.
#pragma once

#include "support/error.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace nestor {

/// `count` objects of zero bytes, in pages that the system supplies when they are first written.
template <class T>
class ZeroPages {
 public:
  ZeroPages() = default;
  /// `shared`: with processes that are forked later.
  explicit ZeroPages(std::int64_t count, bool shared = false)
      : bytes_(static_cast<std::size_t>(std::max<std::int64_t>(count, 1)) * sizeof(T)) {
    const int sharing = shared ? MAP_SHARED : MAP_PRIVATE;
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) user_error("oracle: cannot reserve {} bytes for a tensor's reference values", bytes_);
    data_ = static_cast<T*>(memory);
  }
  ~ZeroPages() {
    if (data_) munmap(data_, bytes_);
  }
  ZeroPages(ZeroPages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  ZeroPages& operator=(ZeroPages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  T& operator[](std::int64_t k) { return data_[k]; }
  const T& operator[](std::int64_t k) const { return data_[k]; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  T* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace nestor
