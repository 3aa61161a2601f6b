// What the lanes of a warp do together, and plain accesses to memory. Of what lanes wrote, shuffles and votes say nothing, as warp barriers do;
// but who comes out of one knows that all lanes have read what they read before.
#include "emulator/instructions.h"
#include "support/elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace nestor::emulation {
namespace {

using Shown = std::array<void*, kWarp>;

Thread& thread_of_lane(int lane) { return machine().thread(machine().warp() * kWarp + static_cast<std::uint32_t>(lane)); }

}  // namespace

void Machine::meet(Site site, void* own, const std::function<void(const Shown&)>& together) {
  take_turns();
  Meeting& meeting = meetings_[warp()];
  if (meeting.arrived > 0 && meeting.site != site)
    fail(fmt::format("lanes of one warp should be at one instruction: {}, another lane at {}", where(site),
                     text_of_site(meeting.site)));
  meeting.site = site;
  meeting.shown[lane()] = own;
  if (++meeting.arrived < kWarp) return wait(Wait::warp, site);
  meeting.arrived = 0;
  together(meeting.shown);
  for (int k = 0; k < kWarp; ++k) {
    Thread& other = thread_of_lane(k);
    if (&other != &me()) go_on(other);
  }
}

// ---- special registers

std::int32_t thread_index() { return machine().me().in_block; }
std::int32_t block_index() { return static_cast<std::int32_t>(machine().my_block().number); }
std::int32_t block_count() { return static_cast<std::int32_t>(machine().shape().blocks); }
char* shared_memory() { return machine().my_block().shared; }

// ---- memory

void access(char* address, std::int64_t bytes, std::int32_t write, Site site) {
  machine().access(address, static_cast<std::size_t>(bytes), write != 0, site);
}

namespace {

/// Of shared memory, aligned to as many bytes.
char* shared_at(std::uint32_t address, std::size_t bytes, Site site) {
  if (address % bytes != 0)
    machine().fail(fmt::format("{}: a shared address is not aligned to {} bytes", machine().where(site), bytes));
  return machine().shared_pointer(address);
}

void store_shared(std::uint32_t address, const void* value, std::size_t bytes, Site site) {
  char* to = shared_at(address, bytes, site);
  machine().access(to, bytes, true, site);
  std::memcpy(to, value, bytes);
}

}  // namespace

void load_piece(std::uint32_t address, std::uint32_t* words, Site site) {
  const char* from = shared_at(address, 16, site);
  machine().access(from, 16, false, site);
  std::memcpy(words, from, 16);
}

std::uint32_t load_word(std::uint32_t address, Site site) {
  const char* from = shared_at(address, 4, site);
  machine().access(from, 4, false, site);
  std::uint32_t word = 0;
  std::memcpy(&word, from, 4);
  return word;
}

void store_word(std::uint32_t address, std::uint32_t word, Site site) { store_shared(address, &word, 4, site); }
void store_half(std::uint32_t address, std::uint16_t half, Site site) { store_shared(address, &half, 2, site); }

void store_global(char* address, const std::uint32_t* words, std::int32_t bytes, std::int32_t wanted, Site site) {
  if (wanted == 0) return;
  const auto count = static_cast<std::size_t>(bytes);
  if (reinterpret_cast<std::uintptr_t>(address) % count != 0)
    machine().fail(fmt::format("{}: a global address is not aligned to {} bytes", machine().where(site), bytes));
  machine().access(address, count, true, site);
  std::memcpy(address, words, count);
}

void load_global(char* address, std::uint32_t* words, Site site) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0)
    machine().fail(fmt::format("{}: a global address is not aligned to 16 bytes", machine().where(site)));
  machine().access(address, 16, false, site);
  std::memcpy(words, address, 16);
}

namespace {

Region& counter_at(char* address, Site site) {
  Region* region = machine().region_at(address);
  if (region == nullptr || !region->counter) machine().fail(fmt::format("{}: there is no counter here", machine().where(site)));
  return *region;
}

}  // namespace

