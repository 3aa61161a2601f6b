// The loops of a program as one tree of time: parts of specialised loops that follow each other are taken together, after it is
// shown that their iterations do not overlap and that they run in order.
#pragma once

#include "codegen/tile/tile_program.h"
#include "poly/isl/context.h"

#include <string>
#include <vector>

namespace nestor::proof {

/// A loop of the program's time. Parts into which a specialised loop was cut are one: `id` is theirs in common.
struct TimeLoop {
  int id = 0;
  std::string var;
  LoopKind kind = LoopKind::serial;
};

/// Runs its iterations at the same time as others, in other threads or blocks.
bool is_task(LoopKind kind);
bool is_concurrent(LoopKind kind);

/// An op with what is known where it stands.
struct PlacedOp {
  const TileOp* op = nullptr;
  isl::set around;  ///< { [loops around] } at which it is reached
};

/// Ops that share one place of the program's time.
struct TimeSlot {
  std::string key;
  std::vector<TimeLoop> loops;
  std::vector<int> positions;
  std::vector<PlacedOp> ops;
};

/// All places in which ops stand. `context`: the sizes, a parameter set.
std::vector<TimeSlot> read_time(const TileTree& root, const isl::set& context);

/// Role and statement: the same for one op in several parts of a loop.
std::string op_key(const TileOp& op);

}  // namespace nestor::proof
