// Hashing without regard to the order of sizes, and publication of entries by release stores.
#include "runtime/kernel_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace nestor {
namespace {

constexpr std::size_t kFirstSlots = 64;

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

}  // namespace

bool KernelTable::Entry::equals(std::uint64_t other, const KernelKey& key) const {
  if (hash != other || sizes.size() != key.sizes.size() || op != key.op || variant != key.variant || device != key.device ||
      digest != key.digest)
    return false;
  // An entry's names are all different; so if each of them is asked for with its value, nothing else is asked for.
  return std::all_of(sizes.begin(), sizes.end(), [&](const auto& size) {
    return std::any_of(key.sizes.begin(), key.sizes.end(),
                       [&](const NamedSize& asked) { return asked.value == size.second && asked.name == size.first; });
  });
}

std::uint64_t KernelTable::hash(const KernelKey& key) {
  std::uint64_t sum = hash_text(key.op, 1) + hash_text(key.variant, 2) * 3 + hash_text(key.device, 3) * 5;
  if (!key.digest.empty()) sum += hash_text(key.digest, 4) * 7;
  for (const NamedSize& size : key.sizes) sum += hash_text(size.name, static_cast<std::uint64_t>(size.value));
  return sum ^ sum >> 32;
}

const KernelTable::Entry* KernelTable::probe(const Slots& slots, std::uint64_t hash, const KernelKey& key) {
  const std::size_t mask = slots.entries.size() - 1;
  for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
    const Entry* entry = slots.entries[at].load(std::memory_order_acquire);
    if (entry == nullptr || entry->equals(hash, key)) return entry;
  }
}

void KernelTable::place(Slots& slots, const Entry* entry) {
  const std::size_t mask = slots.entries.size() - 1;
  std::size_t at = entry->hash & mask;
  while (slots.entries[at].load(std::memory_order_relaxed) != nullptr) at = (at + 1) & mask;
  slots.entries[at].store(entry, std::memory_order_release);
}

KernelTable::Slots* KernelTable::add_slots(std::size_t count) {
  generation_.slots.push_back(std::make_unique<Slots>(count));
  return generation_.slots.back().get();
}

KernelTable::KernelTable() { current_ = add_slots(kFirstSlots); }
KernelTable::~KernelTable() = default;

std::shared_ptr<const KernelState> KernelTable::find(const KernelKey& key) const {
  const ReaderEpochs::Reading reading(readers_);
  const Entry* entry = probe(*current_.load(std::memory_order_seq_cst), hash(key), key);
  return entry == nullptr ? nullptr : entry->state;
}

std::shared_ptr<const KernelState> KernelTable::insert(const KernelKey& key, std::shared_ptr<const KernelState> state) {
  const std::lock_guard lock(writer_.get());
  const std::uint64_t hashed = hash(key);
  if (const Entry* present = probe(*current_.load(std::memory_order_relaxed), hashed, key)) return present->state;
  if (generation_.entries.size() == kMostAnswers) start_afresh();
  Slots* slots = current_.load(std::memory_order_relaxed);
  auto entry = std::make_unique<Entry>(Entry{hashed,
                                             std::string(key.op),
                                             std::string(key.variant),
                                             std::string(key.device),
                                             std::string(key.digest),
                                             {},
                                             std::move(state)});
  for (const NamedSize& size : key.sizes) entry->sizes.emplace_back(size.name, size.value);
  if (2 * (generation_.entries.size() + 1) > slots->entries.size()) {
    Slots* larger = add_slots(2 * slots->entries.size());
    for (const auto& old : slots->entries) {
      if (const Entry* moved = old.load(std::memory_order_relaxed)) place(*larger, moved);
    }
    slots = larger;
  }
  generation_.entries.push_back(std::move(entry));
  place(*slots, generation_.entries.back().get());
  current_.store(slots, std::memory_order_seq_cst);
  return generation_.entries.back()->state;
}

void KernelTable::clear() {
  const std::lock_guard lock(writer_.get());
  start_afresh();
}

void KernelTable::start_afresh() {
  retired_.push_back(std::move(generation_));
  generation_ = {};
  current_.store(add_slots(kFirstSlots), std::memory_order_seq_cst);
  if (readers_.wait_for_readers()) retired_.clear();
}

}  // namespace nestor
