// Products of groups of four warps (wgmma). Each warp multiplies its own 16 of 64 rows, some time between the instruction and the wait for
// its group. Until then the registers of its sums hold words that stand for them: NaNs that name the product. The layouts are those of
// NVIDIA's PTX manual: fragments of m64nNk16, and descriptors of tiles with a swizzle of 128 bytes.
#include "emulator/instructions.h"
#include "support/elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

namespace nestor::emulation {
namespace {

using Shown = std::array<void*, kWarp>;

constexpr int kDepth = 16;      // of one product
constexpr int kMostSums = 128;  // of a thread
constexpr std::uint32_t kToken = 0xffc00000U, kTokenBits = 0x003fffffU, kNumbers = 1U << 15;
constexpr std::uint32_t kRemembered = 512;  // sums of a warp

/// The registers of a product's sums, of one warp.
struct Sums {
  int count = 0;              ///< of a thread
  Time group = 0;             ///< of the last product that adds to them
  std::vector<float> values;  ///< by lane
};

struct Pending {
  ProductForm form;
  std::uint32_t sums = 0;
  Time group = 0;
  std::uint64_t first = 0, second = 0;                      ///< descriptors
  std::array<std::array<std::uint32_t, 4>, kWarp> words{};  ///< of the first operand
  char* window = nullptr;                                   ///< the block's shared memory
  int row = 0;                                              ///< of the warp, among 64
};

struct WarpProducts : Machine::Extra {
  Time open = 1;  ///< the group that takes what is started next
  std::uint32_t next = 1;
  std::map<std::uint32_t, Sums> sums;
  std::deque<Pending> pending;
  bool flying = false;
  /// When registers were made, fenced and read, in steps of the warp.
  std::uint32_t step = 1, fence = 0;
  std::map<std::uint32_t, std::uint32_t> defined;  ///< by source
  std::map<std::uint32_t, Time> reading;           ///< by source: the last group that reads it
  Time last = 0;                                   ///< group of the last product
  bool under_way(Time known) const override { return last > known; }
};

WarpProducts& products_of(std::uint32_t warp) {
  auto& extra = machine().warp_extras[warp];
  if (extra == nullptr) extra = std::make_unique<WarpProducts>();
  return static_cast<WarpProducts&>(*extra);
}

float value_of(std::uint16_t bits, bool bf16) { return bf16 ? testing::from_bf16(bits) : testing::from_f16(bits); }

/// Half precision in a table: products take most of the time.
const std::vector<float>& halves(bool bf16) {
  static const auto make = [](bool type) {
    std::vector<float> table(1 << 16);
    for (std::uint32_t bits = 0; bits < table.size(); ++bits) table[bits] = value_of(static_cast<std::uint16_t>(bits), type);
    return table;
  };
  static const std::vector<float> f16 = make(false), bf16s = make(true);
  return bf16 ? bf16s : f16;
}

// ---- operands in shared memory

struct Descriptor {
  std::size_t start, leading, stride;
  explicit Descriptor(std::uint64_t bits)
      : start((bits & 0x3fff) << 4), leading((bits >> 16 & 0x3fff) << 4), stride((bits >> 32 & 0x3fff) << 4) {}
};

/// Where line `line` (a row, or a column of the second operand) and k lie; `along`: memory runs along lines.
std::size_t place_in(const Descriptor& tile, int line, int k, bool along) {
  const auto l = static_cast<std::size_t>(line), d = static_cast<std::size_t>(k);
  const std::size_t at = along ? tile.start + l / 64 * tile.leading + d / 8 * tile.stride + d % 8 * 128 + l % 64 * 2
                               : tile.start + l / 8 * tile.stride + l % 8 * 128 + d * 2;
  return at ^ ((at >> 7 & 7) << 4);
}

/// Calls `use` with the offsets of all pieces of 16 bytes that hold lines `first` to `first + count` of the operand.
template <class Use>
void for_each_piece(const Descriptor& tile, int first, int count, bool along, const Use& use) {
  if (along) {
    for (int k = 0; k < kDepth; ++k) {
      for (int line = first / 8 * 8; line < first + count; line += 8) use(place_in(tile, line, k, true));
    }
    return;
  }
  for (int line = first; line < first + count; ++line) {
    for (int k = 0; k < kDepth; k += 8) use(place_in(tile, line, k, false));
  }
}

void check_reads(std::uint64_t bits, int first, int count, bool along, Time group, Site site) {
  Machine& m = machine();
  const Descriptor tile(bits);
  if (bits >> 62 != 1) m.fail(fmt::format("{}: a descriptor without a swizzle of 128 bytes", m.where(site)));
  Actor actor = m.async_actor(epoch_of(m.me().own[kWarpProducts].agent, group), site);
  Block& block = m.my_block();
  for_each_piece(tile, first, count, along, [&](std::size_t at) {
    if (at + 16 > kSharedWindow) m.fail(fmt::format("{}: a product reads beyond the shared memory", m.where(site)));
    ++m.accesses;
    m.check(block.shared + at, 16, false, actor);
  });
}

/// out[k][line] of the operand's lines.
void gather(const Pending& pending, std::uint64_t bits, int first, int count, bool along, float* out) {
  const Descriptor tile(bits);
  const std::vector<float>& table = halves(pending.form.bf16 != 0);
  for (int k = 0; k < kDepth; ++k) {
    for (int line = 0; line < count; ++line) {
      std::uint16_t element = 0;
      std::memcpy(&element, pending.window + place_in(tile, first + line, k, along), 2);
      out[k * count + line] = table[element];
    }
  }
}

// ---- multiplication

void multiply(WarpProducts& warp, const Pending& pending) {
  const auto found = warp.sums.find(pending.sums);
  if (found == warp.sums.end()) return;
  const int columns = pending.form.columns;
  float a[kDepth * 16];
  if (pending.form.first_in_registers != 0) {
    const std::vector<float>& table = halves(pending.form.bf16 != 0);
    for (int lane = 0; lane < kWarp; ++lane) {
      for (int word = 0; word < 4; ++word) {
        const std::uint32_t bits = pending.words[static_cast<std::size_t>(lane)][static_cast<std::size_t>(word)];
        const int row = lane / 4 + word % 2 * 8, k = lane % 4 * 2 + word / 2 * 8;
        a[k * 16 + row] = table[bits & 0xffff];
        a[(k + 1) * 16 + row] = table[bits >> 16];
      }
    }
  } else {
    gather(pending, pending.first, pending.row, 16, pending.form.first_by_row != 0, a);
  }
  static thread_local std::vector<float> b, rows;
  b.resize(static_cast<std::size_t>(kDepth * columns));
  rows.resize(static_cast<std::size_t>(16 * columns));
  gather(pending, pending.second, 0, columns, pending.form.second_by_column != 0, b.data());
  std::vector<float>& sums = found->second.values;
  const int each = columns / 2;
  const auto place = [&](int lane, int s) { return (lane / 4 + s / 2 % 2 * 8) * columns + s / 4 * 8 + lane % 4 * 2 + s % 2; };
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int s = 0; s < each; ++s)
      rows[static_cast<std::size_t>(place(lane, s))] = sums[static_cast<std::size_t>(lane * each + s)];
  }
  using Four = float __attribute__((vector_size(16)));
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < columns; column += 4) {
      Four sum;
      std::memcpy(&sum, &rows[static_cast<std::size_t>(row * columns + column)], sizeof sum);
      for (int k = 0; k < kDepth; ++k) {
        Four factor;
        std::memcpy(&factor, &b[static_cast<std::size_t>(k * columns + column)], sizeof factor);
        sum += factor * a[k * 16 + row];
      }
      std::memcpy(&rows[static_cast<std::size_t>(row * columns + column)], &sum, sizeof sum);
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int s = 0; s < each; ++s)
      sums[static_cast<std::size_t>(lane * each + s)] = rows[static_cast<std::size_t>(place(lane, s))];
  }
}

