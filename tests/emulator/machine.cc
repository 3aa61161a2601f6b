// How threads of the machine take turns, and how their accesses are checked.
#include "emulator/machine.h"

#include "support/error.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace nestor::emulation {
namespace {

constexpr int kThreadsAtOnce = 1024;  // of several clusters that run at once
constexpr int kClustersAtOnce = 4;
constexpr std::size_t kFourGigabytes = std::size_t{1} << 32;

}  // namespace

Machine* Machine::current_ = nullptr;

Machine::Machine() {
  // Addresses of shared memory have 32 bits in kernels: the low ones, so all of it lies within 4 GB.
  const std::size_t bytes = kMostBlocks * kSharedWindow;
  mapped_ =
      static_cast<char*>(mmap(nullptr, 3 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (mapped_ == MAP_FAILED) internal_error("emulator: no shared memory");
  auto start = (reinterpret_cast<std::uintptr_t>(mapped_) + kSharedWindow - 1) / kSharedWindow * kSharedWindow;
  if (start / kFourGigabytes != (start + bytes) / kFourGigabytes) start = (start + bytes) / kFourGigabytes * kFourGigabytes;
  base_ = reinterpret_cast<char*>(start);
  seed(1);
}

Machine::~Machine() {
  munmap(mapped_, 3 * kMostBlocks * kSharedWindow);
  if (current_ == this) current_ = nullptr;
}

void Machine::seed(unsigned value) {
  random_.seed(value);
  draw_habits();
}

/// Some runs switch at every access, some let threads go far; in some copies arrive at once, in some as late as they may; some warps stay
/// behind.
void Machine::draw_habits() {
  constexpr std::array<std::uint32_t, 4> kStretches{1, 1, 4, 60}, kArrivals{1, 8, 64, 1000};
  stretch_ = kStretches[random_.below(4)];
  arrivals_ = kArrivals[random_.below(4)];
  slow_warps_ = random_.one_in(3) ? 0 : random_.next();
}

void Machine::set_regions(std::vector<Region> regions) {
  regions_ = std::move(regions);
  std::sort(regions_.begin(), regions_.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
  for (Region& region : regions_) {
    if (region.writable && !region.counter) region.shadow = std::make_unique<Shadow>(region.bytes, *this);
  }
}

// ---- running

bool Machine::run(const LaunchShape& shape, const std::function<void()>& body) {
  current_ = this;
  shape_ = shape;
  body_ = &body;
  problem_.clear();
  launch_stamp_ = stamp_ + 1;
  first_blocks_.clear();
  if (shape.shared_bytes > static_cast<std::int64_t>(kSharedWindow)) internal_error("emulator: too much shared memory");
  if (shape.blocks % shape.cluster != 0 || shape.cluster > kMostBlocks)
    internal_error("emulator: the grid has no whole number of clusters");
  const std::int64_t clusters = shape.blocks / shape.cluster;
  const int most =
      std::clamp(kThreadsAtOnce / (shape.threads * shape.cluster), 1, std::min(kClustersAtOnce, kMostBlocks / shape.cluster));
  for (std::int64_t first = 0; first < clusters && problem_.empty();) {
    const auto count =
        static_cast<int>(std::min<std::int64_t>(1 + random_.below(static_cast<std::uint32_t>(most)), clusters - first));
    run_clusters(first * shape.cluster, count);
    first += count;
  }
  return problem_.empty();
}

void Machine::prepare(std::int64_t first_block, int clusters) {
  ++stamp_;
  first_blocks_.push_back(first_block);
  const auto blocks = static_cast<std::size_t>(clusters * shape_.cluster);
  const auto each = static_cast<std::uint32_t>(shape_.threads);
  for (Region& region : regions_) {
    if (region.shadow != nullptr) region.shadow->set_time(stamp_, launch_stamp_);
  }
  flights_.clear();
  others_.clear();
  warp_extras.clear();
  clusters_ = std::vector<Cluster>(static_cast<std::size_t>(clusters));
  if (blocks_.size() < blocks) blocks_.resize(blocks);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    std::unique_ptr<Shadow> shadow = std::move(blocks_[b].shadow);
    Block& block = blocks_[b] = Block();
    block.shadow = std::move(shadow);
    if (block.shadow == nullptr) block.shadow = std::make_unique<Shadow>(kSharedWindow, *this);
    block.shadow->set_time(stamp_, stamp_);
    block.number = first_block + b;
    block.cluster = b / static_cast<std::uint32_t>(shape_.cluster);
    block.rank = static_cast<int>(b) % shape_.cluster;
    block.shared = base_ + b * kSharedWindow;
    block.first_thread = b * each;
    block.running = shape_.threads;
    std::memset(block.shared, 0xff, static_cast<std::size_t>(shape_.shared_bytes));
  }
  for (std::uint32_t c = 0; c < clusters_.size(); ++c) {
    clusters_[c].first_block = c * static_cast<std::uint32_t>(shape_.cluster);
    clusters_[c].blocks = shape_.cluster;
    clusters_[c].expected = shape_.threads * shape_.cluster;
  }
  const std::size_t threads = blocks * each;
  stacks_.reserve(threads);
  threads_ = std::vector<Thread>(threads);
  meetings_ = std::vector<Meeting>(threads / kWarp);
  warp_extras.resize(threads / kWarp);
  ready_.clear();
  for (std::uint32_t warp = 0; warp < threads / kWarp; ++warp) {
    const std::string name = fmt::format("warp {} of block {}", warp * kWarp % each / kWarp, first_block + warp * kWarp / each);
    others_.push_back({name, false});
    others_.push_back({"a product of " + name, true});
  }
  for (std::uint32_t k = 0; k < threads; ++k) {
    Thread& thread = threads_[k];
    thread.context = stacks_.start(k, &Machine::enter);
    thread.number = k;
    thread.block = k / each;
    thread.in_block = static_cast<int>(k % each);
    thread.registers = shape_.registers;
    const auto beside = static_cast<Agent>(threads) + k / kWarp * 2;
    thread.own = {{k, 1, 0, 0}, {beside, 0, 0, 0}, {beside + 1, 0, 0, 0}};
    thread.place = ready_.size();
    ready_.push_back(k);
  }
  live_ = static_cast<int>(threads);
}

void Machine::run_clusters(std::int64_t first_block, int clusters) {
  prepare(first_block, clusters);
  try {
    schedule();
  } catch (const Stopped&) {}
  flights_.clear();
}

void Machine::enter() {
  Machine& machine = current();
  (*machine.body_)();
  machine.end_thread();
}

void Machine::schedule() {
  while (problem_.empty()) {
    if (live_ == 0 && flights_.empty()) return;
    const bool arrival = !flights_.empty() && (ready_.empty() || random_.one_in(arrivals_));
    if (arrival) {
      const std::size_t k = random_.below(static_cast<std::uint32_t>(flights_.size()));
      if (!flights_[k].step()) {
        std::swap(flights_[k], flights_.back());
        flights_.pop_back();
      }
      continue;
    }
    if (ready_.empty()) return describe_deadlock();
    running_ = pick();
    ++switches;
    left_ = stretch_ == 1 ? 1 : 1 + random_.below(2 * stretch_);
    inside_ = true;
    switch_context(&scheduler_, threads_[running_].context);
    inside_ = false;
  }
}

std::uint32_t Machine::pick() {
  if (slow_warps_ != 0 && ++habit_ % 4096 == 0) slow_warps_ = random_.next() | 1;
  for (int attempt = 0;; ++attempt) {
    const std::uint32_t number = ready_[random_.below(static_cast<std::uint32_t>(ready_.size()))];
    if (attempt == 4 || (slow_warps_ >> (number / kWarp % 32) & 1) == 0) return number;
  }
}

void Machine::take_turns() {
  if (--left_ > 0) return;
  switch_context(&me().context, scheduler_);
}

void Machine::wait(Wait reason, Site site) {
  Thread& thread = me();
  thread.wait = reason;
  thread.site = site;
  ready_[thread.place] = ready_.back();
  threads_[ready_.back()].place = thread.place;
  ready_.pop_back();
  switch_context(&thread.context, scheduler_);
}

void Machine::go_on(Thread& thread) {
  thread.wait = Wait::nothing;
  thread.place = ready_.size();
  ready_.push_back(thread.number);
}

void Machine::finish_until(const std::function<bool()>& done) {
  while (!done()) {
    if (flights_.empty()) internal_error("emulator: a copy under way is lost");
    const std::size_t k = random_.below(static_cast<std::uint32_t>(flights_.size()));
    if (flights_[k].step()) continue;
    std::swap(flights_[k], flights_.back());
    flights_.pop_back();
  }
}

void Machine::end_thread() {
  Thread& thread = me();
  Block& block = my_block();
  if (thread.moves != 0 && thread.own[thread.moves].time < thread.last_move)
    fail(fmt::format("{} ends while a tensor store that it started may still read shared memory", named(thread)));
  const auto& extra = warp_extras[warp()];
  if (extra != nullptr && extra->under_way(thread.own[kWarpProducts].time))
    fail(fmt::format("{} ends while a product of its warp is under way", named(thread)));
  for (const Thread::Piece& piece : thread.pieces) std::memcpy(piece.to, piece.value.data(), piece.bytes);
  thread.pieces.clear();
  --live_;
  release_to(block.ends);
  Cluster& cluster = my_cluster();
  if (--block.running == 0) check_end(block);
  --cluster.expected;  // who has ended is not waited for
  settle(cluster);
  wait(Wait::done, 0);
}

/// What others do in the block's memory, and what copies read there, must be known to be over.
void Machine::check_end(Block& block) {
  const Order ends = block.ends.take();
  for (const auto& [epoch, site] : block.from_elsewhere) {
    if (time_of(epoch) <= time_in(ends.over, agent_of(epoch))) continue;
    fail(fmt::format("block {} may end while {} still uses its shared memory, at {}", block.number,
                     name_of(agent_of(epoch), stamp_), text_of_site(site)));
  }
}

void Machine::note_from_elsewhere(Block& there, Site site) {
  if (&there == &my_block()) return;
  if (there.running == 0) fail(fmt::format("{} uses the shared memory of block {}, which has ended", where(site), there.number));
  there.from_elsewhere.emplace_back(epoch_of(me().number, me().own[0].time), site);
}

// ---- memory

Region* Machine::region_at(const char* address) {
  const auto after = std::upper_bound(regions_.begin(), regions_.end(), address,
                                      [](const char* at, const Region& region) { return at < region.begin; });
  if (after == regions_.begin()) return nullptr;
  Region& region = *(after - 1);
  return address < region.begin + region.bytes ? &region : nullptr;
}

Block& Machine::block_at(const char* address, std::size_t bytes, Site site) {
  const auto offset = static_cast<std::size_t>(address - base_);
  const std::size_t number = offset / kSharedWindow, within = offset % kSharedWindow;
  if (address < base_ || number >= threads_.size() / static_cast<std::size_t>(shape_.threads) ||
      within + bytes > static_cast<std::size_t>(shape_.shared_bytes))
    fail(fmt::format("{}: {} bytes at {} lie beyond the shared memory", where(site), bytes, place_of(address)));
  return blocks_[number];
}

Block& Machine::block_of_rank(int rank) {
  Cluster& cluster = my_cluster();
  if (rank < 0 || rank >= cluster.blocks) fail(fmt::format("the cluster of {} has no block of rank {}", named(me()), rank));
  return blocks_[cluster.first_block + static_cast<std::uint32_t>(rank)];
}

Actor Machine::actor(Site site) {
  Thread& thread = me();
  return {&thread.order, &thread.own, epoch_of(thread.number, thread.own[0].time), false, site};
}

Actor Machine::async_actor(Epoch epoch, Site site) { return {&me().order, &me().own, epoch, true, site}; }

void Machine::access(const char* address, std::size_t bytes, bool write, Site site) {
  ++accesses;
  take_turns();
  check(address, bytes, write, actor(site));
}

namespace {

/// Does a piece of an argument lie between its rows, where strides leave room?
bool between_rows(const Region& region, std::int64_t offset, std::int64_t bytes) {
  for (const auto& [stride, extent] : region.dims) {
    if (offset / stride >= extent) return true;
    offset %= stride;
  }
  return region.row_bytes >= 0 && offset + bytes > region.row_bytes;
}

}  // namespace

void Machine::check(const char* address, std::size_t bytes, bool write, const Actor& actor) {
  Conflict found;
  if (address >= base_ && address < base_ + kMostBlocks * kSharedWindow) {
    Block& block = block_at(address, bytes, actor.site);
    const auto offset = static_cast<std::size_t>(address - block.shared);
    found = write ? block.shadow->write(offset, bytes, actor) : block.shadow->read(offset, bytes, actor);
  } else {
    Region* region = region_at(address);
    if (region == nullptr || address + bytes > region->begin + region->bytes)
      fail(fmt::format("{} {} {} bytes at {}, which no argument has", where(actor.site), write ? "writes" : "reads", bytes,
                       place_of(address)));
    if (write && !region->writable) fail(fmt::format("{} writes to {}, which is an input", where(actor.site), region->name));
    const auto offset = static_cast<std::size_t>(address - region->begin);
    if (between_rows(*region, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(bytes)))
      fail(fmt::format("{} {} {} bytes at {}, beyond the end of a row", where(actor.site), write ? "writes" : "reads", bytes,
                       place_of(address)));
    if (region->shadow == nullptr) return;
    found = write ? region->shadow->write(offset, bytes, actor) : region->shadow->read(offset, bytes, actor);
  }
  if (found.kind != Conflict::Kind::none) report(found, address, bytes, write, actor);
}

// ---- order

Agent Machine::new_agent(bool async, std::string name) {
  others_.push_back({std::move(name), async});
  return static_cast<Agent>(threads_.size() + others_.size() - 1);
}

Own& Machine::own_agent(std::size_t Thread::* kind, bool async, const char* name) {
  Thread& thread = me();
  if (thread.*kind == 0) {
    thread.own.push_back({new_agent(async, fmt::format("{} of {}", name, named(thread))), 0, 0, 0});
    thread.*kind = thread.own.size() - 1;
  }
  return thread.own[thread.*kind];
}

void Machine::release_to(Gathering& gathering, Release release) {
  Thread& thread = me();
  gathering.add(thread.order, thread.own, release);
  ++thread.own[0].time;
}

void Machine::acquire(Thread& thread, const Order& order) { acquire_into(thread.order, order); }

}  // namespace nestor::emulation
