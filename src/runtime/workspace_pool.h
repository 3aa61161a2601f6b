// Workspaces of launches: 64-byte aligned memory, kept for the next launch.
#pragma once

#include "support/system/available_memory.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace nestor {

class WorkspacePool {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  struct Block {
    std::unique_ptr<void, Free> memory;
    std::size_t bytes = 0;
  };

 public:
  /// A workspace in use; goes back to the pool at the end of its scope.
  class Lease {
   public:
    Lease(WorkspacePool& pool, std::int64_t bytes) : pool_(pool), block_(pool.take(static_cast<std::size_t>(bytes))) {}
    ~Lease() { pool_.put(std::move(block_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    void* memory() const { return block_.memory.get(); }

   private:
    WorkspacePool& pool_;
    Block block_;
  };

 private:
  // The last block that came back is most likely in cache; one that is too small is replaced.
  Block take(std::size_t bytes) {
    if (bytes == 0) return {};
    Block block;
    {
      const std::lock_guard lock(mutex_);
      if (!blocks_.empty()) {
        block = std::move(blocks_.back());
        blocks_.pop_back();
      }
    }
    if (block.bytes >= bytes) return block;
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    block.memory.reset();
    require_memory({static_cast<std::int64_t>(bytes)}, "the workspace of a kernel");
    block.memory.reset(std::aligned_alloc(64, rounded));
    if (!block.memory) throw std::bad_alloc();
    block.bytes = rounded;
    return block;
  }

  void put(Block block) {
    if (!block.memory) return;
    const std::lock_guard lock(mutex_);
    blocks_.push_back(std::move(block));
  }

  std::mutex mutex_;
  std::vector<Block> blocks_;
};

}  // namespace nestor
