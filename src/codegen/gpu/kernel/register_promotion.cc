// Finding sums that only one loop adds to, and rewriting what touches them.
#include "codegen/gpu/kernel/register_promotion.h"

#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/op_shape.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "codegen/tile/build/program_passes.h"

#include <algorithm>
#include <optional>
#include <set>

namespace nestor::nvptx {
namespace {

bool touches(const TileOp& op, int buffer) {
  return op.write.buffer == buffer ||
         std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; });
}

int count_touching(const TileTree& tree, int buffer) {
  int count = 0;
  for_each_op(tree, [&](const TileOp& op, bool) { count += touches(op, buffer) ? 1 : 0; });
  return count;
}

/// A reduction somewhere in a loop, with the variables of the loops around it from that one inwards.
struct Candidate {
  TileTree node;
  std::set<std::string> loops;
};

void collect_reductions(const TileTree& tree, std::set<std::string> loops, std::vector<Candidate>& out) {
  if (tree->kind == TileNode::Kind::op && tree->op.reduction) out.push_back({tree, loops});
  if (tree->kind == TileNode::Kind::loop) loops.insert(tree->var);
  for (const TileTree& child : tree->children) collect_reductions(child, loops, out);
}

std::vector<OpDim> kept_dims(const TileOp& op) {
  std::vector<OpDim> kept;
  std::copy_if(op.dims.begin(), op.dims.end(), std::back_inserter(kept), [](const OpDim& dim) { return !dim.reduced; });
  return kept;
}

/// Elements that the op accumulates, when they are the same in every iteration and known to be so many; nullopt otherwise.
std::optional<std::int64_t> steady_elements(const Candidate& candidate) {
  const TileOp& op = candidate.node->op;
  if (op.kind != OpKind::reduce && op.kind != OpKind::contract) return std::nullopt;
  if (op.initialize || op.guard.defined()) return std::nullopt;
  const auto moves = [&](const IntExpr& expr) {
    return std::any_of(candidate.loops.begin(), candidate.loops.end(), [&](const auto& loop) { return expr.uses(loop); });
  };
  if (std::any_of(op.write.index.begin(), op.write.index.end(), moves)) return std::nullopt;
  std::int64_t elements = 1;
  for (const OpDim& dim : kept_dims(op)) {
    const auto bound = extent_bound(dim);
    if (!bound || moves(dim.lower) || moves(dim.upper)) return std::nullopt;
    elements *= std::max<std::int64_t>(*bound, 1);
  }
  return elements;
}

/// The element of a buffer that has one index for each of `dims`.
TileAccess element(int buffer, const std::vector<OpDim>& dims) {
  TileAccess access{buffer, {}};
  for (const OpDim& dim : dims) access.index.push_back(IntExpr::variable(dim.var) - dim.lower);
  return access;
}

/// The tree with every op that writes `buffer` writing `scratch` instead, at its own element.
TileTree with_scratch(const TileTree& tree, int buffer, int scratch) {
  auto result = std::make_shared<TileNode>(*tree);
  if (tree->kind == TileNode::Kind::op && tree->op.write.buffer == buffer)
    result->op.write = element(scratch, kept_dims(tree->op));
  for (TileTree& child : result->children) child = with_scratch(child, buffer, scratch);
  return result;
}

class Keeper {
 public:
  Keeper(std::vector<Buffer>& buffers, std::int64_t room) : buffers_(buffers), room_(room) {}

  TileTree visit(const TileTree& tree) {
    if (tree->kind == TileNode::Kind::op) return tree;
    auto result = std::make_shared<TileNode>(*tree);
    result->children.clear();
    for (const TileTree& child : tree->children) {
      result->children.push_back(child);
      const bool serial = child->kind == TileNode::Kind::loop && !is_block_loop(*child);
      const std::vector<TileTree> stores = serial ? keep_in_loop(result->children) : std::vector<TileTree>{};
      result->children.back() = visit(result->children.back());
      result->children.insert(result->children.end(), stores.begin(), stores.end());
    }
    return result;
  }

 private:
  /// Rewrites the last of `children`, a loop, and the ops before it that start its sums; returns the copies that belong after it.
  std::vector<TileTree> keep_in_loop(std::vector<TileTree>& children) {
    std::vector<Candidate> candidates;
    collect_reductions(children.back(), {}, candidates);
    std::vector<TileTree> stores;
    for (const Candidate& candidate : candidates) {
      const TileOp& op = candidate.node->op;
      const auto elements = steady_elements(candidate);
      if (!elements || *elements > room_ || buffers_[op.write.buffer].memory == Memory::scratch) continue;
      if (count_touching(children.back(), op.write.buffer) != 1) continue;
      const auto start = starting_op(children, op);
      if (!start) continue;
      room_ -= *elements;
      const int scratch = add_scratch(op);
      for (const std::size_t k : {*start, children.size() - 1}) children[k] = with_scratch(children[k], op.write.buffer, scratch);
      stores.push_back(make_op(store_of(op, scratch)));
    }
    return stores;
  }

  /// The op before the last of `children` that writes the first value of each element that `op` adds to, if it is the last one
  /// to touch them.
  static std::optional<std::size_t> starting_op(const std::vector<TileTree>& children, const TileOp& op) {
    for (std::size_t k = children.size() - 1; k-- > 0;) {
      if (count_touching(children[k], op.write.buffer) == 0) continue;
      const bool starts = children[k]->kind == TileNode::Kind::op && starts_elements(children[k]->op, op);
      return starts ? std::optional(k) : std::nullopt;
    }
    return std::nullopt;
  }

  int add_scratch(const TileOp& op) {
    const Buffer& place = buffers_[op.write.buffer];
    Buffer scratch;
    scratch.name = place.name + "_sum_" + std::to_string(buffers_.size());
    scratch.tensor = place.tensor;
    scratch.type = place.type;
    scratch.memory = Memory::scratch;
    for (const OpDim& dim : kept_dims(op)) scratch.extents.emplace_back(*extent_bound(dim));
    buffers_.push_back(std::move(scratch));
    return static_cast<int>(buffers_.size()) - 1;
  }

  TileOp store_of(const TileOp& op, int scratch) const {
    TileOp store;
    store.kind = OpKind::copy;
    store.name = "store " + op.name;
    store.dims = kept_dims(op);
    store.write = op.write;
    store.reads = {element(scratch, store.dims)};
    store.value = ScalarExpr::read(0, buffers_[scratch].type);
    return store;
  }

  std::vector<Buffer>& buffers_;
  std::int64_t room_;
};

}  // namespace

TileTree promote_to_registers(const TileTree& body, std::vector<Buffer>& buffers, std::int64_t room) {
  return Keeper(buffers, room).visit(body);
}

}  // namespace nestor::nvptx
