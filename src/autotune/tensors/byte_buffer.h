// ByteBuffer: the bytes of one argument, in memory that forking shares instead of copying.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

namespace nestor {

/// Zero pages that appear when touched. Forked processes see, and share, what is in them.
class ByteBuffer {
 public:
  ByteBuffer() = default;
  explicit ByteBuffer(std::size_t size) { resize(size); }
  ~ByteBuffer();
  ByteBuffer(const ByteBuffer& other);
  ByteBuffer(ByteBuffer&& other) noexcept { swap(other); }
  ByteBuffer& operator=(ByteBuffer other) noexcept {
    swap(other);
    return *this;
  }

  /// To `size` zero bytes; what was in it is gone. Throws UserError when there is no memory.
  void resize(std::size_t size);
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool operator==(const ByteBuffer& other) const { return view() == other.view(); }

 private:
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }
  void swap(ByteBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace nestor
