// Event agents: the groups of warps and producer warps that take the events of a tensor plan: where each is, which tiles it has been told
// of, and what its registers hold.
#pragma once

#include "support/tensor/event_programs.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace nestor::testing {

class EventAgents : protected EventPrograms {
 public:
  using EventPrograms::Integers;

 protected:
  using EventPrograms::EventPrograms;

  struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  [[noreturn]] static void fail(const std::string& what) { throw Fault(what); }

  /// A stage of a circular buffer in a block's shared memory.
  struct Place {
    int block = 0, ring = -1, stage = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  /// A product under way, and the tiles that it reads.
  struct Product {
    int op;
    const Step* step;
    std::optional<Place> a;  ///< none: its first operand is in registers
    Place b;
    Hash a_tile = 0, b_tile = 0;
  };
  /// A group of warps, or a producer warp.
  struct Agent {
    int number = 0;
    int block = 0;
    int group = -1;                       ///< of its block; -1: the producer
    std::size_t at = 0;                   ///< the next step of its program
    std::map<int, int> positions, fills;  ///< by circular buffer
    std::map<int, int> behind;            ///< by circular buffer: tiles kept before the current one
    std::map<Place, int> arrived;         ///< the load that has been waited for
    std::set<int> written, operands,
        held;                   ///< buffers that have a value, products that have a first operand, circular buffers in registers
    std::map<int, bool> whole;  ///< by buffer: a sum is no longer in parts
    std::deque<Product> in_flight;
    std::set<int> leaving;  ///< circular buffers of resident blocks through whose place a result leaves
  };

  const std::vector<Agent>& agents() const { return agents_; }
  /// Where the tile is that the agent is at.
  Place current(const Agent& agent, int ring) const {
    return {agent.block, ring, position(agent, ring) % this->ring(ring).stages};
  }
  const std::vector<Step>& program(const Agent& agent) const {
    if (agent.group < 0) return producers_[static_cast<std::size_t>(agent.block)];
    return consumers_[static_cast<std::size_t>(agent.block * programs_of_block() + agent.group % programs_of_block())];
  }
  int turn(const Agent& agent, int ahead) const {
    return agent.block * plan_.warpgroups + (agent.group + ahead) % plan_.warpgroups;
  }
  /// Of the groups that share a work tile.
  int sharer(const Agent& agent) const { return plan_.ping_pong_tiles() ? 0 : agent.group; }
  static int position(const Agent& agent, int ring) {
    const auto found = agent.positions.find(ring);
    return found == agent.positions.end() ? 0 : found->second;
  }
  int phase(const Agent& agent, int ring) const { return position(agent, ring) / this->ring(ring).stages % 2; }

  static bool reads(const Product& product, const Place& place) { return product.a == place || product.b == place; }

  // ---- fragments

  bool thread_sum(int buffer) const { return plan_.fragments.count(buffer) != 0 && plan_.fragments.at(buffer).thread_sums; }

  bool busy(const Agent& agent, int buffer) const {
    return std::any_of(agent.in_flight.begin(), agent.in_flight.end(),
                       [&](const Product& p) { return op(p.op).op.write.buffer == buffer; });
  }

  void read_fragment(Agent& agent, int buffer, bool in_parts) {
    if (busy(agent, buffer)) fail("a tile is read under a product");
    if (!agent.written.contains(buffer)) fail("a tile is read before it is written");
    if (thread_sum(buffer) && !in_parts && !agent.whole[buffer]) fail("a part of a sum is read");
  }

  std::vector<Agent> agents_;
};

}  // namespace nestor::testing