void start(std::uint32_t number, WarpProducts& warp) {
  if (warp.flying) return;
  warp.flying = true;
  WarpProducts* queue = &warp;
  (void)number;
  machine().launch({[queue] {
    if (!queue->pending.empty()) {
      multiply(*queue, queue->pending.front());
      queue->pending.pop_front();
    }
    queue->flying = !queue->pending.empty();
    return queue->flying;
  }});
}

// ---- registers under way

bool is_token(float value) {
  return (std::bit_cast<std::uint32_t>(value) & ~kTokenBits) == kToken &&
         (std::bit_cast<std::uint32_t>(value) & kTokenBits) >= kMostSums;
}
std::uint32_t sums_of(float token) { return (std::bit_cast<std::uint32_t>(token) & kTokenBits) / kMostSums; }
int place_of(float token) { return static_cast<int>(std::bit_cast<std::uint32_t>(token) % kMostSums); }
float token(std::uint32_t sums, int place) {
  return std::bit_cast<float>(kToken | (sums * kMostSums + static_cast<std::uint32_t>(place)));
}

struct Shares {
  float* sums;
  const std::uint32_t* operands;
};

/// The sums that all lanes name, if they do; 0: values of their own.
std::uint32_t sums_under_way(const Shown& shown, int count, Site site) {
  const auto mine = [&](int lane) { return static_cast<const Shares*>(shown[static_cast<std::size_t>(lane)])->sums; };
  if (!is_token(mine(0)[0])) return 0;
  const std::uint32_t sums = sums_of(mine(0)[0]);
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int s = 0; s < count; ++s) {
      if (!is_token(mine(lane)[s]) || sums_of(mine(lane)[s]) != sums || place_of(mine(lane)[s]) != s)
        machine().fail(fmt::format("{}: sums of several products under way are mixed", machine().where(site)));
    }
  }
  return sums;
}

