// KernelTable: remembered answers. Readers take no lock and allocate nothing; writers take turns.
#pragma once

#include "nestor/runtime.h"
#include "support/system/fork_count.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nestor {

/// What a query asks for: an operator's variant, or the nest with a digest (then both are empty). Sizes in any order.
struct KernelKey {
  std::string_view op, variant, device;
  std::span<const NamedSize> sizes;
  std::string_view digest = {};
};

/// An insert-only hash table. What was ever in it (also before clear()) stays in memory until the table goes, so a reader
/// never holds anything that can vanish.
class KernelTable {
 public:
  KernelTable();
  ~KernelTable();

  /// nullptr when not remembered. The pointee lives as long as this table.
  const std::shared_ptr<const KernelState>* find(const KernelKey& key) const;
  /// Keeps the first of two answers to the same key, and returns it.
  const std::shared_ptr<const KernelState>& insert(const KernelKey& key, std::shared_ptr<const KernelState> state);
  void clear();

 private:
  struct Entry {
    std::uint64_t hash;
    std::string op, variant, device, digest;
    std::vector<std::pair<std::string, std::int64_t>> sizes;
    std::shared_ptr<const KernelState> state;
    bool equals(std::uint64_t other, const KernelKey& key) const;
  };
  /// Open addressing; at most half full.
  struct Slots {
    explicit Slots(std::size_t count) : entries(count) {}
    std::vector<std::atomic<const Entry*>> entries;
  };

  static std::uint64_t hash(const KernelKey& key);
  static const Entry* probe(const Slots& slots, std::uint64_t hash, const KernelKey& key);
  static void place(Slots& slots, const Entry* entry);
  Slots* add_slots(std::size_t count);

  std::atomic<Slots*> current_{nullptr};
  PerProcess<std::mutex> writer_{[] { return std::make_unique<std::mutex>(); }};
  std::size_t used_ = 0;                           // entries in *current_
  std::vector<std::unique_ptr<Slots>> all_slots_;  // the current ones last
  std::vector<std::unique_ptr<Entry>> all_entries_;
};

}  // namespace nestor
