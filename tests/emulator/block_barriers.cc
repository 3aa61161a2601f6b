// Barriers of blocks and clusters, barriers in shared memory with phases, fences.
#include "emulator/instructions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace nestor::emulation {

// ---- barriers in shared memory

PhaseBarrier& Machine::phase_barrier(std::uint32_t address, Site site, bool beside) {
  const char* at = shared_pointer(address);
  Block& block = block_at(at, 8, site);
  const auto found = block.phases.find(static_cast<std::size_t>(at - block.shared));
  if (found == block.phases.end()) fail(fmt::format("{}: there is no barrier at {}", where(site), place_of(at)));
  PhaseBarrier& barrier = found->second;
  // Who prepared it must be known: to all by a barrier of the block, in a cluster by its own fence.
  const Actor actor = this->actor(site);
  const auto known = [&](Clock Order::* clock, Time Own::* time) {
    const Agent agent = agent_of(barrier.prepared);
    for (const Own& own : me().own) {
      if (own.agent == agent && time_of(barrier.prepared) <= own.*time) return true;
    }
    return time_of(barrier.prepared) <= time_in((*actor.order).*clock, agent);
  };
  const bool there = beside ? known(&Order::fenced, &Own::fenced) : known(&Order::seen, &Own::time);
  if (!there && !known(&Order::inits, &Own::inits))
    fail(fmt::format("{} uses the barrier at {} that {} prepares, and nothing orders the two{}", where(site), place_of(at),
                     name_of(agent_of(barrier.prepared), stamp_), beside ? " for copies" : ""));
  return barrier;
}

void Machine::settle(PhaseBarrier& barrier) {
  if (barrier.pending < 0) fail("more threads arrive at a barrier in one phase than it counts");
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  if (barrier.reported) barrier.gathering.add_time(barrier.agent, barrier.phase + 1);
  barrier.reported = false;
  acquire_into(barrier.passed, barrier.gathering.take());
  ++barrier.phase;
  barrier.pending = barrier.count;
  for (const std::uint32_t number : std::exchange(barrier.waiting, {})) go_on(threads_[number]);
}

void Machine::complete_bytes(PhaseBarrier& barrier, std::int64_t bytes) {
  barrier.bytes -= bytes;
  barrier.reported = true;
  settle(barrier);
}

/// Clocks are counted by all who hold them: one that stays is not counted anew.
void Machine::acquire_into(Order& into, const Order& order) {
  for (Clock Order::* clock : {&Order::seen, &Order::over, &Order::fenced, &Order::inits}) {
    const Clock& both = join(into.*clock, order.*clock);
    if (both != into.*clock) into.*clock = both;
  }
}

void prepare_barrier(std::uint32_t address, std::int32_t count, Site site) {
  Machine& machine = Machine::current();
  machine.take_turns();
  char* at = machine.shared_pointer(address);
  if (address % 8 != 0 || count < 1)
    machine.fail(fmt::format("{}: a barrier of {} arrivals at an odd place", machine.where(site), count));
  Block& block = machine.block_at(at, 8, site);
  Actor actor = machine.actor(site);
  machine.check(at, 8, true, actor);
  PhaseBarrier barrier;
  barrier.prepared = actor.epoch;
  barrier.agent = machine.new_agent(
      true, fmt::format("a copy that reports to the barrier at byte {} of block {}", at - block.shared, block.number));
  barrier.count = barrier.pending = count;
  block.phases.insert_or_assign(static_cast<std::size_t>(at - block.shared), std::move(barrier));
  // Nobody else may touch these bytes.
  actor.epoch = epoch_of(machine.new_agent(false, "a barrier in shared memory"), kNotYet);
  machine.check(at, 8, true, actor);
}

namespace {

void arrive_at(PhaseBarrier& barrier, std::int64_t bytes, Release release) {
  Machine& machine = Machine::current();
  machine.release_to(barrier.gathering, release);
  barrier.bytes += bytes;
  --barrier.pending;
  machine.settle(barrier);
}

}  // namespace

void expect_bytes(std::uint32_t address, std::int32_t bytes, Site site) {
  Machine::current().take_turns();
  arrive_at(Machine::current().phase_barrier(address, site), bytes, Release::all);
}

void arrive(std::uint32_t address, std::int32_t wanted, Site site) {
  if (wanted == 0) return;
  Machine::current().take_turns();
  arrive_at(Machine::current().phase_barrier(address, site), 0, Release::all);
}

/// Of a barrier in another block: what was read is over, but of what was written nothing is said, as the scope is the block's.
void arrive_in_block(std::uint32_t address, std::int32_t rank, std::int32_t wanted, Site site) {
  if (wanted == 0) return;
  Machine& machine = Machine::current();
  machine.take_turns();
  Block& there = machine.block_of_rank(rank);
  machine.note_from_elsewhere(there, site);
  const auto moved = static_cast<std::uint32_t>(there.shared - machine.my_block().shared);
  arrive_at(machine.phase_barrier(address + moved, site), 0, &there == &machine.my_block() ? Release::all : Release::reads);
}

