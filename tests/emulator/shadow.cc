// Shadow memory: the rules by which accesses are ordered.
#include "emulator/shadow.h"

#include <algorithm>

namespace nestor::emulation {
namespace {

enum class Knows : std::uint8_t { seen, over, fenced };

/// Does the actor know that epoch to be over?
bool knows(const Actor& actor, Epoch epoch, Knows how) {
  const Agent agent = agent_of(epoch);
  const Time time = time_of(epoch);
  for (const Own& own : *actor.own) {
    if (own.agent == agent && time <= (how == Knows::fenced ? own.fenced : own.time)) return true;
  }
  const Order& order = *actor.order;
  const Clock& clock = how == Knows::seen ? order.seen : how == Knows::over ? order.over : order.fenced;
  return time <= time_in(clock, agent);
}

}  // namespace

template <class Visit>
Conflict Shadow::visit(std::size_t offset, std::size_t bytes, bool write, const Visit& visit) {
  const std::size_t end = offset + bytes;
  for (std::size_t at = offset; at < end;) {
    Line& line = lines_[at / kLine];
    const std::size_t start = at / kLine * kLine, first = at - start, last = std::min(end - start, kLine);
    const bool whole = first == 0 && last == kLine;
    if (whole && write && line.grain != kLine) {  // all parts become one, after all of them have been looked at
      for (std::size_t part = 0; part < kLine / line.grain; ++part) {
        if (const Conflict found = visit(line.parts[part]); found.kind != Conflict::Kind::none) return found;
      }
      line.whole = copy_of(line.parts[0]);
      line.grain = kLine;
    } else {
      const std::size_t odd = first | last;
      const std::uint8_t grain = odd % kLine == 0 ? kLine : odd % 4 == 0 ? 4 : odd % 2 == 0 ? 2 : 1;
      if (grain < line.grain) refine(line, grain);
      for (std::size_t part = first / line.grain; part * line.grain < last; ++part) {
        Cell& cell = line.grain == kLine ? line.whole : line.parts[part];
        if (const Conflict found = visit(cell); found.kind != Conflict::Kind::none) return found;
      }
    }
    at = start + last;
  }
  return {};
}

Shadow::Cell Shadow::copy_of(const Cell& cell) {
  Cell copy;
  copy.write = cell.write;
  copy.read = cell.read;
  copy.write_site = cell.write_site;
  copy.read_site = cell.read_site;
  copy.stamp = cell.stamp;
  copy.elsewhere_stamp = cell.elsewhere_stamp;
  copy.elsewhere = cell.elsewhere;
  copy.elsewhere_site = cell.elsewhere_site;
  if (cell.readers != nullptr) copy.readers = std::make_unique<Readers>(*cell.readers);
  return copy;
}

void Shadow::refine(Line& line, std::uint8_t grain) {
  auto parts = std::make_unique<Cell[]>(kLine / grain);
  for (std::size_t k = 0; k < kLine / grain; ++k)
    parts[k] = copy_of(line.grain == kLine ? line.whole : line.parts[k * grain / line.grain]);
  line.parts = std::move(parts);
  line.grain = grain;
}

/// Brings a cell of an earlier time up to now.
Conflict Shadow::stale(Cell& cell) const {
  if (cell.stamp == now_) return {};
  if (cell.stamp < first_) {
    cell = Cell();
    cell.stamp = now_;
    return {};
  }
  if (cell.write != 0) return {Conflict::Kind::race, cell.write, cell.write_site, cell.stamp, true};
  if (cell.read != 0) {
    cell.elsewhere = cell.read;
    cell.elsewhere_site = cell.read_site;
    cell.elsewhere_stamp = cell.stamp;
  }
  cell.read = 0;
  cell.readers = nullptr;
  cell.stamp = now_;
  return {};
}

/// A copy that somebody has seen to be complete can be written over by whoever knows of that, seen or not.
Conflict Shadow::check_write_before(const Cell& cell, const Actor& actor, bool writes) const {
  if (cell.write == 0 || (cell.write == actor.epoch && time_of(actor.epoch) != kNotYet)) return {};
  const bool copied = kinds_->is_async(agent_of(cell.write)), fences = actor.async && !copied;
  if (writes && copied && knows(actor, cell.write, Knows::over)) return {};
  if (knows(actor, cell.write, fences ? Knows::fenced : Knows::seen)) return {};
  const bool ordered = fences && knows(actor, cell.write, Knows::seen);
  return {ordered ? Conflict::Kind::unfenced : Conflict::Kind::race, cell.write, cell.write_site, now_, true};
}

void Shadow::note_reader(Cell& cell, const Actor& actor) {
  const Agent agent = agent_of(actor.epoch);
  if (cell.readers == nullptr) {
    // One reader is enough to know where whoever comes after this one comes after that one, too.
    if (cell.read == 0 || knows(actor, cell.read, Knows::over)) {
      cell.read = actor.epoch;
      cell.read_site = actor.site;
      return;
    }
    cell.readers = std::make_unique<Readers>();
    cell.readers->times.resize(std::max(agent_of(cell.read), agent) + 1);
    cell.readers->times[agent_of(cell.read)] = {time_of(cell.read), cell.read_site};
  }
  auto& times = cell.readers->times;
  if (agent >= times.size()) times.resize(agent + 1);
  times[agent] = {time_of(actor.epoch), actor.site};
  cell.read = actor.epoch;
  cell.read_site = actor.site;
}

Conflict Shadow::read(Cell& cell, const Actor& actor) {
  if (cell.stamp == now_ && cell.read == actor.epoch) return {};
  if (const Conflict found = stale(cell); found.kind != Conflict::Kind::none) return found;
  if (const Conflict found = check_write_before(cell, actor, false); found.kind != Conflict::Kind::none) return found;
  note_reader(cell, actor);
  return {};
}

/// What threads read, copies overwrite behind a fence of the reader alone: a read may still be under way where an arrival behind it is not.
Conflict Shadow::check_read_before(Epoch read, Site site, const Actor& actor) const {
  if (!knows(actor, read, Knows::over)) return {Conflict::Kind::race, read, site, now_, false};
  const bool fences = actor.async && !kinds_->is_async(agent_of(read));
  if (fences && !knows(actor, read, Knows::fenced)) return {Conflict::Kind::unfenced, read, site, now_, false};
  return {};
}

Conflict Shadow::write(Cell& cell, const Actor& actor) {
  if (const Conflict found = stale(cell); found.kind != Conflict::Kind::none) return found;
  if (cell.elsewhere != 0 && cell.elsewhere_stamp >= first_)
    return {Conflict::Kind::race, cell.elsewhere, cell.elsewhere_site, cell.elsewhere_stamp, false};
  if (const Conflict found = check_write_before(cell, actor, true); found.kind != Conflict::Kind::none) return found;
  if (cell.readers != nullptr) {
    const auto& times = cell.readers->times;
    for (Agent agent = 0; agent < times.size(); ++agent) {
      if (times[agent].first == 0) continue;
      const Conflict found = check_read_before(epoch_of(agent, times[agent].first), times[agent].second, actor);
      if (found.kind != Conflict::Kind::none) return found;
    }
    cell.readers = nullptr;
  } else if (cell.read != 0) {
    if (const Conflict found = check_read_before(cell.read, cell.read_site, actor); found.kind != Conflict::Kind::none)
      return found;
  }
  cell.read = 0;
  cell.write = actor.epoch;
  cell.write_site = actor.site;
  return {};
}

Conflict Shadow::read(std::size_t offset, std::size_t bytes, const Actor& actor) {
  return visit(offset, bytes, false, [&](Cell& cell) { return read(cell, actor); });
}

Conflict Shadow::write(std::size_t offset, std::size_t bytes, const Actor& actor) {
  return visit(offset, bytes, true, [&](Cell& cell) { return write(cell, actor); });
}

void Shadow::arrive(std::size_t offset, std::size_t bytes, Epoch from, Epoch to) {
  visit(offset, bytes, false, [&](Cell& cell) {
    if (cell.stamp == now_ && cell.write == from) cell.write = to;
    return Conflict();
  });
}

}  // namespace nestor::emulation
