// Filling memory with random elements, in parts on several threads.
#include "autotune/tensors/random_fill.h"

#include "db/devices/host_identity.h"
#include "support/element_codec.h"
#include "support/system/start_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace nestor {
namespace {

constexpr std::uint64_t kLargestSum = 4 * std::uint64_t{0xffff};

/// Sum of the four 16 bit parts.
std::uint64_t part_sum(std::uint64_t bits) {
  return (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
}

double normal_of(std::uint64_t sum) { return (static_cast<double>(sum) - 131070.0) * (1.0 / 37837.2); }

/// Every sum as the type holds it: rounding by hand is slow, and there are few sums.
std::vector<std::uint16_t> encode_sums(ElementType type) {
  std::vector<std::uint16_t> table(kLargestSum + 1);
  for (std::uint64_t sum = 0; sum <= kLargestSum; ++sum) {
    table[sum] = type == ElementType::f16 ? double_to_half(normal_of(sum)) : double_to_bfloat(normal_of(sum));
  }
  return table;
}

const std::vector<std::uint16_t>& encoded_sums(ElementType type) {
  static const std::vector<std::uint16_t> kHalf = encode_sums(ElementType::f16), kBfloat = encode_sums(ElementType::bf16);
  static const std::vector<std::uint16_t> kNone;
  return type == ElementType::f16 ? kHalf : type == ElementType::bf16 ? kBfloat : kNone;
}

void fill_part(ElementType type, std::byte* data, std::int64_t first, std::int64_t last, const CounterRandom& random,
               const std::vector<std::uint16_t>& table) {
  const auto at = [&](std::int64_t k) { return random.at(static_cast<std::uint64_t>(k)); };
  switch (type) {
    case ElementType::f32: {
      auto* values = reinterpret_cast<float*>(data);
      for (std::int64_t k = first; k < last; ++k) values[k] = static_cast<float>(normal_of(part_sum(at(k))));
      return;
    }
    case ElementType::f16:
    case ElementType::bf16: {
      auto* values = reinterpret_cast<std::uint16_t*>(data);
      for (std::int64_t k = first; k < last; ++k) values[k] = table[part_sum(at(k))];
      return;
    }
    case ElementType::i32:
      for (std::int64_t k = first; k < last; ++k) store_element(type, data, k, static_cast<double>(at(k) % 17) - 8);
      return;
    case ElementType::i64:
      for (std::int64_t k = first; k < last; ++k) {
        const std::uint64_t draw = at(k);
        auto value = static_cast<std::int64_t>(draw % 17) - 8;
        if ((draw >> 32) % 64 == 0) value += (value < 0 ? -1 : 1) * (std::int64_t{1} << 40);  // beyond i32
        std::memcpy(data + k * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
      }
      return;
    case ElementType::boolean:
      for (std::int64_t k = first; k < last; ++k) store_element(type, data, k, static_cast<double>(at(k) % 2));
      return;
  }
}

}  // namespace

std::uint64_t seed_for(const std::string& name, std::uint64_t seed) {
  std::uint64_t hash = 1469598103934665603ULL ^ seed * 0x9e3779b97f4a7c15ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

void fill_random(ElementType type, std::byte* data, std::int64_t count, std::uint64_t seed) {
  const CounterRandom random(seed);
  const std::vector<std::uint16_t>& table = encoded_sums(type);
  constexpr std::int64_t kWorthAThread = 1 << 20;
  const std::int64_t threads = std::clamp<std::int64_t>(count / kWorthAThread, 1, std::min(host_threads(), 32));
  JoinedThreads others;
  for (std::int64_t t = 1; t < threads; ++t) {
    others.start(fmt::format("thread {} of {} that fills a tensor", t + 1, threads),
                 [&, t] { fill_part(type, data, count * t / threads, count * (t + 1) / threads, random, table); });
  }
  fill_part(type, data, 0, count / threads, random, table);
}

}  // namespace nestor
