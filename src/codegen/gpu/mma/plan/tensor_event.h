// Events: what the roles of a tensor plan do, in order, as trees of loops and conditions.
#pragma once

#include "support/int_expr.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nestor::nvptx {

/// What a role does, in order.
struct Event {
  enum class Kind : std::uint8_t {
    wait_full,   ///< until the circular buffer's next tile has arrived; with mma the barrier before has shown that it has
    wait_empty,  ///< until the stage for the circular buffer's next tile has been read by all warpgroups
    load,  ///< starts the copy of the circular buffer's next tile, with mma that of `count` iterations later, if there is one
    release,  ///< this warpgroup has read the circular buffer's oldest tile. `count` > 0: said after so many kAmidParts of `op`, the next
    next_tile,  ///< this warpgroup goes on to the circular buffer's next tile and keeps the one before, which the next release gives back
    product,         ///< issues the op
    wait_products,   ///< until all but the youngest `count` products have ended
    compute,         ///< runs the op
    narrow,          ///< makes the op's first operand from its fragment
    read_test,       ///< reads what the op's column test is about, at all columns of the tile
    quad_reduction,  ///< adds up the four threads' parts of a fragment (buffer `ring`)
    take_registers,  ///< reads the circular buffer's tile into registers
    wait_turn,       ///< until the warpgroup before this one has passed its turn on
    pass_turn,       ///< lets the next warpgroup have its turn
    commit_copies,   ///< mma: this thread's copies since the last such event are one batch
    wait_stores,     ///< until the tiles that this warpgroup's stores move out of shared memory have been read
    wait_copies,     ///< mma: until all but the youngest `count` batches of this thread have arrived
    barrier,         ///< mma: until all threads of the block are here
  } kind;
  int op = -1;
  int ring = -1;
  int count = 0;
  int blocks = 1;  ///< load, release: of a cluster, whose stages are filled, or whose producer warps are told; 1: the block's own
};

struct EventNode {
  enum class Kind : std::uint8_t { sequence, loop, condition, event } kind = Kind::sequence;
  std::string var;  ///< loop: from lower up to upper, in steps of 1. A sequence with a var: it has the value `lower`
  IntExpr lower, upper;
  IntExpr condition;
  bool masked = true;  ///< masks are applied below
  int unroll = 1;      ///< loop: iterations of the computing warpgroups' code for one round
  std::vector<EventNode> children;
  Event event{};
};

inline bool is(const EventNode& node, Event::Kind kind) { return node.kind == EventNode::Kind::event && node.event.kind == kind; }

/// One event as a node of a role's program.
EventNode event_node(Event::Kind kind, int op, int ring = -1, int count = 0);

/// Is there such an event in the tree?
bool contains(const EventNode& node, Event::Kind kind);

/// Does a bound or a condition of the tree use the variable?
bool uses_variable(const EventNode& node, const std::string& var);

/// "wait_full"
const char* name_of(Event::Kind kind);

}  // namespace nestor::nvptx