std::uint32_t add_to_counter(char* address, Site site) {
  machine().take_turns();
  counter_at(address, site);
  std::uint32_t value = 0;
  std::memcpy(&value, address, 4);
  const std::uint32_t next = value + 1;
  std::memcpy(address, &next, 4);
  return value;
}

void reset_counter(char* address, std::int32_t wanted, Site site) {
  if (wanted == 0) return;
  machine().take_turns();
  counter_at(address, site);
  std::memset(address, 0, 4);
}

// ---- warps

namespace {

void order_lanes(Release release) {
  Gathering gathering;
  for (int k = 0; k < kWarp; ++k) {
    Thread& lane = thread_of_lane(k);
    gathering.add(lane.order, lane.own, release);
    ++lane.own[0].time;
  }
  const Order order = gathering.take();
  for (int k = 0; k < kWarp; ++k) machine().acquire(thread_of_lane(k), order);
}

}  // namespace

std::uint32_t shuffle(std::uint32_t value, std::int32_t lane_or_distance, std::int32_t butterfly, Site site) {
  struct Own {
    std::uint32_t value, result, from;
  };
  const std::uint32_t lane = machine().lane();
  const auto other = static_cast<std::uint32_t>(lane_or_distance);
  Own own{value, 0, (butterfly != 0 ? lane ^ other : other) % kWarp};
  machine().meet(site, &own, [](const Shown& shown) {
    for (void* each : shown) {
      Own& mine = *static_cast<Own*>(each);
      mine.result = static_cast<const Own*>(shown[mine.from])->value;
    }
    order_lanes(Release::reads);
  });
  return own.result;
}

std::int32_t vote_any(std::int32_t value, Site site) {
  machine().meet(site, &value, [](const Shown& shown) {
    const bool any =
        std::any_of(shown.begin(), shown.end(), [](const void* each) { return *static_cast<const std::int32_t*>(each) != 0; });
    for (void* each : shown) *static_cast<std::int32_t*>(each) = any ? 1 : 0;
    order_lanes(Release::reads);
  });
  return value;
}

std::uint32_t vote_ballot(std::int32_t value, Site site) {
  auto bits = static_cast<std::uint32_t>(value != 0 ? 1 : 0);
  machine().meet(site, &bits, [](const Shown& shown) {
    std::uint32_t all = 0;
    for (std::size_t lane = 0; lane < shown.size(); ++lane) all |= *static_cast<const std::uint32_t*>(shown[lane]) << lane;
    for (void* each : shown) *static_cast<std::uint32_t*>(each) = all;
    order_lanes(Release::reads);
  });
  return bits;
}

void warp_barrier(Site site) {
  machine().meet(site, nullptr, [](const Shown&) { order_lanes(Release::all); });
}

namespace {

struct Matrices {
  std::uint32_t address;
  std::uint32_t* words;
};

/// The eight rows of a matrix come from all 32 banks at once.
void check_banks(const Shown& shown, int matrix, Site site) {
  unsigned seen = 0;
  for (int row = 0; row < 8; ++row)
    seen |= 1U << (static_cast<const Matrices*>(shown[static_cast<std::size_t>(8 * matrix + row)])->address / 16 % 8);
  if (seen != 0xff) machine().fail(fmt::format("{}: rows of a matrix lie in the same banks", machine().where(site)));
}

/// Where lane l has its pair of elements: rows and columns of the matrix.
struct PairPlace {
  int row[2], column[2];
  PairPlace(int lane, bool transposed) {
    for (int e = 0; e < 2; ++e) {
      row[e] = transposed ? lane % 4 * 2 + e : lane / 4;
      column[e] = transposed ? lane / 4 : lane % 4 * 2 + e;
    }
  }
};

}  // namespace

