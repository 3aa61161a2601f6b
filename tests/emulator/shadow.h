// Shadow memory: for each piece of memory who wrote it last and who has read it since, so that two accesses that nothing orders are
// noticed whatever the order in which they ran. After C. Flanagan and S. Freund, FastTrack: Efficient and Precise Dynamic Race Detection, 2009;
// pieces are lines of 16 bytes until accesses tell their parts apart.
#pragma once

#include "emulator/clock.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace nestor::emulation {

/// Time and agent of an access; 0: none.
using Epoch = std::uint64_t;
inline Epoch epoch_of(Agent agent, Time time) { return static_cast<Epoch>(agent) << 32 | time; }
inline Agent agent_of(Epoch epoch) { return static_cast<Agent>(epoch >> 32); }
inline Time time_of(Epoch epoch) { return static_cast<Time>(epoch); }

using Site = std::uint32_t;  ///< an instruction of the module; 0: none

/// Who accesses memory, and what he knows.
struct Actor {
  const Order* order = nullptr;
  const std::vector<Own>* own = nullptr;
  Epoch epoch = 0;     ///< of the access
  bool async = false;  ///< through the asynchronous proxy
  Site site = 0;
};

/// Two accesses that nothing orders.
struct Conflict {
  enum class Kind : std::uint8_t { none, race, unfenced } kind = Kind::none;
  Epoch other = 0;
  Site site = 0;            ///< of the other access
  std::uint32_t stamp = 0;  ///< when that was
  bool other_writes = false;
};

/// What agents are, as far as conflicts depend on it.
class AgentKinds {
 public:
  virtual ~AgentKinds() = default;
  virtual bool is_async(Agent agent) const = 0;
};

/// The shadow of one piece of memory.
class Shadow {
 public:
  static constexpr std::size_t kLine = 16;
  Shadow(std::size_t bytes, const AgentKinds& kinds) : lines_(bytes / kLine + 2), kinds_(&kinds) {}

  /// Accesses from now on carry `now`. Those before `first` are over; others of another stamp than `now` are of blocks that run at the same
  /// time as this one.
  void set_time(std::uint32_t now, std::uint32_t first) {
    now_ = now;
    first_ = first;
  }
  Conflict read(std::size_t offset, std::size_t bytes, const Actor& actor);
  Conflict write(std::size_t offset, std::size_t bytes, const Actor& actor);
  /// What `from` says of these bytes is `to`'s from now on: a copy has arrived.
  void arrive(std::size_t offset, std::size_t bytes, Epoch from, Epoch to);

 private:
  struct Readers {
    std::vector<std::pair<Time, Site>> times;  ///< by agent
  };
  struct Cell {
    Epoch write = 0, read = 0;
    Site write_site = 0, read_site = 0;
    std::uint32_t stamp = 0, elsewhere_stamp = 0;
    Epoch elsewhere = 0;  ///< a read by a block that runs at the same time
    Site elsewhere_site = 0;
    std::unique_ptr<Readers> readers;
  };
  struct Line {
    std::uint8_t grain = kLine;
    Cell whole;
    std::unique_ptr<Cell[]> parts;
  };

  template <class Visit>
  Conflict visit(std::size_t offset, std::size_t bytes, bool write, const Visit& visit);
  static void refine(Line& line, std::uint8_t grain);
  static Cell copy_of(const Cell& cell);
  Conflict read(Cell& cell, const Actor& actor);
  Conflict write(Cell& cell, const Actor& actor);
  Conflict stale(Cell& cell) const;
  Conflict check_write_before(const Cell& cell, const Actor& actor, bool writes) const;
  Conflict check_read_before(Epoch read, Site site, const Actor& actor) const;
  void note_reader(Cell& cell, const Actor& actor);

  std::vector<Line> lines_;
  const AgentKinds* kinds_;
  std::uint32_t now_ = 1, first_ = 1;
};

}  // namespace nestor::emulation
