// Vector clocks, joined without copies where one holds the other.
#include "emulator/clock.h"

#include <algorithm>
#include <array>
#include <utility>

namespace nestor::emulation {
namespace {

/// In stretches without a branch, so that several times are compared at once.
bool holds(const std::vector<Time>& a, const std::vector<Time>& b) {
  if (b.size() > a.size()) return false;
  constexpr std::size_t kStretch = 64;
  for (std::size_t from = 0; from < b.size(); from += kStretch) {
    const std::size_t count = std::min(kStretch, b.size() - from);
    const Time *first = a.data() + from, *second = b.data() + from;
    Time later = 0;
    for (std::size_t k = 0; k < count; ++k) later |= static_cast<Time>(second[k] > first[k]);
    if (later != 0) return false;
  }
  return true;
}

Clock joined(const Clock& a, const Clock& b) {
  if (holds(*a, *b)) return a;
  if (holds(*b, *a)) return b;
  auto both = std::make_shared<std::vector<Time>>(std::max(a->size(), b->size()), 0);
  std::copy(a->begin(), a->end(), both->begin());
  for (std::size_t k = 0; k < b->size(); ++k) (*both)[k] = std::max((*both)[k], (*b)[k]);
  return both;
}

}  // namespace

// The threads of a warp or block often have one clock and acquire another one, all of them, with others in between: answers are kept.
const Clock& join(const Clock& a, const Clock& b) {
  if (b == nullptr || a == b) return a;
  if (a == nullptr) return b;
  struct Known {
    Clock a, b, both;
  };
  thread_local std::array<Known, 256> known;
  const auto first = reinterpret_cast<std::uintptr_t>(a.get()), second = reinterpret_cast<std::uintptr_t>(b.get());
  const std::uint64_t hash = first * 0x9e3779b97f4a7c15ULL ^ second * 0xc2b2ae3d27d4eb4fULL;
  Known& answer = known[(hash >> 40) % known.size()];
  if (answer.a != a || answer.b != b) answer = {a, b, joined(a, b)};
  return answer.both;
}

void Gathering::Part::add(const Clock& clock) {
  if (clock == nullptr || std::find(clocks.begin(), clocks.end(), clock) != clocks.end()) return;
  clocks.push_back(clock);
}

Clock Gathering::Part::take() {
  const auto all = std::exchange(clocks, {});
  const auto own = std::exchange(times, {});
  Clock first = all.empty() ? nullptr : all.front();
  for (std::size_t k = 1; k < all.size(); ++k) first = join(first, all[k]);
  if (own.empty()) return first;
  auto both = first == nullptr ? std::make_shared<std::vector<Time>>() : std::make_shared<std::vector<Time>>(*first);
  for (const auto& [agent, time] : own) {
    if (agent >= both->size()) both->resize(agent + 1, 0);
    (*both)[agent] = std::max((*both)[agent], time);
  }
  return both;
}

void Gathering::add(const Order& order, const std::vector<Own>& own, Release release) {
  const bool all = release == Release::all;
  if (all) seen_.add(order.seen);
  if (all || release == Release::reads) over_.add(order.over);
  if (all) fenced_.add(order.fenced);
  if (all || release == Release::inits) inits_.add(order.inits);
  for (const Own& mine : own) {
    if (all && mine.time > 0) seen_.times.emplace_back(mine.agent, mine.time);
    if (release != Release::inits && mine.time > 0) over_.times.emplace_back(mine.agent, mine.time);
    if (all && mine.fenced > 0) fenced_.times.emplace_back(mine.agent, mine.fenced);
    if (release != Release::reads && mine.inits > 0) inits_.times.emplace_back(mine.agent, mine.inits);
  }
}

void Gathering::add_time(Agent agent, Time time) {
  seen_.times.emplace_back(agent, time);
  over_.times.emplace_back(agent, time);
}

Order Gathering::take() {
  Order order;
  const bool same = over_.clocks == seen_.clocks && over_.times == seen_.times;  // but for releases of reads alone
  order.seen = seen_.take();
  order.over = same ? order.seen : over_.take();
  if (same) over_ = {};
  order.fenced = fenced_.take();
  order.inits = inits_.take();
  return order;
}

}  // namespace nestor::emulation
