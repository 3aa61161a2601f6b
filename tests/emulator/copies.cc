// Copies beside threads: pieces by cp.async, tiles by tensor maps, words to other blocks by st.async. What they write is marked at once as
// under way, and arrives later, part by part; from then on it belongs to a group of the thread's copies, or to a phase of a barrier.
#include "emulator/instructions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace nestor::emulation {
namespace {

constexpr std::size_t kMostParts = 3;  // in which a copy arrives

}  // namespace

// ---- pieces, by threads

namespace {

void arrive(const Thread::Piece& piece) { std::memcpy(piece.to, piece.value.data(), piece.bytes); }

}  // namespace

void copy_piece(std::uint32_t to, const char* from, std::int32_t bytes, std::int32_t whole, Site site) {
  Machine& m = machine();
  if (bytes < 0 || bytes > whole) m.fail(fmt::format("{}: a copy of {} of {} bytes", m.where(site), bytes, whole));
  if (to % static_cast<std::uint32_t>(whole) != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % static_cast<std::uintptr_t>(whole) != 0)
    m.fail(fmt::format("{}: a copy between addresses that are not aligned to {} bytes", m.where(site), whole));
  m.take_turns();
  ++m.accesses;
  char* target = m.shared_pointer(to);
  Own& copies = m.own_agent(&Thread::copies, false, "a copy");
  Actor actor = m.actor(site);
  actor.epoch = epoch_of(copies.agent, m.me().open_copies);
  if (bytes > 0) m.check(from, static_cast<std::size_t>(bytes), false, actor);
  m.check(target, static_cast<std::size_t>(whole), true, actor);
  Thread::Piece piece{target, {}, static_cast<std::size_t>(whole), m.me().open_copies};
  std::memcpy(piece.value.data(), from, static_cast<std::size_t>(bytes));
  if (m.random().one_in(2)) {
    arrive(piece);
  } else {
    m.me().pieces.push_back(piece);
  }
}

void copy_piece_to(char* to, const char* from, std::int32_t whole, Site site) {
  copy_piece(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(to)), from, whole, whole, site);
}

void copy_part_to(char* to, const char* from, std::int32_t bytes, std::int32_t whole, Site site) {
  copy_piece(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(to)), from, bytes, whole, site);
}

void commit_pieces() { ++machine().me().open_copies; }

void await_pieces(std::int32_t pending) {
  Machine& m = machine();
  m.take_turns();
  Thread& me = m.me();
  if (me.copies == 0) return;
  const auto committed = static_cast<std::int64_t>(me.open_copies) - 1;
  const auto over = static_cast<Time>(std::max<std::int64_t>(committed - pending, 0));
  Own& copies = me.own[me.copies];
  copies.time = std::max(copies.time, over);
  std::erase_if(me.pieces, [&](const Thread::Piece& piece) {
    if (piece.group > over) return false;
    arrive(piece);
    return true;
  });
}

// ---- words to other blocks

void send(std::uint32_t address, std::int32_t rank, std::uint32_t barrier, const std::uint32_t* words, std::int32_t count,
          Site site) {
  Machine& m = machine();
  m.take_turns();
  ++m.accesses;
  Block& there = m.block_of_rank(rank);
  const auto moved = static_cast<std::uint32_t>(there.shared - m.my_block().shared);
  PhaseBarrier* phases = &m.phase_barrier(barrier + moved, site, true);
  const auto bytes = static_cast<std::size_t>(4 * count);
  char* to = m.shared_pointer(address + moved);
  const Epoch under_way = epoch_of(phases->agent, kNotYet);
  Actor actor = m.actor(site);
  actor.epoch = under_way;
  m.check(to, bytes, true, actor);
  if (there.running == 0) m.fail(fmt::format("{} sends to block {}, which has ended", m.where(site), there.number));
  std::array<std::uint32_t, 2> value{words[0], count > 1 ? words[1] : 0};
  // Whoever sees it arrive knows that what its sender read before is read; of what that wrote before it says nothing.
  Gathering told;
  m.release_to(told, Release::reads);
  const Order order = told.take();
  Machine* owner = &m;
  Block* block = &there;
  m.launch({[=] {
    if (block->running == 0) owner->fail(fmt::format("block {} ends before what others send to it arrives", block->number));
    std::memcpy(to, value.data(), bytes);
    block->shadow->arrive(static_cast<std::size_t>(to - block->shared), bytes, under_way,
                          epoch_of(phases->agent, phases->phase + 1));
    phases->gathering.add(order, {}, Release::reads);
    owner->complete_bytes(*phases, static_cast<std::int64_t>(bytes));
    return false;
  }});
}

