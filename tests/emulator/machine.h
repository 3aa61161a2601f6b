// The machine that kernels run on: clusters of blocks of threads, their shared memory, and what works beside threads. Threads take turns at
// every access to memory, in an order that a seed draws; copies and products go on in between, early or late. All accesses are checked
// against shadow memory. Of one kernel launch, some clusters run at once, the others after them; accesses of different clusters are
// unordered all the same.
#pragma once

#include "emulator/clock.h"
#include "emulator/execution_context.h"
#include "emulator/shadow.h"

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace nestor::emulation {

inline constexpr std::size_t kSharedWindow = 256 * 1024;  ///< of one block; as large as descriptors of products can name
inline constexpr int kWarp = 32;
inline constexpr int kNamedBarriers = 16;
inline constexpr int kMostBlocks = 64;  ///< that run at once

/// Numbers that a seed draws (xorshift).
class Random {
 public:
  void seed(std::uint64_t value) { state_ = value * 0x9e3779b97f4a7c15ULL + 0x2545f4914f6cdd1dULL; }
  std::uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  std::uint32_t below(std::uint32_t count) { return static_cast<std::uint32_t>((std::uint64_t{next()} * count) >> 32); }
  bool one_in(std::uint32_t count) { return below(count) == 0; }

 private:
  std::uint64_t state_ = 1;
};

/// A barrier in shared memory (mbarrier).
struct PhaseBarrier {
  Agent agent = 0;  ///< copies that report to it have arrived, up to a phase
  int count = 0, pending = 0;
  std::int64_t bytes = 0;  ///< still to come
  std::uint32_t phase = 0;
  Epoch prepared = 0;
  bool reported = false;  ///< bytes have come in this phase
  Gathering gathering;
  Order passed;  ///< what the end of the last phase told
  std::vector<std::uint32_t> waiting;
};

struct NamedBarrier {
  int threads = 0, arrived = 0;  ///< 0: nobody is there
  Gathering gathering;
  std::vector<std::uint32_t> waiting;
};

enum class Wait : std::uint8_t { nothing, warp, barrier, cluster, phase, registers, done };

struct Thread {
  void* context = nullptr;
  std::size_t place = 0;     ///< among those that are ready
  std::uint32_t number = 0;  ///< of all that run; its agent, too
  std::uint32_t block = 0;   ///< of those that run
  int in_block = 0;
  Wait wait = Wait::nothing;
  Site site = 0;                    ///< at which it waits
  std::uint64_t cluster_phase = 0;  ///< in which it has arrived
  bool arrived_in_cluster = false;
  int registers = 0;
  Order order;
  std::vector<Own> own;  ///< itself, its warp's reads together, its warp's products, and others
  /// Places in `own` of its other agents; 0: none yet.
  std::size_t copies = 0, moves = 0;
  Time open_copies = 1, open_moves = 1;  ///< groups that take what is started next
  Time last_move = 0;                    ///< group of the last tensor store
  /// Pieces that it copies, not there yet.
  struct Piece {
    char* to = nullptr;
    std::array<char, 16> value{};
    std::size_t bytes = 0;
    Time group = 0;
  };
  std::vector<Piece> pieces;
};

struct Block {
  std::int64_t number = 0;
  char* shared = nullptr;
  std::uint32_t cluster = 0;
  int rank = 0;
  std::uint32_t first_thread = 0;
  int running = 0;
  int registers = 0;  ///< that no thread has
  std::array<NamedBarrier, kNamedBarriers> named{};
  std::unordered_map<std::size_t, PhaseBarrier> phases;  ///< by offset in shared memory
  std::unique_ptr<Shadow> shadow;
  std::unordered_map<Agent, std::map<Time, int>> moves;  ///< tensor stores under way, by group
  Gathering ends;                                        ///< of its threads
  std::vector<std::pair<Epoch, Site>> from_elsewhere;    ///< what other blocks did in its memory
};

struct Cluster {
  std::uint32_t first_block = 0;
  int blocks = 1, expected = 0, arrived = 0;
  std::uint64_t phase = 0;
  Gathering gathering;
  Order passed;
};

/// Something under way beside the threads, that arrives part by part.
struct Flight {
  std::function<bool()> step;  ///< the next part arrives; false: that was the last
};

/// Memory that kernels may touch.
struct Region {
  char* begin = nullptr;
  std::size_t bytes = 0;
  std::string name;
  bool writable = true, counter = false;
  /// Strides in bytes and extents of all indices but the last, outermost first, and bytes of a row. -1: rows are not told apart.
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;
  std::int64_t row_bytes = -1;
  std::unique_ptr<Shadow> shadow;  ///< of what can be written
};

inline constexpr std::size_t kWarpReads = 1, kWarpProducts = 2;  ///< places in Thread::own

/// Shape of one launch.
struct LaunchShape {
  std::string kernel;
  int threads = 1, cluster = 1;
  std::int64_t blocks = 1;
  std::int64_t shared_bytes = 0;
  int registers = 0;  ///< of each thread at its start; 0: unknown
};

/// Thrown for a problem that shows between threads' turns.
struct Stopped {};

class Machine : public AgentKinds {
 public:
  Machine();
  ~Machine() override;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  static Machine& current() { return *current_; }

  void seed(unsigned value);
  /// Memory of the launches that follow.
  void set_regions(std::vector<Region> regions);
  /// Runs all blocks; false: there is a problem.
  bool run(const LaunchShape& shape, const std::function<void()>& body);
  const std::string& problem() const { return problem_; }
  /// Text of an instruction, for reports.
  std::function<std::string(Site)> text_of_site;
  std::int64_t accesses = 0, switches = 0;

  // for what stands for instructions
  Thread& me() { return threads_[running_]; }
  Thread& thread(std::uint32_t number) { return threads_[number]; }
  Block& my_block() { return blocks_[me().block]; }
  Block& block(std::uint32_t number) { return blocks_[number]; }
  Cluster& my_cluster() { return clusters_[my_block().cluster]; }
  const LaunchShape& shape() const { return shape_; }
  Random& random() { return random_; }
  std::uint32_t lane() { return me().number % kWarp; }
  std::uint32_t warp() { return me().number / kWarp; }
  Block& block_of_rank(int rank);
  /// The block whose shared memory the address lies in; fails where it is none's.
  Block& block_at(const char* address, std::size_t bytes, Site site);
  char* shared_pointer(std::uint32_t address) const { return base_ - base_low() + address; }

  [[noreturn]] void fail(std::string problem);
  std::string where(Site site);             ///< "thread 3 of block 0 at `%5 = load ...`"
  std::string named(const Thread& thread);  ///< "thread 3 of block 0"

  void access(const char* address, std::size_t bytes, bool write, Site site);
  /// An access by `actor` to shared memory or, if it is tracked, to an argument.
  void check(const char* address, std::size_t bytes, bool write, const Actor& actor);
  Region* region_at(const char* address);
  Shadow* shadow_at(const char* address, std::size_t& offset);
  Actor actor(Site site);
  /// Of what `me` starts beside itself.
  Actor async_actor(Epoch epoch, Site site);
  void take_turns();                  ///< perhaps another thread goes on first
  void wait(Wait reason, Site site);  ///< until somebody lets this thread go on
  void go_on(Thread& thread);         ///< lets it
  void launch(Flight flight) { flights_.push_back(std::move(flight)); }
  /// Runs what is under way until `done` says so.
  void finish_until(const std::function<bool()>& done);
  Agent new_agent(bool async, std::string name);
  Own& own_agent(std::size_t Thread::* kind, bool async, const char* name);

  // order
  void release_to(Gathering& gathering, Release release = Release::all);
  void acquire(Thread& thread, const Order& order);

  // barriers
  /// `beside`: a copy will report to it.
  PhaseBarrier& phase_barrier(std::uint32_t address, Site site, bool beside = false);
  void settle(PhaseBarrier& barrier);
  void settle(Cluster& cluster);
  void complete_bytes(PhaseBarrier& barrier, std::int64_t bytes);
  /// Other blocks' accesses to a block's memory must be over when it ends.
  void note_from_elsewhere(Block& there, Site site);

  /// By warp: what its lanes do together.
  struct Meeting {
    std::uint32_t arrived = 0;
    Site site = 0;
    std::array<void*, kWarp> shown{};
  };
  /// Shows `own` to the warp; the last lane to come runs `together`.
  void meet(Site site, void* own, const std::function<void(const std::array<void*, kWarp>&)>& together);

  struct Extra {
    virtual ~Extra() = default;
    virtual bool under_way(Time known) const = 0;  ///< beyond what is known to be over
  };
  std::vector<std::unique_ptr<Extra>> warp_extras;  ///< by warp: its products

 private:
  struct AgentInfo {
    std::string name;
    bool async = false;
  };
  bool is_async(Agent agent) const override { return agent >= threads_.size() && others_[agent - threads_.size()].async; }
  std::uintptr_t base_low() const { return reinterpret_cast<std::uintptr_t>(base_) & 0xffffffffU; }
  static void enter();
  static void acquire_into(Order& into, const Order& order);
  void run_clusters(std::int64_t first_block, int clusters);
  void prepare(std::int64_t first_block, int clusters);
  void schedule();
  std::uint32_t pick();
  void end_thread();
  void check_end(Block& block);
  [[noreturn]] void report(const Conflict& conflict, const char* address, std::size_t bytes, bool write, const Actor& actor);
  std::string name_of(Agent agent, std::uint32_t stamp) const;
  std::string place_of(const char* address);
  void describe_deadlock();
  void draw_habits();

  static Machine* current_;
  char *mapped_ = nullptr, *base_ = nullptr;  ///< shared memory of all blocks
  Stacks stacks_;
  LaunchShape shape_;
  const std::function<void()>* body_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Block> blocks_;
  std::vector<Cluster> clusters_;
  std::vector<Region> regions_;
  std::vector<AgentInfo> others_;  ///< agents behind those of threads
  std::vector<Meeting> meetings_;
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> ready_;
  std::vector<std::int64_t> first_blocks_;  ///< by stamp, of this launch
  std::uint32_t stamp_ = 0, launch_stamp_ = 1;
  std::uint32_t running_ = 0;
  int live_ = 0;
  void* scheduler_ = nullptr;
  bool inside_ = false;  ///< a thread is running
  std::string problem_;
  Random random_;
  // habits of this run
  std::uint32_t stretch_ = 1, left_ = 1, arrivals_ = 4, slow_warps_ = 0, habit_ = 0;
};

inline Machine& machine() { return Machine::current(); }

}  // namespace nestor::emulation
