// Argument memory whose neighbourhood cannot be touched unnoticed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nestor {

/// Memory that ends, but for the padding of 64-byte alignment, at a page that faults; the padding holds a pattern.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t bytes);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  /// Writes fault from now on.
  void make_read_only();
  /// False when the padding behind the data was overwritten.
  bool padding_intact() const;

 private:
  std::byte* map_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace nestor