// ---- tiles

namespace {

/// Bytes of a row of the box in shared memory, and how they are mixed there.
std::size_t row_bytes(const TensorMap& map) { return static_cast<std::size_t>(map.box[0] * map.element); }

std::size_t rows_of(const TensorMap& map) {
  std::size_t rows = 1;
  for (int d = 1; d < map.rank; ++d) rows *= static_cast<std::size_t>(map.box[static_cast<std::size_t>(d)]);
  return rows;
}

/// Pieces of 16 bytes change places within a span, by the number of the line of 128 bytes: bits 4 to 6 of an address by bits 7 to 9.
std::uintptr_t swizzled(std::uintptr_t address, int span) {
  const std::uintptr_t mask = span == 128 ? 7 : span == 64 ? 3 : span == 32 ? 1 : 0;
  return address ^ ((address >> 7 & mask) << 4);
}

/// A row of a tile in global memory: its first element that exists, how many there are, and where in the row it lies.
struct GlobalRow {
  char* data = nullptr;
  std::size_t bytes = 0, start = 0;
};

GlobalRow global_row(const TensorMap& map, const std::array<std::int64_t, 5>& origin, std::size_t row) {
  GlobalRow found;
  char* at = map.data;
  for (int d = 1; d < map.rank; ++d) {
    const auto k = static_cast<std::size_t>(d);
    const std::int64_t index = origin[k] + static_cast<std::int64_t>(row % static_cast<std::size_t>(map.box[k])) * map.steps[k];
    row /= static_cast<std::size_t>(map.box[k]);
    if (index < 0 || index >= map.extents[k]) return found;
    at += index * map.strides[k];
  }
  const std::int64_t first = std::max<std::int64_t>(origin[0], 0), last = std::min(origin[0] + map.box[0], map.extents[0]);
  if (first >= last) return found;
  found.data = at + first * map.element;
  found.bytes = static_cast<std::size_t>((last - first) * map.element);
  found.start = static_cast<std::size_t>((first - origin[0]) * map.element);
  return found;
}

std::array<std::int64_t, 5> origin_of(const TensorMap& map, const std::int32_t* coordinates) {
  std::array<std::int64_t, 5> origin{};
  std::copy_n(coordinates, map.rank, origin.begin());
  return origin;
}

/// Copies between a row of a box at `line` (before mixing) and contiguous bytes.
template <class Move>
void for_each_piece(char* line, std::size_t bytes, int span, const Move& move) {
  for (std::size_t at = 0; at < bytes; at += 16) {
    move(reinterpret_cast<char*>(swizzled(reinterpret_cast<std::uintptr_t>(line + at), span)), at);
  }
}

void check_alignment(const TensorMap& map, std::uint32_t address, const std::int32_t* coordinates, Site site) {
  if (std::int64_t{coordinates[0]} * map.element % 16 != 0)
    machine().fail(fmt::format("{}: a tile in memory starts at no multiple of 16 bytes", machine().where(site)));
  const std::uint32_t wanted = map.swizzle == 0 ? 16 : 128;
  if (address % wanted != 0)
    machine().fail(fmt::format("{}: a tile in shared memory is not aligned to {} bytes", machine().where(site), wanted));
}

}  // namespace