std::uint32_t new_sums(WarpProducts& warp, int count) {
  const std::uint32_t number = warp.next;
  warp.next = warp.next % (kNumbers - 1) + 1;
  warp.sums.erase((number + kNumbers - 1 - kRemembered) % (kNumbers - 1) + 1);
  Sums& sums = warp.sums[number];
  sums = {count, 0, std::vector<float>(static_cast<std::size_t>(kWarp * count), 0.0F)};
  return number;
}

/// Registers that a product reads or adds to must have been made before the last fence, unless products alone have touched them.
void check_fence(WarpProducts& warp, const std::uint32_t* sources, std::int32_t count, Site site) {
  Machine& m = machine();
  if (warp.fence == 0) m.fail(fmt::format("{}: no wgmma.fence since the last wait", m.where(site)));
  for (int k = 0; k < count; ++k) {
    const auto made = warp.defined.find(sources[k]);
    if (made != warp.defined.end() && made->second > warp.fence)
      m.fail(fmt::format("{}: a register of this product, made at {}, has no wgmma.fence behind it", m.where(site),
                         m.text_of_site(sources[k])));
    warp.reading[sources[k]] = warp.open;
  }
}

}  // namespace

void product(const ProductForm* form, float* sums, const std::uint32_t* operands, const std::uint32_t* sources,
             std::int32_t count, Site site) {
  Shares own{sums, operands};
  machine().meet(site, &own, [&](const Shown& shown) {
    Machine& m = machine();
    WarpProducts& warp = products_of(m.warp());
    check_fence(warp, sources, count, site);
    const int each = form->columns / 2;
    const auto share = [&](int lane) { return static_cast<const Shares*>(shown[static_cast<std::size_t>(lane)]); };
    std::uint32_t number = form->adds != 0 ? sums_under_way(shown, each, site) : 0;
    if (number == 0) {
      number = new_sums(warp, each);
      for (int lane = 0; form->adds != 0 && lane < kWarp; ++lane)
        std::copy_n(share(lane)->sums, each, &warp.sums[number].values[static_cast<std::size_t>(lane * each)]);
    }
    Sums& target = warp.sums[number];
    if (target.count != each) m.fail(fmt::format("{}: products of different shapes add to one sum", m.where(site)));
    target.group = warp.last = warp.open;
    Pending pending{*form, number, warp.open, 0, 0, {}, m.my_block().shared, m.me().in_block / kWarp % 4 * 16};
    const int words = form->first_in_registers != 0 ? 4 : 2;
    for (int lane = 0; lane < kWarp; ++lane) {
      if (form->first_in_registers != 0)
        std::copy_n(share(lane)->operands, 4, pending.words[static_cast<std::size_t>(lane)].begin());
      if (std::memcmp(share(lane)->operands + (words == 2 ? 0 : 4), share(0)->operands + (words == 2 ? 0 : 4),
                      words == 2 ? 16 : 8) != 0)
        m.fail(fmt::format("{}: lanes of one warp have different descriptors", m.where(site)));
    }
    if (words == 2) std::memcpy(&pending.first, operands, 8);
    std::memcpy(&pending.second, operands + words, 8);
    if (words == 2) check_reads(pending.first, pending.row, 16, form->first_by_row != 0, warp.open, site);
    check_reads(pending.second, 0, form->columns, form->second_by_column != 0, warp.open, site);
    warp.pending.push_back(pending);
    start(m.warp(), warp);
    for (int lane = 0; lane < kWarp; ++lane) {
      for (int s = 0; s < each; ++s) share(lane)->sums[s] = token(number, s);
    }
  });
}

