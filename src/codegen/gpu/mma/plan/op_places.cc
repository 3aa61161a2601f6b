// Walks a tile tree with what is around each op.
#include "codegen/gpu/mma/plan/op_places.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

void find_places(const TileTree& tree, const OpPlace& around, int& loops, std::vector<OpPlace>& places) {
  if (tree->kind == TileNode::Kind::op) places.push_back(around);
  OpPlace inner = around;
  if (tree->kind == TileNode::Kind::loop) {
    inner = {loops++, around.loops, tree->var, tree->lower, tree->upper, {}};
    inner.loops.push_back(inner.loop);
  }
  if (tree->kind == TileNode::Kind::condition)
    inner.condition = inner.condition.defined() ? inner.condition && tree->condition : tree->condition;
  for (const TileTree& child : tree->children) find_places(child, inner, loops, places);
}

void collect_ops(const TileTree& tree, std::vector<const TileOp*>& ops) {
  if (tree->kind == TileNode::Kind::op) ops.push_back(&tree->op);
  for (const TileTree& child : tree->children) collect_ops(child, ops);
}

}  // namespace

std::vector<const TileOp*> ops_of(const TileTree& body) {
  std::vector<const TileOp*> ops;
  collect_ops(body, ops);
  return ops;
}

std::vector<OpPlace> places_of_ops(const TileTree& body) {
  std::vector<OpPlace> places;
  int loops = 0;
  find_places(body, {}, loops, places);
  return places;
}

bool is_around(const OpPlace& place, const OpPlace& other) {
  return place.loops.size() <= other.loops.size() && std::equal(place.loops.begin(), place.loops.end(), other.loops.begin());
}

}  // namespace nestor::nvptx
