// Products under way, and the tiles that they hold until they end.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"

#include <map>
#include <set>
#include <vector>

namespace nestor::nvptx {

/// Streamed tiles that are held, and how many products of their iteration have still to end: a tile is waited for before the first of
/// them is issued and released when the last one has ended.
class HeldTiles {
 public:
  explicit HeldTiles(const TensorPlan& plan) : plan_(plan) {}

  /// The circular buffers whose tile the product holds.
  std::set<int> of(int op) const;
  /// Is the tile yet to be waited for?
  bool take(int ring);
  /// Was this the last of the tile's products?
  bool leave(int ring) { return --left_[ring] == 0; }
  /// Products that hold the circular buffer's tile.
  std::vector<int> readers(int ring) const;

 private:
  const TensorPlan& plan_;
  std::map<int, int> left_;
};

/// Products under way, oldest first, and what has to happen when they end, which goes to `out`.
class InFlight {
 public:
  InFlight(const TensorPlan& plan, HeldTiles& held, std::vector<EventNode>& out) : plan_(plan), held_(held), out_(out) {}

  void start(int op) { ops_.push_back(op); }
  /// Ends every product up to the youngest one that writes `buffer`.
  void settle(int buffer);
  void settle_all() { end(ops_.size()); }

 private:
  void end(std::size_t count);

  const TensorPlan& plan_;
  HeldTiles& held_;
  std::vector<EventNode>& out_;
  std::vector<int> ops_;
};

}  // namespace nestor::nvptx