/// Lane l gives the address of row l%8 of matrix l/8. The warp reads as one: whoever of it goes on knows that all have read.
void load_matrices(std::uint32_t address, std::int32_t count, std::int32_t transposed, std::uint32_t* words, Site site) {
  Matrices own{address, words};
  machine().meet(site, &own, [&](const Shown& shown) {
    const Time time = machine().me().own[kWarpReads].time + 1;
    for (int k = 0; k < kWarp; ++k) thread_of_lane(k).own[kWarpReads].time = time;
    Actor actor = machine().actor(site);
    actor.epoch = epoch_of(machine().me().own[kWarpReads].agent, time);
    for (int row = 0; row < 8 * count; ++row) {
      Thread& lane = thread_of_lane(row);
      actor.order = &lane.order;
      actor.own = &lane.own;
      ++machine().accesses;
      machine().check(shared_at(static_cast<const Matrices*>(shown[static_cast<std::size_t>(row)])->address, 16, site), 16, false,
                      actor);
    }
    for (int matrix = 0; matrix < count; ++matrix) {
      check_banks(shown, matrix, site);
      for (int lane = 0; lane < kWarp; ++lane) {
        const PairPlace place(lane, transposed != 0);
        std::uint16_t pair[2];
        for (int e = 0; e < 2; ++e) {
          const auto row = static_cast<std::size_t>(8 * matrix + place.row[e]);
          std::memcpy(&pair[e], machine().shared_pointer(static_cast<const Matrices*>(shown[row])->address) + 2 * place.column[e],
                      2);
        }
        static_cast<const Matrices*>(shown[static_cast<std::size_t>(lane)])->words[matrix] =
            pair[0] | static_cast<std::uint32_t>(pair[1]) << 16;
      }
    }
  });
}

void store_matrices(std::uint32_t address, const std::uint32_t* words, Site site) {
  Matrices own{address, const_cast<std::uint32_t*>(words)};
  machine().meet(site, &own, [&](const Shown& shown) {
    for (int row = 0; row < kWarp; ++row) {
      const auto* mine = static_cast<const Matrices*>(shown[static_cast<std::size_t>(row)]);
      Thread& lane = thread_of_lane(row);
      const Actor actor{&lane.order, &lane.own, epoch_of(lane.number, lane.own[0].time), false, site};
      ++machine().accesses;
      char* line = shared_at(mine->address, 16, site);
      machine().check(line, 16, true, actor);
      const int matrix = row / 8;
      for (int part = 0; part < 4; ++part) {
        const auto* from = static_cast<const Matrices*>(shown[static_cast<std::size_t>(row % 8 * 4 + part)]);
        std::memcpy(line + 4 * part, &from->words[matrix], 4);
      }
    }
  });
}

/// mma.m16n8k16: words 0 to 3 are the first operand's, 4 and 5 the second's.
void multiply(std::int32_t bf16, const std::uint32_t* operands, float* sums, Site site) {
  struct Own {
    const std::uint32_t* operands;
    float* sums;
  };
  Own own{operands, sums};
  machine().meet(site, &own, [&](const Shown& shown) {
    float a[16][16], b[16][8];
    const auto value = [&](std::uint32_t word, int half) {
      const auto bits = static_cast<std::uint16_t>(word >> (16 * half));
      return bf16 != 0 ? testing::from_bf16(bits) : testing::from_f16(bits);
    };
    for (int lane = 0; lane < kWarp; ++lane) {
      const std::uint32_t* words = static_cast<const Own*>(shown[static_cast<std::size_t>(lane)])->operands;
      for (int half = 0; half < 2; ++half) {
        const int k = lane % 4 * 2 + half;
        for (int word = 0; word < 4; ++word) a[lane / 4 + word % 2 * 8][k + word / 2 * 8] = value(words[word], half);
        for (int word = 0; word < 2; ++word) b[k + word * 8][lane / 4] = value(words[4 + word], half);
      }
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      float* mine = static_cast<const Own*>(shown[static_cast<std::size_t>(lane)])->sums;
      for (int s = 0; s < 4; ++s) {
        double sum = mine[s];
        for (int k = 0; k < 16; ++k) sum += static_cast<double>(a[lane / 4 + s / 2 * 8][k]) * b[k][lane % 4 * 2 + s % 2];
        mine[s] = static_cast<float>(sum);
      }
    }
  });
}

}  // namespace nestor::emulation
