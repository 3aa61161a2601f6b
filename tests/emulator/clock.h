// Vector clocks: what each agent knows to have happened before. An agent is a thread, or something that works beside threads: a barrier that
// copies report to, a thread's copies, a warp's products. Its times are numbers from 1 on; those of threads grow at each release, those of
// copies and products are numbers of their groups, those of barriers of their phases. After L. Lamport, Time, Clocks, and the Ordering of
// Events in a Distributed System, 1978, and C. Flanagan and S. Freund, FastTrack, 2009.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace nestor::emulation {

using Agent = std::uint32_t;
using Time = std::uint32_t;
inline constexpr Time kNotYet = ~Time{0};  ///< of what is still under way: nobody knows it to be over

/// By agent, the last time that is known; null: none. Shared, so never changed.
using Clock = std::shared_ptr<const std::vector<Time>>;

inline Time time_in(const Clock& clock, Agent agent) { return clock != nullptr && agent < clock->size() ? (*clock)[agent] : 0; }

/// Both together: one of them, or a clock that is kept until the next call.
const Clock& join(const Clock& a, const Clock& b);

/// What is known to have happened, in four ways.
struct Order {
  Clock seen;    ///< its writes can be seen
  Clock over;    ///< it has read what it reads: the place may be written. Never less than `seen`
  Clock fenced;  ///< its writes can be seen by copies and products as well (fence.proxy.async on the way)
  Clock inits;   ///< barriers that it prepared can be seen in the whole cluster (fence.mbarrier_init on the way)
};

/// What a thread knows of an agent that is its own. Kept apart from its clocks, which so stay equal for many threads.
struct Own {
  Agent agent = 0;
  Time time = 0, fenced = 0, inits = 0;
};

enum class Release : std::uint8_t { all, reads, inits };

/// What several agents release, for those who acquire it.
class Gathering {
 public:
  void add(const Order& order, const std::vector<Own>& own, Release release = Release::all);
  void add_time(Agent agent, Time time);  ///< of an agent beside threads
  /// All of it, and starts anew.
  Order take();

 private:
  struct Part {
    std::vector<Clock> clocks;  ///< different ones
    std::vector<std::pair<Agent, Time>> times;
    void add(const Clock& clock);
    Clock take();
  };
  Part seen_, over_, fenced_, inits_;
};

}  // namespace nestor::emulation