void load_tile(std::uint32_t to, const TensorMap* map, const std::int32_t* coordinates, std::uint32_t barrier,
               std::int32_t blocks, Site site) {
  Machine& m = machine();
  m.take_turns();
  check_alignment(*map, to, coordinates, site);
  const std::size_t width = row_bytes(*map), rows = rows_of(*map);
  const std::array<std::int64_t, 5> origin = origin_of(*map, coordinates);
  const Block& mine = m.my_block();
  for (int rank = 0; rank < kWarp; ++rank) {
    if (blocks == 0 ? rank != mine.rank : (blocks >> rank & 1) == 0) continue;
    Block& there = m.block_of_rank(rank);
    const auto moved = static_cast<std::uint32_t>(there.shared - mine.shared);
    PhaseBarrier* phases = &m.phase_barrier(barrier + moved, site, true);
    const Epoch under_way = epoch_of(phases->agent, kNotYet);
    if (there.running == 0) m.fail(fmt::format("{} copies to block {}, which has ended", m.where(site), there.number));
    char* base = m.shared_pointer(to + moved);
    ++m.accesses;
    m.check(base, width * rows, true, m.async_actor(under_way, site));
    Machine* owner = &m;
    Block* block = &there;
    const std::size_t parts = std::min<std::size_t>(1 + m.random().below(kMostParts), rows);
    auto next = std::make_shared<std::size_t>(0);
    const TensorMap tile = *map;
    m.launch({[=] {
      if (block->running == 0)
        owner->fail(fmt::format("block {} ends while a copy to its shared memory is under way", block->number));
      const std::size_t first = *next * rows / parts, last = (*next + 1) * rows / parts;
      for (std::size_t row = first; row < last; ++row) {
        const GlobalRow from = global_row(tile, origin, row);
        std::array<char, 256 * 4> line{};
        if (from.bytes > 0) std::memcpy(line.data() + from.start, from.data, from.bytes);
        for_each_piece(base + row * width, width, tile.swizzle,
                       [&](char* piece, std::size_t at) { std::memcpy(piece, line.data() + at, 16); });
      }
      block->shadow->arrive(static_cast<std::size_t>(base - block->shared) + first * width, (last - first) * width, under_way,
                            epoch_of(phases->agent, phases->phase + 1));
      owner->complete_bytes(*phases, static_cast<std::int64_t>((last - first) * width));
      return ++*next < parts;
    }});
  }
}

void store_tile(const TensorMap* map, const std::int32_t* coordinates, std::uint32_t from, Site site) {
  Machine& m = machine();
  m.take_turns();
  check_alignment(*map, from, coordinates, site);
  const std::size_t width = row_bytes(*map), rows = rows_of(*map);
  const std::array<std::int64_t, 5> origin = origin_of(*map, coordinates);
  Own& moves = m.own_agent(&Thread::moves, true, "a tensor store");
  const Time group = m.me().open_moves;
  const Actor actor = m.async_actor(epoch_of(moves.agent, group), site);
  char* base = m.shared_pointer(from);
  ++m.accesses;
  m.check(base, width * rows, false, actor);
  for (std::size_t row = 0; row < rows; ++row) {
    const GlobalRow to = global_row(*map, origin, row);
    if (to.bytes > 0) m.check(to.data, to.bytes, true, actor);
  }
  const std::size_t parts = std::min<std::size_t>(1 + m.random().below(kMostParts), rows);
  auto next = std::make_shared<std::size_t>(0);
  const TensorMap tile = *map;
  int* pending = &m.my_block().moves[moves.agent][group];
  m.me().last_move = group;
  ++*pending;
  m.launch({[=] {
    for (std::size_t row = *next * rows / parts; row < (*next + 1) * rows / parts; ++row) {
      const GlobalRow to = global_row(tile, origin, row);
      std::array<char, 256 * 4> line{};
      for_each_piece(base + row * width, width, tile.swizzle,
                     [&](char* piece, std::size_t at) { std::memcpy(line.data() + at, piece, 16); });
      if (to.bytes > 0) std::memcpy(to.data, line.data() + to.start, to.bytes);
    }
    if (++*next < parts) return true;
    --*pending;
    return false;
  }});
}

void commit_stores() { ++machine().me().open_moves; }

/// Until all but the last groups have read shared memory.
void await_stores(std::int32_t pending, Site) {
  Machine& m = machine();
  m.take_turns();
  Thread& me = m.me();
  if (me.moves == 0) return;
  Own& moves = me.own[me.moves];
  const auto over = static_cast<Time>(std::max<std::int64_t>(static_cast<std::int64_t>(me.open_moves) - 1 - pending, 0));
  const auto& groups = m.my_block().moves[moves.agent];
  m.finish_until([&] {
    return std::all_of(groups.begin(), groups.end(), [&](const auto& group) { return group.first > over || group.second == 0; });
  });
  moves.time = std::max(moves.time, over);
}

}  // namespace nestor::emulation
