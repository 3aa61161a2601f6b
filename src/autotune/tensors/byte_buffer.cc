// Shared anonymous pages.
#include "autotune/tensors/byte_buffer.h"

#include "support/error.h"

#include <sys/mman.h>

#include <cstring>

namespace nestor {

ByteBuffer::~ByteBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

ByteBuffer::ByteBuffer(const ByteBuffer& other) {
  resize(other.size_);
  if (size_ > 0) std::memcpy(data_, other.data_, size_);
}

void ByteBuffer::resize(std::size_t size) {
  ByteBuffer fresh;
  if (size > 0) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) user_error("cannot allocate {} bytes for an argument", size);
    fresh.data_ = static_cast<std::byte*>(memory);
    fresh.size_ = size;
  }
  swap(fresh);
}

}  // namespace nestor
