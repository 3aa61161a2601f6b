// What the tiles of a tensor plan are made from, as hashes: numbers in place of values, and what the tile program itself would store.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "support/tensor/event_walk.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace nestor::testing {

class TensorPlanHashes {
 public:
  using Integers = EventValues;

 protected:
  using Hash = std::size_t;

  TensorPlanHashes(const nvptx::TensorPlan& plan, std::vector<Integers> work_tiles)
      : plan_(plan), work_tiles_(std::move(work_tiles)) {}

  static Hash mix(Hash a, Hash b) { return (a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2))) * 0x2545f4914f6cdd1dULL; }
  static Hash tile_of(int buffer, const std::vector<IntExpr>& origin, const Integers& around) {
    Hash hash = static_cast<Hash>(buffer) + 17;
    for (const IntExpr& index : origin) hash = mix(hash, static_cast<Hash>(value_at(index, around)));
    return hash;
  }
  /// Of the block's next tile in a circular buffer.
  Hash next_tile(int block, const nvptx::CircularBuffer& ring, const Integers& around) const {
    std::vector<IntExpr> origin = ring.origin;
    if (ring.own_index >= 0) {
      IntExpr& own = origin.at(static_cast<std::size_t>(ring.own_index));
      own = own + IntExpr(block * plan_.packs());
    }
    return tile_of(ring.buffer, origin, around);
  }
  const nvptx::CircularBuffer& ring(int k) const { return plan_.circular_buffers.at(static_cast<std::size_t>(k)); }
  const nvptx::TensorOp& op(int k) const { return plan_.ops.at(static_cast<std::size_t>(k)); }

  /// The op's tile, or what it stores, as a hash of what it is made from.
  void set(std::map<int, Hash>& tiles, std::vector<Hash>& stored, int k, Hash mask, const std::vector<Hash>& reads) const {
    const TileOp& op = this->op(k).op;
    Hash hash = static_cast<Hash>(k) + 101;
    for (const Hash read : reads) hash = mix(hash, read);
    if (op.reduction && !op.initialize) hash = mix(hash, tiles[op.write.buffer]);
    hash = mix(hash, mask);
    tiles[op.write.buffer] = hash;
    if (this->op(k).kind == nvptx::TensorOp::Kind::store) stored.push_back(hash);
  }

  /// Which elements the op works on.
  static Hash mask_of(const nvptx::TensorOp& op, const Integers& around) {
    Hash hash = 0;
    for (const IntExpr& condition : op.mask) hash = mix(hash, masked(condition, around));
    return hash;
  }
  static Hash masked(const IntExpr& condition, const Integers& around) {
    Hash hash = 5;
    Integers point = around;
    point[nvptx::kPack] = 0;
    for (const std::int64_t row : {0, 21, 63}) {
      for (const std::int64_t column : {0, 21, 63}) {
        point[nvptx::kRow] = row;
        point[nvptx::kColumn] = column;
        hash = mix(hash, static_cast<Hash>(value_at(condition, point) != 0));
      }
    }
    return hash;
  }

  /// What the tile program itself stores, in the rows of a block.
  const std::vector<Hash>& expected(int block) {
    const auto [entry, added] = expected_.try_emplace(block);
    for (const Integers& work_tile : added ? work_tiles_ : std::vector<Integers>{}) {
      std::map<int, Hash> tiles;
      int next = 0;
      reference(block, plan_.kernel->body, work_tile, next, tiles, entry->second);
    }
    return entry->second;
  }

  void reference(int block, const TileTree& tree, const Integers& around, int& next, std::map<int, Hash>& tiles,
                 std::vector<Hash>& stored) const {
    if (tree->kind == TileNode::Kind::op) {
      const nvptx::TensorOp& op = this->op(next);
      std::vector<Hash> reads;
      for (const TileAccess& read : op.op.reads) {
        if (plan_.fragments.count(read.buffer) != 0) {
          reads.push_back(tiles[read.buffer]);
          continue;
        }
        std::vector<IntExpr> origin;
        const bool tiled = op.kind == nvptx::TensorOp::Kind::product || op.read_rings.count(static_cast<int>(reads.size())) != 0;
        for (IntExpr index : tiled ? read.index : std::vector<IntExpr>{}) {
          for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
            const bool row = static_cast<int>(d) == op.row;
            index = index.substitute(op.op.dims[d].var, IntExpr(row ? block * plan_.packs() : 0));
          }
          origin.push_back(index);
        }
        reads.push_back(tile_of(read.buffer, origin, around));
      }
      if (op.kind == nvptx::TensorOp::Kind::product)
        reads = {reads[static_cast<std::size_t>(op.form.a)], reads[static_cast<std::size_t>(op.form.b)]};
      const Hash mask = mask_of(op, around);
      return set(tiles, stored, next++, mask, reads);
    }
    const int first = next;
    Integers inner = around;
    const bool loop = tree->kind == TileNode::Kind::loop;
    const std::int64_t from = loop ? value_at(tree->lower, around) : 0, to = loop ? value_at(tree->upper, around) : 1;
    for (std::int64_t k = from; k < to; ++k) {
      next = first;
      if (loop) inner[tree->var] = k;
      for (const TileTree& child : tree->children) reference(block, child, inner, next, tiles, stored);
    }
    if (from >= to) skip(tree, next);
  }

  static void skip(const TileTree& tree, int& next) {
    if (tree->kind == TileNode::Kind::op) ++next;
    for (const TileTree& child : tree->children) skip(child, next);
  }

  const nvptx::TensorPlan& plan_;
  std::vector<Integers> work_tiles_;

 private:
  std::map<int, std::vector<Hash>> expected_;  ///< by block
};

}  // namespace nestor::testing
