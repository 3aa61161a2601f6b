// Runs a tensor plan with numbers in place of tiles: each says what a value was made from, and what is stored must be made as the tile
// program says. An independent judge of plans, at given sizes.
#pragma once

#include "support/tensor/event_machine.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace nestor::testing {

class TensorPlanRunner : public EventMachine {
 public:
  using EventMachine::EventMachine;

 private:
  /// What a group of warps has made.
  struct Group {
    std::map<int, Hash> tiles, operands, held;  ///< by buffer, op and circular buffer
    std::vector<Hash> stored;
  };

  void begin(int agents) override { groups_.assign(static_cast<std::size_t>(agents), {}); }
  void end_item(const Agent& agent) override {
    Group& group = of(agent);
    group.tiles.clear();
    group.operands.clear();
    group.held.clear();
  }
  void bring(const Place& /*place*/, int /*copier*/, const Step& /*step*/) override {}
  void take(const Agent& agent, const Place& place, Hash tile) override { of(agent).held[place.ring] = tile; }
  void narrow(const Agent& agent, int k, const Step& /*step*/) override {
    of(agent).operands[k] = of(agent).tiles[op(k).op.reads[static_cast<std::size_t>(op(k).form.a)].buffer];
  }
  void multiply(const Agent& agent, const Product& product) override {
    const nvptx::TensorOp& op = this->op(product.op);
    const Hash a = product.a ? product.a_tile : op.a_ring < 0 ? of(agent).operands[product.op] : of(agent).held[op.a_ring];
    set(of(agent), product.op, product.step->mask, {a, product.b_tile});
  }
  void compute(const Agent& agent, int k, const Step& step) override {
    std::vector<Hash> reads;
    for (const TileAccess& read : op(k).op.reads) {
      const auto ring = op(k).read_rings.find(static_cast<int>(reads.size()));
      reads.push_back(ring != op(k).read_rings.end()          ? tile_in(current(agent, ring->second))
                      : plan_.fragments.contains(read.buffer) ? of(agent).tiles[read.buffer]
                                                              : tile_of(read.buffer, {}, {}));
    }
    set(of(agent), k, step.mask, reads);
  }
  void quad_reduction(const Agent& /*agent*/, int /*buffer*/) override {}

  std::string verdict() override {
    for (const Agent& agent : agents()) {
      if (agent.group >= 0 && of(agent).stored != expected(agent)) return "other values are stored";
    }
    return "";
  }

  Group& of(const Agent& agent) { return groups_.at(static_cast<std::size_t>(agent.number)); }

  /// The op's tile, or what it stores, as a number for what it is made from.
  void set(Group& group, int k, Hash mask, const std::vector<Hash>& reads) const {
    const TileOp& op = this->op(k).op;
    Hash hash = static_cast<Hash>(k) + 101;
    for (const Hash read : reads) hash = mix(hash, read);
    if (op.reduction && !op.initialize) hash = mix(hash, group.tiles[op.write.buffer]);
    hash = mix(hash, mask);
    group.tiles[op.write.buffer] = hash;
    if (this->op(k).kind == nvptx::TensorOp::Kind::store) group.stored.push_back(hash);
  }

  // ---- what the tile program itself stores

  /// In the rows of a block, for the work tiles of the agent's program.
  const std::vector<Hash>& expected(const Agent& agent) {
    const int number = agent.group % programs_of_block();
    const auto [entry, added] = expected_.try_emplace({agent.block, number});
    for (std::size_t k = static_cast<std::size_t>(number); added && k < work_tiles_.size();
         k += static_cast<std::size_t>(programs_of_block())) {
      Group group;
      int next = 0;
      reference(agent.block, plan_.kernel->body, work_tiles_[k], next, group);
      entry->second.insert(entry->second.end(), group.stored.begin(), group.stored.end());
    }
    return entry->second;
  }

  void reference(int block, const TileTree& tree, const Integers& around, int& next, Group& group) const {
    if (tree->kind == TileNode::Kind::op) {
      const int k = next++;
      return set(group, k, mask_of(op(k), around), reads_of(block, op(k), around, group));
    }
    const int first = next;
    Integers inner = around;
    const bool loop = tree->kind == TileNode::Kind::loop;
    const std::int64_t from = loop ? value_at(tree->lower, around) : 0, to = loop ? value_at(tree->upper, around) : 1;
    for (std::int64_t k = from; k < to; ++k) {
      next = first;
      if (loop) inner[tree->var] = k;
      for (const TileTree& child : tree->children) reference(block, child, inner, next, group);
    }
    if (from >= to) skip(tree, next);
  }

  std::vector<Hash> reads_of(int block, const nvptx::TensorOp& op, const Integers& around, Group& group) const {
    std::vector<Hash> reads;
    for (const TileAccess& read : op.op.reads) {
      if (plan_.fragments.contains(read.buffer)) {
        reads.push_back(group.tiles[read.buffer]);
        continue;
      }
      std::vector<IntExpr> origin;
      const bool tiled = op.kind == nvptx::TensorOp::Kind::product || op.read_rings.contains(static_cast<int>(reads.size()));
      for (IntExpr index : tiled ? read.index : std::vector<IntExpr>{}) {
        for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
          const bool row = static_cast<int>(d) == op.row;
          index = index.substitute(op.op.dims[d].var, IntExpr(row ? block * plan_.packs() : 0));
        }
        origin.push_back(index);
      }
      reads.push_back(tile_of(read.buffer, origin, around));
    }
    if (op.kind != nvptx::TensorOp::Kind::product) return reads;
    return {reads[static_cast<std::size_t>(op.form.a)], reads[static_cast<std::size_t>(op.form.b)]};
  }

  static void skip(const TileTree& tree, int& next) {
    if (tree->kind == TileNode::Kind::op) ++next;
    for (const TileTree& child : tree->children) skip(child, next);
  }

  std::vector<Group> groups_;                                  ///< by agent
  std::map<std::pair<int, int>, std::vector<Hash>> expected_;  ///< by block and program
};

}  // namespace nestor::testing
