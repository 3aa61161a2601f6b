// KernelTable: remembered answers, a bounded number of them. Readers take no lock and allocate nothing; writers take turns.
#pragma once

#include "nestor/runtime.h"
#include "runtime/reader_epochs.h"
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

/// A hash table that only grows until it is cleared, or holds kMostAnswers and starts afresh. What was cleared is freed as soon as no reader
/// can see it.
class KernelTable {
 public:
  static constexpr std::size_t kMostAnswers = 1 << 15;

  KernelTable();
  ~KernelTable();

  /// nullptr when not remembered.
  std::shared_ptr<const KernelState> find(const KernelKey& key) const;
  /// Keeps the first of two answers to the same key, and returns it.
  std::shared_ptr<const KernelState> insert(const KernelKey& key, std::shared_ptr<const KernelState> state);
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
  /// Slots and entries of one time between two clearings.
  struct Generation {
    std::vector<std::unique_ptr<Slots>> slots;  // the current ones last
    std::vector<std::unique_ptr<Entry>> entries;
  };

  static std::uint64_t hash(const KernelKey& key);
  static const Entry* probe(const Slots& slots, std::uint64_t hash, const KernelKey& key);
  static void place(Slots& slots, const Entry* entry);
  Slots* add_slots(std::size_t count);
  void start_afresh();

  std::atomic<Slots*> current_{nullptr};
  mutable ReaderEpochs readers_;
  PerProcess<std::mutex> writer_{[] { return std::make_unique<std::mutex>(); }};
  Generation generation_;
  std::vector<Generation> retired_;  // that a reader may still see
};

}  // namespace nestor