void wait_phase(std::uint32_t address, std::int32_t parity, Site site) {
  Machine& machine = Machine::current();
  machine.take_turns();
  PhaseBarrier& barrier = machine.phase_barrier(address, site);
  Thread& me = machine.me();
  // Who is told that the phase is over may be late: with two more phases gone by, it finds the same parity again.
  while ((barrier.phase & 1) == static_cast<std::uint32_t>(parity & 1)) {
    barrier.waiting.push_back(me.number);
    machine.wait(Wait::phase, site);
  }
  machine.acquire(me, barrier.passed);
}

// A fence is for what its own thread has done: that of another thread, behind a barrier, would do by the letter of the memory model, but is
// not what NVIDIA's guides show.
void fence_inits() {
  Thread& me = Machine::current().me();
  for (Own& own : me.own) own.inits = own.time;
  ++me.own[0].time;
}

void fence_async() {
  Thread& me = Machine::current().me();
  for (Own& own : me.own) own.fenced = own.time;
  ++me.own[0].time;
}

// ---- barriers of a block

namespace {

void come_to(std::int32_t id, std::int32_t threads, bool waits, Site site) {
  Machine& machine = Machine::current();
  machine.take_turns();
  if (id < 0 || id >= kNamedBarriers) machine.fail(fmt::format("{}: there is no barrier {}", machine.where(site), id));
  if (threads <= 0 || threads % kWarp != 0 || threads > machine.shape().threads)
    machine.fail(
        fmt::format("{}: a barrier of {} threads, in blocks of {}", machine.where(site), threads, machine.shape().threads));
  NamedBarrier& barrier = machine.my_block().named[static_cast<std::size_t>(id)];
  if (barrier.arrived > 0 && barrier.threads != threads)
    machine.fail(fmt::format("{} comes to barrier {} of {} threads, where others have come for {}", machine.where(site), id,
                             threads, barrier.threads));
  barrier.threads = threads;
  machine.release_to(barrier.gathering);
  if (++barrier.arrived < threads) {
    if (!waits) return;
    barrier.waiting.push_back(machine.me().number);
    return machine.wait(Wait::barrier, site);
  }
  const Order order = barrier.gathering.take();
  for (const std::uint32_t number : barrier.waiting) {
    machine.acquire(machine.thread(number), order);
    machine.go_on(machine.thread(number));
  }
  if (waits) machine.acquire(machine.me(), order);
  barrier.arrived = 0;
  barrier.waiting.clear();
}

}  // namespace

void block_barrier(Site site) { come_to(0, Machine::current().shape().threads, true, site); }
void barrier_sync(std::int32_t id, std::int32_t threads, Site site) { come_to(id, threads, true, site); }
void barrier_arrive(std::int32_t id, std::int32_t threads, Site site) { come_to(id, threads, false, site); }

// ---- barriers of a cluster

void cluster_arrive(std::int32_t relaxed, Site site) {
  Machine& machine = Machine::current();
  machine.take_turns();
  Thread& me = machine.me();
  Cluster& cluster = machine.my_cluster();
  if (me.arrived_in_cluster)
    machine.fail(fmt::format("{} comes to the barrier of its cluster twice without a wait", machine.where(site)));
  me.arrived_in_cluster = true;
  me.cluster_phase = cluster.phase;
  machine.release_to(cluster.gathering, relaxed != 0 ? Release::inits : Release::all);
  ++cluster.arrived;
  machine.settle(cluster);
}

void cluster_wait(Site site) {
  Machine& machine = Machine::current();
  machine.take_turns();
  Thread& me = machine.me();
  if (!me.arrived_in_cluster)
    machine.fail(fmt::format("{} waits at the barrier of its cluster without having come to it", machine.where(site)));
  Cluster& cluster = machine.my_cluster();
  while (cluster.phase == me.cluster_phase) machine.wait(Wait::cluster, site);
  me.arrived_in_cluster = false;
  machine.acquire(me, cluster.passed);
}

void Machine::settle(Cluster& cluster) {
  if (cluster.expected == 0 || cluster.arrived < cluster.expected) return;
  cluster.arrived = 0;
  ++cluster.phase;
  cluster.passed = cluster.gathering.take();
  for (int k = 0; k < cluster.blocks * shape_.threads; ++k) {
    Thread& thread = threads_[blocks_[cluster.first_block].first_thread + static_cast<std::uint32_t>(k)];
    if (thread.wait == Wait::cluster) go_on(thread);
  }
}

// ---- registers

void set_registers(std::int32_t count, std::int32_t increase, Site site) {
  Machine& machine = Machine::current();
  machine.take_turns();
  Thread& me = machine.me();
  Block& block = machine.my_block();
  if (count < 24 || count > 256 || count % 8 != 0)
    machine.fail(fmt::format("{}: {} registers cannot be had", machine.where(site), count));
  if (me.registers == 0) return;
  if ((increase != 0) != (count >= me.registers) && count != me.registers)
    machine.fail(fmt::format("{} has {} registers, not {} more or fewer", machine.where(site), me.registers, count));
  while (count - me.registers > block.registers) machine.wait(Wait::registers, site);
  block.registers -= count - me.registers;
  me.registers = count;
  if (increase != 0) return;
  for (int k = 0; k < machine.shape().threads; ++k) {
    Thread& other = machine.thread(block.first_thread + static_cast<std::uint32_t>(k));
    if (other.wait == Wait::registers) machine.go_on(other);
  }
}

}  // namespace nestor::emulation