void products_fence(Site site) {
  machine().meet(site, nullptr, [](const Shown&) {
    WarpProducts& warp = products_of(machine().warp());
    warp.fence = warp.step++;
  });
}

void products_commit(Site site) {
  machine().meet(site, nullptr, [](const Shown&) { ++products_of(machine().warp()).open; });
}

void products_wait(std::int32_t pending, Site site) {
  machine().meet(site, nullptr, [pending](const Shown&) {
    Machine& m = machine();
    WarpProducts& warp = products_of(m.warp());
    const auto over = static_cast<Time>(std::max<std::int64_t>(static_cast<std::int64_t>(warp.open) - 1 - pending, 0));
    while (!warp.pending.empty() && warp.pending.front().group <= over) {
      multiply(warp, warp.pending.front());
      warp.pending.pop_front();
    }
    for (std::uint32_t k = 0; k < kWarp; ++k) {
      Own& own = m.thread(m.warp() * kWarp + k).own[kWarpProducts];
      own.time = std::max(own.time, over);
    }
    warp.fence = 0;
  });
}

float settled(float value, Site site) {
  if (!is_token(value)) return value;
  Machine& m = machine();
  WarpProducts& warp = products_of(m.warp());
  const auto found = warp.sums.find(sums_of(value));
  if (found == warp.sums.end()) m.fail(fmt::format("{}: a register of a product long ago", m.where(site)));
  const Sums& sums = found->second;
  if (sums.group > m.me().own[kWarpProducts].time)
    m.fail(fmt::format("{} uses a register of a product under way: no wait has ended it", m.where(site)));
  return sums.values[static_cast<std::size_t>(static_cast<int>(m.lane()) * sums.count + place_of(value))];
}

void settle_registers(float* values, std::int32_t count, Site site) {
  for (int k = 0; k < count; ++k) values[k] = settled(values[k], site);
}

void defined(std::uint32_t source, Site site) {
  Machine& m = machine();
  WarpProducts& warp = products_of(m.warp());
  const auto reading = warp.reading.find(source);
  if (reading != warp.reading.end() && reading->second > m.me().own[kWarpProducts].time)
    m.fail(fmt::format("{} changes a register that a product under way reads or adds to", m.where(site)));
  warp.defined[source] = warp.step++;
}

}  // namespace nestor::emulation
