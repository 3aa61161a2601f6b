// What the machine says of problems: who, where, and what else was there.
#include "emulator/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

namespace nestor::emulation {

void Machine::fail(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
  if (!inside_) throw Stopped();
  switch_context(&me().context, scheduler_);
  std::abort();
}

std::string Machine::named(const Thread& thread) {
  return fmt::format("thread {} of block {}", thread.in_block, blocks_[thread.block].number);
}

std::string Machine::where(Site site) { return fmt::format("{} at {}", named(me()), text_of_site(site)); }

std::string Machine::name_of(Agent agent, std::uint32_t stamp) const {
  if (stamp == stamp_ && agent >= threads_.size()) return others_[agent - threads_.size()].name;
  const auto each = static_cast<std::uint32_t>(shape_.threads);
  if (stamp != stamp_ && agent >= each * static_cast<std::uint32_t>(kMostBlocks)) return "a copy of another block";
  const std::int64_t first = first_blocks_[stamp - launch_stamp_];
  return fmt::format("thread {} of block {}", agent % each, first + agent / each);
}

std::string Machine::place_of(const char* address) {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    if (address >= blocks_[b].shared && address < blocks_[b].shared + kSharedWindow)
      return fmt::format("byte {} of the shared memory of block {}", address - blocks_[b].shared, blocks_[b].number);
  }
  const Region* region = region_at(address);
  return region == nullptr ? "an address" : fmt::format("byte {} of {}", address - region->begin, region->name);
}

void Machine::report(const Conflict& conflict, const char* address, std::size_t bytes, bool write, const Actor& actor) {
  const std::string place = fmt::format("{} bytes from {} on", bytes, place_of(address));
  const std::string self =
      fmt::format("{}, at {}, {}", name_of(agent_of(actor.epoch), stamp_), text_of_site(actor.site), write ? "writes" : "reads");
  const std::string other = fmt::format("{}, at {}, has {}", name_of(agent_of(conflict.other), conflict.stamp),
                                        text_of_site(conflict.site), conflict.other_writes ? "written" : "read");
  if (conflict.kind == Conflict::Kind::unfenced)
    fail(fmt::format("{} {}, through the asynchronous proxy; {} there without a proxy fence in between", self, place, other));
  fail(fmt::format("race: {} {}; {} there, and nothing orders the two", self, place, other));
}

void Machine::describe_deadlock() {
  std::string text;
  std::array<const char*, 7> names{"nothing",
                                   "the other lanes of its warp",
                                   "a barrier of its block",
                                   "the barrier of its cluster",
                                   "a phase of a barrier",
                                   "registers",
                                   "nothing"};
  std::vector<std::pair<std::pair<Wait, Site>, std::uint32_t>> known;
  for (const Thread& thread : threads_) {
    if (thread.wait == Wait::done) continue;
    const std::pair<Wait, Site> key{thread.wait, thread.site};
    const auto found = std::find_if(known.begin(), known.end(), [&](const auto& entry) { return entry.first == key; });
    if (found != known.end()) {
      ++found->second;
      continue;
    }
    known.emplace_back(key, 1);
    if (known.size() > 8) continue;
    text += fmt::format("\n  {} waits for {}, at {}", named(thread), names[static_cast<std::size_t>(thread.wait)],
                        text_of_site(thread.site));
  }
  for (const auto& [key, count] : known) text += fmt::format("\n  {} threads at {}", count, text_of_site(key.second));
  problem_ = "deadlock: threads wait for each other for ever" + text;
}

}  // namespace nestor::emulation
